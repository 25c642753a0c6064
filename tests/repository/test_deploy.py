"""Ways of deploying that cannot run say so, and do not look as if they had."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import bcmdist

DEPLOY = Path(bcmdist.__file__).parent.parent / "deploy"
SKIPPED = 77
WAYS = sorted(path.parent.name for path in DEPLOY.glob("*/run.sh"))

pytestmark = pytest.mark.skipif(not DEPLOY.is_dir(), reason="deploy/: not beside the package")


def test_there_are_all_ways():
    assert WAYS == [
        "cluster",
        "container",
        "kubernetes",
        "local",
        "monitoring",
        "replicas",
        "s3",
        "slurm",
        "ssh-tls",
        "streams",
    ]


@pytest.mark.parametrize("way", WAYS)
def test_a_way_whose_programs_are_missing_is_skipped(way, tmp_path):
    command = ["/bin/bash", DEPLOY / way / "run.sh", "bcmdist"]
    run = subprocess.run(command, env={"PATH": ""}, cwd=tmp_path, capture_output=True, text=True)
    (line,) = run.stdout.splitlines()
    assert (run.returncode, run.stderr) == (SKIPPED, "")
    assert line.startswith("skipped: missing ")


def test_all_that_is_missing_is_named(tmp_path):
    script = f". {DEPLOY}/processes.sh; need bash no-such-one no-such-other; echo on"
    run = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (SKIPPED, "skipped: missing no-such-one, no-such-other\n")


def test_the_image_has_one_version_of_all_that_is_declared():
    text = (DEPLOY / "container" / "requirements.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", text, re.MULTILINE))
    assert len(pins) == text.count("==") > 40  # each with hashes
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    extras = ("serve", "s3", "tables", "redis")
    declared = [*project["dependencies"], *(one for name in extras for one in project["optional-dependencies"][name])]
    for one in map(Requirement, declared):
        assert one.specifier.contains(pins[one.name.lower()]), one


def test_the_base_of_the_image_is_pinned():
    base = re.search(r"^ARG BASE=(.*)$", (DEPLOY / "container" / "Dockerfile").read_text(), re.MULTILINE)[1]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    assert f"${{BASE:-{base}}}" in (DEPLOY / "container" / "compose.yaml").read_text()

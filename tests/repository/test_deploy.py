"""Ways of deploying that cannot run say so, and do not look as if they had."""

import subprocess
from pathlib import Path

import pytest

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

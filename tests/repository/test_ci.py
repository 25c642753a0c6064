"""The continuous integration tells what did not run, and fails where what must run did not."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bcmdist

CI = Path(bcmdist.__file__).parent.parent / ".ci"

pytestmark = pytest.mark.skipif(not CI.is_dir(), reason=".ci: not beside the package")

STUBS = {"ran": "echo missing: a daemon; echo ok", "skipped": "echo skipped: missing curl; exit 77", "failed": "exit 3"}


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("ci_table", CI / "table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attempts(folder, *kinds):
    """The exit code of attempts at stubs, and their outcomes."""
    for name, script in STUBS.items():
        (folder / name).write_text(script)
    lines = ["set -euo pipefail", f"scratch={folder}", f". {CI}/outcomes.sh"]
    lines += [f"attempt 'deploy: {kind}' bash {folder}/{kind}" for kind in kinds]
    run = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True)
    return run.returncode, (folder / "outcomes").read_text().splitlines()


def test_what_is_skipped_is_noted_with_the_reason(tmp_path):
    code, outcomes = attempts(tmp_path, "ran", "skipped", "ran")
    ran, skipped = "deploy: ran\tran\twithout a daemon", "deploy: skipped\tskipped\tmissing curl"
    assert (code, outcomes) == (0, [ran, skipped, ran])


def test_what_fails_ends_it(tmp_path):
    code, outcomes = attempts(tmp_path, "ran", "failed", "ran")
    assert (code, len(outcomes)) == (3, 1)


def written(folder, outcomes, *logs):
    """What the table says: exit code, lines, errors."""
    files = [folder / "outcomes", *(folder / f"{k}.log" for k in range(len(logs)))]
    for file, text in zip(files, ["\n".join(map("\t".join, outcomes)), *logs], strict=True):
        file.write_text(text)
    run = subprocess.run([sys.executable, CI / "table.py", *files], capture_output=True, text=True)
    return run.returncode, run.stdout.splitlines(), run.stderr


def test_tests_are_counted_by_reason(tmp_path, table):
    complete = [(name, "ran", "") for name in table.REQUIRED]
    first = "1 passed\nSKIPPED [2] tests/a.py:7: real data: set BCMDIST_DATA\nSKIPPED [1] tests/b.py: no Chromium\n"
    second = "SKIPPED [3] tests/c.py:10: real data: set BCMDIST_DATA\n== 1 passed, 3 skipped ==\n"
    code, lines, _ = written(tmp_path, [*complete, ("deploy: slurm", "skipped", "missing sbatch")], first, second)
    assert code == 0
    assert [line.split(maxsplit=2) for line in lines[-3:]] == [
        ["deploy:", "slurm", "skipped    missing sbatch"],
        ["tests", "5", "skipped  real data: set BCMDIST_DATA"],
        ["tests", "1", "skipped  no Chromium"],
    ]


@pytest.mark.parametrize("outcome", [("deploy: s3", "skipped", "missing moto_server"), ()])
def test_what_must_run_fails_where_it_did_not(tmp_path, table, outcome):
    outcomes = [(name, "ran", "") for name in table.REQUIRED if name != "deploy: s3"]
    code, _, errors = written(tmp_path, [*outcomes, *([outcome] if outcome else [])])
    assert (code, errors) == (1, "deploy: s3: expected to run, it did not; install what is missing\n")


def test_all_that_must_run_is_attempted(table):
    """By the names of the table."""
    ways = {path.parent.name for path in (CI.parent / "deploy").glob("*/run.sh")}
    assert {f"deploy: {way}" for way in ways} > set(table.REQUIRED)
    text = (CI / "jobs.sh").read_text()
    assert 'attempt "deploy: cluster" ' in text
    assert 'attempt "deploy: $way" ' in text


@pytest.mark.parametrize("name", ["run", "jobs.sh", "outcomes.sh"])
def test_the_scripts_are_of_bash(name):
    subprocess.run(["bash", "-n", CI / name], check=True)


def test_jobs_are_there_once_and_so_is_every_folder_of_slow_tests():
    listed = subprocess.run(["bash", CI / "jobs.sh", "all"], cwd=CI.parent, capture_output=True, text=True, check=True)
    jobs = listed.stdout.splitlines()
    assert len(jobs) == len(set(jobs))
    text = (CI / "jobs.sh").read_text()
    assert all(f"\n{job.split()[0]}() {{" in text for job in jobs)
    tests = CI.parent / "tests"
    slow = [path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py") if "mark.slow" in path.read_text()]
    asked = [name for job in jobs if job.startswith("slow ") for name in job.split()[1:]]
    assert sorted(set(slow)) == sorted(asked)


def test_tests_that_kill_processes_are_in_one_job_after_the_others():
    tests = CI.parent / "tests"
    patterns = [name for job in re.findall(r'"alone ([^"]+)"', (CI / "run").read_text()) for name in job.split()]
    files = {
        name: [file for path in tests.glob(name) for file in (path, *path.rglob("test_*.py"))] for name in patterns
    }
    alone = {path for path in tests.rglob("test_*.py") if "mark.alone" in path.read_text()}
    alone = {path for path in alone if path.parent.name != "repository"}
    found = [path for paths in files.values() for path in paths if path in alone]
    assert sorted(found) == sorted(alone)
    assert all(alone & set(paths) for paths in files.values())

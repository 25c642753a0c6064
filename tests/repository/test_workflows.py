"""Workflows of .github: few rights, pinned actions, and the jobs of .ci in place of copies of them."""

import re
from pathlib import Path

import pytest
import yaml

import bcmdist

ROOT = Path(bcmdist.__file__).parent.parent
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# Of a workflow that opens an issue, in one job.
WRITES = {("nightly", "report"): {"issues": "write"}}
# What a step may do besides calling .ci.
SETUP = re.compile(r"python -m pip install '\.\[[\w,]+\]'|export scratch=\$RUNNER_TEMP")
CALL = re.compile(r"bash \.ci/(?:run|jobs\.sh (\w+)( [\w$./-]+)*)")

pytestmark = pytest.mark.skipif(not FILES, reason=".github: not beside the package")


def strange(line) -> bool:
    """Whether a line of a step neither prepares nor calls what .ci has."""
    called = CALL.fullmatch(line)
    jobs = (ROOT / ".ci" / "jobs.sh").read_text()
    return not (SETUP.fullmatch(line) or (called and (not called[1] or f"\n{called[1]}() {{" in jobs)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
class TestEachWorkflow:
    def test_rights_are_few(self, path):
        text = path.read_text()
        workflow = yaml.safe_load(text)
        assert (workflow["name"], workflow["permissions"]) == (path.stem, {"contents": "read"})
        assert workflow["concurrency"]["group"].startswith(path.stem)
        for name, job in workflow["jobs"].items():
            assert job.get("permissions", {}) == WRITES.get((path.stem, name), {})
            assert job["timeout-minutes"] <= 180
        assert "secrets." not in text
        assert text.count("actions/checkout@") == text.count("persist-credentials: false")

    def test_actions_are_pinned_by_commit(self, path):
        uses = re.findall(r"uses: (.*)", path.read_text())
        assert [line for line in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []

    def test_steps_call_the_jobs_of_ci(self, path):
        jobs = yaml.safe_load(path.read_text())["jobs"]
        steps = [step for name, job in jobs.items() if (path.stem, name) not in WRITES for step in job["steps"]]
        lines = [line for step in steps if "run" in step for line in step["run"].strip().splitlines()]
        assert lines
        assert [line for line in lines if strange(line)] == []


def test_a_copy_of_a_job_would_be_found():
    assert strange("ruff check .")
    assert strange("bash .ci/jobs.sh no_such_job")
    assert not strange("bash .ci/jobs.sh quick tests/api/test_maps.py")

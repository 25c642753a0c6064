"""status --watch: a job and its model in lines, as they change."""

import json
import threading

import numpy as np
import pytest
from click.testing import CliRunner
from services import fitted

from bcmdist.app.cli.jobs import BLOCKS, CLEAR, ModelLines, job_lines, model_summary, spark
from bcmdist.app.cli.main import cli
from bcmdist.app.journal import Journal
from bcmdist.storage.locate import open_storage

JOB = "20260101-000000-abcd"


def test_a_curve_in_blocks():
    assert spark([0.0, 1.0, 0.5]) == BLOCKS[0] + BLOCKS[-1] + BLOCKS[4]
    assert len(set(spark([2.0, 2.0]))) == 1
    assert spark(list(range(100)))[-1] == BLOCKS[-1]


@pytest.mark.slow
def test_lines_of_a_model_change_with_its_commits(tmp_path, make_data, rng):
    gbcm = fitted(tmp_path, rows=600)
    lines = ModelLines(str(tmp_path / "wave"))
    before = dict(lines.now())
    assert before["rows absorbed"] == f"600 in commit {gbcm.commit}"
    assert "learning curve" not in before
    assert before["calibration"].startswith("95 % intervals held 9")
    X = rng.uniform(-2, 2, (60, 2))
    gbcm.partial_fit(make_data(X=X, y=np.sin(2 * X[:, 0]) + X[:, 1]))
    after = dict(lines.now())
    assert after["rows absorbed"].startswith("660 in")
    assert "nats a row before they were absorbed" in after["learning curve"]
    assert dict(model_summary(gbcm.newest())) == after


def test_a_model_that_is_not_there_has_no_lines(tmp_path):
    assert ModelLines(str(tmp_path / "nothing")).now() == []


@pytest.fixture
def journal(tmp_path):
    """A job at work on a model."""
    fitted(tmp_path)
    storage = open_storage(tmp_path / "jobs")
    asked = {"command": "ingest", "request": {"request": "ingest"}, "places": {"model": str(tmp_path / "wave")}}
    storage.put_if_absent(f"{JOB}/request.json", json.dumps(asked).encode())
    journal = Journal(storage, JOB)
    journal.append("submitted", scheduler="tcp://127.0.0.1:1")
    journal.append("progress", stage="ingest", partitions_done=3, partitions=12, rows_per_second=1234.5)
    return journal


def test_a_job_is_watched_until_it_ends(journal, tmp_path):
    end = threading.Timer(1.0, journal.append, ("finished",), {"result": {"rows": 120}})
    end.start()
    done = CliRunner().invoke(cli, ["status", JOB, "--watch", "--jobs", str(tmp_path / "jobs")])
    end.join()
    assert done.exit_code == 0, done.output
    assert f"{JOB}  ingest  submitted" in done.stdout
    assert "[######..................] 3/12 partitions" in done.stdout
    assert "1,234 rows a second" in done.stdout
    assert "120 in commit" in done.stdout
    assert f"{JOB}  ingest  finished" in done.stdout
    assert done.stdout.count("3/12 partitions") == 1  # what stays is told once
    assert CLEAR not in done.stdout


def test_for_machines_the_end_is_told(journal, tmp_path):
    journal.append("failed", error="PoisonChunk", message="a[0:5] killed 3 workers")
    done = CliRunner().invoke(cli, ["status", JOB, "--watch", "--json", "--jobs", str(tmp_path / "jobs")])
    assert json.loads(done.stdout)["state"] == "failed"


def test_an_error_has_its_line(journal):
    from bcmdist.app.jobs import status

    journal.append("failed", error="PoisonChunk", message="a[0:5] killed 3 workers")
    assert ("message", "a[0:5] killed 3 workers") in job_lines(status(journal))

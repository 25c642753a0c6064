"""Jobs on a cluster of processes, of which any is killed: client, worker, coordinator, scheduler."""

import json
import os
import signal
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
from processes import started, wait_until

from bcmdist import GBCM
from bcmdist.learning.settings import Settings
from problems import assert_same_committee

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SETTINGS = Settings(partition="chunks", kernel="se", learn=False, query=30, rows_per_expert=50)
FIT = ["--kernel", "se", "--no-learn", "--query", "30", "--rows-per-expert", "50", "--partition", "chunks"]
PARTITIONS, HALF = 40, 20


@pytest.fixture
def processes(tmp_path):
    with started(tmp_path) as processes:
        yield processes


@pytest.fixture
def many(make_data, rng):
    X = rng.uniform(-2, 2, (50 * PARTITIONS, 2))
    return make_data("many.zarr", X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(len(X)))


@pytest.fixture
def as_in_peace(many, tmp_path):
    """Asserts that the job's committee is the one of a serial fit, every partition once."""

    def check():
        found = GBCM.load(tmp_path / "m")
        partition = "chunks" if found.model.cells is None else "spatial"
        calm = GBCM.fit(many, replace(SETTINGS, partition=partition))
        assert_same_committee(found.committee, calm.committee, tolerance=1e-10)
        ranges = [sorted(entry.key.rpartition("/")[2] for entry in one.ledger) for one in (found, calm)]
        assert ranges[0] == ranges[1]
        assert len(found.ledger) == PARTITIONS

    return check


@pytest.fixture(params=["chunks", "spatial"])
def fitting(request, many, processes, tmp_path):
    """A fit that is under way: its id."""
    how = [*FIT[:-1], request.param, "--scheduler", processes.address]
    command = ["fit", many, "--model", tmp_path / "m", *how]
    job = processes.call("submit", *command)["id"]
    wait_until(lambda: absorbed(processes, job), "some experts")
    return job


@pytest.fixture
def ingesting(many, processes, tmp_path):
    """An ingestion that has committed half of its partitions, one by one: its id."""
    GBCM.prepare(many, SETTINGS, model=tmp_path / "m")
    command = ["ingest", tmp_path / "m", many, "--commit-every", 1, "--scheduler", processes.address]
    job = processes.call("submit", *command)["id"]
    wait_until(lambda: len(GBCM.load(tmp_path / "m").ledger) == HALF, "a half of the commits")
    wait_until(lambda: sum(processes.runs().values()) == HALF + 2, "experts at work")
    return job


def absorbed(processes, job):
    """Partitions done."""
    told = processes.job(job)
    assert told["state"] in ("submitted", "running"), told
    return told["stage"] == "experts" and told["partitions_done"]


def redone(processes):
    """Keys of the partitions that two experts have absorbed."""
    assert set(processes.runs().values()) <= {1, 2}
    return {key for key, times in processes.runs().items() if times == 2}


def test_a_client_that_is_killed_at_once(many, processes, as_in_peace, tmp_path):
    submit = processes.bcmdist("submit", "fit", many, "--model", tmp_path / "m", *FIT, "--scheduler", processes.address)
    job = json.loads(submit.stdout.readline())["id"]
    submit.kill()
    submit.communicate()
    wait_until(lambda: absorbed(processes, job), "some experts")
    processes.go()
    follow = processes.call("logs", job, "--follow")
    assert [e["event"] for e in follow["events"]][-1] == "finished"
    told = processes.call("status", job)
    assert (told["state"], told["stage"]) == ("finished", "left out")  # those of some partitions are measured last
    assert 0 < told["partitions_done"] == told["partitions"] <= PARTITIONS
    assert told["result"]["rows"] == 50 * PARTITIONS
    assert any(0 < e.get("partitions_done", 0) < PARTITIONS for e in follow["events"] if e.get("stage") == "experts")
    assert len(follow["events"]) < 12
    as_in_peace()
    out = tmp_path / "p.zarr"
    job = processes.call("submit", "predict", tmp_path / "m", many, "--out", out, "--scheduler", processes.address)
    assert processes.ended(job["id"])["result"]["rows"] == 50 * PARTITIONS
    assert out.is_dir()


def test_cancel_is_clean_and_resume_continues(fitting, processes, as_in_peace, tmp_path):
    assert processes.call("cancel", fitting)["state"] == "cancelled"
    assert GBCM.load(tmp_path / "m").commit == 1
    wait_until(lambda: tasks(processes.address) == 0, "futures that are gone")
    processes.go()
    assert processes.call("resume", fitting)["command"] == "fit"
    assert processes.ended(fitting)["state"] == "finished"
    as_in_peace()


def tasks(address):
    from bcmdist.runtime.dask.scheduler import SchedulerMachine

    with SchedulerMachine(address) as machine:
        return machine.run(_tasks)


def _tasks(dask_scheduler=None):
    return len(dask_scheduler.tasks)


def resumed(processes, job, model):
    """Resume a job; seconds until it was started, and until it has committed something again."""
    start, before = time.monotonic(), GBCM.load(model).commit
    processes.call("resume", job)
    at_work = time.monotonic() - start
    wait_until(lambda: GBCM.load(model).commit > before, "a commit")
    return at_work, time.monotonic() - start


def test_a_scheduler_that_is_killed_and_started_again(ingesting, processes, as_in_peace, tmp_path):
    in_flight = set(processes.runs()) - {entry.key for entry in GBCM.load(tmp_path / "m").ledger}
    assert len(in_flight) == 2  # each of two workers has one; which ones is up to the scheduler
    start = time.monotonic()
    processes.kill_scheduler()
    told = processes.ended(ingesting)
    seconds = time.monotonic() - start
    assert (told["state"], told["error"]) == ("interrupted", "SchedulerLost")
    assert told["message"].startswith("scheduler lost: ingest: the scheduler went away after 20 partitions")
    assert len(GBCM.load(tmp_path / "m").ledger) == HALF
    processes.go()
    processes.start_again()
    at_work, committed = resumed(processes, ingesting, tmp_path / "m")
    told = processes.ended(ingesting)
    assert (told["state"], told["coordinators"]) == ("finished", 2)
    as_in_peace()
    assert redone(processes) == in_flight
    print(f"interrupted after {seconds:.1f} s; resumed: at work after {at_work:.1f} s, commits after {committed:.1f} s")


def test_a_coordinator_that_is_killed(ingesting, processes, as_in_peace, tmp_path):
    assert processes.call("resume", ingesting, code=1)["error"] == "JobRefused"  # it is at work
    os.kill(int(processes.job(ingesting)["coordinator"].split()[1]), signal.SIGKILL)
    told = wait_until(lambda: (t := processes.job(ingesting))["state"] == "interrupted" and t, "its loss to be seen")
    assert told["error"] == "CoordinatorLost"
    processes.go()
    at_work, committed = resumed(processes, ingesting, tmp_path / "m")
    assert processes.ended(ingesting)["state"] == "finished"
    as_in_peace()
    begins = {int(key.rpartition("[")[2].partition(":")[0]) for key in redone(processes)}
    assert begins <= set(range(1000, 1300, 50))  # those that were in flight, or ready for it
    print(f"resumed: at work after {at_work:.1f} s, commits after {committed:.1f} s")


def test_a_coordinator_that_sleeps_finds_another_one_when_it_wakes(fitting, processes, as_in_peace):
    pid = int(processes.job(fitting)["coordinator"].split()[1])
    os.kill(pid, signal.SIGSTOP)
    processes.call("resume", fitting)
    sleeper = psutil.Process(pid)
    os.kill(pid, signal.SIGCONT)
    processes.go()
    wait_until(lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE, "the end of the older")
    told = processes.ended(fitting)
    assert (told["state"], told["coordinators"]) == ("finished", 2), told
    as_in_peace()


def test_a_worker_that_is_killed(fitting, processes, as_in_peace):
    processes.workers[0].kill()
    wait_until(lambda: processes.job(fitting)["worker_failures"], "the loss to be seen")
    processes.go()
    told = processes.ended(fitting)
    assert (told["state"], told["worker_failures"]) == ("finished", 1)
    as_in_peace()

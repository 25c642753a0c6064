"""Jobs on a cluster of processes, of which any is killed: client, worker, coordinator, scheduler."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from slow_experts import GATE
from test_dask_runtime import free_port

import bcmdist
from bcmdist import GBCM, jobs
from bcmdist.jobs import open_job
from bcmdist.settings import Settings
from problems import assert_same_committee

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent
LOOPBACK = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
SETTINGS = Settings(kernel="se", learn=False, query=30, rows_per_expert=50)
FIT = ["--kernel", "se", "--no-learn", "--query", "30", "--rows-per-expert", "50"]
PARTITIONS = 40
LONG = 60  # seconds after which a condition will not come true any more


def wait_until(condition, what):
    """The first true value of a condition."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    return pytest.fail(f"not within {LONG} s: {what}")


class Processes:
    """A scheduler and workers on loopback, whose experts of the second half wait for `go`."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        paths = [str(Path(bcmdist.__file__).parents[1]), str(TESTS)]
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "BCMDIST_JOBS": str(folder / "jobs"),
            GATE: str(folder / "gate"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.started = []
        self.start()

    def start(self):
        self.scheduler = self._dask("scheduler", "--port", str(self.port))
        options = ["--nthreads", "1", "--no-nanny", "--preload", str(TESTS / "slow_experts.py")]
        self.workers = [self._dask("worker", self.address, *options) for _ in range(2)]

    def _dask(self, what, *options):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options, *LOOPBACK]
        with open(self.folder / f"{what}.log", "ab") as log:
            self.started.append(subprocess.Popen(command, env=self.environment, stderr=log, cwd=self.folder))
        return self.started[-1]

    def bcmdist(self, *arguments):
        """A command in a process of its own."""
        command = [sys.executable, "-m", "bcmdist.cli", *map(str, arguments), "--json"]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)

    def call(self, *arguments):
        """The figures of a command that must succeed."""
        process = self.bcmdist(*arguments)
        out, _ = process.communicate(timeout=LONG)
        assert process.returncode == 0, out
        return json.loads(out)

    def job(self, job):
        return jobs.status(open_job(self.folder / "jobs", job))

    def submit(self, path):
        """A fit that is under way: its id."""
        job = self.call("submit", "fit", path, "--model", self.folder / "m", *FIT, "--scheduler", self.address)["id"]
        wait_until(lambda: self.heard(job), "some experts")
        return job

    def go(self):
        (self.folder / "gate").touch()

    def heard(self, job):
        told = self.job(job)
        assert told["state"] in ("submitted", "running"), told
        return told["stage"] == "experts" and told["partitions_done"]

    def ended(self, job):
        wait_until(lambda: self.job(job)["state"] not in ("submitted", "running"), "the end of the job")
        return self.job(job)

    def end(self):
        for event in (
            e for job in jobs.job_ids(self.folder / "jobs") for e in open_job(self.folder / "jobs", job).events
        ):
            if event["event"] == "started" and jobs.runs(event["host"], event["pid"], ""):
                psutil.Process(event["pid"]).kill()
        for process in self.started:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(timeout=LONG)


@pytest.fixture
def processes(tmp_path):
    processes = Processes(tmp_path)
    try:
        yield processes
    finally:
        processes.end()


@pytest.fixture
def many(make_data, rng):
    X = rng.uniform(-2, 2, (50 * PARTITIONS, 2))
    return make_data("many.zarr", X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(len(X)))


@pytest.fixture
def as_in_peace(many, tmp_path):
    """Asserts that the job's committee is the one of a serial fit, every partition once."""

    def check():
        calm, found = GBCM.fit(many, SETTINGS), GBCM.load(tmp_path / "m")
        assert_same_committee(found.committee, calm.committee, tolerance=1e-10)
        assert sorted(e.key for e in found.ledger) == sorted(e.key for e in calm.ledger)
        assert len(found.ledger) == PARTITIONS

    return check


def test_a_client_that_is_killed_at_once(many, processes, as_in_peace, tmp_path):
    submit = processes.bcmdist("submit", "fit", many, "--model", tmp_path / "m", *FIT, "--scheduler", processes.address)
    job = json.loads(submit.stdout.readline())["id"]
    submit.kill()
    submit.communicate()
    wait_until(lambda: processes.heard(job), "some experts")
    processes.go()
    follow = processes.call("logs", job, "--follow")
    assert [e["event"] for e in follow["events"]][-1] == "finished"
    told = processes.call("status", job)
    assert (told["state"], told["stage"], told["partitions_done"]) == ("finished", "experts", PARTITIONS)
    assert told["result"]["rows"] == 50 * PARTITIONS
    assert any(0 < e.get("partitions_done", 0) < PARTITIONS for e in follow["events"] if e.get("stage") == "experts")
    assert len(follow["events"]) < 12
    as_in_peace()
    out = tmp_path / "p.zarr"
    job = processes.call("submit", "predict", tmp_path / "m", many, "--out", out, "--scheduler", processes.address)
    assert processes.ended(job["id"])["result"]["rows"] == 50 * PARTITIONS
    assert out.is_dir()


def test_cancel_is_clean_and_resume_continues(many, processes, as_in_peace, tmp_path):
    job = processes.submit(many)
    assert processes.call("cancel", job)["state"] == "cancelled"
    assert GBCM.load(tmp_path / "m").commit == 1
    wait_until(lambda: tasks(processes.address) == 0, "futures that are gone")
    processes.go()
    assert processes.call("resume", job)["command"] == "fit"
    assert processes.ended(job)["state"] == "finished"
    as_in_peace()


def tasks(address):
    from bcmdist.runtime.scheduler import SchedulerMachine

    with SchedulerMachine(address) as machine:
        return machine.run(_tasks)


def _tasks(dask_scheduler=None):
    return len(dask_scheduler.tasks)


def test_a_scheduler_that_is_killed_and_started_again(many, processes, as_in_peace):
    job = processes.submit(many)
    processes.scheduler.kill()
    processes.scheduler.wait()
    processes.go()
    told = processes.ended(job)
    assert (told["state"], told["error"]) == ("interrupted", "SchedulerUnreachable")
    assert told["message"].startswith("scheduler lost: experts: ")
    wait_until(lambda: all(w.poll() is not None for w in processes.workers), "the end of the workers")
    processes.start()
    processes.call("resume", job)
    told = processes.ended(job)
    assert (told["state"], told["coordinators"]) == ("finished", 2)
    as_in_peace()


def test_a_coordinator_that_is_killed(many, processes, as_in_peace):
    job = processes.submit(many)
    refusal = processes.bcmdist("resume", job)
    assert json.loads(refusal.communicate()[0])["error"] == "JobRefused"  # it is at work
    os.kill(int(processes.job(job)["coordinator"].split()[1]), signal.SIGKILL)
    told = wait_until(lambda: (t := processes.job(job))["state"] == "interrupted" and t, "its loss to be seen")
    assert told["error"] == "CoordinatorLost"
    processes.go()
    processes.call("resume", job)
    assert processes.ended(job)["state"] == "finished"
    as_in_peace()


def test_a_coordinator_that_sleeps_finds_another_one_when_it_wakes(many, processes, as_in_peace, tmp_path):
    job = processes.submit(many)
    pid = int(processes.job(job)["coordinator"].split()[1])
    os.kill(pid, signal.SIGSTOP)
    processes.call("resume", job)
    sleeper = psutil.Process(pid)
    os.kill(pid, signal.SIGCONT)
    processes.go()
    wait_until(lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE, "the end of the older")
    told = processes.ended(job)
    assert (told["state"], told["coordinators"]) == ("finished", 2)
    as_in_peace()


def test_a_worker_that_is_killed(many, processes, as_in_peace):
    job = processes.submit(many)
    processes.workers[0].kill()
    wait_until(lambda: processes.job(job)["worker_failures"], "the loss to be seen")
    processes.go()
    told = processes.ended(job)
    assert (told["state"], told["worker_failures"]) == ("finished", 1)
    as_in_peace()

"""Schedulers, workers and commands as processes on loopback, for tests that kill them; and an end to all waiting."""

import contextlib
import faulthandler
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from watched_experts import GATE, RUNS

import bcmdist
from bcmdist.app import jobs
from bcmdist.app.journal import open_job
from bcmdist.errors import SchedulerUnreachable
from bcmdist.runtime.dask.scheduler import SchedulerMachine

TESTS = Path(__file__).parent
LOOPBACK = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
PRELOAD = str(TESTS / "watched_experts.py")
LONG = 60  # seconds after which a condition will not come true any more


@contextlib.contextmanager
def no_hang(seconds):
    """Fail, with the stacks of all threads on stderr, where something takes longer."""

    def stop(*_):
        faulthandler.dump_traceback()
        pytest.fail(f"hangs: not over after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wait_until(condition, what):
    """The first true value of a condition."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    return pytest.fail(f"not within {LONG} s: {what}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_ingesting(model, data, *options):
    """`bcmdist ingest` in a process of its own."""
    command = [sys.executable, "-m", "bcmdist", "ingest", str(model), str(data), "--serial", "--json", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)


def finish(process):
    """The JSON that a command prints, which must succeed."""
    out, _ = process.communicate(timeout=2 * LONG)
    assert process.returncode == 0, out
    return json.loads(out)


class Commands:
    """Commands of ours in processes of their own, and the runs of the experts that they cause on a cluster."""

    def __init__(self, folder, **environment):
        self.folder = folder
        paths = [str(Path(bcmdist.__file__).parents[1]), str(TESTS), str(TESTS / "laws")]
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "BCMDIST_JOBS": str(folder / "jobs"),
            RUNS: str(folder / "runs.txt"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **environment,
        }

    def bcmdist(self, *arguments):
        """A command in a process of its own."""
        command = [sys.executable, "-m", "bcmdist", *map(str, arguments), "--json"]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)

    def call(self, *arguments, code=0):
        """The figures of a command."""
        process = self.bcmdist(*arguments)
        out, _ = process.communicate(timeout=2 * LONG)
        assert process.returncode == code, out
        return json.loads(out)

    def runs(self):
        """How often the expert of each partition has begun, by key."""
        lines = self.folder / "runs.txt"
        return Counter(lines.read_text().splitlines() if lines.exists() else [])


class Processes(Commands):
    """A scheduler and two workers on loopback, whose experts of the second half wait for `go`."""

    def __init__(self, folder, *, nannies=False):
        super().__init__(folder, **{GATE: str(folder / "gate")})
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.nannies = "--nanny" if nannies else "--no-nanny"
        self.started = []
        self.start()

    def start(self):
        self.scheduler = self._dask("scheduler", "--port", str(self.port))
        options = ["--nthreads", "1", self.nannies, "--preload", PRELOAD]
        self.workers = [self._dask("worker", self.address, *options) for _ in range(2)]

    def _dask(self, what, *options):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options, *LOOPBACK]
        with open(self.folder / f"{what}.log", "ab") as log:
            self.started.append(subprocess.Popen(command, env=self.environment, stderr=log, cwd=self.folder))
        return self.started[-1]

    def kill_scheduler(self):
        self.scheduler.kill()
        self.scheduler.wait()

    def start_again(self):
        """Another scheduler at the same address, and other workers, when the last ones have gone."""
        wait_until(lambda: all(w.poll() is not None for w in self.workers), "the end of the workers")
        self.start()
        wait_until(self._joined, "two workers")

    def _joined(self):
        try:
            with SchedulerMachine(self.address, connect_seconds=LONG) as machine:
                return machine.run(_workers) == 2
        except SchedulerUnreachable:
            return False

    def job(self, job):
        return jobs.status(open_job(self.folder / "jobs", job))

    def go(self):
        (self.folder / "gate").touch()

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


def _workers(dask_scheduler=None):
    return len(dask_scheduler.workers)


@contextlib.contextmanager
def started(folder, **options):
    """Processes that are ended afterwards."""
    processes = Processes(folder, **options)
    try:
        yield processes
    finally:
        processes.end()

"""Workers, nannies and schedulers killed while partitions are computed: every one counts once, or an error in time.

Only workers that have joined the cluster are killed: on a busy machine a new one takes seconds to join. No test waits
for ever: `no_hang` ends it.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import distributed
import numpy as np
import psutil
import pytest
from conftest import SEED
from processes import LONG, PRELOAD, Commands, no_hang, started, wait_until

from bcmdist import GBCM, Settings
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.partition import Span
from bcmdist.data.writing import write_dataset
from bcmdist.errors import NotPositiveDefinite, PoisonChunk
from bcmdist.runtime.dask import flights, one_by_one
from bcmdist.runtime.dask.cluster import DaskRuntime
from problems import assert_same_committee

pytestmark = [pytest.mark.slow, pytest.mark.alone]
ROWS, PARTITIONS = 500, 200
GIVEN = Settings(kernel="se", learn=False, query=200, rows_per_expert=ROWS)  # some seconds on two cores
RUN_SECONDS = 300  # after which a run hangs, also beside other work
MOST_RUNS = 300


@pytest.fixture
def private_cluster():
    """A cluster that may be hurt."""
    with no_hang(RUN_SECONDS), DaskRuntime(workers=2) as runtime:
        yield runtime


def worker_pids(runtime):
    """Of the workers that have joined the cluster."""
    return runtime._client.run_on_scheduler(lambda dask_scheduler: [w.pid for w in dask_scheduler.workers.values()])


def tasks(runtime):
    return runtime._client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


def wait_for_workers(runtime, number):
    runtime._client.wait_for_workers(number, timeout=LONG)


# --- Ingestion in chaos ---


@dataclass(frozen=True)
class Problem:
    """Data of 200 partitions, a model that has absorbed none of them, and one that has absorbed all in peace."""

    data: str
    prepared: Path
    calm: GBCM

    def ingest(self, model, runtime, repeats=0):
        """Seconds that a cluster takes for all, committing every 10; the committee must be the calm one.

        `repeats`: how often the command may be repeated where, by chance, one partition was on two killed workers.
        """
        shutil.copytree(self.prepared, model)
        start = time.monotonic()
        for left in reversed(range(1 + repeats)):
            gbcm = GBCM.load(model)
            absorbed = len(gbcm.ledger)
            try:
                gbcm, tally = gbcm.ingest(gbcm.source(self.data), IngestOptions(commit_every=10), runtime=runtime)
                break
            except PoisonChunk:
                if not left:
                    raise
        seconds = time.monotonic() - start
        for one in (gbcm, GBCM.load(model)):
            assert_same_committee(one.committee, self.calm.committee, tolerance=1e-10)
            assert Counter(e.key for e in one.ledger) == Counter(e.key for e in self.calm.ledger)
        assert (tally.partitions, tally.duplicates) == (PARTITIONS - absorbed, absorbed)
        assert (tally.retries, tally.skipped) == (0, [])
        wait_until(lambda: tasks(runtime) == 0, "nothing left on the scheduler")
        return seconds


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("chaos"), np.random.default_rng(SEED)
    X = rng.uniform(-2, 2, (ROWS * PARTITIONS, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    write_dataset(folder / "data.zarr", {"X": X, "y": y}, rows_per_chunk=ROWS)
    GBCM.prepare(folder / "data.zarr", GIVEN, model=folder / "prepared")
    shutil.copytree(folder / "prepared", folder / "calm")
    calm = GBCM.load(folder / "calm").partial_fit(folder / "data.zarr")
    assert len(calm.ledger) == PARTITIONS
    return Problem(str(folder / "data.zarr"), folder / "prepared", calm)


def kill_one(runtime, randomly) -> bool:
    """Kill a random worker that has joined, if there is one."""
    pids = worker_pids(runtime)
    with contextlib.suppress(ProcessLookupError):
        if pids:
            os.kill(randomly.choice(pids), signal.SIGKILL)
            return True
    return False


class Killer:
    """Kills a random worker after an eighth of the time that a run in peace takes, to all of it, and again."""

    def __init__(self, runtime, seed, peace):
        self.runtime, self.random, self.peace = runtime, random.Random(seed), peace
        self.killed = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.ended.wait(self.random.uniform(0.125, 1.0) * self.peace):
            self.killed += kill_one(self.runtime, self.random)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def test_two_workers_killed_during_ingestion_change_nothing(private_cluster, problem, tmp_path):
    randomly, killed = random.Random(SEED), []
    moments = sorted(randomly.sample(range(20, PARTITIONS - 20), 2))  # partitions done

    def kill(label, done, total):
        if len(killed) < 2 and done >= moments[len(killed)]:
            killed.extend([done] * kill_one(private_cluster, randomly))

    private_cluster.progress = kill
    problem.ingest(tmp_path / "model", private_cluster)
    assert len(killed) == 2


def test_twenty_ingestions_in_chaos(problem, tmp_path):
    """Twenty in which a worker was killed; on a fast machine some are over before.

    The ratios are to the last run in peace; they are printed, since other work on the machine changes them.
    """
    seconds, killed, ratios = [], [], []
    with DaskRuntime(workers=2) as runtime:
        for k in range(MOST_RUNS):
            wait_for_workers(runtime, 2)
            with no_hang(RUN_SECONDS):
                if k % 4 == 0:
                    peace = problem.ingest(tmp_path / f"calm{k}", runtime)
                with Killer(runtime, SEED + k, peace) as killer:
                    seconds.append(problem.ingest(tmp_path / f"model{k}", runtime, repeats=5))
            killed.append(killer.killed)
            ratios.append(seconds[-1] / peace)
            if np.count_nonzero(killed) == 20:
                break
    print(f"{len(killed)} runs from seed {SEED}, workers killed: {killed}")
    print(f"seconds: {np.round(seconds, 1)}")
    print(f"x peace: mean {np.mean(ratios):.2f}, median {np.median(ratios):.2f}, worst {max(ratios):.2f}")
    assert np.count_nonzero(killed) == 20


# --- Single faults, of tasks that can be told what to do ---


@dataclass(frozen=True)
class Work:
    """A number for each span, after a while."""

    seconds: float = 0.05

    def __call__(self, part, rows):
        time.sleep(self.seconds)
        return (part.start + 0.1) ** 0.5


def spans(number, size=1):
    parts = [Span(k, k + 1) for k in range(number)]
    return [parts[k : k + size] for k in range(0, number, size)]


def summed_once(outcomes, number):
    """The sum of outcomes without an error that hold every span exactly once."""
    outcomes = list(outcomes)
    assert [o.error for o in outcomes if o.error] == []
    assert Counter(part.start for o in outcomes for part in o.parts) == Counter(range(number))
    return sum(o.result for o in outcomes)


def test_restarted_workers_change_nothing(private_cluster):
    outcomes = private_cluster.each([(Work(), batch) for batch in spans(60)], label="restart")
    some = [next(outcomes) for _ in range(20)]
    private_cluster._client.restart()
    total = summed_once([*some, *outcomes], 60)
    assert total == pytest.approx(sum((k + 0.1) ** 0.5 for k in range(60)), abs=1e-10)


def test_a_sum_begins_again_when_workers_are_restarted(private_cluster):
    restarted = threading.Timer(0.5, private_cluster._client.restart)
    restarted.start()
    total = private_cluster.sum(Work(), [part for batch in spans(60) for part in batch], label="restart")
    restarted.join()
    assert total == pytest.approx(sum((k + 0.1) ** 0.5 for k in range(60)), abs=1e-10)


@dataclass(frozen=True)
class Poison:
    """Some spans kill their worker, always; each run leaves a line."""

    folder: str
    victims: tuple[int, ...]

    def __call__(self, part, rows):
        with open(os.path.join(self.folder, "runs.txt"), "a") as file:
            file.write(f"{part.start}\n")
        if part.start in self.victims:
            chew()
        if part.start == 1:
            raise NotPositiveDefinite("R: not today")
        return part.start


def chew():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_partition_that_kills_two_workers_is_given_up_and_the_others_are_done(private_cluster, tmp_path):
    task = Poison(str(tmp_path), victims=(13,))
    outcomes = list(private_cluster.each([(task, batch) for batch in spans(24, 4)], label="poison"))
    assert Counter(part.start for o in outcomes for part in o.parts) == Counter(range(24))
    failed = {o.parts[0].start: o.error for o in outcomes if o.error}
    assert sorted(failed) == [1, 13]
    assert isinstance(failed[1], NotPositiveDefinite)
    assert sum(o.result for o in outcomes if not o.error) == sum(range(24)) - 14
    phase = rf"last phase {chew.__module__}\.chew, estimated 0\.\d+ GB"
    text = rf"output\[13:14\] killed 2 workers \({phase}\); give workers more"
    with pytest.raises(PoisonChunk, match=text):
        raise failed[13]
    assert (tmp_path / "runs.txt").read_text().split().count("13") == 2


@dataclass(frozen=True)
class Ruin:
    """Its result kills the first worker that sends it."""

    flag: str

    def __call__(self, part, rows):
        return Ruinous(self.flag, part.start)


class Ruinous:
    def __init__(self, flag, value):
        self.flag, self.value = flag, value

    def __getstate__(self):
        if not os.path.exists(self.flag):
            Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.__dict__


def test_a_result_that_is_lost_on_its_way_is_computed_again(private_cluster, tmp_path):
    flag = tmp_path / "sent"
    outcomes = list(private_cluster.each([(Ruin(str(flag)), batch) for batch in spans(4)], label="ruin"))
    assert flag.exists()
    assert sorted(o.result.value for o in outcomes) == [0, 1, 2, 3]


def test_a_stopped_worker_is_overtaken(private_cluster, monkeypatch):
    monkeypatch.setattr(flights, "LATE_SECONDS", 1.0)
    outcomes = private_cluster.each([(Work(), batch) for batch in spans(40)], label="stopped")
    some = [next(outcomes) for _ in range(10)]
    stopped = psutil.Process(worker_pids(private_cluster)[0])
    stopped.suspend()
    try:
        start = time.monotonic()
        summed_once([*some, *outcomes], 40)
        assert time.monotonic() - start < 20
    finally:
        stopped.resume()
    assert summed_once(private_cluster.each([(Work(), batch) for batch in spans(20)], label="after"), 20)


def test_another_client_keeps_its_own_failures(private_cluster):
    """Dask runs another client's task again when its worker dies, as it always did."""
    with distributed.Client(private_cluster._client.scheduler.address, set_as_default=False) as other:
        future = other.submit(time.sleep, 1.5, pure=False)
        time.sleep(0.5)
        for pid in worker_pids(private_cluster):
            os.kill(pid, signal.SIGKILL)
        assert future.result(timeout=60) is None


def test_the_innermost_function_of_ours_is_told():
    def ours():
        import sys

        return sorted([0], key=lambda _: found.append(one_by_one._innermost(sys._getframe(), {"elsewhere"})))

    found = []
    ours()
    assert found == ["start"]


# --- Real schedulers and workers ---


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with data of 40 partitions and a model that has absorbed none of them, and one that has absorbed all."""
    folder, rng = tmp_path_factory.mktemp("small"), np.random.default_rng(SEED)
    X = rng.uniform(-2, 2, (2000, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    write_dataset(folder / "data.zarr", {"X": X, "y": y}, rows_per_chunk=50)
    settings = Settings(kernel="se", learn=False, query=30, rows_per_expert=50)
    for name in ("prepared", "calm"):
        GBCM.prepare(folder / "data.zarr", settings, model=folder / name)
    calm = GBCM.load(folder / "calm").partial_fit(folder / "data.zarr")
    assert len(calm.ledger) == 40
    return folder, calm


@pytest.fixture
def model(small, tmp_path):
    """A copy of the prepared model."""
    return Path(shutil.copytree(small[0] / "prepared", tmp_path / "model"))


def assert_heard(model, calm, *, without=()):
    """The committee has absorbed each partition once, except for some."""
    gbcm = GBCM.load(model)
    keys = [entry.key for entry in calm.ledger if entry.key not in without]
    assert sorted(entry.key for entry in gbcm.ledger) == sorted(keys)
    if not without:
        assert_same_committee(gbcm.committee, calm.committee, tolerance=1e-10)


def test_a_scheduler_that_is_killed_at_half_time(small, model, tmp_path):
    (folder, calm), half = small, 20
    with no_hang(180), started(tmp_path) as processes:
        command = ["ingest", model, folder / "data.zarr", "--commit-every", 1, "--scheduler", processes.address]
        ingesting = processes.bcmdist(*command)
        wait_until(lambda: len(GBCM.load(model).ledger) == half, "a half of the commits")
        wait_until(lambda: sum(processes.runs().values()) == half + 2, "experts at work")
        safe = {entry.key for entry in GBCM.load(model).ledger}
        start = time.monotonic()
        processes.kill_scheduler()
        out, _ = ingesting.communicate(timeout=LONG)
        seconds = time.monotonic() - start
        assert (ingesting.returncode, json.loads(out)["error"]) == (1, "SchedulerLost")
        assert f"{half} partitions are safe in commit {half + 1}: repeat the command" in json.loads(out)["message"]
        assert seconds < 5
        processes.go()
        processes.start_again()
        start = time.monotonic()
        assert processes.call(*command)["partitions"] == 40 - half
        again = time.monotonic() - start
        assert_heard(model, calm)
        redone = {key for key, times in processes.runs().items() if times == 2}
        assert set(processes.runs().values()) == {1, 2}
        assert len(redone) == 2  # in flight: each of two workers had one
        assert not redone & safe
    print(f"SchedulerLost after {seconds:.1f} s; the same command again took {again:.1f} s")


def test_a_nanny_that_is_killed_leaves_fewer_workers(small, model, tmp_path):
    folder, calm = small
    with no_hang(180), started(tmp_path, nannies=True) as processes:
        command = ["ingest", model, folder / "data.zarr", "--commit-every", 1, "--scheduler", processes.address]
        ingesting = processes.bcmdist(*command)
        wait_until(lambda: sum(processes.runs().values()) == 22, "two experts at work")
        processes.workers[0].kill()
        processes.go()
        out, _ = ingesting.communicate(timeout=LONG)
        assert ingesting.returncode == 0, out
    assert_heard(model, calm)


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_partition_that_kills_its_workers(small, model, tmp_path, on_error):
    folder, calm = small
    commands = Commands(tmp_path, BCMDIST_TEST_POISON="650", DASK_DISTRIBUTED__WORKER__PRELOAD=json.dumps([PRELOAD]))
    options = ["--workers", 2, "--commit-every", 1, "--on-error", on_error]
    with no_hang(180):
        said = commands.call("ingest", model, folder / "data.zarr", *options, code=1 if on_error == "stop" else 0)
    poison = f"{folder}/data.zarr/X[650:700]"
    assert commands.runs()[poison] == 2
    assert_heard(model, calm, without=[poison])
    if on_error == "stop":
        assert said["error"] == "PoisonChunk"
        assert said["message"].startswith(f"{poison} killed 2 workers (last phase ")
    else:
        assert (said["skipped"], said["partitions"]) == ([poison], 39)
    assert commands.call("info", model)["skipped"] == ([poison] if on_error == "skip" else [])
    mended = Commands(tmp_path).call("ingest", model, folder / "data.zarr", "--serial")
    assert (mended["partitions"], mended["skipped"]) == (1, [])
    assert_heard(model, calm)
    assert commands.call("info", model)["skipped"] == []

"""Workers, nannies and schedulers killed while partitions are computed: every result once, or an error in time."""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from conftest import SEED
from test_dask_runtime import free_port, start_dask

from bcmdist import SerialRuntime
from bcmdist.errors import NotPositiveDefinite, PoisonChunk, SchedulerLost
from bcmdist.partition import Span
from bcmdist.runtime import breadcrumbs, flights
from bcmdist.runtime.dask import DaskRuntime

NO_HANG_SECONDS = 120


@dataclass(frozen=True)
class Work:
    """A number for each span, after a while."""

    seconds: float = 0.05

    def __call__(self, part, rows):
        time.sleep(self.seconds)
        return (part.start + 0.1) ** 0.5


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


def spans(number, size=1):
    parts = [Span(k, k + 1) for k in range(number)]
    return [parts[k : k + size] for k in range(0, number, size)]


def worker_pids(runtime):
    """Of the workers that have joined the cluster."""
    return runtime._client.run_on_scheduler(lambda dask_scheduler: [w.pid for w in dask_scheduler.workers.values()])


class Killer:
    """Kills a random worker every 0.5 to 4 s, as a Poisson process would, up to so many."""

    def __init__(self, runtime, seed, most):
        self.runtime, self.random, self.most = runtime, random.Random(seed), most
        self.killed = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while self.killed < self.most and not self.ended.wait(min(4.0, 0.5 + self.random.expovariate(1.0))):
            if pids := worker_pids(self.runtime):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.random.choice(pids), signal.SIGKILL)
                    self.killed += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def wait_for_workers(runtime, number):
    runtime._client.wait_for_workers(number, timeout=60)


def summed_once(outcomes, number):
    """The sum of outcomes without an error that hold every span exactly once."""
    outcomes = list(outcomes)
    assert [o.error for o in outcomes if o.error] == []
    assert Counter(part.start for o in outcomes for part in o.parts) == Counter(range(number))
    return sum(o.result for o in outcomes)


def in_chaos(runtime, seed, number, most):
    """Seconds, and workers killed, of computing so many spans."""
    expected = summed_once(SerialRuntime().each([(Work(0.0), batch) for batch in spans(number)], label="calm"), number)
    with Killer(runtime, seed, most) as killer:
        start = time.monotonic()
        total = summed_once(runtime.each([(Work(), batch) for batch in spans(number)], label="chaos"), number)
        seconds = time.monotonic() - start
    assert seconds < NO_HANG_SECONDS
    assert total == pytest.approx(expected, abs=1e-10)  # a sum of 200 numbers below 20 in another order
    wait_for_workers(runtime, 2)
    return seconds, killer.killed


@pytest.fixture
def own():
    """A cluster that may be hurt."""
    with DaskRuntime(workers=2) as runtime:
        yield runtime


def test_workers_killed_at_random_times_change_nothing(own):
    _, killed = in_chaos(own, SEED, 120, most=2)  # a busy machine takes long to replace them
    assert killed


@pytest.mark.slow
def test_twenty_runs_in_chaos(own):
    start = time.monotonic()
    summed_once(own.each([(Work(), batch) for batch in spans(200)], label="calm"), 200)
    calm = time.monotonic() - start
    runs = [in_chaos(own, SEED + k, 200, most=1000) for k in range(20)]
    print(f"calm {calm:.1f} s; in chaos, seed {SEED}: {', '.join(f'{s:.1f} s ({k} killed)' for s, k in runs)}")
    print(f"worst {max(s for s, _ in runs) / calm:.2f}, mean {sum(s for s, _ in runs) / calm / 20:.2f} x calm")


def test_restarted_workers_change_nothing(own):
    outcomes = own.each([(Work(), batch) for batch in spans(60)], label="restart")
    some = [next(outcomes) for _ in range(20)]
    own._client.restart()
    total = summed_once([*some, *outcomes], 60)
    assert total == pytest.approx(sum((k + 0.1) ** 0.5 for k in range(60)), abs=1e-10)


def test_a_sum_begins_again_when_workers_are_restarted(own):
    restarted = threading.Timer(0.5, own._client.restart)
    restarted.start()
    total = own.sum(Work(), [part for batch in spans(60) for part in batch], label="restart")
    restarted.join()
    assert total == pytest.approx(sum((k + 0.1) ** 0.5 for k in range(60)), abs=1e-10)


def test_a_partition_that_kills_two_workers_is_given_up_and_the_others_are_done(own, tmp_path):
    task = Poison(str(tmp_path), victims=(13,))
    outcomes = list(own.each([(task, batch) for batch in spans(24, 4)], label="poison"))
    assert Counter(part.start for o in outcomes for part in o.parts) == Counter(range(24))
    failed = {o.parts[0].start: o.error for o in outcomes if o.error}
    assert sorted(failed) == [1, 13]
    assert isinstance(failed[1], NotPositiveDefinite)
    assert sum(o.result for o in outcomes if not o.error) == sum(range(24)) - 14
    text = r"output\[13:14\] killed 2 workers \(last phase test_chaos.chew, estimated 0\.\d+ GB\); give workers more"
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


def test_a_result_that_is_lost_on_its_way_is_computed_again(own, tmp_path):
    flag = tmp_path / "sent"
    outcomes = list(own.each([(Ruin(str(flag)), batch) for batch in spans(4)], label="ruin"))
    assert flag.exists()
    assert sorted(o.result.value for o in outcomes) == [0, 1, 2, 3]


def test_a_stopped_worker_is_overtaken(own, monkeypatch):
    monkeypatch.setattr(flights, "LATE_SECONDS", 1.0)
    outcomes = own.each([(Work(), batch) for batch in spans(40)], label="stopped")
    some = [next(outcomes) for _ in range(10)]
    stopped = psutil.Process(worker_pids(own)[0])
    stopped.suspend()
    try:
        start = time.monotonic()
        summed_once([*some, *outcomes], 40)
        assert time.monotonic() - start < 20
    finally:
        stopped.resume()
    assert summed_once(own.each([(Work(), batch) for batch in spans(20)], label="after"), 20)


@contextlib.contextmanager
def servers(tmp_path, workers=1):
    """Address, scheduler and workers, processes of their own."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with open(tmp_path / "log.txt", "w") as log:
        started = [start_dask("scheduler", "--port", str(port), log=log)]
        try:
            started += [start_dask("worker", address, "--nthreads", "1", log=log) for _ in range(workers)]
            yield address, started[0], started[1:]
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(timeout=30)


def test_a_scheduler_that_is_killed_is_an_error_at_once(tmp_path):
    with servers(tmp_path) as (address, scheduler, _), DaskRuntime(address, connect_seconds=30) as runtime:
        outcomes = runtime.each([(Work(), batch) for batch in spans(100)], label="ingest")
        for _ in range(10):
            next(outcomes)
        scheduler.kill()
        start = time.monotonic()
        with pytest.raises(
            SchedulerLost, match=r"ingest: the scheduler went away after \d+ partitions; .* safe: start"
        ):
            list(outcomes)
        assert time.monotonic() - start < 5
        start = time.monotonic()
        runtime.close()
        assert time.monotonic() - start < 5


@pytest.mark.slow
def test_a_nanny_that_is_killed_leaves_fewer_workers(tmp_path):
    with servers(tmp_path, workers=2) as (address, _, nannies), DaskRuntime(address, connect_seconds=30) as runtime:
        wait_for_workers(runtime, 2)
        outcomes = runtime.each([(Work(), batch) for batch in spans(60)], label="nanny")
        some = [next(outcomes) for _ in range(10)]
        nannies[0].kill()
        summed_once([*some, *outcomes], 60)
        assert len(runtime._client.nthreads()) == 1


def test_another_client_keeps_its_own_failures(own):
    """Dask runs another client's task again when its worker dies, as it always did."""
    import distributed

    with distributed.Client(own._client.scheduler.address, set_as_default=False) as other:
        future = other.submit(time.sleep, 1.5, pure=False)
        time.sleep(0.5)
        for pid in worker_pids(own):
            os.kill(pid, signal.SIGKILL)
        assert future.result(timeout=60) is None


def test_the_innermost_function_of_ours_is_told():
    def ours():
        import sys

        return sorted([0], key=lambda _: found.append(breadcrumbs._innermost(sys._getframe(), {"elsewhere"})))

    found = []
    ours()
    assert found == ["start"]

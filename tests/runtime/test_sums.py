"""Sums stay on workers until they are asked for: whole, each partition once, whatever dies, little told on the way."""

import contextlib
import functools
import operator
import os
import pickle
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import distributed
import numpy as np
import pytest
from processes import no_hang

from bcmdist import DaskRuntime, SerialRuntime
from bcmdist.data.partition import Span
from bcmdist.errors import NotPositiveDefinite
from bcmdist.runtime.dask import flights
from bcmdist.runtime.dask.summaries import EventChannel
from bcmdist.runtime.dask.sums import FAN_IN, FEW, Term, one_term
from bcmdist.runtime.interface import Parted, SumLost

pytestmark = pytest.mark.alone

SIZE = 100_000  # numbers of a large result
SPANS = [Span(k, k + 1) for k in range(60)]
BATCHES = [SPANS[k : k + 4] for k in range(0, 60, 4)]


@dataclass(frozen=True)
class Large:
    """Many equal numbers, and the names of the spans that they are of."""

    numbers: np.ndarray
    names: tuple[str, ...]

    def __add__(self, other):
        return Large(self.numbers + other.numbers, self.names + other.names)

    def weighted(self, weight):
        return Large(weight * self.numbers, self.names)


@dataclass(frozen=True)
class Keeping:
    """The square of a span's start, many times; its name is told. Some fail; some dawdle once; runs leave lines."""

    folder: str
    bad: tuple[int, ...] = ()
    slow: int | None = None
    parted: ClassVar[bool] = True

    def __call__(self, part, rows):
        with open(os.path.join(self.folder, "runs.txt"), "a") as file:
            file.write(f"{part.start}\n")
        if part.start in self.bad:
            raise NotPositiveDefinite("R: not today")
        if part.start == self.slow and self.runs()[part.start] == 1:
            time.sleep(4.0)
        return Parted((part.key,), Large(np.full(SIZE, part.start**2.0), (part.key,)))

    def runs(self):
        """How often each span was computed."""
        return Counter(map(int, (Path(self.folder) / "runs.txt").read_text().split()))


@pytest.fixture(params=["serial", "dask"])
def runtime(request):
    return SerialRuntime() if request.param == "serial" else request.getfixturevalue("cluster")


@pytest.fixture
def private_cluster():
    """A cluster that may be hurt."""
    with no_hang(120), DaskRuntime(workers=2) as runtime:
        yield runtime


def kept_of(outcomes, *, weight=lambda outcome: 1.0):
    """What outcomes without an error have kept, and the names that were told."""
    kept, told = None, []
    for outcome in outcomes:
        if outcome.error is None:
            share = outcome.kept.weighted(weight(outcome))
            kept = share if kept is None else kept + share
            told += outcome.result
    return kept, told


def assert_total(total, spans):
    assert sorted(total.names) == sorted(span.key for span in spans)
    assert total.numbers.shape == (SIZE,)
    assert set(total.numbers) == {sum(span.start**2 for span in spans)}


def keys_on(runtime):
    return runtime._client.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))


def kill(runtime, number):
    """Kill so many workers."""
    pids = runtime._client.run_on_scheduler(lambda dask_scheduler: [w.pid for w in dask_scheduler.workers.values()])
    for pid in pids[:number]:
        os.kill(pid, signal.SIGKILL)


def test_the_total_is_of_what_was_told(runtime, tmp_path):
    task = Keeping(str(tmp_path))
    kept, told = kept_of(runtime.each(((task, batch) for batch in BATCHES), label="keep"))
    assert sorted(told) == sorted(span.key for span in SPANS)
    assert_total(runtime.total(kept, label="keep"), SPANS)
    assert set(task.runs().values()) == {1}


@pytest.mark.parametrize("groups", [1, FEW, 3 * FEW + 1])
def test_every_term_counts_as_often_as_it_was_weighted(runtime, tmp_path, groups):
    some = BATCHES[:groups]
    outcomes = runtime.each([(Keeping(str(tmp_path)), batch) for batch in some], label="weigh")
    kept, _ = kept_of(outcomes, weight=lambda outcome: 1.0 + outcome.parts[0].start)
    total = runtime.total(kept.weighted(0.5), label="weigh")
    expected = sum(0.5 * (1.0 + batch[0].start) * sum(span.start**2 for span in batch) for batch in some)
    np.testing.assert_allclose(total.numbers, expected, rtol=1e-12)  # sums in another order


def test_what_fails_in_a_batch_is_no_part_of_the_total(runtime, tmp_path):
    task = Keeping(str(tmp_path), bad=(5, 6, 59))
    outcomes = list(runtime.each([(task, batch) for batch in BATCHES], label="fail"))
    assert sorted(outcome.parts[0].start for outcome in outcomes if outcome.error) == [5, 6, 59]
    kept, told = kept_of(outcomes)
    good = [span for span in SPANS if span.start not in task.bad]
    assert sorted(told) == sorted(span.key for span in good)
    assert_total(runtime.total(kept, label="fail"), good)


def test_little_is_fetched_before_the_total(cluster, tmp_path, monkeypatch):
    fetched, answers, gather, report = [], [], distributed.Client._gather_remote, EventChannel.summary

    async def gathering(self, *arguments, **options):
        response = await gather(self, *arguments, **options)
        fetched.append(len(pickle.dumps(response)))
        return response

    async def telling(self, future):
        answers.append(await report(self, future))
        return answers[-1]

    monkeypatch.setattr(distributed.Client, "_gather_remote", gathering)
    monkeypatch.setattr(EventChannel, "summary", telling)
    kept, _ = kept_of(cluster.each([(Keeping(str(tmp_path)), batch) for batch in BATCHES], label="bytes"))
    assert not fetched
    assert len(answers) == len(BATCHES)
    assert sum(len(pickle.dumps(answer)) for answer in answers) < 200 * len(SPANS)  # of 800,000 each
    assert len(kept.terms) <= 2 * (FEW - 1)
    cluster.total(kept, label="bytes")
    assert len(fetched) == 1
    assert fetched[0] < 2 * 8 * SIZE


class Scheduling:
    """A client that only notes of whose terms sums are asked, all of them done where the first one is."""

    def __init__(self):
        self.sums = []

    def submit(self, function, terms, weights, **options):
        self.sums.append([term.worker for term in terms])
        return At(terms[0].worker)


@dataclass(frozen=True)
class At:
    """Something on a worker."""

    worker: str

    def release(self):
        """Nobody has it."""


def added_by(client, workers, each):
    """The sum of so many terms of each of some workers, as one term."""
    terms = [Term(At(str(worker)), str(worker), 1) for worker in range(workers) for _ in range(each)]
    total = functools.reduce(operator.add, (one_term(client, term) for term in terms))
    assert total.partitions == workers * each
    assert len(total.terms) == workers * (each if each < FEW else 1)
    return total.added()


@pytest.mark.parametrize(("workers", "each"), [(1, 1), (1, 3), (8, 1), (9, 2), (200, 3), (200, 4)])
def test_workers_add_what_they_have_before_anything_travels(workers, each):
    client = Scheduling()
    assert added_by(client, workers, each).partitions == workers * each
    own = [sum for sum in client.sums if len(set(sum)) == 1]
    others = client.sums[len(own) :]
    assert len(own) == (workers if each > 1 else 0)
    assert all(len(set(sum)) == len(sum) <= FAN_IN for sum in others)  # one of each worker, up to so many
    assert sum(len(sum) - 1 for sum in others) == workers - 1


def test_nothing_stays_on_workers_after_the_total(cluster, tmp_path):
    before = set(keys_on(cluster))  # of tests whose errors are still held
    kept, _ = kept_of(cluster.each([(Keeping(str(tmp_path)), batch) for batch in BATCHES], label="leave"))
    assert any("leave" in key or "add" in key for key in keys_on(cluster))
    cluster.total(kept, label="leave")
    deadline = time.monotonic() + 20
    while set(keys_on(cluster)) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert set(keys_on(cluster)) - before == set()


@pytest.mark.slow
def test_a_late_copy_does_not_count(private_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(flights, "LATE_SECONDS", 0.5)
    monkeypatch.setattr(flights, "LATE_FACTOR", 0.0)  # however busy the machine is
    task = Keeping(str(tmp_path), slow=59)
    kept, told = kept_of(private_cluster.each([(task, batch) for batch in BATCHES], label="late"))
    assert task.runs()[59] == 2
    assert sorted(told) == sorted(span.key for span in SPANS)
    time.sleep(4.0)  # the first copy has ended too
    assert_total(private_cluster.total(kept, label="late"), SPANS)


@dataclass(frozen=True)
class Stalling:
    """Counts spans; from the tenth on, the worker that comes first is slow until the test lets it go."""

    folder: str
    kept: bool = True

    @property
    def parted(self):
        return self.kept

    def __call__(self, part, rows):
        folder, mine = Path(self.folder), str(os.getpid())
        with contextlib.suppress(FileExistsError), open(folder / "slow", "x") as file:
            file.write(mine)
        with open(folder / "runs.txt", "a") as file:
            file.write(f"{part.start} {mine}\n")
        while part.start >= 10 and (folder / "slow").read_text() == mine and not (folder / "free").exists():
            time.sleep(0.02)
        counted = Large(np.full(SIZE, float(part.start**2)), (part.key,))
        return Parted((part.key,), counted) if self.kept else counted


@pytest.mark.parametrize("kept", [True, False])
def test_partitions_do_not_wait_for_a_slow_worker_and_count_once(private_cluster, tmp_path, kept):
    task = Stalling(str(tmp_path), kept)
    outcomes = list(private_cluster.each([(task, batch) for batch in BATCHES], label="slow"))
    (tmp_path / "free").touch()  # before, no task of the slow worker has ended
    runs = [line.split() for line in (tmp_path / "runs.txt").read_text().splitlines()]
    slow = (tmp_path / "slow").read_text()
    assert [start for start, worker in runs if worker == slow and int(start) >= 10]
    assert max(Counter(runs_of for runs_of, worker in runs if worker != slow).values()) == 1  # one copy at most
    assert not any(outcome.error for outcome in outcomes)
    assert sorted(part.start for outcome in outcomes for part in outcome.parts) == list(range(60))
    if kept:
        total, told = kept_of(outcomes)
        assert sorted(told) == sorted(span.key for span in SPANS)
        assert_total(private_cluster.total(total, label="slow"), SPANS)
    else:
        assert_total(functools.reduce(operator.add, (outcome.result for outcome in outcomes)), SPANS)


@pytest.mark.slow
def test_what_a_dead_worker_had_is_computed_again(private_cluster, tmp_path):
    task = Keeping(str(tmp_path))
    kept, _ = kept_of(private_cluster.each([(task, batch) for batch in BATCHES], label="killed"))
    assert set(task.runs().values()) == {1}
    kill(private_cluster, 1)
    assert_total(private_cluster.total(kept, label="killed"), SPANS)
    assert set(task.runs().values()) == {1, 2}


@pytest.mark.slow
def test_a_sum_that_cannot_be_computed_again_is_lost(private_cluster, tmp_path):
    kept, _ = kept_of(private_cluster.each([(Keeping(str(tmp_path)), batch) for batch in BATCHES], label="lost"))
    (tmp_path / "runs.txt").unlink()
    tmp_path.rmdir()
    kill(private_cluster, 2)
    with pytest.raises(SumLost, match="lost: "):
        private_cluster.total(kept, label="lost")
    tmp_path.mkdir()
    kept, _ = kept_of(private_cluster.each([(Keeping(str(tmp_path)), batch) for batch in BATCHES], label="restart"))
    private_cluster._client.restart()
    with pytest.raises(SumLost, match="restart: workers were restarted"):
        private_cluster.total(kept, label="restart")

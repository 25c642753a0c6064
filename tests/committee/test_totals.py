"""A commit adds what its ledger entries name, and only that, whatever became of the sums between the two."""

import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import distributed
import pytest
from dask.sizeof import sizeof
from processes import no_hang

from bcmdist import GBCM, DaskRuntime, SerialRuntime, Settings
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.checks.checked_store import recorded
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import DataChanged
from bcmdist.runtime.interface import Parted, SumLost
from problems import assert_same_committee

GIVEN = Settings(kernel="se", learn=False, query=20, rows_per_expert=20)
EVERY_5 = IngestOptions(commit_every=5)


@pytest.fixture
def prepared(wave, make_data, tmp_path):
    """A model that has absorbed nothing, of 240 rows in 12 partitions, and their path."""
    _, X, y = wave
    path = make_data("chunks.zarr", rows_per_chunk=20, X=X, y=y)
    return GBCM.prepare(path, GIVEN, model=tmp_path / "model"), path


@pytest.fixture
def arriving(make_data, rng):
    """100 rows in 5 partitions that nobody has surveyed."""
    return make_data("more.zarr", rows_per_chunk=20, X=rng.uniform(-2, 2, (100, 2)), y=rng.normal(size=100))


def assert_heard_once(after, before, path):
    """A committee has absorbed what lies at a path now, once, under the content hashes of now."""
    absorbed = before.snapshot.compute_messages(partitions(open_data(path), 20), SerialRuntime(), label="test")
    assert {entry.key: entry.digest for entry in after.ledger} == {
        key: entry.digest for key, entry in absorbed.entries.items()
    }
    assert len(after.ledger) == len(absorbed.entries)
    assert_same_committee(after.committee, before.committee.absorb(absorbed.message))
    assert_same_committee(GBCM.load(after.url).committee, after.committee)


class Losing(SerialRuntime):
    """Its sums are gone whenever somebody asks for their total."""

    def total(self, kept, *, label):
        raise SumLost(label)


class Recomputing(SerialRuntime):
    """Every total is of other rows than was told."""

    def total(self, kept, *, label):
        others = {key: replace(entry, digest="0" * 64) for key, entry in kept.entries.items()}
        return replace(kept, message=kept.message.weighted(2.0), entries=others)


class Partly(SerialRuntime):
    """Every total lacks the name of a partition."""

    def total(self, kept, *, label):
        return replace(kept, entries=dict([*kept.entries.items()][1:]))


class Clock:
    """Stands still but for what takes time by its own account."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class Slow(SerialRuntime):
    """Three seconds for each outcome, ten for each total."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def each(self, work, *, label):
        for outcome in super().each(work, label=label):
            self.clock.now += 3.0
            yield outcome

    def total(self, kept, *, label):
        self.clock.now += 10.0
        return super().total(kept, label=label)


def test_totals_count_as_time_of_commits(prepared, monkeypatch):
    gbcm, path = prepared
    clock = Clock()
    monkeypatch.setattr("bcmdist.committee.ingest.loop.time", clock)
    one_by_one = IngestOptions(same_rows="refuse")
    after, tally = gbcm.ingest(gbcm.source(path), one_by_one, runtime=Slow(clock))
    assert tally.partitions == 12
    assert clock.now == 12 * 3.0 + 2 * 10.0  # after five seconds, and then one at the end: 200 seconds are not over
    assert after.commit == gbcm.commit + 2


@pytest.mark.parametrize("runtime", [Losing, Recomputing, Partly])
@pytest.mark.parametrize("half_life", [None, 60.0])
def test_what_is_not_the_sum_of_its_entries_is_heard_again(prepared, runtime, half_life):
    gbcm, path = prepared
    options = replace(EVERY_5, half_life=half_life)
    after, tally = gbcm.ingest(gbcm.source(path), options, runtime=runtime())
    assert (tally.partitions, tally.rows, tally.retries) == (12, 240, 0)
    parts = [
        replace(part, weight=1.0 if half_life is None else 2.0 ** ((part.stop - 240) / half_life))
        for part in partitions(open_data(path), 20)
    ]
    expected = gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="test").message
    assert_same_committee(after.committee, gbcm.committee.absorb(expected))
    assert sorted(entry.key for entry in after.ledger) == sorted(part.key for part in parts)
    assert len(after.ledger[0].arrival) == 3  # what was noted before it was absorbed stays


class Killed(DaskRuntime):
    """All workers are killed when the entries of a total have come, and data may change."""

    change = staticmethod(lambda: None)
    totals = 0

    def total(self, kept, *, label):
        pids = self._client.run_on_scheduler(lambda dask_scheduler: [w.pid for w in dask_scheduler.workers.values()])
        for pid in pids * (not self.totals):
            os.kill(pid, signal.SIGKILL)
        self.totals += 1
        self.change()
        return super().total(kept, label=label)


@pytest.fixture
def killed():
    with no_hang(120), Killed(workers=2) as runtime:
        yield runtime


@pytest.mark.slow
def test_workers_killed_between_entries_and_commit_change_nothing(prepared, killed):
    gbcm, path = prepared
    after, tally = gbcm.ingest(gbcm.source(path), EVERY_5, runtime=killed)
    assert killed.totals >= 2
    assert (tally.partitions, tally.duplicates, tally.skipped) == (12, 0, [])
    assert_heard_once(after, gbcm, path)


class LostOnItsWay(DaskRuntime):
    """The worker that has the first total dies before it is fetched, and so does who is to have it again."""

    lost = 0

    def _fetched(self, term, pulse):
        def died():
            raise distributed.KilledWorker(term.future.key, SimpleNamespace(address="tcp://127.0.0.1:9"), 3)

        if not self.lost:
            term.future.result = died
            self.lost += 1
        return super()._fetched(term, pulse)


def test_a_total_that_is_lost_on_its_way_is_heard_again(prepared):
    gbcm, path = prepared
    with no_hang(120), LostOnItsWay(workers=1) as runtime:
        after, tally = gbcm.ingest(gbcm.source(path), EVERY_5, runtime=runtime)
    assert runtime.lost == 1
    assert (tally.partitions, tally.duplicates, tally.skipped) == (12, 0, [])
    assert_heard_once(after, gbcm, path)


def test_rows_that_change_when_workers_are_killed_count_as_the_ledger_names_them(prepared, arriving, killed):
    gbcm, _ = prepared

    def change():
        with recorded(arriving) as group:
            group["y"][30] += 5.0

    killed.change = change
    after, tally = gbcm.ingest(gbcm.source(arriving), EVERY_5, runtime=killed)
    assert tally.partitions == 5
    assert_heard_once(after, gbcm, arriving)


@pytest.mark.slow
def test_surveyed_rows_that_change_when_workers_are_killed_are_refused(prepared, killed):
    gbcm, path = prepared

    def change():
        with recorded(path) as group:
            group["y"][...] = group["y"][...] + 1.0

    killed.change = change
    with pytest.raises(DataChanged, match="expected the rows that were surveyed"):
        gbcm.ingest(gbcm.source(path), EVERY_5, runtime=killed)
    left = GBCM.load(gbcm.url)
    assert (left.commit, len(left.ledger)) == (gbcm.commit, 0)


def test_workers_know_what_a_kept_message_takes(prepared):
    """They spill and pause by it."""
    gbcm, path = prepared
    absorbed = gbcm.snapshot.compute_messages(partitions(open_data(path), 20), SerialRuntime(), label="test")
    message = absorbed.message
    assert message.precision.nbytes <= sizeof(Parted(None, absorbed)) <= 1.1 * message.precision.nbytes + 1000
    assert sizeof(Parted(None, replace(absorbed, step=message))) > 1.9 * message.precision.nbytes

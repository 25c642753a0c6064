"""Partitions per task follow the measured durations; the committee does not depend on them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.group_size import GROUP, MOST, TASK_SECONDS, GroupSize, most_partitions
from bcmdist.committee.ingest.in_turn import LedgerEntries
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import Span, partitions
from bcmdist.runtime.interface import Outcome
from problems import assert_same_committee

SPANS = [Span(k, k + 1) for k in range(1000)]


class Timed(SerialRuntime):
    """Reports a fixed number of seconds per partition, and records the groups of new partitions."""

    def __init__(self, seconds, threads):
        super().__init__()
        self.seconds, self.threads, self.groups = seconds, threads, []

    def each(self, work, *, label):
        for outcome in super().each(work, label=label):
            if isinstance(outcome.result, LedgerEntries):  # else a task of `watch`, after a commit
                self.groups.append(outcome.parts)
            yield replace(outcome, seconds=self.seconds * len(outcome.parts))


def size_after(seconds, most=MOST):
    size = GroupSize(most)
    for count in (4, 1, 3):
        size.observe(Outcome(SPANS[:count], seconds=count * seconds))
    return size.partitions


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, MOST), (1e-6, MOST), (TASK_SECONDS / 10, 10), (TASK_SECONDS / 4, GROUP), (0.2, GROUP), (1e3, GROUP)],
)
def test_a_task_takes_about_as_long_as_is_aimed_at(seconds, expected):
    assert size_after(seconds) == expected
    assert size_after(seconds, most=1) == 1


def test_one_slow_task_changes_little():
    size = GroupSize(MOST)
    for seconds in (1e-3, 60.0, 1e-3):
        size.observe(Outcome(SPANS[:1], seconds=seconds))
    assert size.partitions == MOST


def test_unknown_durations_leave_groups_as_at_first():
    size = GroupSize(MOST)
    size.observe(Outcome(SPANS[:4]))
    assert size.partitions == GROUP


@given(st.integers(0, 1000), st.integers(1, 300), st.floats(0.0, 1.0))
def test_groups_are_neighbours_and_leave_no_thread_idle(count, threads, seconds):
    size = GroupSize(MOST)
    size.observe(Outcome(SPANS[:1], seconds=seconds))
    groups = list(size.groups(SPANS[:count], threads))
    assert [part for group in groups for part in group] == SPANS[:count]
    fair = -(-count // threads)  # partitions of each thread, if all have as many
    assert all(1 <= len(group) <= min(size.partitions, fair) for group in groups)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (IngestOptions(), MOST),
        (IngestOptions(same_rows="refuse"), 1),
        (IngestOptions(commit_every=10), GROUP),
        (IngestOptions(commit_every=1000), 10),
        (IngestOptions(commit_every=10**6), MOST),
    ],
)
def test_weights_refusals_and_commits_bound_the_groups(options, expected):
    assert most_partitions(options, Weighting()) == expected
    assert most_partitions(options, Weighting(half_life=5.0)) == 1


@pytest.fixture
def empty(make_data, rng, tmp_path):
    """A model that has absorbed nothing, and its data in 90 partitions of 8 rows."""
    X = rng.uniform(-2, 2, (720, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(720)
    path = make_data("chunks.zarr", rows_per_chunk=8, X=X, y=y)
    options = Settings(kernel="se", learn=False, query=20, rows_per_expert=8)
    return GBCM.prepare(path, options, model=tmp_path / "model"), path


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seconds", [0.0, TASK_SECONDS / 7, 10.0])
def test_the_committee_does_not_depend_on_durations(empty, threads, seconds):
    gbcm, path = empty
    runtime = Timed(seconds, threads)
    after, report = gbcm.ingest(gbcm.source(path), IngestOptions(), runtime=runtime)
    parts = partitions(open_data(path), 8)
    assert [part.start for group in runtime.groups for part in group] == [part.start for part in parts]
    assert max(map(len, runtime.groups)) == {0.0: MOST, TASK_SECONDS / 7: 7, 10.0: GROUP}[seconds]
    assert report.partitions == 90
    # the same messages, added in another order: rounding only
    expected = gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="test").message)
    assert_same_committee(after.committee, expected)


@pytest.mark.parametrize(("options", "largest"), [({"same_rows": "refuse"}, 1), ({"half_life": 100.0}, 1)])
def test_partitions_that_need_a_task_each_have_one(empty, options, largest):
    gbcm, path = empty
    runtime = Timed(0.0, 1)
    after, report = gbcm.ingest(gbcm.source(path), IngestOptions(**options), runtime=runtime)
    assert max(map(len, runtime.groups)) == largest
    assert (report.partitions, len(after.ledger)) == (90, 90)


def test_commits_come_as_often_as_asked(empty):
    gbcm, path = empty
    after, _ = gbcm.ingest(gbcm.source(path), IngestOptions(commit_every=20, keep=100), runtime=Timed(0.0, 1))
    sizes = [len(GBCM.load(gbcm.url, commit=number).ledger) for number in range(1, after.commit + 1)]
    assert sizes == [0, 20, 40, 60, 80, 90]

"""Whatever comes twice, late, in another order or from two sides, the committee is that of one peaceful fit."""

import itertools
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.revision import messages
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.checks.checked_store import recorded
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.sources.delivery import Listed
from bcmdist.data.writing import append_rows, write_dataset
from bcmdist.errors import (
    BcmdistError,
    ChunkConflict,
    CommitConflict,
    InvalidData,
    InvalidOption,
    ModelsDiffer,
    PoisonChunk,
)
from bcmdist.storage import locks
from problems import Shuffled, assert_same_committee

GIVEN = Settings(kernel="se", learn=False, query=20, rows_per_expert=20)
ONE_EACH = IngestOptions(commit_every=1, keep=1000)


@pytest.fixture(autouse=True)
def no_turns(monkeypatch):
    """Others commit in the middle of a commit, as from another machine."""
    monkeypatch.setattr(locks, "TURN_SECONDS", 0.0)


def shuffled(path, order):
    parts = partitions(open_data(path), GIVEN.rows_per_expert)
    return Shuffled(tuple(parts[k] for k in order), "shuffled")


@pytest.fixture
def prepared(wave, make_data, tmp_path):
    """A model that has absorbed nothing, of 240 rows in 12 partitions, and their path."""
    _, X, y = wave
    path = make_data("chunks.zarr", rows_per_chunk=20, X=X, y=y)
    return GBCM.prepare(path, GIVEN, model=tmp_path / "model"), path


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """As `prepared`, to be copied by `copied`."""
    folder = tmp_path_factory.mktemp("template")
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, (240, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(240)
    write_dataset(folder / "wave.zarr", {"X": X, "y": y}, rows_per_chunk=20)
    GBCM.prepare(folder / "wave.zarr", GIVEN, model=folder / "model")
    return folder


@pytest.fixture(scope="module")
def copied(template):
    """A function that makes a model that has absorbed nothing, and the path of its data."""
    numbers = itertools.count()

    def copy():
        other = template / f"model-{next(numbers)}"
        shutil.copytree(template / "model", other)
        return GBCM.load(other), str(template / "wave.zarr")

    return copy


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(order=st.lists(st.integers(0, 11), max_size=20), every=st.integers(1, 5))
def test_the_ledger_is_a_set(copied, order, every):
    gbcm, path = copied()
    after, tally = gbcm.ingest(shuffled(path, order), IngestOptions(commit_every=every))
    parts = partitions(open_data(path), 20)
    assert {entry.key for entry in after.ledger} == {parts[k].key for k in order}
    assert len(after.ledger) == tally.partitions == len(set(order))
    peaceful = (
        gbcm.snapshot.compute_messages([parts[k] for k in sorted(set(order))], SerialRuntime(), label="test")
        if order
        else None
    )
    if peaceful:
        assert_same_committee(after.committee, gbcm.committee.absorb(peaceful.message))
    assert GBCM.load(gbcm.url).ledger == after.ledger


def test_committed_partition_by_partition(prepared):
    gbcm, path = prepared
    with_source = gbcm.source(path)
    after, tally = gbcm.ingest(with_source, ONE_EACH)
    assert (after.commit, tally.partitions, tally.rows, tally.duplicates) == (13, 12, 240, 0)
    again, tally = after.ingest(gbcm.source(path), ONE_EACH)
    assert (again.commit, tally.partitions, tally.duplicates) == (13, 0, 12)
    assert after.offsets == {path: 240}
    assert [entry.position for entry in after.ledger] == [None] * 12  # rows do not fade


def test_arrivals_are_noted_before_they_are_heard(prepared):
    gbcm, path = prepared
    after, _ = gbcm.ingest(gbcm.source(path), ONE_EACH)
    first, last = after.ledger[0].arrival, after.ledger[-1].arrival
    assert len(first) == len(last) == 3
    assert first[0] < last[0]  # the log score of somebody who has absorbed nothing is worse
    assert GBCM.load(gbcm.url).ledger == after.ledger
    drift = after.info()["drift"]
    assert drift["arrivals"] == 12
    assert drift["verdict"].startswith("not known yet")


def test_other_rows_under_the_same_key(prepared):
    gbcm, path = prepared
    after, _ = gbcm.ingest(gbcm.source(path), IngestOptions(max_partitions=4))
    assert len(after.ledger) == 4
    with recorded(path) as group:
        group["y"][70] += 1.0
    with pytest.raises(ChunkConflict, match=r"X\[60:80\]: expected the rows that were absorbed under this key"):
        after.ingest(gbcm.source(path))
    assert len(GBCM.load(gbcm.url).ledger) >= 4


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(12)), every=st.integers(1, 5))
def test_decay_follows_from_positions_only(copied, order, every):
    gbcm, path = copied()
    after, _ = gbcm.ingest(shuffled(path, order), IngestOptions(commit_every=every, half_life=50.0))
    parts = [replace(part, weight=2.0 ** ((part.stop - 240) / 50.0)) for part in partitions(open_data(path), 20)]
    expected = gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="test").message)
    assert_same_committee(after.committee, expected)
    assert after.facts["fading"]["position"] == 240
    parts = partitions(open_data(path), 20)
    rest = after.forget([parts[2].key])
    weights = {part.key: 2.0 ** ((part.stop - 240) / 50.0) for part in parts}
    kept = [replace(part, weight=weights[part.key]) for part in parts if part != parts[2]]
    expected = gbcm.committee.absorb(gbcm.snapshot.compute_messages(kept, SerialRuntime(), label="test").message)
    assert_same_committee(rest.committee, expected)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(12)), every=st.integers(1, 5))
def test_a_window_holds_the_newest_rows_in_any_order(copied, order, every):
    gbcm, path = copied()
    after, tally = gbcm.ingest(shuffled(path, order), IngestOptions(commit_every=every, window=100))
    parts = partitions(open_data(path), 20)[-5:]
    expected = gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="test").message)
    assert_same_committee(after.committee, expected)
    assert {entry.key for entry in after.ledger} == {part.key for part in parts}
    assert after.committee.total.rows == 100
    assert GBCM.load(gbcm.url).ledger == after.ledger
    late, tally = after.ingest(shuffled(path, [0, 11]), IngestOptions(window=100))
    assert (tally.expired, tally.duplicates, late.commit) == (1, 1, after.commit)


def test_who_loses_a_commit_adds_to_it(prepared, monkeypatch):
    gbcm, path = prepared
    parts = partitions(open_data(path), 20)
    fast = {1: parts[5:6], 2: parts[0:2], 3: parts[6:9]}  # somebody else commits these before our 1st, 2nd, 3rd
    committed, tries = Snapshot.committed, itertools.count(1)

    def slow(self):
        theirs = fast.pop(next(tries), None) if self.pending else None
        if theirs:
            newest = Snapshot.load(gbcm.url)
            absorbed = newest.compute_messages(theirs, SerialRuntime(), label="test")
            committed(newest.changed(newest.committee.absorb(absorbed.message), absorbed.entries.values()))
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", slow)
    after, tally = gbcm.ingest(gbcm.source(path), IngestOptions(commit_every=4))
    assert tally.retries == 3
    assert (tally.partitions, tally.duplicates) == (6, 6)
    assert len({entry.key for entry in after.ledger}) == len(after.ledger) == 12
    expected = gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="test").message)
    assert_same_committee(after.committee, expected)
    assert after.committee.total.rows == 240
    with pytest.raises(CommitConflict):
        gbcm.snapshot.successor(gbcm.committee, [])


def test_a_tail_that_somebody_heard_with_another_cut(prepared, tmp_path, rng):
    gbcm, _ = prepared
    path = str(tmp_path / "grown.zarr")
    append_rows(path, rng.normal(size=(50, 2)), rng.normal(size=50), rows_per_chunk=20)
    early = gbcm.partial_fit(path)
    assert [entry.rows for entry in early.ledger] == [20, 20, 10]
    append_rows(path, rng.normal(size=(45, 2)), rng.normal(size=45))
    late = early.partial_fit(path)
    assert sorted(entry.rows for entry in late.ledger) == [10, 10, 15, 20, 20, 20]
    assert late.committee.total.rows == 95
    peaceful = gbcm.committee
    for part in partitions(open_data(path), 20):
        if part.start != 40:
            peaceful = peaceful.absorb(gbcm.snapshot.compute_messages([part], SerialRuntime(), label="test").message)
    tails = [entry.key for entry in late.ledger if entry.rows == 10]
    assert [key.rpartition("[")[2] for key in sorted(tails)] == ["40:50]", "50:60]"]


def test_watching_takes_what_is_complete_until_told_to_stop(prepared, tmp_path, rng, monkeypatch):
    gbcm, _ = prepared
    path, polls = str(tmp_path / "grown.zarr"), []
    append_rows(path, rng.normal(size=(50, 2)), rng.normal(size=50), rows_per_chunk=20)

    def wait(seconds):
        polls.append(seconds)
        if len(polls) <= 3:
            append_rows(path, rng.normal(size=(25, 2)), rng.normal(size=25))

    monkeypatch.setattr("bcmdist.committee.ingest.loop.time.sleep", wait)
    until_idle = IngestOptions(watch=True, stop=lambda: len(polls) > 4)
    after, tally = gbcm.ingest(gbcm.source(path, watch=True), until_idle)
    assert after.committee.total.rows == tally.rows == 120
    assert after.offsets[path] == 120
    finished, tally = after.ingest(gbcm.source(path))
    assert (finished.committee.total.rows, tally.rows) == (125, 5)


def test_a_bad_partition_leaves_what_was_good(prepared):
    gbcm, path = prepared
    with recorded(path) as group:
        before = group["y"][130]
        group["y"][130] = np.nan
    with pytest.raises(InvalidData, match=r"got nan at row 130"):
        gbcm.ingest(gbcm.source(path), ONE_EACH)
    stopped = GBCM.load(gbcm.url)
    assert 0 < len(stopped.ledger) < 12
    assert stopped.offsets[path] <= 120
    skipping, tally = stopped.ingest(gbcm.source(path), replace(ONE_EACH, skip=True))
    assert len(skipping.ledger) == 11
    assert [key.rpartition("[")[2] for key in tally.skipped] == ["120:140]"]
    assert skipping.facts["skipped"] == tally.skipped == skipping.info()["skipped"]
    with recorded(path) as group:
        group["y"][130] = before
    whole, tally = skipping.ingest(gbcm.source(path))
    assert (len(whole.ledger), tally.partitions, whole.info()["skipped"]) == (12, 1, [])


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["columns", "shape", "chunk", "metadata"])
def test_a_bad_data_set_of_a_directory_is_named_and_the_others_are_heard(prepared, tmp_path, rng, wrong):
    gbcm, _ = prepared
    root = tmp_path / "days"
    for day in "acd":
        write_dataset(root / day, {"X": rng.normal(size=(20, 2)), "y": rng.normal(size=20)}, rows_per_chunk=20)
    X = {"columns": rng.normal(size=(20, 3)), "shape": np.zeros(20)}.get(wrong, rng.normal(size=(20, 2)))
    write_dataset(root / "b", {"X": X, "y": np.zeros(20)}, rows_per_chunk=20)
    if wrong == "chunk":
        (root / "b" / "X" / "c" / "0" / "0").unlink()
    if wrong == "metadata":
        (root / "b" / "X" / "zarr.json").write_text("{")
    with pytest.raises(BcmdistError, match="/b"):
        gbcm.ingest(gbcm.source(root), ONE_EACH)
    stopped = GBCM.load(gbcm.url)
    assert stopped.offsets[str(root)]["stores"] == 1  # the first one
    skipping, tally = stopped.ingest(gbcm.source(root), replace(ONE_EACH, skip=True))
    assert len(skipping.ledger) == 3
    (name,) = skipping.info()["skipped"]
    assert name.startswith(str(root / "b"))
    assert tally.skipped == [name]
    shutil.rmtree(root / "b")
    write_dataset(root / "b", {"X": rng.normal(size=(20, 2)), "y": np.ones(20)}, rows_per_chunk=20)
    whole, tally = skipping.ingest(gbcm.source(root))
    assert (len(whole.ledger), tally.partitions, whole.info()["skipped"]) == (4, 1, [])


class Poisoned(SerialRuntime):
    """Whoever computes the third partition dies."""

    def each(self, work, *, label):
        for outcome in super().each(work, label=label):
            for part in outcome.parts:
                if part.start == 40:
                    yield replace(outcome, parts=[part], result=None, error=PoisonChunk(f"{part.key} killed 2 workers"))
                    break
            else:
                yield outcome


def test_the_rest_completes_beside_poison(prepared):
    gbcm, path = prepared
    with pytest.raises(PoisonChunk, match=r"X\[40:60\] killed 2 workers"):
        gbcm.ingest(gbcm.source(path), ONE_EACH, runtime=Poisoned())
    assert len(GBCM.load(gbcm.url).ledger) == 11


@pytest.mark.parametrize(("name", "value"), [("max_partitions", 0), ("commit_every", -1), ("keep", 0)])
def test_wishes_are_positive(name, value):
    with pytest.raises(InvalidOption, match=f"--{name.replace('_', '-')}: expected at least 1, got {value}"):
        IngestOptions(**{name: value})


def test_rows_fade_only_where_they_are_counted(prepared):
    gbcm, path = prepared
    source = Listed(tuple(partitions(open_data(path), 20)), "listed")
    with pytest.raises(InvalidOption, match="expected a source that counts its rows, got listed"):
        gbcm.ingest(source, IngestOptions(half_life=10.0))


def test_old_commits_are_pruned_on_the_way(prepared):
    gbcm, path = prepared
    after, _ = gbcm.ingest(gbcm.source(path), IngestOptions(commit_every=1, keep=3))
    assert set(after.store.numbers()) <= {1, 11, 12, 13}
    assert GBCM.load(gbcm.url, commit=12).committee.total.rows == 220


def before_commits(monkeypatch, theirs):
    """Have somebody else do something just before certain commits are made, by their number among all tries."""
    committed, tries, busy = Snapshot.committed, itertools.count(1), []

    def slow(self):
        if self.pending and not busy and (act := theirs.pop(next(tries), None)):
            busy.append(act)
            act()
            busy.clear()
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", slow)


class Busy(SerialRuntime):
    """Has all partitions on their way before the first is absorbed."""

    def each(self, work, *, label):
        yield from super().each([*work], label=label)


def test_what_somebody_commits_while_it_is_on_its_way_counts_once(prepared, monkeypatch):
    gbcm, path = prepared
    parts = partitions(open_data(path), 20)
    before_commits(monkeypatch, {1: lambda: GBCM.load(gbcm.url).absorb(parts[:2] + parts[3:6])})
    runtime = Busy()
    runtime.threads = 12  # one partition a task
    after, tally = gbcm.ingest(gbcm.source(path), ONE_EACH, runtime=runtime)
    assert (tally.retries, tally.partitions, tally.duplicates) == (1, 7, 5)
    assert sorted(entry.key for entry in after.ledger) == sorted(part.key for part in parts)
    expected = gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="test").message)
    assert_same_committee(after.committee, expected)
    assert GBCM.load(gbcm.url).ledger == after.ledger


@pytest.mark.parametrize("half_life", [None, 60.0])
def test_forgetting_while_somebody_ingests(prepared, monkeypatch, half_life):
    gbcm, path = prepared
    parts = partitions(open_data(path), 20)
    fading = {"commit_every": 1, "half_life": half_life}
    some, _ = gbcm.ingest(gbcm.source(path), IngestOptions(max_partitions=6, **fading))
    absorbed = []
    monkeypatch.setattr("bcmdist.committee.revision.messages", lambda *a, **o: absorbed.append(1) or messages(*a, **o))

    def ingest():
        GBCM.load(gbcm.url).ingest(gbcm.source(path), IngestOptions(max_partitions=2, **fading))

    before_commits(monkeypatch, {1: ingest, 2: ingest})
    after = some.forget([parts[2].key])
    assert len(absorbed) == 1  # recomputed once, however often others are faster
    assert [entry.key for entry in after.ledger] == [part.key for part in parts[:10] if part != parts[2]]
    weighted = [
        replace(p, weight=1.0 if half_life is None else 2.0 ** ((p.stop - 200) / half_life)) for p in parts[:10]
    ]
    kept = [part for part in weighted if part.start != 40]
    expected = gbcm.committee.absorb(gbcm.snapshot.compute_messages(kept, SerialRuntime(), label="test").message)
    assert_same_committee(after.committee, expected)
    assert GBCM.load(gbcm.url).ledger == after.ledger


def test_ingesting_while_somebody_forgets(prepared, monkeypatch):
    gbcm, path = prepared
    parts = partitions(open_data(path), 20)
    some = gbcm.absorb(parts[:3])
    before_commits(monkeypatch, {2: lambda: GBCM.load(gbcm.url).forget([parts[1].key])})
    after, tally = some.ingest(gbcm.source(path), IngestOptions(commit_every=4))
    assert (tally.retries, tally.partitions) == (1, 9)
    kept = [part for part in parts if part != parts[1]]
    assert {entry.key for entry in after.ledger} == {part.key for part in kept}
    assert_same_committee(
        after.committee,
        gbcm.committee.absorb(gbcm.snapshot.compute_messages(kept, SerialRuntime(), label="test").message),
    )


def test_two_sources_into_one_model(prepared, make_data, rng, monkeypatch):
    gbcm, path = prepared
    X, y = rng.uniform(-2, 2, (100, 2)), rng.normal(size=100)
    other = make_data("other.zarr", rows_per_chunk=20, X=X, y=y)
    before_commits(monkeypatch, {2: lambda: GBCM.load(gbcm.url).ingest(gbcm.source(other))})
    after, tally = gbcm.ingest(gbcm.source(path), IngestOptions(commit_every=4))
    assert (tally.retries, tally.partitions, tally.duplicates) == (1, 12, 0)
    assert after.offsets == {path: 240, other: 100}
    parts = [part for place in (path, other) for part in partitions(open_data(place), 20)]
    assert_same_committee(
        after.committee,
        gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="test").message),
    )


def test_fading_that_somebody_else_has_begun_meanwhile(prepared, make_data, rng, monkeypatch):
    gbcm, path = prepared
    other = make_data("other.zarr", rows_per_chunk=20, X=rng.uniform(-2, 2, (100, 2)), y=rng.normal(size=100))
    fading = IngestOptions(half_life=50.0)
    before_commits(monkeypatch, {2: lambda: GBCM.load(gbcm.url).ingest(gbcm.source(other), fading)})
    with pytest.raises(InvalidOption, match=r"expected 50.0 and None with rows of .*other\.zarr"):
        gbcm.ingest(gbcm.source(path), IngestOptions(commit_every=4))
    assert len(GBCM.load(gbcm.url).ledger) == 4 + 5


class Dying(SerialRuntime):
    """Is interrupted after so many partitions."""

    def __init__(self, most):
        super().__init__()
        self.most, self.absorbed = most, []

    def each(self, work, *, label):
        for outcome in super().each(work, label=label):
            self.absorbed += outcome.parts
            yield outcome
            if len(self.absorbed) >= self.most:
                raise KeyboardInterrupt


def test_a_killed_fit_is_continued_where_it_was(wave, make_data, tmp_path, monkeypatch):
    _, X, y = wave
    path, begun, rest = make_data("chunks.zarr", rows_per_chunk=20, X=X, y=y), Dying(7), Dying(99)
    monkeypatch.setattr("bcmdist.committee.ingest.loop.COMMIT_SECONDS", 0.0)
    monkeypatch.setattr("bcmdist.committee.ingest.loop.COMMIT_SHARE", 0)
    with pytest.raises(KeyboardInterrupt):
        GBCM.fit(path, GIVEN, model=tmp_path / "model", runtime=begun)
    committed = {entry.key for entry in GBCM.load(tmp_path / "model").ledger}
    assert committed == {part.key for part in begun.absorbed}
    fitted = GBCM.fit(path, GIVEN, model=tmp_path / "model", runtime=rest)
    assert {part.key for part in rest.absorbed} == {entry.key for entry in fitted.ledger} - committed
    assert_same_committee(fitted.committee, GBCM.fit(path, GIVEN).committee)


def test_rows_that_come_while_their_tail_is_on_its_way_count_once(prepared, tmp_path, rng):
    gbcm, _ = prepared
    path = str(tmp_path / "grown.zarr")
    append_rows(path, rng.normal(size=(90, 2)), rng.normal(size=90), rows_per_chunk=20)

    class Growing(SerialRuntime):
        def each(self, work, *, label):
            for number, outcome in enumerate(super().each(work, label=label)):
                if number == 0:
                    append_rows(path, rng.normal(size=(10, 2)), rng.normal(size=10))
                yield outcome

    after, tally = gbcm.ingest(gbcm.source(path), runtime=Growing())
    assert after.committee.total.rows == sum(entry.rows for entry in after.ledger) == tally.rows == 100


def test_somebody_else_lets_rows_fade_meanwhile(prepared):
    gbcm, path = prepared
    source, read = gbcm.source(path), iter(range(100))

    class Raced(SerialRuntime):
        def each(self, work, *, label):
            for outcome in super().each(work, label=label):
                if next(read) == 1:
                    gbcm.ingest(gbcm.source(path), IngestOptions(half_life=50.0, max_partitions=1))
                yield outcome

    with pytest.raises(InvalidOption, match="somebody else lets them fade by now; repeat the command"):
        gbcm.ingest(source, ONE_EACH, runtime=Raced())
    newest = GBCM.load(gbcm.url)
    again, _ = newest.ingest(gbcm.source(path))
    weights = {part.key: 2.0 ** ((part.stop - 240) / 50.0) for part in partitions(open_data(path), 20)}
    assert again.facts["fading"]["half_life"] == 50.0
    positions = {entry.key: entry.position for entry in again.ledger}
    early = {key for key, position in positions.items() if position is None}  # absorbed before rows began to fade
    parts = [
        replace(p, weight=2.0 ** (-240 / 50.0) if p.key in early else weights[p.key])
        for p in partitions(open_data(path), 20)
    ]
    expected = gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="test").message)
    assert_same_committee(again.committee, expected)


def test_models_whose_rows_fade_are_not_merged(prepared, tmp_path):
    gbcm, path = prepared
    shutil.copytree(gbcm.url, tmp_path / "other")
    fading, _ = gbcm.ingest(shuffled(path, range(6)), IngestOptions(half_life=50.0))
    other = GBCM.load(tmp_path / "other").absorb(partitions(open_data(path), 20)[6:])
    for one, two in ((fading, other), (other, fading)):
        with pytest.raises(ModelsDiffer, match="expected rows that do not fade"):
            one.merge(two, tmp_path / "both")


def test_a_model_of_running_beliefs_takes_no_wishes(wave, make_data, tmp_path):
    _, X, y = wave
    path = make_data("chunks.zarr", rows_per_chunk=20, X=X, y=y)
    gbcm = GBCM.prepare(path, replace(GIVEN, linearise="running"), model=tmp_path / "model")
    with pytest.raises(InvalidOption, match="expected no options with a model that linearises at the running belief"):
        gbcm.ingest(gbcm.source(path), IngestOptions(max_partitions=2))
    with pytest.raises(InvalidOption, match=r"order, got max_partitions 2, half_life 9.0; leave them out \(keep"):
        gbcm.ingest(gbcm.source(path), IngestOptions(max_partitions=2, half_life=9.0, keep=3))
    after, tally = gbcm.ingest(gbcm.source(path))
    assert (tally.partitions, after.committee.total.rows) == (12, 240)
    with recorded(path) as group:
        group["y"][70] += 1.0
    with pytest.raises(ChunkConflict, match=r"X\[60:80\]: expected the rows that were absorbed under this key"):
        after.ingest(gbcm.source(path))


def test_other_rows_in_other_chunks_are_other_rows(prepared, make_data, wave):
    gbcm, path = prepared
    after, _ = gbcm.ingest(gbcm.source(path))
    _, X, y = wave
    shutil.rmtree(path)
    make_data("chunks.zarr", rows_per_chunk=30, X=X, y=y)
    again, tally = after.ingest(gbcm.source(path))  # the same rows, cut otherwise
    assert (tally.partitions, tally.duplicates, again.commit) == (0, 16, after.commit)  # two of each chunk
    shutil.rmtree(path)
    make_data("chunks.zarr", rows_per_chunk=30, X=X, y=y + 1.0)
    with pytest.raises(ChunkConflict, match="expected the rows that were absorbed under this key"):
        after.ingest(gbcm.source(path))


def test_rows_begin_to_fade_where_nothing_is_new(prepared):
    gbcm, path = prepared
    after, _ = gbcm.ingest(gbcm.source(path))
    fading, tally = after.ingest(gbcm.source(path), IngestOptions(half_life=100.0))
    assert (tally.partitions, fading.info()["fading"]["half_life"]) == (0, 100.0)
    with pytest.raises(InvalidOption, match="since this model down-weights rows by their position"):
        fading.absorb(elsewhere(path))


def elsewhere(path):
    """A partition of another array."""
    other = open_data(path)
    return [replace(partitions(other, 20)[0], data=replace(other, url=f"{other.url}-copy"))]

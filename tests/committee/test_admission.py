"""What is admitted of deliveries: events in, instructions out; no source, no store, no worker, no clock."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.admission import NOTHING, Acknowledgement, Admission, Instructions, LedgerState
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.ingest.race import absorbed_again
from bcmdist.data.dataset import Dataset
from bcmdist.data.partition import Partition
from bcmdist.data.row_ranges import RowRanges
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import BcmdistError, ChunkConflict, DataChanged, InvalidData, InvalidOption, SameRows
from bcmdist.experts.contributions import Contribution
from bcmdist.experts.message import Message
from bcmdist.storage.entry import Entry
from bcmdist.storage.ledger import Ledger

ROWS = 40


def data(name="d"):
    return Dataset(name, "X", "y", rows=ROWS, inputs=1, chunk_rows=10, companions=())


def part(start, stop, name="d"):
    return Partition(data(name), start, stop)


def entry(p, digest=None, position=None):
    return Entry(p.key, digest or p.key, p.rows, position=position)


def message(p, weight=1.0):
    """Which rows it is of can be told from the evidence, a sum of powers of two."""
    value = weight * sum(2.0**row for row in range(p.start, p.stop))
    return Message(np.array([value]), np.array([[value]]), value, p.rows)


def absorbed(*parts, digest=None):
    """What workers say of partitions."""
    contributions = [Contribution(message(p, p.weight), {p.key: entry(p, digest)}) for p in parts]
    return sum(contributions[1:], contributions[0])


def delivery(*parts, offset=None, position=None):
    return Delivery(parts, parts[-1].stop if offset is None else offset, position)


def state(entries, in_cells, fading):
    return LedgerState(Ledger.of(entries), set(in_cells), fading)


def committed(machine, batch, ledger=None):
    """The next commit, with this ledger where others have committed, too."""
    found = machine.known.ledger.extended(batch.entries.values()) if ledger is None else Ledger.of(ledger)
    return machine.committed(batch, machine.fading, found, overtaken=ledger is not None)


def admission(*ledger, in_cells=(), fading=None, surveyed=(), unfit=lambda part: None, **options):
    known = state(ledger, in_cells, fading or Weighting("s"))
    return Admission(known, {e.key: e for e in surveyed}, IngestOptions(**options), unfit)


A, B, C, D = (part(start, start + 10) for start in range(0, ROWS, 10))


# --- What a delivery is ---


def test_new():
    machine = admission()
    assert machine.delivered(delivery(A, B)) == Instructions(to_absorb=(A, B))
    assert machine.absorbed(absorbed(A, B), [A, B]) == NOTHING
    assert machine.uncommitted == 2
    batch = machine.take()
    assert (batch.message.evidence, set(batch.entries), batch.offset) == (2.0**20 - 1, {A.key, B.key}, 20)
    assert machine.uncommitted == 0
    told = committed(machine, batch)
    assert told == Instructions(acknowledge=Acknowledgement(20, (A.key, B.key)))
    assert dict(machine.known) == {A.key: A.key, B.key: B.key}
    assert (machine.report.partitions, machine.report.rows, machine.report.duplicates) == (2, 20, 0)


def test_known():
    machine = admission(entry(A))
    assert machine.delivered(delivery(A, B)) == Instructions(compare=(A,), to_absorb=(B,))
    assert machine.report.duplicates == 1
    machine.absorbed(absorbed(B), [B])
    assert machine.take().offset is None  # it might not be what was absorbed
    assert machine.compared({A.key: A.key}) == NOTHING
    assert machine.take().offset == 20


def test_known_with_other_rows():
    machine = admission(entry(A))
    machine.delivered(delivery(A))
    (error,) = machine.compared({A.key: "other"}).fail
    assert isinstance(error, ChunkConflict)
    assert str(error).startswith(f"{A.key}: expected the rows that were absorbed under this key")
    assert machine.take().offset is None


def test_on_its_way():
    machine = admission()
    machine.delivered(delivery(A))
    assert machine.delivered(delivery(A, offset=11)) == NOTHING
    assert machine.take().keys == ()
    machine.absorbed(absorbed(A), [A])
    assert machine.delivered(delivery(A, offset=12)) == NOTHING  # absorbed, but not committed
    batch = machine.take()
    assert (batch.offset, batch.keys, list(batch.entries)) == (12, (A.key, A.key, A.key), [A.key])
    assert machine.report.duplicates == 0


@pytest.mark.parametrize("watch", [False, True])
def test_cut_otherwise(watch):
    """What was absorbed lies in a longer partition now: it is compared, once, and the rest is new."""
    machine, longer = admission(entry(A), watch=watch), part(0, 15)
    compare = () if watch else (A.key,)
    assert machine.delivered(delivery(longer)) == Instructions(compare_keys=compare, to_absorb=(part(10, 15),))
    assert machine.report.duplicates == 0
    assert machine.delivered(delivery(part(5, 20))) == Instructions(to_absorb=(part(15, 20),))


def test_cut_otherwise_on_its_way():
    machine = admission()
    machine.delivered(delivery(A))
    assert machine.delivered(delivery(part(0, 15))) == Instructions(to_absorb=(part(10, 15),))


def test_all_of_its_rows_are_known():
    machine = admission(entry(A), entry(B))
    assert machine.delivered(delivery(part(5, 15))) == Instructions(compare_keys=(A.key, B.key))
    assert machine.report.duplicates == 1
    machine.compared({A.key: A.key})
    assert machine.take().offset is None
    machine.compared({B.key: B.key})
    assert machine.take().offset == 15


def test_heard_in_the_order_of_cells():
    machine = admission(in_cells=[A.key])
    assert machine.delivered(delivery(A, B)) == Instructions(to_absorb=(B,))
    assert machine.report.duplicates == 1


def test_a_partition_without_rows_is_read_by_somebody_who_says_why():
    assert admission().delivered(delivery(part(0, 0))) == Instructions(to_absorb=(part(0, 0),))
    assert admission(entry(A)).delivered(delivery(part(0, 0))) == NOTHING  # of an array that was read before


@pytest.mark.parametrize("skip", [False, True])
def test_bad(skip):
    machine, error = admission(skip=skip), InvalidData("broken")
    told = machine.delivered(Delivery((), 10, bad=("d", error)))
    assert told == (NOTHING if skip else Instructions(fail=(error,)))
    assert machine.report.skipped == ["d"] * skip
    assert machine.take().offset == (10 if skip else None)


@pytest.mark.parametrize("skip", [False, True])
def test_not_for_this_model(skip):
    error = InvalidData("other columns")
    machine = admission(skip=skip, unfit=lambda p: error if p == A else None)
    assert machine.delivered(delivery(A, B)) == Instructions(to_absorb=(B,), fail=() if skip else (error,))
    machine.absorbed(absorbed(B), [B])
    batch = machine.take()
    assert (list(batch.entries), batch.offset) == ([B.key], 20 if skip else None)
    assert machine.report.skipped == [A.key] * skip
    assert machine.delivered(delivery(part(0, 5))) == Instructions(
        to_absorb=(part(0, 5),)
    )  # of which nothing was absorbed


def test_expired():
    machine = admission(fading=Weighting("s", 30, window=20))
    assert machine.delivered(delivery(A, B, position=20)) == Instructions(to_absorb=(B,))
    assert machine.report.expired == 1
    machine.absorbed(absorbed(B), [B])
    batch = machine.take()
    assert (batch.offset, batch.entries[B.key].position, batch.fading.position) == (20, 20, 30)


def test_a_source_that_does_not_count_its_rows():
    machine = admission(fading=Weighting("stream", half_life=5.0))
    with pytest.raises(InvalidOption, match="expected a source that counts its rows, got stream"):
        machine.delivered(delivery(A))
    assert machine.take().offset is None


def test_positions_of_the_parts_of_a_delivery():
    machine = admission(fading=Weighting("s", half_life=10.0))
    machine.delivered(delivery(C, D, position=100))
    for p in (D, C):  # in any order
        machine.absorbed(absorbed(p), [p])
    batch = machine.take()
    assert [e.position for e in batch.entries.values()] == [100, 90]
    assert batch.message.evidence == pytest.approx(message(D).evidence + 0.5 * message(C).evidence, rel=1e-15)


# --- What came of it ---


def test_rows_that_are_not_those_of_the_survey():
    machine = admission(surveyed=[entry(A, "surveyed")])
    machine.delivered(delivery(A))
    (error,) = machine.absorbed(absorbed(A, digest="other"), [A]).fail
    assert isinstance(error, DataChanged)
    assert machine.uncommitted == 0


@pytest.mark.parametrize("skip", [False, True])
def test_failed(skip):
    machine, error = admission(skip=skip), BcmdistError("poison")
    machine.delivered(delivery(A))
    machine.delivered(delivery(B))
    machine.absorbed(absorbed(B), [B])
    assert machine.failed([A.key], error) == (NOTHING if skip else Instructions(fail=(error,)))
    batch = machine.take()
    assert (batch.offset, list(batch.entries)) == (20 if skip else None, [B.key])  # what was good is committed
    assert machine.report.skipped == [A.key] * skip


def test_what_is_known_of_a_failure_is_that_it_was_not_heard():
    """What failed may come again, and be absorbed."""
    machine = admission(skip=True)
    machine.delivered(delivery(A))
    machine.failed([A.key], BcmdistError("poison"))
    assert A.key not in machine.known


COPY = part(0, 10, "copy")


@pytest.mark.parametrize(
    ("same_rows", "skip"), [("warn", False), ("allow", False), ("refuse", False), ("refuse", True)]
)
def test_twins(same_rows, skip):
    machine = admission(entry(A, "same"), same_rows=same_rows, skip=skip)
    assert machine.delivered(delivery(COPY)) == Instructions(to_absorb=(COPY,))
    told = machine.absorbed(absorbed(COPY, digest="same"), [COPY])
    assert machine.twins == {COPY.key: A.key}
    assert machine.report.same_rows == 1
    assert machine.uncommitted == (0 if same_rows == "refuse" else 1)
    assert [type(error) for error in told.fail] == [SameRows] * (same_rows == "refuse" and not skip)
    assert machine.report.skipped == [COPY.key] * skip
    warned = [machine.warning(), machine.warning()]
    assert [text is not None for text in warned] == [same_rows == "warn", False]  # once


def test_twins_among_what_is_on_its_way():
    machine = admission()
    machine.delivered(delivery(A, COPY))
    machine.absorbed(absorbed(A, digest="same"), [A])
    machine.absorbed(absorbed(COPY, digest="same"), [COPY])
    assert machine.twins == {COPY.key: A.key}


def test_what_the_window_has_left_has_no_twin():
    old = entry(A, "same", position=10)
    machine = admission(old, fading=Weighting("s", 10, window=20))
    machine.delivered(delivery(COPY, position=100))
    machine.absorbed(absorbed(COPY, digest="same"), [COPY])
    assert machine.twins == {}
    assert machine.warning() is None


# --- Others commit too ---


def ready(*parts, **options):
    """A machine whose batch of these partitions is to be committed."""
    machine = admission(**options)
    machine.delivered(delivery(*parts, position=parts[-1].stop))
    for p in parts:
        machine.absorbed(absorbed(p), [p])
    return machine, machine.take()


def test_overtaken_by_other_rows():
    machine, batch = ready(A, B)
    assert machine.overtaken(batch, state([entry(C)], set(), machine.fading)) == NOTHING
    told = committed(machine, batch, [entry(C), entry(A), entry(B)])
    assert told.acknowledge.offset == 20
    assert machine.delivered(delivery(C)).compare == (C,)  # it is known by now


def test_overtaken_by_some_of_the_same_rows():
    machine, batch = ready(A, B, C)
    told = machine.overtaken(batch, state([entry(A), entry(part(10, 15))], set(), machine.fading))
    rest = part(15, 20)
    assert told.absorb_again == ((rest, replace(entry(rest), digest=B.key)), (C, entry(C)))
    again = absorbed_again(batch, told.absorb_again, lambda parts: absorbed(*parts))
    assert again.message.evidence == message(part(15, 30)).evidence
    assert again.entries == {rest.key: entry(rest), C.key: entry(C)}
    assert (again.offset, again.keys) == (batch.offset, batch.keys)
    assert machine.report.duplicates == 2  # one of them in part


def test_overtaken_by_all_of_the_same_rows():
    machine, batch = ready(A, B)
    told = machine.overtaken(batch, state([entry(A), entry(B)], set(), machine.fading))
    assert told == Instructions(absorb_again=())
    again = absorbed_again(batch, (), lambda parts: pytest.fail("nothing is to be absorbed"))
    assert (again.message, again.entries, again.offset) == (None, {}, 20)
    assert committed(machine, again, [entry(A), entry(B)]).acknowledge.keys == (A.key, B.key)
    assert (machine.report.partitions, machine.report.duplicates) == (0, 2)


def test_overtaken_in_the_order_of_cells():
    machine, batch = ready(A, B)
    told = machine.overtaken(batch, state([], {A.key}, machine.fading))
    assert [p for p, _ in told.absorb_again] == [B]


def test_overtaken_with_other_rows_under_the_same_key():
    machine, batch = ready(A, B)
    told = machine.overtaken(batch, state([entry(A, "other")], set(), machine.fading))
    assert [type(error) for error in told.fail] == [ChunkConflict]
    assert [p for p, _ in told.absorb_again] == [B]


@pytest.mark.parametrize("same_rows", ["warn", "refuse"])
def test_overtaken_by_a_twin(same_rows):
    machine, batch = ready(A, B, same_rows=same_rows)
    told = machine.overtaken(batch, state([entry(COPY, A.key)], set(), machine.fading))
    assert machine.twins == {A.key: COPY.key}
    if same_rows == "warn":
        assert told == NOTHING
    else:
        assert [type(error) for error in told.fail] == [SameRows]
        assert [p for p, _ in told.absorb_again] == [B]
    assert machine.report.duplicates == 0


def test_overtaken_where_rows_fade():
    """What is left counts as it stands in its source, as of the newest row of the batch."""
    machine, batch = ready(A, B, fading=Weighting("s", half_life=5.0))
    told = machine.overtaken(batch, state([entry(part(5, 20))], set(), machine.fading))
    ((rest, known),) = told.absorb_again
    assert (rest, known.position) == (replace(part(0, 5), weight=2.0 ** ((5 - 20) / 5.0)), 5)


def test_overtaken_on_its_way():
    """What others were seen to have absorbed while a worker was at it is left out, though nobody is faster now."""
    machine, batch = ready(A)
    machine.delivered(delivery(B, C))
    known = [entry(A), entry(B)]  # by somebody who was faster
    left = machine.overtaken(batch, state(known, set(), machine.fading)).absorb_again
    committed(machine, absorbed_again(batch, left, absorbed), known)
    machine.absorbed(absorbed(B, C), [B, C])
    late = machine.take()
    assert machine.is_overtaken(late)
    told = machine.overtaken(late, state(known, set(), machine.fading))
    assert [p for p, _ in told.absorb_again] == [C]
    late = absorbed_again(late, told.absorb_again, lambda parts: absorbed(*parts))
    assert committed(machine, late).acknowledge.offset == 30
    assert (machine.report.partitions, machine.report.duplicates) == (1, 2)
    machine.delivered(delivery(D))
    machine.absorbed(absorbed(D), [D])
    assert not machine.is_overtaken(machine.take())


def test_what_somebody_has_forgotten_may_have_a_copy():
    machine, batch = ready(B)
    committed(machine, batch, [])  # absorbed, and forgotten by somebody else
    copy = part(10, 20, "copy")
    machine.delivered(delivery(copy))
    machine.absorbed(absorbed(copy, digest=B.key), [copy])
    assert machine.twins == {}


# --- Every row once ---


class World:
    """One ingester, others who commit as well, and what the model has absorbed of it."""

    def __init__(self):
        self.machine = admission()
        self.ledger, self.total, self.seen = [], 0.0, 0
        """what is committed, the sum of its messages, and how much of the ledger the ingester has seen"""
        self.tasks, self.delivered, self.failures, self.offset = [], set(), [], 0

    def deliver(self, start, rows):
        p = part(start, min(start + rows, ROWS))
        self.delivered |= set(range(p.start, p.stop))
        told = self.machine.delivered(delivery(p, offset=self.offset))
        self.offset += 1
        self.failures += told.fail
        self.tasks += [("compare", p.key) for p in told.compare] + [("compare", key) for key in told.compare_keys]
        self.tasks += [("hear", p) for p in told.to_absorb]

    def finish(self, choice):
        """One of the tasks on their way ends."""
        if self.tasks:
            kind, what = self.tasks.pop(choice % len(self.tasks))
            told = (
                self.machine.absorbed(absorbed(what), [what]) if kind == "hear" else self.machine.compared({what: what})
            )
            self.failures += told.fail

    def somebody_commits(self, start, rows):
        """Somebody else absorbs what nobody has, at once."""
        for p in RowRanges(e.key for e in self.ledger).remaining(part(start, min(start + rows, ROWS))):
            self.ledger.append(entry(p))
            self.total += message(p).evidence
            self.delivered |= set(range(p.start, p.stop))

    def left_of(self, batch):
        told = self.machine.overtaken(batch, state([*self.ledger[: self.seen]], set(), self.machine.fading))
        self.failures += told.fail
        left = told.absorb_again
        return batch if left is None else absorbed_again(batch, left, lambda parts: absorbed(*parts))

    def commit(self, *, fast=None):
        """The next commit; `fast` is committed by somebody else while it is tried again."""
        batch, overtaken = self.machine.take(), False
        if self.machine.is_overtaken(batch):
            batch = self.left_of(batch)
        while batch.entries and len(self.ledger) > self.seen:  # else there is nothing to say
            overtaken, self.seen = True, len(self.ledger)
            batch = self.left_of(batch)
            if fast:
                self.somebody_commits(*fast)
                fast = None
        if batch.entries:
            self.ledger += batch.entries.values()
            self.total += batch.message.evidence
            self.seen = len(self.ledger)
        ledger = self.ledger[: self.seen] if overtaken else None
        told = committed(self.machine, batch, ledger)
        self.failures += told.fail
        return told.acknowledge

    def check(self):
        rows = [row for e in self.ledger for row in range(*map(int, e.key.partition("[")[2].rstrip("]").split(":")))]
        assert len(rows) == len(set(rows))
        assert self.total == sum(2.0**row for row in rows)
        return set(rows)


RANGES = st.tuples(st.integers(0, ROWS - 1), st.integers(1, 15))
STEPS = st.one_of(
    st.tuples(st.just("deliver"), RANGES),
    st.tuples(st.just("finish"), st.integers(0, 50)),
    st.tuples(st.just("somebody commits"), RANGES),
    st.tuples(st.just("commit"), st.none() | RANGES),
)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_every_row_is_heard_once(steps):
    """Deliveries in any order, repeated and cut otherwise; outcomes in any order; others commit at any time."""
    world = World()
    for kind, what in steps:
        if kind == "deliver":
            world.deliver(*what)
        elif kind == "finish":
            world.finish(what)
        elif kind == "somebody commits":
            world.somebody_commits(*what)
        else:
            world.commit(fast=what)
            world.check()
    while world.tasks:
        world.finish(0)
    told = world.commit()
    assert world.check() == world.delivered
    assert world.failures == []
    assert told.offset == (world.offset - 1 if world.offset else None)  # everything is acknowledged
    assert world.machine.report.partitions <= len(world.ledger)

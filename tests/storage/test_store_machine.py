"""Anything may happen to a model directory, in any order; it is compared with Python sets.

Message i is the number 2^i, so that sums of messages are exact and their bits tell which are in.
"""

import contextlib
import shutil
import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bcmdist.errors import CommitConflict, ModelDamaged
from bcmdist.storage import ledger
from bcmdist.storage.commits import ModelStore
from bcmdist.storage.disk import LocalStorage
from bcmdist.storage.entry import Entry

KEYS = st.integers(0, 11)
SOURCE = "source"


def heard_in(commit):
    """The messages whose sum a commit holds."""
    total = int(commit.arrays["sum"])
    return {key for key in range(total.bit_length()) if total >> key & 1}


class Ingester:
    """What a process knows between two commits: the last one, and what it has absorbed or withdrawn since."""

    def __init__(self, store):
        self.store = store
        self.reopen()

    def reopen(self):
        self.commit = self.store.load() if self.store.head() else None
        self.total = float(self.commit.arrays["sum"]) if self.commit else 0.0
        self.ledger = list(self.commit.ledger) if self.commit else []
        self.rewritten = False

    def knows(self, key):
        return any(entry.key == str(key) for entry in self.ledger)

    def compute_messages(self, key):
        if not self.knows(key):
            self.total += 2.0**key
            self.ledger.append(Entry(str(key), "", 1))

    def forget(self, key):
        if self.knows(key):
            self.total -= 2.0**key
            self.ledger = [entry for entry in self.ledger if entry.key != str(key)]
            self.rewritten = True

    def put(self):
        number = self.commit.number + 1 if self.commit else 1
        known = self.commit.ledger if self.commit and not self.rewritten else ()
        segments = self.commit.ledger.digests if self.commit and not self.rewritten else ()
        arrays = self.store.put_arrays({"sum": np.array(self.total)}, before=self.store.arrays_before(number))
        segments = self.store.extended(segments, self.ledger[len(known) :])
        offsets = {SOURCE: len(self.ledger)}
        self.store.commit(number, arrays=arrays, facts={}, segments=segments, offsets=offsets)
        self.reopen()


class Machine(RuleBasedStateMachine):
    """A model directory with an ingester, and others that come and go."""

    store_kind, ingester_kind = ModelStore, Ingester

    @initialize()
    def begin(self):
        self.folder = tempfile.mkdtemp(prefix="bcmdist-")
        self.store = self.store_kind(Fast(self.folder))
        self.ingester = self.ingester_kind(self.store)
        self.waiting: set[int] = set()  # what the ingester would hold, were it committed
        self.commits: dict[int, set[int]] = {}
        self.kept: set[int] = set()
        self.held: dict[int, contextlib.ExitStack] = {}

    def newest(self):
        return self.commits[max(self.commits)] if self.commits else set()

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def ingest(self, keys):
        """New, late, again, in any order."""
        for key in keys:
            self.ingester.compute_messages(key)
        self.waiting |= set(keys)

    @rule(key=KEYS)
    def forget(self, key):
        self.ingester.forget(key)
        self.waiting -= {key}

    @rule()
    def commit(self):
        self.ingester.put()
        self.note(self.waiting)

    def note(self, absorbed):
        number = max(self.commits, default=0) + 1
        self.commits[number] = set(absorbed)
        self.kept.add(number)

    @rule()
    def crash(self):
        """What was not committed is lost."""
        self.store = self.store_kind(Fast(self.folder))
        self.ingester = self.ingester_kind(self.store)
        self.waiting = set(self.newest())

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3))
    def another_writer(self, keys):
        """He is first; the ingester is refused, adds what it had absorbed to what there is now, and is second."""
        other = self.ingester_kind(self.store_kind(Fast(self.folder)))
        for key in keys:
            other.compute_messages(key)
        other.put()
        base = self.newest()
        added, withdrawn = self.waiting - base, base - self.waiting
        self.note(base | set(keys))
        with pytest.raises(CommitConflict):
            self.ingester.put()
        self.ingester.reopen()
        for key in added:
            self.ingester.compute_messages(key)
        for key in withdrawn:
            self.ingester.forget(key)
        self.waiting = (self.newest() | added) - withdrawn
        self.commit()

    @precondition(lambda self: self.commits)
    @rule(draw=st.data())
    def corrupt(self, draw):
        """A flipped bit, in a record or in a blob that the newest commit names, is seen."""
        number = max(self.commits)
        record = self.store.record(number)
        blobs = [f"blobs/{name}" for name in (*record["arrays"].values(), *record["segments"])]
        path = f"{self.folder}/{draw.draw(st.sampled_from([f'commits/{number:08d}.json', *blobs]))}"
        with open(path, "r+b") as file:
            data = file.read()
            where = draw.draw(st.integers(0, len(data) - 1))
            file.seek(where)
            file.write(bytes([data[where] ^ 1 << draw.draw(st.integers(0, 7))]))
        ledger._opened.clear()  # as in another process, which has not read it before
        with pytest.raises(ModelDamaged):
            self.store.load()
        with open(path, "wb") as file:
            file.write(data)

    @precondition(lambda self: self.commits)
    @rule(keep=st.integers(1, 3))
    def prune(self, keep):
        self.store.prune(keep)
        newest = sorted(number for number in self.commits if number > max(self.commits) - keep)
        self.kept &= {*newest, *self.held}

    @precondition(lambda self: len(self.held) < 2)
    @rule(draw=st.data())
    def hold(self, draw):
        pruned = self.store.pruned()
        free = sorted(number for number in self.kept - set(self.held) if number > pruned)
        if free:
            number = draw.draw(st.sampled_from(free))
            self.held[number] = contextlib.ExitStack()
            self.held[number].enter_context(self.store.hold(number))

    @precondition(lambda self: self.held)
    @rule()
    def let_go(self):
        """A pruned commit that nobody holds any longer is none."""
        number, hold = self.held.popitem()
        hold.close()
        if number <= self.store.pruned():
            self.kept.discard(number)

    @invariant()
    def every_commit_is_what_it_was(self):
        if not hasattr(self, "store"):
            return
        assert self.store.numbers() == sorted(self.kept)
        for number in self.kept:
            commit = self.store.load(number)
            assert heard_in(commit) == self.commits[number]
            assert sorted(int(entry.key) for entry in commit.ledger) == sorted(self.commits[number])
            assert commit.offsets == {SOURCE: len(self.commits[number])}

    def teardown(self):
        for hold in getattr(self, "held", {}).values():
            hold.close()
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)


class Fast(LocalStorage):
    """Without fsync: no power is cut here."""

    def __init__(self, root):
        super().__init__(root, disk=Unsynced)


class Unsynced:
    """`os`, but for fsync."""

    from os import access, close, fstat, link, listdir, mkdir, open, read, rmdir, unlink, write

    access, close, fstat, link, listdir, mkdir = map(staticmethod, (access, close, fstat, link, listdir, mkdir))
    open, read, rmdir, unlink, write = map(staticmethod, (open, read, rmdir, unlink, write))

    @staticmethod
    def fsync(handle):
        pass


QUICK = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None}


@pytest.mark.slow
def test_whatever_happens():
    run_state_machine_as_test(Machine, settings=settings(max_examples=25, stateful_step_count=20, **QUICK))


@pytest.mark.slow
def test_whatever_happens_for_long():
    run_state_machine_as_test(Machine, settings=settings(max_examples=300, stateful_step_count=40, **QUICK))


class HearsTwice(Ingester):
    def compute_messages(self, key):
        self.total += 2.0**key
        self.ledger.append(Entry(str(key), "", 1))


class KnowsUpTo(Ingester):
    """A watermark: what is older than the newest is taken for known."""

    def knows(self, key):
        return any(int(entry.key) >= key for entry in self.ledger)


class ForgetsTheMessageOnly(Ingester):
    def forget(self, key):
        if self.knows(key):
            self.total -= 2.0**key


class KeepsTheMessage(Ingester):
    def forget(self, key):
        if self.knows(key):
            self.ledger = [entry for entry in self.ledger if entry.key != str(key)]
            self.rewritten = True


class LosesTheLedger(ModelStore):
    def extended(self, segments, entries):
        return tuple(segments)


class Reorders(ModelStore):
    """Merges segments and loses one of two."""

    def extended(self, segments, entries):
        return super().extended(segments[:-1] if len(segments) > 1 else segments, entries)


class LastWriterWins(ModelStore):
    def commit(self, number, **what):
        self.storage.remove(f"commits/{number:08d}.json")
        return super().commit(number, **what)


class PrunesWhatIsHeld(ModelStore):
    def held(self):
        return {}


class PrunesLiveBlobs(ModelStore):
    def prune(self, keep):
        old = [number for number in self.numbers()[:-keep] if number not in self.held()]
        blobs = [name for number in old for name in (*self.record(number)["segments"],)]
        super().prune(keep)
        for name in blobs:
            self.storage.remove(f"blobs/{name}")


class NumbersComeFree(ModelStore):
    def pruned(self):
        return 0


class OffsetFirst(ModelStore):
    """The offset of what is absorbed next stands in the record before."""

    def commit(self, number, *, offsets, **what):
        return super().commit(number, offsets={SOURCE: offsets[SOURCE] + 1}, **what)


class Trusting(ModelStore):
    def _get_blob(self, digest):
        return self.storage.get(f"blobs/{digest}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        HearsTwice,
        KnowsUpTo,
        ForgetsTheMessageOnly,
        KeepsTheMessage,
        LosesTheLedger,
        Reorders,
        LastWriterWins,
        PrunesWhatIsHeld,
        PrunesLiveBlobs,
        NumbersComeFree,
        OffsetFirst,
        Trusting,
    ],
)
def test_what_is_broken_is_found(broken):
    kind = "ingester_kind" if issubclass(broken, Ingester) else "store_kind"
    machine = type("Broken", (Machine,), {kind: broken})
    phases = (Phase.generate,)  # the first failure will do
    with pytest.raises((AssertionError, pytest.fail.Exception, ModelDamaged, CommitConflict, ValueError)):
        run_state_machine_as_test(
            machine, settings=settings(max_examples=400, stateful_step_count=30, phases=phases, **QUICK)
        )

"""The real commit code over a disk that loses what was not synced, crashed at every operation, and again at every
operation of the recovery.

Message i is the number 2^i and the state is their sum: its bits tell which messages are in, and a message that is
counted twice shows. A program is run once and the disk is kept before each of its operations: each of these is a
crash point. Of what was not synced each draw keeps other things.
"""

import contextlib
import hashlib
import json
import random
import time
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from losing_disk import LosingDisk

from bcmdist.errors import BcmdistError, CommitConflict, ModelNotFound
from bcmdist.storage import leases, ledger
from bcmdist.storage.commits import ModelStore
from bcmdist.storage.disk import LocalStorage
from bcmdist.storage.entry import Entry

MODEL, SOURCE = "/m", "source"
ALL = range(6)
FORGOTTEN = 1


def ingest(store, keys, acknowledged):
    """Absorb what is not in the ledger, and commit it as `Snapshot.successor` does; again where another was first."""
    while True:
        number = store.head()
        try:
            with store.hold(number):
                compute_messages(store, store.load(number) if number else None, keys)
        except (CommitConflict, ModelNotFound):  # somebody else was first, or has pruned it
            continue
        acknowledged.update(keys)
        return


def compute_messages(store, commit, keys):
    number = commit.number if commit else 0
    ledger = {int(entry.key) for entry in commit.ledger} if commit else set()
    new = [key for key in keys if key not in ledger]
    if commit and not new:
        return
    total = (commit.arrays["sum"] if commit else 0.0) + sum(2.0**key for key in new)
    arrays = store.put_arrays({"sum": np.array(total)}, before=store.arrays_before(number + 1))
    segments = store.extended(commit.ledger.digests if commit else (), [Entry(str(key), "", 1) for key in new])
    store.commit(number + 1, arrays=arrays, facts={}, segments=segments, offsets={SOURCE: len(ledger) + len(new)})


class Wrong(Exception):
    """A model directory is not what it must be."""


def examine(store, acknowledged):
    """Every commit can be read and is a set of messages; the newest holds all that was acknowledged."""
    absorbed: set[int] = set()
    for number in store.numbers():
        try:
            commit = store.load(number)
        except BcmdistError as error:
            raise Wrong(f"unreadable: {error}") from error
        before, absorbed = absorbed, {key for key in range(64) if int(commit.arrays["sum"]) >> key & 1}
        keys = [int(entry.key) for entry in commit.ledger]
        if sorted(keys) != sorted(absorbed) or commit.offsets != {SOURCE: len(keys)}:
            raise Wrong(f"state {absorbed}, ledger {keys}, offsets {commit.offsets}")
        if not before - {FORGOTTEN} <= absorbed:
            raise Wrong(f"{before} then {absorbed}")
    if not acknowledged <= absorbed:
        raise Wrong(f"acknowledged {acknowledged}, absorbed {absorbed}")


@dataclass
class Program:
    """What happens: `first`, and at its operation number `turn` all of `second`, by another process."""

    first: list
    second: list = field(default_factory=list)
    start: list = field(default_factory=lambda: [[], [0], [1]])
    """commits there are already"""


def write(keys):
    return lambda store, acknowledged: ingest(store, keys, acknowledged)


def forget(store, acknowledged):
    """Withdraw the message `FORGOTTEN`, the last one: what is left has been there before."""
    acknowledged.discard(FORGOTTEN)
    while True:
        number = store.head()
        with contextlib.suppress(CommitConflict, ModelNotFound), store.hold(number):
            commit = store.load(number)
            total = commit.arrays["sum"] - 2.0**FORGOTTEN
            ledger = [entry for entry in commit.ledger if entry.key != str(FORGOTTEN)]
            arrays = store.put_arrays({"sum": total}, before=store.arrays_before(number + 1))
            offsets, segments = {SOURCE: len(ledger)}, store.extended((), ledger)
            store.commit(number + 1, arrays=arrays, facts={}, segments=segments, offsets=offsets)
            return


def prune(keep):
    return lambda store, acknowledged: store.prune(keep)


PROGRAMS = {
    "from nothing": Program([write([]), write([0]), write([1])], start=[]),
    "two from nothing": Program([write([0])], [write([1])], start=[]),
    "two writers": Program([write([2])], [write([3])]),
    "pruning": Program([prune(1)]),
    "pruning, and a writer": Program([prune(1)], [write([2])]),
    "pruning, and a fast writer": Program([prune(2)], [write([2]), write([3]), prune(1)]),
    "a writer, and pruning": Program([write([2])], [prune(1)]),
    "a slow writer, and pruning": Program([write([2])], [write([3]), write([4]), prune(1)]),
    "a blob again, and pruning": Program([forget], [prune(1)]),
    "pruning, and a blob again": Program([prune(1)], [forget]),
}


class Trial:
    """Runs programs on disks of a kind and crashes them; what was wrong is in `wrong`.

    Parameters
    ----------
    turns : share of the turns of another process that are tried
    singles, doubles : share of all crash points that are tried, and of those whose recovery is crashed everywhere
    """

    def __init__(self, *, disk=LosingDisk, store=ModelStore, storage=LocalStorage, turns=1.0, singles=1.0, doubles=1.0):
        self.disk, self.store, self.storage = disk, store, storage
        self.turns, self.singles, self.doubles, self.rng = turns, singles, doubles, random.Random(0)
        self.schedules, self.wrong, self.sound = 0, [], set()

    def opened(self, disk):
        return self.store(self.storage(MODEL, disk=disk))

    def run(self, disk, first, acknowledged, second=(), turn=-1):
        """Do it all; the disk and what was acknowledged before each operation, and at the end."""
        points = []

        def keep():
            points.append((dict(disk.inodes), frozenset(acknowledged)))
            if len(points) - 1 == turn:
                for step in second:
                    step(self.opened(disk), acknowledged)

        disk.before_each = keep
        try:
            for step in first:
                step(self.opened(disk), acknowledged)
        except (BcmdistError, OSError) as error:  # nothing has crashed yet
            self.wrong.append(error)
        keep()
        disk.before_each = lambda: None
        return points

    def crash_everywhere(self, program: Program):
        """Each turn of the other process, each crash, and each crash of the recovery."""
        start = self.disk()
        for keys in program.start:
            write(keys)(self.opened(start), set())
        known = {key for keys in program.start for key in keys}
        turns = len(self.run(self.disk(start.inodes), program.first, set(known))) if program.second else 1
        for turn in range(turns):
            if self.rng.random() > self.turns:
                continue
            points = self.run(self.disk(start.inodes), program.first, set(known), program.second, turn)
            for inodes, acknowledged in points:
                if self.wrong:
                    return
                if self.rng.random() < self.singles:
                    self.judge(self.crashed(inodes), acknowledged)
                if self.rng.random() < self.doubles:
                    recovery = self.run(self.crashed(inodes), [write(ALL), prune(1)], set(acknowledged))
                    for again in recovery:
                        self.judge(self.crashed(again[0]), again[1])

    def crashed(self, inodes):
        return self.disk(self.disk(inodes).crashed(self.rng).inodes)

    def judge(self, disk, acknowledged):
        """What is there is right, and can be completed; and a state like one that was judged is like it."""
        self.schedules += 1
        if (state := (disk.files(), acknowledged)) in self.sound:
            return
        try:
            store = self.opened(disk)
            examine(store, acknowledged)
            ingest(store, ALL, set())
            store.prune(1)
            examine(self.opened(disk), set(ALL))
            if len(store.numbers()) != 1 or len(store.storage.names("blobs")) != len(store.load().ledger.digests) + 1:
                raise Wrong("pruned things are left")
        except (BcmdistError, OSError, Wrong) as error:
            self.wrong.append(error)
        else:
            self.sound.add(state)


@pytest.fixture(autouse=True)
def _boots(monkeypatch):
    """A crash ends all processes: what they hold is then held by nobody."""
    monkeypatch.setattr(leases, "_machine", lambda: {"host": "h", "boot": "", "namespace": ""})
    monkeypatch.setattr(leases, "_started", lambda pid: Booted.count)
    monkeypatch.setattr(LosingDisk, "crashed", Booted.crashed)
    Booted.count = 0


class Booted:
    """Counts crashes: processes before a crash are not those after it."""

    count = 0
    original = LosingDisk.crashed

    @staticmethod
    def crashed(disk, rng):
        Booted.count += 1
        return Booted.original(disk, rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_some_crashes(name):
    """About 10,000 in all."""
    sample = {"turns": 0.4, "singles": 0.25, "doubles": 0.02}
    trial = Trial(**sample) if PROGRAMS[name].second else Trial(doubles=0.5)
    trial.crash_everywhere(PROGRAMS[name])
    assert trial.wrong == []
    assert trial.schedules > 300


@pytest.mark.nightly
@pytest.mark.slow
def test_all_crashes():
    """Every crash and pair of crashes of one process, every crash and many pairs of two."""
    started, schedules = time.process_time(), 0
    for program in PROGRAMS.values():
        for _ in range(1 if program.second else 2):
            trial = Trial(doubles=0.02) if program.second else Trial()
            trial.rng.seed(schedules)
            trial.crash_everywhere(program)
            schedules += trial.schedules
            assert trial.wrong == []
    print(f"{schedules} schedules, {time.process_time() - started:.0f} s")
    assert schedules >= 50_000


def test_crashes_where_segments_are_full(monkeypatch):
    """Every crash, and every crash of many recoveries, while segments of two entries are full and others are merged."""
    monkeypatch.setattr(ledger, "MOST_ENTRIES", 2)
    trial = Trial(doubles=0.1)
    trial.crash_everywhere(Program([write([4]), write([5]), prune(1)], start=[[0], [1], [2], [3]]))
    print(f"{trial.schedules} schedules")
    assert trial.wrong == []
    assert trial.schedules >= 200


class FilesNotSynced(LosingDisk):
    def fsync(self, handle):
        if isinstance(self.inodes[self.handles[handle][0]][0], dict):
            super().fsync(handle)


class FoldersNotSynced(LosingDisk):
    def fsync(self, handle):
        if not isinstance(self.inodes[self.handles[handle][0]][0], dict):
            super().fsync(handle)


class Renaming(LosingDisk):
    """Overwrites what is there."""

    def link(self, path, new):
        self.before_each()
        self._name(new, self._find(path))


class OwnFoldersOnly(LocalStorage):
    """Relies on folders that somebody else has just made."""

    def _sync_above(self, folder):
        pass


class Unsettled(LocalStorage):
    """Lets old commits go for a new one that may not be durable yet."""

    def settle(self, folder):
        pass


class TwoRecords(ModelStore):
    """The state in one record, the ledger and the offsets in another."""

    def commit(self, number, *, segments, offsets, **state):
        super().commit(number, segments=(), offsets={}, **state | {"facts": {"segments": segments}})
        self.storage.put_if_absent(f"offsets/{number:08d}", json.dumps([segments, offsets]).encode())

    def load(self, number=None, *, ledger=True):
        commit = super().load(number, ledger=ledger)
        names = [name for name in self.storage.names("offsets") if int(name) <= commit.number]
        segments, offsets = json.loads(self.storage.get(f"offsets/{names[-1]}")) if names else ([], {SOURCE: 0})
        return replace(commit, offsets=offsets, ledger=self.stored_ledger(segments))


class FindsBlobs(ModelStore):
    """Takes a blob that is there already for its own."""

    def _put_blob(self, data, before=None):
        digest = hashlib.sha256(data).hexdigest()
        self.storage.put_if_absent(f"blobs/{digest}", data)
        return digest


class FreesNumbers(ModelStore):
    """Commits under a number that has come free again."""

    freed = False

    def pruned(self):
        return 0 if self.freed else super().pruned()

    def commit(self, number, **what):
        self.freed = True
        try:
            return super().commit(number, **what)
        finally:
            self.freed = False


class NobodyHolds(ModelStore):
    def held(self):
        return {}

    def leased(self):
        return {}


class OverwritesRecords(ModelStore):
    """The last writer wins."""

    def commit(self, number, **what):
        self.storage.remove(f"commits/{number:08d}.json")
        return super().commit(number, **what)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("from nothing", {"disk": FilesNotSynced}),
        ("from nothing", {"disk": FoldersNotSynced}),
        ("two writers", {"disk": Renaming}),
        ("two from nothing", {"storage": OwnFoldersOnly}),
        ("a writer, and pruning", {"storage": Unsettled}),
        ("from nothing", {"store": TwoRecords}),
        ("a blob again, and pruning", {"store": FindsBlobs}),
        ("a slow writer, and pruning", {"store": FreesNumbers}),
        ("a writer, and pruning", {"store": NobodyHolds}),
        ("two writers", {"store": OverwritesRecords}),
    ],
)
def test_what_is_broken_is_found(name, broken):
    trial = Trial(singles=1.0, doubles=0.02, **broken) if PROGRAMS[name].second else Trial(doubles=0.3, **broken)
    with contextlib.suppress(FileNotFoundError):
        trial.crash_everywhere(PROGRAMS[name])
    print(name, broken, trial.schedules, trial.wrong[:1])
    assert trial.wrong

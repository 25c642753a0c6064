"""The real commit code over a disk that loses what was not synced, crashed at every operation, and again at every
operation of the recovery.

Message i is the number 2^i and the state is their sum: its bits tell which messages are in, and a message that is
counted twice shows. A program is run once and the disk is kept before each of its operations: each of these is a
crash point. Of what was not synced each draw keeps other things.
"""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from losing_disk import LosingDisk

from bcmdist import holds
from bcmdist.errors import BcmdistError, CommitConflict, ModelNotFound
from bcmdist.storage import LocalStorage
from bcmdist.store import Entry, ModelStore

MODEL, SOURCE = "/m", "source"
ALL = range(6)


def opened(disk):
    return ModelStore(LocalStorage(MODEL, disk=disk))


def ingest(store, keys, acknowledged):
    """Hear what is not in the ledger, and commit it as `GBCM.successor` does; start again where another was first."""
    while True:
        number = store.head()
        try:
            with store.hold(number):
                hear(store, store.load(number) if number else None, keys)
        except (CommitConflict, ModelNotFound):  # somebody else was first, or has pruned it
            continue
        acknowledged.update(keys)
        return


def hear(store, commit, keys):
    number = commit.number if commit else 0
    ledger = {int(entry.key) for entry in commit.ledger} if commit else set()
    new = [key for key in keys if key not in ledger]
    if commit and not new:
        return
    total = (commit.arrays["sum"] if commit else 0.0) + sum(2.0**key for key in new)
    arrays = store.put_arrays({"sum": np.array(total)}, before=store.arrays_before(number + 1))
    segments = store.extended(commit.segments if commit else (), [Entry(str(key), "", 1) for key in new])
    store.commit(number + 1, arrays=arrays, facts={}, segments=segments, offsets={SOURCE: len(ledger) + len(new)})


class Wrong(Exception):
    """A model directory is not what it must be."""


def examine(store, acknowledged):
    """Every commit can be read and is a set of messages; the newest holds all that was acknowledged."""
    heard: set[int] = set()
    for number in store.numbers():
        try:
            commit = store.load(number)
        except BcmdistError as error:
            raise Wrong(f"unreadable: {error}") from error
        before, heard = heard, {key for key in range(64) if int(commit.arrays["sum"]) >> key & 1}
        keys = [int(entry.key) for entry in commit.ledger]
        if sorted(keys) != sorted(heard) or commit.offsets != {SOURCE: len(keys)}:
            raise Wrong(f"state {heard}, ledger {keys}, offsets {commit.offsets}")
        if not before <= heard:
            raise Wrong(f"{before} then {heard}")
    if not acknowledged <= heard:
        raise Wrong(f"acknowledged {acknowledged}, heard {heard}")


@dataclass
class Program:
    """What happens: `first`, and at its operation number `turn` all of `second`, by another process."""

    first: list
    second: list = field(default_factory=list)
    start: list = field(default_factory=lambda: [[], [0], [1]])
    """commits there are already"""


def write(keys):
    return lambda store, acknowledged: ingest(store, keys, acknowledged)


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
}


class Trial:
    """Runs programs on disks of a kind, and counts what was wrong after crashes."""

    def __init__(self, *, disk=LosingDisk, store=opened, seed=0, draws=2, share=1.0):
        self.disk, self.opened, self.rng = disk, store, random.Random(seed)
        self.draws, self.share = draws, share
        self.schedules, self.wrong, self.sound = 0, [], set()

    def run(self, disk, first, acknowledged, second=(), turn=-1):
        """Do it all; the disk and what was acknowledged before each operation, and at the end."""
        points = []

        def keep():
            points.append((dict(disk.inodes), frozenset(acknowledged)))
            if len(points) - 1 == turn:
                for step in second:
                    step(self.opened(disk), acknowledged)

        disk.before_each = keep
        for step in first:
            step(self.opened(disk), acknowledged)
        keep()
        disk.before_each = lambda: None
        return points

    def crash_everywhere(self, program: Program):
        """Each turn of the other process, each crash, and each crash of the recovery."""
        start = self.disk()
        for keys in program.start:
            write(keys)(opened(start), set())
        acknowledged = {key for keys in program.start for key in keys}
        for turn in range(len(self.run(self.disk(start.inodes), program.first, set())) if program.second else 1):
            run = self.disk(start.inodes), program.first, set(acknowledged), program.second, turn
            for point in self.chosen(lambda run=run: self.run(*run), acknowledged):
                for again in self.chosen(lambda point=point: self.recover(*point), point[1]):
                    self.judge(*again)

    def chosen(self, run, acknowledged):
        """Disks after a crash at each point of a run, or at some of them; a run that fails is wrong itself."""
        try:
            points = run()
        except (BcmdistError, OSError, Wrong) as error:
            self.wrong.append(error)
            return
        for inodes, acknowledged in points:
            for _ in range(self.draws):
                if self.share == 1.0 or self.rng.random() < self.share:
                    self.schedules += 1
                    yield self.disk(self.disk(inodes).crashed(self.rng).inodes), set(acknowledged)

    def recover(self, disk, acknowledged):
        examine(self.opened(disk), acknowledged)
        return self.run(disk, [write(ALL), prune(1)], set(acknowledged))

    def judge(self, disk, acknowledged):
        """What is there is right, and can be completed."""
        if (state := (disk.files(), frozenset(acknowledged))) in self.sound:
            return
        try:
            store = self.opened(disk)
            examine(store, acknowledged)
            ingest(store, ALL, acknowledged)
            store.prune(1)
            examine(self.opened(disk), set(ALL))
            if len(store.numbers()) != 1 or len(store.storage.names("blobs")) != len(store.load().segments) + 1:
                raise Wrong("pruned things are left")
        except (BcmdistError, OSError, Wrong) as error:
            self.wrong.append(error)
        else:
            self.sound.add(state)


@pytest.fixture(autouse=True)
def _boots(monkeypatch):
    """Every disk is another start of the machine."""
    # The disk in use is the one opened last: a crash starts another.
    monkeypatch.setattr(holds, "_machine", lambda: {"host": "h", "boot": "", "namespace": ""})
    monkeypatch.setattr(holds, "_started", lambda pid: Booted.count)
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


@pytest.mark.parametrize("name", PROGRAMS)
def test_some_crashes(name):
    trial = Trial(draws=1, share=0.06)
    trial.crash_everywhere(PROGRAMS[name])
    print(name, trial.schedules, len(trial.sound), trial.wrong[:3])
    assert trial.wrong == []

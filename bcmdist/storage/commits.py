"""The model directory: a log of numbered, immutable commits.

    MODEL/blobs/<sha256>             arrays and ledger segments (see `blobs`, `segments`)
    MODEL/commits/00000001.json      one record: what a commit consists of, by hash (see `records`)
    MODEL/acknowledged/00000001      that record was there: if it is not, it was lost
    MODEL/pruned/00000001            numbers up to this one are taken, and gone (see `pruning`)
    MODEL/holds/00000002-<random>    somebody works with this commit (see `leases`)
    MODEL/ingesters/<random>-<beat>  an ingester waits for more rows (see `heartbeats`)

A commit exists if and only if its record does, and a record is put if absent: state and ledger
therefore appear together or not at all, a number is taken once, and nothing is overwritten.
Blobs are named by their content and written before the record that names them; a crash leaves
at most blobs that nobody names. On duplicate delivery of a record the second put fails and says so. That the newest
record was lost no other record could tell: a witness put after it does (one put before, or blobs that nobody names,
might be those of a writer that died). Each record is durable before the next is put, so that no crash leaves a gap; a
gap above what was pruned is a loss too.
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from bcmdist.errors import CommitConflict, ModelDamaged, ModelNotFound
from bcmdist.storage import blobs, canary, history, leases, pruning, segments
from bcmdist.storage.blobs import BlobReference as BlobReference  # with the other reference, for whoever has tasks
from bcmdist.storage.blobs import sha256
from bcmdist.storage.fields import read_back
from bcmdist.storage.interface import Storage
from bcmdist.storage.ledger import Entry
from bcmdist.storage.locate import open_storage
from bcmdist.storage.paths import leads_nowhere
from bcmdist.storage.records import RESIDUAL_ARRAYS_SINCE, identity_of, read_record, record_name, record_text
from bcmdist.storage.residual_records import RESIDUAL_ARRAYS, with_residuals

# Beside blobs and commits: the rows in the order of spatial cells, and what a fit needs on its way.
CELL_DATA, SCRATCH = "cells.zarr", "scratch"
OURS = {"acknowledged", "blobs", "commits", "canary", "holds", "ingesters", "pruned", CELL_DATA, SCRATCH}
# In a directory of a mixture: the members' directories, commits and hashes; written when all of them are there.
MIXTURE = "mixture.json"
NUMBER = re.compile(r"\d{8}")
RECORD_NAME = re.compile(r"\d{8}\.json")


@dataclass(frozen=True)
class Commit:
    """A committed state: arrays, ledger and JSON-ready facts."""

    number: int
    identity: str
    """of the model, see `records.identity_of`"""
    arrays: dict[str, np.ndarray]
    facts: dict
    segments: tuple[str, ...]
    """hashes of the ledger's segments"""
    ledger: tuple[Entry, ...]
    offsets: dict[str, Any]
    """where to read on, JSON-ready, by the name of a source"""
    digest: str = ""
    """SHA-256 of its record"""


@dataclass(frozen=True)
class Reference:
    """What a task carries instead of a model: where a record lies, and its hash."""

    url: str
    number: int
    digest: str

    @property
    def place(self) -> str:
        """How errors name it."""
        return f"{self.url}: commit {self.number}"


class ModelStore:
    """Commits of one model directory."""

    # What is told in files of its own.
    put_arrays, get_array, transient = blobs.put_arrays, blobs.get_array, blobs.transient
    copy_blobs, discard_uncommitted = blobs.copy_blobs, blobs.discard_uncommitted
    put_segment, get_segment, extended = segments.put_segment, segments.get_segment, segments.extended
    hold, opened, held, alone = leases.hold, leases.opened, leases.held, leases.alone
    prune, history, canary = pruning.prune, history.history, canary.canary

    def __init__(self, storage: Storage):
        self.storage = storage

    def _put_blob(self, data: bytes, before: str | None = None) -> str:
        return blobs.put_blob(self.storage, data, before)

    def _get_blob(self, digest: str) -> bytes:
        return blobs.get_blob(self.storage, digest)

    def head(self) -> int:
        """Number of the newest commit; 0 where there is none.

        Raises
        ------
        ModelDamaged
            It was lost, or one before it that was not pruned.
        """
        numbers = self.numbers()
        self._refuse_lost(set(numbers))
        return max(numbers, default=0)

    def _refuse_lost(self, numbers):
        """Raise where a record above what was pruned is not there, of the newest one or of one that has a witness."""
        pruned = self.pruned()
        for number in range(pruned + 1, max([*numbers, *self.acknowledged()], default=0) + 1):
            # A listing may miss what is made meanwhile, and what it has missed may have been pruned since.
            if number not in numbers and not self._is_recorded(number) and number > self.pruned():
                raise ModelDamaged(
                    f"{self.storage.url}: expected commit {number}, whose writer was told that it is there, found no "
                    f"record of it; restore {record_name(number)} from a copy, or name an older commit"
                )

    def _is_recorded(self, number):
        try:
            self.storage.get(record_name(number))
        except FileNotFoundError:
            return False
        return True

    def acknowledged(self) -> list[int]:
        """Numbers of the records that are known to have been there, ascending; pruning leaves the last one."""
        return self.numbered("acknowledged")

    def numbered(self, folder) -> list[int]:
        """Numbers that are the names in a folder, ascending."""
        return [int(name) for name in self.storage.names(folder) if NUMBER.fullmatch(name)]

    def numbers(self) -> list[int]:
        """Numbers of all commits, ascending: those that are not pruned, or that somebody holds."""
        recorded, pruned = self.recorded(), self.pruned()
        held = self.held() if recorded and recorded[0] <= pruned else {}
        return [number for number in recorded if number > pruned or number in held]

    def recorded(self) -> list[int]:
        """Numbers of all records, ascending, also of those that pruning is about to remove."""
        names = self.storage.names("commits")
        return [int(n.removesuffix(".json")) for n in names if RECORD_NAME.fullmatch(n)]

    def remove_record(self, number) -> None:
        """Remove the record of a commit."""
        self.storage.remove(record_name(number))

    def pruned(self) -> int:
        """The largest number that was pruned; it and all below it are taken for ever."""
        return max(self.numbered("pruned"), default=0)

    def pruned_name(self, number) -> str:
        """Where it is written that numbers are pruned."""
        return f"pruned/{number:08d}"

    def acknowledged_name(self, number) -> str:
        """Where it is written that a record was there."""
        return f"acknowledged/{number:08d}"

    def foreign(self) -> list[str]:
        """Names in the directory that are not ours."""
        names = (n for n in self.storage.names("") if not n.startswith(f"{CELL_DATA}.partial-"))
        return sorted(set(names) - OURS)

    def arrays_before(self, number) -> dict[str, str]:
        """Hashes by name of the arrays that the commit before `number` names; none before the first.

        Raises
        ------
        CommitConflict
            It has been pruned, so that others have made commit `number`.
        """
        try:
            return self.record(number - 1)["arrays"] if number > 1 else {}
        except ModelNotFound as error:
            raise self.taken(number) from error

    def commit(
        self,
        number,
        *,
        arrays: Mapping[str, str],
        facts,
        segments,
        offsets,
        identity: str | None = None,
        parent: str | None = None,
    ) -> Reference:
        """Write record `number`.

        Parameters
        ----------
        identity : of the model; by default that of the commit before, and a new one for the first commit
        parent : SHA-256 of the record of the commit before, of which arrays and ledger are the continuation; by default
            whatever is there
        arrays : hashes by name, from `put_arrays`
        facts : JSON-ready
        segments : hashes of ledger segments, from `extended`
        offsets : JSON-ready, by the name of a source

        Raises
        ------
        CommitConflict
            Somebody else has written this number, or the commit before is another one.
        CommitRefused
            No reader would accept the record.
        """
        if parent is not None:
            self.refuse_other(number - 1, parent)
        identity = identity or (self.identity(number - 1) if number > 1 else uuid4().hex)
        with read_back(f"{self.storage.url}: commit {number}"):
            text = record_text(
                number, identity=identity, arrays=arrays, facts=facts, segments=segments, offsets=offsets
            )
            read_record(number, text, self.storage.url)
        self.storage.settle("commits")  # the record before this one, whose writer may not have got as far as that
        made = number > self.pruned() and self.storage.put_if_absent(record_name(number), text)
        if not made or number <= self.pruned():
            raise self.taken(number)
        with contextlib.suppress(OSError):  # the commit is made: without a witness, nobody could tell its loss
            self.storage.put_if_absent(self.acknowledged_name(number), b"")
        return Reference(self.storage.url, number, sha256(text))

    def _digest(self, number):
        """Hash of the record of a commit; None where there is none."""
        try:
            return self.reference(number).digest
        except ModelNotFound:
            return None

    def refuse_other(self, number, digest: str) -> None:
        """Raise `CommitConflict` where commit `number` is not there, or its record has another SHA-256."""
        if self._digest(number) != digest:
            raise self.taken(number + 1)

    def taken(self, number) -> CommitConflict:
        """The error for a number that somebody else has written."""
        return CommitConflict(
            f"{self.storage.url}: expected to write commit {number}, but it is taken; another process works "
            "on this model: load it again and repeat, or choose another directory"
        )

    def record(self, number) -> dict:
        """The record of a commit, checked.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch
        """
        return read_record(number, self._record_bytes(number), self.storage.url)

    def identity(self, number) -> str:
        """Identity of the model, by the record of a commit; `CommitConflict` where that has been pruned."""
        try:
            return identity_of(self.record(number))
        except ModelNotFound as error:
            raise self.taken(number + 1) from error

    def descends(self, identity: str, number: int, digest: str) -> bool:
        """Whether the newest commit belongs to the model `identity` and descends from its commit `number`, whose record
        has this SHA-256.

        False of another model under the same path, and of one restored from a copy older than that commit. A record
        that was pruned cannot be compared: its number is taken for it.
        """
        head = self.head()
        if not head or head < number or identity_of(self.record(head)) != identity:
            return False
        found = self._digest(number)
        return number <= self.pruned() if found is None else found == digest

    def reference(self, number) -> Reference:
        """Reference of an existing commit."""
        return Reference(self.storage.url, number, sha256(self._record_bytes(number)))

    def load(self, number=None) -> Commit:
        """A commit with its arrays and ledger; the newest by default."""
        if number is None:
            return self._of_newest(self.load)
        if number <= self.pruned() and number not in self.numbers():
            raise self._not_found(number)
        text = self._record_bytes(number)
        record = read_record(number, text, self.storage.url)
        names = record["arrays"].keys() - set(RESIDUAL_ARRAYS)
        arrays = {name: self.get_array(digest) for name, digest in record["arrays"].items() if name in names}
        ledger = self.ledger(record)
        return Commit(
            number=record["number"],
            identity=identity_of(record),
            arrays=arrays,
            facts=record["facts"],
            segments=tuple(record["segments"]),
            ledger=ledger,
            offsets=record["offsets"],
            digest=sha256(text),
        )

    def ledger(self, record) -> tuple[Entry, ...]:
        """Ledger entries of a record, with their residuals.

        Raises
        ------
        ModelDamaged
        """
        inline = record["format"] < RESIDUAL_ARRAYS_SINCE
        entries = [one for segment in record["segments"] for one in self.get_segment(segment, residuals=inline)]
        names = [name for name in RESIDUAL_ARRAYS if name in record["arrays"] and not inline]
        arrays = {name: self.get_array(record["arrays"][name]) for name in names}
        return with_residuals(entries, arrays, f"{self.storage.url}: commit {record['number']}")

    def newest(self) -> Reference:
        """Reference of the newest commit; errors as of `load`."""
        return self._of_newest(self.reference)

    def _of_newest(self, read):
        """What `read` makes of the newest number."""
        while True:
            number = self.head()
            try:
                return read(number)
            except (ModelNotFound, ModelDamaged):
                if self.head() == number:  # else it has been pruned meanwhile
                    raise

    def _record_bytes(self, number):
        try:
            return self.storage.get(record_name(number))
        except FileNotFoundError as error:
            raise self._not_found(number) from error

    def _not_found(self, number):
        numbers = self.numbers()
        if numbers:
            return ModelNotFound(
                f"{self.storage.url}: expected commit {number}, it holds {numbers[0]} to {numbers[-1]}; name one "
                "of these"
            )
        if MIXTURE in self.storage.names(""):
            return ModelNotFound(
                f"{self.storage.url}: expected a single committee, it holds a mixture of committees; load it with "
                "`bcmdist.Mixture.load`"
            )
        return ModelNotFound(
            f"{self.storage.url}: expected a model directory, {leads_nowhere(self.storage.url) or 'found no commits'}; "
            "check the path, or make one with `bcmdist fit DATA.zarr --model DIR`"
        )


def open_store(url) -> ModelStore:
    """The model directory at a path."""
    return ModelStore(open_storage(url))


def record_digest(url, number) -> str:
    """Hash of the record of a commit: everyone who works with it must see the same."""
    return open_store(url).reference(number).digest

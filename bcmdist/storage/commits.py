"""The model directory: a log of numbered, immutable commits.

    MODEL/blobs/<sha256>             arrays and ledger segments (see `blobs`, `ledger`)
    MODEL/commits/00000001.json      one record: the content of a commit, by hash (see `records`)
    MODEL/acknowledged/00000001      witness: this record has existed; if it is missing, it was lost
    MODEL/pruned/00000001            commits up to this number are removed; the numbers stay taken (see `pruning`)
    MODEL/holds/00000002-<random>    a process works with this commit (see `leases`)
    MODEL/aliases/<name>-<number>    a name of a commit (see `aliases`)
    MODEL/ingesters/<random>-<beat>  an ingester waits for more rows (see `heartbeats`)

A commit exists if and only if its record does, and a record is put only if its name is absent. Therefore state and
ledger appear together or not at all, a number is used once, and nothing is overwritten. On duplicate delivery of a
record the second put fails with an error. Blobs are named by their content and written before the record that names
them; a crash leaves at most unnamed blobs.

Loss of the newest record could not be detected from the other records. A witness put after it makes the loss visible;
a witness put before it, or unnamed blobs, could also come from a writer that died. Each record is durable before the
next is put, so that no crash leaves a gap: a gap above the pruned numbers is a loss, too.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from bcmdist.errors import CommitConflict, ModelDamaged, ModelNotFound
from bcmdist.storage import aliases, blobs, drafts, leases, ledger, pruning, records
from bcmdist.storage.blobs import BlobReference as BlobReference  # re-exported with `Reference`, for modules of tasks
from bcmdist.storage.blobs import sha256
from bcmdist.storage.fields import read_back
from bcmdist.storage.interface import Storage
from bcmdist.storage.ledger import Ledger
from bcmdist.storage.locate import open_storage
from bcmdist.storage.paths import leads_nowhere
from bcmdist.storage.records import RESIDUAL_ARRAYS_SINCE, identity_of, read_record, record_name, record_text
from bcmdist.storage.residual_records import RESIDUAL_ARRAYS, with_residuals, with_residuals_before_4
from bcmdist.storage.urls import Location

# Further names in a model directory: the rows in the order of spatial cells, and temporary files of a fit.
CELL_DATA, SCRATCH = "cells.zarr", "scratch"
OURS = {"acknowledged", "aliases", "blobs", "commits", "canary", "holds", "ingesters", "pruned", CELL_DATA, SCRATCH}
# In the directory of a mixture: directories, commits and hashes of its members; written when all members exist.
MIXTURE = "mixture.json"
NUMBER = re.compile(r"\d{8}")
RECORD_NAME = re.compile(r"\d{8}\.json")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Commit:
    """A committed state: arrays, ledger and JSON-ready facts."""

    number: int
    identity: str
    """identity of the model, see `records.identity_of`"""
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    ledger: Ledger
    offsets: dict[str, Any]
    """offset from which to continue reading, JSON-ready, by name of the source"""
    hashes: dict[str, str] = field(default_factory=dict)
    """hashes by name of all arrays of the record"""
    digest: str = ""
    """SHA-256 of the record"""


@dataclass(frozen=True)
class Reference:
    """Reference to a commit, sent to tasks in place of a model: directory, number and hash of the record."""

    url: str
    number: int
    digest: str
    draft: bool = False
    """whether the record is not committed yet, and stored as a blob (`ModelStore.draft`)"""

    @property
    def place(self) -> str:
        """Description of the commit for error messages."""
        return f"{self.url}: commit {self.number}"


class ModelStore:
    """The commits of one model directory."""

    # Methods that are defined in separate modules.
    put_arrays, get_array, transient = blobs.put_arrays, blobs.get_array, blobs.transient
    copy_blobs, discard_uncommitted = blobs.copy_blobs, blobs.discard_uncommitted
    put_segment, get_segment, extended = ledger.put_segment, ledger.get_segment, ledger.extended
    segment, summary, stored_ledger, stored = ledger.segment, ledger.summary, ledger.stored_ledger, ledger.stored
    hold, opened, held = leases.hold, leases.opened, leases.held
    leased, only_lease = leases.leased, leases.only_lease
    number_of, set_alias, remove_alias = aliases.number_of, aliases.set_alias, aliases.remove_alias
    aliases = aliases.aliases
    prune, history, canary = pruning.prune, records.history, blobs.canary
    draft, record_of = drafts.draft, drafts.record_of

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def _put_blob(self, data: bytes, before: str | None = None) -> str:
        return blobs.put_blob(self.storage, data, before)

    def _get_blob(self, digest: str) -> bytes:
        return blobs.get_blob(self.storage, digest)

    def head(self) -> int:
        """Return the number of the newest commit; 0 if there is none.

        Raises
        ------
        ModelDamaged
            The newest commit, or an earlier one that was not pruned, was lost.
        """
        recorded, pruned = self.recorded(), self.pruned()
        numbers = self._kept(recorded, pruned)
        self._refuse_lost(set(numbers), pruned)
        return max(numbers, default=0)

    def _refuse_lost(self, numbers: Collection[int], pruned: int) -> None:
        """Raise `ModelDamaged` if a record is missing between the pruned numbers and the newest record or witness."""
        for number in range(pruned + 1, max([*numbers, *self.acknowledged()], default=0) + 1):
            # A listing may miss a record made meanwhile, and that record may have been pruned since.
            if number not in numbers and self._digest(number) is None and number > self.pruned():
                raise ModelDamaged(
                    f"{self.storage.url}: expected commit {number}, which its writer has confirmed, found no "
                    f"record of it; restore {record_name(number)} from a copy, or name an older commit"
                )

    def acknowledged(self) -> list[int]:
        """Return the numbers of records with a witness, ascending; pruning keeps the last witness."""
        return self.numbered("acknowledged")

    def numbered(self, folder: str) -> list[int]:
        """Return the names in a folder that are numbers, ascending."""
        return [int(name) for name in self.storage.names(folder) if NUMBER.fullmatch(name)]

    def numbers(self) -> list[int]:
        """Return the numbers of all commits, ascending: those that are not pruned, or are held."""
        return self._kept(self.recorded(), self.pruned())

    def _kept(self, recorded: Sequence[int], pruned: int) -> list[int]:
        held = self.held() if recorded and recorded[0] <= pruned else {}
        return [number for number in recorded if number > pruned or number in held]

    def recorded(self) -> list[int]:
        """Return the numbers of all commit records in the directory, ascending.

        Unlike `numbers`, this includes commits that are marked as pruned and not held, until they are removed.
        """
        names = self.storage.names("commits")
        return [int(n.removesuffix(".json")) for n in names if RECORD_NAME.fullmatch(n)]

    def remove_record(self, number: int) -> None:
        """Remove the record of a commit."""
        self.storage.remove(record_name(number))

    def pruned(self) -> int:
        """Return the largest pruned number, 0 if there is none; this and all lower numbers are never used again."""
        return max(self.numbered("pruned"), default=0)

    def pruned_name(self, number: int) -> str:
        """Return the name of the entry that marks numbers up to this one as pruned."""
        return f"pruned/{number:08d}"

    def acknowledged_name(self, number: int) -> str:
        """Return the name of a record's witness."""
        return f"acknowledged/{number:08d}"

    def foreign(self) -> list[str]:
        """Return the names in the directory that do not belong to a model."""
        names = (n for n in self.storage.names("") if not n.startswith(f"{CELL_DATA}.partial-"))
        return sorted(set(names) - OURS)

    def arrays_before(self, number: int) -> dict[str, str]:
        """Return hashes by name of the arrays of the commit before `number`; empty for the first commit.

        Raises
        ------
        CommitConflict
            The previous commit has been pruned, so that another process has made commit `number`.
        """
        try:
            return self.record(number - 1)["arrays"] if number > 1 else {}
        except ModelNotFound as error:
            raise self.taken(number) from error

    def commit(
        self,
        number: int,
        *,
        arrays: Mapping[str, str],
        facts: Mapping[str, Any],
        segments: Sequence[str],
        offsets: Mapping[str, Any],
        identity: str | None = None,
        parent: str | None = None,
    ) -> Reference:
        """Write record `number`.

        Parameters
        ----------
        identity : identity of the model; by default the previous commit's, or a new one for the first commit
        parent : SHA-256 of the previous record, which arrays and ledger continue; by default any record is accepted
        arrays : hashes by name, from `put_arrays`
        facts : JSON-ready
        segments : hashes of ledger segments, from `extended`
        offsets : JSON-ready, by name of the source

        Raises
        ------
        CommitConflict
            Another process has written this number, or the previous commit is not `parent`.
        CommitRefused
            Readers would not accept the record.
        """
        if parent is not None:
            self.refuse_other(number - 1, parent)
        identity = identity or (self.identity(number - 1) if number > 1 else uuid4().hex)
        with read_back(f"{self.storage.url}: commit {number}"):
            text = record_text(
                number,
                identity=identity,
                arrays=arrays,
                facts=facts,
                segments=segments,
                summaries=[self.summary(digest) for digest in segments],
                offsets=offsets,
            )
            read_record(number, text, self.storage.url)
        self.storage.settle("commits")  # makes the previous record durable: its writer may not have done so yet
        made = self.storage.put_if_absent(record_name(number), text)
        if not made or number <= self.pruned():
            raise self.taken(number)
        with contextlib.suppress(OSError):  # the commit is valid without a witness, but its loss could not be detected
            self.storage.put_if_absent(self.acknowledged_name(number), b"")
        return Reference(self.storage.url, number, sha256(text))

    def _digest(self, number: int) -> str | None:
        """Return the hash of a commit's record; None if there is no record."""
        try:
            return sha256(self.storage.get(record_name(number)))
        except FileNotFoundError:
            return None

    def refuse_other(self, number: int, digest: str) -> None:
        """Raise `CommitConflict` if commit `number` does not exist, or its record has another SHA-256."""
        if self._digest(number) != digest:
            raise self.taken(number + 1)

    def taken(self, number: int) -> CommitConflict:
        """Return the error for a number that another process has written."""
        return CommitConflict(
            f"{self.storage.url}: expected to write commit {number}, but it is taken; another process works "
            "on this model: load it again and repeat, or choose another directory"
        )

    def record(self, number: int) -> dict[str, Any]:
        """Return the record of a commit, checked.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch
        """
        return read_record(number, self.record_bytes(number), self.storage.url)

    def identity(self, number: int) -> str:
        """Return the identity of the model from a commit's record; raise `CommitConflict` if that has been pruned."""
        try:
            return identity_of(self.record(number))
        except ModelNotFound as error:
            raise self.taken(number + 1) from error

    def descends(self, identity: str, number: int, digest: str) -> bool:
        """Whether the newest commit is of the model `identity` and descends from the given commit (number and SHA-256).

        False for another model under the same path, and for a model restored from a copy older than that commit. The
        hash of a pruned record cannot be compared: only its number is.
        """
        head = self.head()
        if not head or head < number or identity_of(self.record(head)) != identity:
            return False
        found = self._digest(number)
        return number <= self.pruned() if found is None else found == digest

    def reference(self, number: int) -> Reference:
        """Return the reference of an existing commit."""
        return Reference(self.storage.url, number, sha256(self.record_bytes(number)))

    def load(self, number: int | str | None = None, *, ledger: bool = True) -> Commit:
        """Load a commit, given by number or alias, with its arrays and ledger; the newest by default.

        ledger : whether to open the ledger's segments, too; they can be read then although the commit is pruned
        """
        if number is None:
            return self._of_newest(lambda number: self.load(number, ledger=ledger))
        number = self.number_of(number)
        if number <= self.pruned() and number not in self.numbers():
            raise self._not_found(number)
        return self.read(number, ledger=ledger)

    def read(self, number: int, *, ledger: bool = True) -> Commit:
        """Load a commit as `load`, also one that is pruned while its record exists: for callers that hold it."""
        text = self.record_bytes(number)
        record = read_record(number, text, self.storage.url)
        names = record["arrays"].keys() - set(RESIDUAL_ARRAYS)
        arrays = {name: self.get_array(digest) for name, digest in record["arrays"].items() if name in names}
        found = self.ledger(record)
        return Commit(
            number=record["number"],
            identity=identity_of(record),
            arrays=arrays,
            facts=record["facts"],
            ledger=found.opened(f"{self.storage.url}: commit {number}") if ledger else found,
            offsets=record["offsets"],
            hashes=record["arrays"],
            digest=sha256(text),
        )

    def ledger(self, record: Mapping[str, Any]) -> Ledger:
        """The ledger of a record, with residuals; its segments are not opened, unless the format is before 6.

        Raises
        ------
        ModelDamaged
        """
        where = f"{self.storage.url}: commit {record['number']}"
        found = self.stored_ledger(record["segments"], record["summaries"])
        if record["format"] < RESIDUAL_ARRAYS_SINCE:
            return with_residuals_before_4(self, found)
        arrays = {name: self.get_array(digest) for name, digest in record["arrays"].items() if name in RESIDUAL_ARRAYS}
        return with_residuals(found, arrays, where)

    def newest(self) -> Reference:
        """Return the reference of the newest commit; errors as of `load`."""
        return self._of_newest(self.reference)

    def _of_newest(self, read: Callable[[int], Found]) -> Found:
        """Return `read(number)` for the newest commit; repeat if that commit is pruned meanwhile."""
        while True:
            number = self.head()
            try:
                return read(number)
            except (ModelNotFound, ModelDamaged):
                if self.head() == number:  # otherwise the commit has been pruned meanwhile
                    raise

    def record_bytes(self, number: int) -> bytes:
        """Return the record of a commit, unchecked; raise `ModelNotFound` if there is none."""
        try:
            return self.storage.get(record_name(number))
        except FileNotFoundError as error:
            raise self._not_found(number) from error

    def _not_found(self, number: int) -> ModelNotFound:
        numbers = self.numbers()
        if numbers:
            return ModelNotFound(
                f"{self.storage.url}: expected commit {number}, found {numbers[0]} to {numbers[-1]}; name one of these"
            )
        if MIXTURE in self.storage.names(""):
            return ModelNotFound(
                f"{self.storage.url}: expected a single committee, found a mixture of committees; load it with "
                "`bcmdist.Mixture.load`"
            )
        return ModelNotFound(
            f"{self.storage.url}: expected a model directory, {leads_nowhere(self.storage.url) or 'found no commits'}; "
            "check the path, or make one with `bcmdist fit DATA.zarr --model DIR`"
        )


def open_store(url: Location) -> ModelStore:
    """Open the model directory at a path or URL."""
    return ModelStore(open_storage(url))


def record_digest(url: Location, number: int) -> str:
    """Return the hash of a commit's record; all machines that work with the commit must get the same."""
    return open_store(url).reference(number).digest


# --- Immutable content, cached in the process, by the references in tasks ---


@lru_cache(maxsize=8)
def load_array(reference: BlobReference) -> np.ndarray:
    """Load the array of a reference."""
    return open_store(reference.url).get_array(reference.digest)


@lru_cache(maxsize=8)
def load_record(reference: Reference) -> dict[str, Any]:
    """Load the record of a commit, or of a draft; errors as of `ModelStore.record_of`."""
    return open_store(reference.url).record_of(reference)

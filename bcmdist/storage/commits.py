"""The model directory: a log of numbered, immutable commits.

    MODEL/blobs/<sha256>             immutable arrays (.npy bytes) and ledger segments (JSON)
    MODEL/commits/00000001.json      one record: what a commit consists of, by hash
    MODEL/acknowledged/00000001      that record was there: if it is not, it was lost
    MODEL/pruned/00000001            numbers up to this one are taken, and gone (see `pruning`)
    MODEL/holds/00000002-<random>    somebody works with this commit (see `holds`)

A commit exists if and only if its record does, and a record is put if absent: state and ledger
therefore appear together or not at all, a number is taken once, and nothing is overwritten.
Blobs are named by their content and written before the record that names them; a crash leaves
at most blobs that nobody names. A blob belongs to who has put it, until it is committed: the same
content again is another blob, but for what the commit before has named. On duplicate delivery of a
record the second put fails and says so. That the newest record was lost no other record could tell: a witness
put after it does (one put before, or blobs that nobody names, might be those of a writer that died). Each record is
durable before the next is put, so that no crash leaves a gap; a gap above what was pruned is a loss too.
"""

import contextlib
import functools
import hashlib
import io
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist import __version__
from bcmdist.errors import CommitConflict, ModelDamaged, ModelNotFound, NotAFile, VersionMismatch
from bcmdist.storage.fields import (
    BLANKS,
    BLOB,
    MOST_BLANKS,
    NAMED,
    SEVERAL,
    check_fields,
    each,
    every,
    read_array,
    read_entries,
)
from bcmdist.storage.interface import Storage
from bcmdist.storage.leases import is_dead, read_holder, this_process
from bcmdist.storage.ledger import ARRIVAL, Entry
from bcmdist.storage.locate import open_storage
from bcmdist.storage.paths import leads_nowhere
from bcmdist.storage.pruning import prune

# 1 had no offsets, and no positions in the ledger; 2 no names, surprises and densities. They are read as if they had
# none to tell.
FORMAT = 3
# Beside blobs and commits: the rows in the order of spatial cells, and what a fit needs on its way.
CELL_DATA, SCRATCH = "cells.zarr", "scratch"
OURS = {"acknowledged", "blobs", "commits", "canary", "holds", "pruned", CELL_DATA, SCRATCH}
NUMBER, HOLD = re.compile(r"\d{8}"), re.compile(r"\d{8}-.+")
RECORD_NAME = re.compile(r"\d{8}\.json")
RECORD = {"format": SEVERAL, "arrays": each(BLOB), "segments": every(BLOB), "facts": NAMED, "offsets": NAMED.perhaps}


@dataclass(frozen=True)
class Commit:
    """A committed state: arrays, ledger and JSON-ready facts."""

    number: int
    arrays: dict[str, np.ndarray]
    facts: dict
    segments: tuple[str, ...]
    """hashes of the ledger's segments"""
    ledger: tuple[Entry, ...]
    offsets: dict[str, Any]
    """where to read on, JSON-ready, by the name of a source"""


@dataclass(frozen=True)
class Reference:
    """What a task carries instead of a model: where a record lies, and its hash."""

    url: str
    number: int
    digest: str


@dataclass(frozen=True)
class BlobReference:
    """What a task carries instead of an array: where a blob lies, and its hash."""

    url: str
    digest: str


class ModelStore:
    """Commits of one model directory."""

    def __init__(self, storage: Storage):
        self.storage = storage

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
                    f"record of it; restore {_record_name(number)} from a copy, or name an older commit"
                )

    def _is_recorded(self, number):
        try:
            self.storage.get(_record_name(number))
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

    def remove_record(self, number):
        """Remove the record of a commit."""
        self.storage.remove(_record_name(number))

    def pruned(self) -> int:
        """The largest number that was pruned; it and all below it are taken for ever."""
        return max(self.numbered("pruned"), default=0)

    def pruned_name(self, number) -> str:
        """Where it is written that numbers are pruned."""
        return f"pruned/{number:08d}"

    def acknowledged_name(self, number) -> str:
        """Where it is written that a record was there."""
        return f"acknowledged/{number:08d}"

    def prune(self, keep: int) -> dict:
        """Remove all but the newest `keep` commits; see `pruning.prune`."""
        return prune(self, keep)

    @contextlib.contextmanager
    def hold(self, number):
        """While this is open, pruning keeps commit `number`, and blobs that nobody names yet.

        Who reads a commit piece by piece, or puts blobs and commits them, holds the commit he started from.
        Where nothing can be written (a model on a read-only disk) there is no hold.

        Raises
        ------
        ModelNotFound
            It has been pruned.
        """
        name = f"holds/{number:08d}-{uuid.uuid4().hex}"
        try:
            self.storage.put_if_absent(name, _canonical(this_process()))
        except NotAFile:
            raise
        except OSError:  # a disk that can only be read
            pass
        try:
            if 0 < number <= self.pruned():
                raise ModelNotFound(f"{self.storage.url}: expected commit {number}, it was pruned; load a later one")
            yield
        finally:
            with contextlib.suppress(OSError):
                self.storage.remove(name)

    @contextlib.contextmanager
    def opened(self, number=None):
        """A commit that was taken hold of before it was loaded, and is held while this is open.

        The newest by default: where it is pruned before the hold is there, the one that is the newest then.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch
        """
        with contextlib.ExitStack() as hold:
            yield self._opened(hold, number)

    def _opened(self, hold, number):
        while True:
            wanted = self.head() if number is None else number
            try:
                if wanted:
                    hold.enter_context(self.hold(wanted))
                return self.load(wanted)
            except (ModelNotFound, ModelDamaged):
                hold.close()
                if number is not None or self.head() == wanted:
                    raise

    def held(self) -> dict[int, list[str]]:
        """Who holds commits, by number; holds of processes that have ended are removed."""
        found: dict[int, list[str]] = {}
        for name in filter(HOLD.fullmatch, self.storage.names("holds")):
            try:
                holder = read_holder(self.storage.get(f"holds/{name}"))
            except FileNotFoundError:  # let go
                continue
            if is_dead(holder):
                with contextlib.suppress(OSError):  # a disk that can only be read
                    self.storage.remove(f"holds/{name}")
            else:
                who = f"process {holder['pid']} on {holder.get('host')}" if holder else f"unreadable holds/{name}"
                found.setdefault(int(name.partition("-")[0]), []).append(who)
        return found

    def foreign(self) -> list[str]:
        """Names in the directory that are not ours."""
        names = (n for n in self.storage.names("") if not n.startswith(f"{CELL_DATA}.partial-"))
        return sorted(set(names) - OURS)

    @contextlib.contextmanager
    def canary(self):
        """A passing entry, to see who can read this directory: yields a probe that reads it.

        The probe returns the entry's text on every machine that shares the directory.
        """
        name, text = f"canary/{uuid.uuid4().hex}", uuid.uuid4().hex
        self.storage.put_if_absent(name, text.encode())
        try:
            yield functools.partial(_read_text, self.storage, name)
        finally:
            self.storage.remove(name)

    @contextlib.contextmanager
    def transient(self, arrays: Mapping[str, np.ndarray]):
        """References of arrays that tasks need for a moment, by name; their blobs are removed again."""
        digests = self.put_arrays(arrays)
        try:
            yield {name: BlobReference(self.storage.url, digest) for name, digest in digests.items()}
        finally:
            for digest in digests.values():
                self.storage.remove(f"blobs/{digest}")

    def discard_uncommitted(self):
        """Remove blobs where there is no commit, and nobody else holds one to come: what a preparation has left.

        Whoever calls this holds commit 0, since before any blob was put.
        """
        left = self.storage.names("blobs")  # before others are looked for: theirs would come after their holds
        if not self.numbers() and sum(map(len, self.held().values())) <= 1:
            for name in left:
                self.storage.remove(f"blobs/{name}")

    def put_arrays(
        self, arrays: Mapping[str, np.ndarray], *, before: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Store arrays as blobs; their hashes by name.

        before : those of the commit before, which are not stored again where they are the same
        """
        before = before or {}
        return {name: self._put_blob(_npy_bytes(array), before.get(name)) for name, array in arrays.items()}

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
            raise self._taken(number) from error

    def copy_blobs(self, other: "ModelStore", digests):
        """Copy blobs of another model directory into this, which is new, under the same names."""
        for digest in digests:
            self.storage.put_if_absent(f"blobs/{digest}", other._get_blob(digest))

    def get_array(self, digest):
        """The array of a blob, checked against its name."""
        return read_array(self._get_blob(digest), self._blob_place(digest))

    def commit(self, number, *, arrays: Mapping[str, str], facts, segments, offsets) -> Reference:
        """Write record `number`.

        Parameters
        ----------
        arrays : hashes by name, from `put_arrays`
        facts : JSON-ready
        segments : hashes of ledger segments, from `extended`
        offsets : JSON-ready, by the name of a source

        Raises
        ------
        CommitConflict
            Somebody else has written this number.
        """
        body = {
            "format": FORMAT,
            "number": number,
            "arrays": dict(arrays),
            "facts": facts,
            "segments": list(segments),
            "offsets": offsets,
            "software": __version__,
        }
        text = _canonical(body | {"checksum": _sha(_canonical(body))})
        self.storage.settle("commits")  # the record before this one, whose writer may not have got as far as that
        made = number > self.pruned() and self.storage.put_if_absent(_record_name(number), text)
        if not made or number <= self.pruned():
            raise self._taken(number)
        with contextlib.suppress(OSError):  # the commit is made: without a witness, nobody could tell its loss
            self.storage.put_if_absent(self.acknowledged_name(number), b"")
        return Reference(self.storage.url, number, _sha(text))

    def _taken(self, number):
        return CommitConflict(
            f"{self.storage.url}: expected to write commit {number}, but it is taken; another process works "
            "on this model: load it again and repeat, or choose another directory"
        )

    def put_segment(self, entries: list[Entry]) -> str:
        """Store ledger entries as one immutable blob; its hash."""
        return self._put_blob(_canonical([tuple(vars(entry).values()) for entry in entries]))

    def extended(self, segments, entries: list[Entry], *, after=0) -> tuple[str, ...]:
        """Segments of a ledger, of the commit `after`, with further entries at its end, as a binary counter grows.

        The last segment is merged with what is new while it has less than twice as many entries. Each segment is
        then at least twice as long as the next: a ledger of n entries has at most 1 + log2 n, and an entry is
        rewritten only into a segment that is half as long again, so at most log n / log 1.5 times.

        Raises
        ------
        CommitConflict
            Others have made, and pruned, later commits.
        """
        segments, entries = list(segments), list(entries)
        while segments and entries:
            try:
                last = self.get_segment(segments[-1])
            except ModelDamaged as error:
                if 0 < after <= self.pruned():
                    raise self._taken(after + 1) from error
                raise
            if len(last) >= 2 * len(entries):
                break
            segments, entries = segments[:-1], last + entries
        return (*segments, self.put_segment(entries)) if entries else tuple(segments)

    def get_segment(self, digest) -> list[Entry]:
        """The ledger entries of a blob, checked against its name."""
        lines = read_entries(self._get_blob(digest), Entry.__dataclass_fields__, self._blob_place(digest))
        return [
            Entry(*line[:ARRIVAL], *(tuple(v) if isinstance(v, list) else v for v in line[ARRIVAL:])) for line in lines
        ]

    def record(self, number) -> dict:
        """The record of a commit, checked.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch
        """
        return self._check(number, self._record_bytes(number))

    def reference(self, number) -> Reference:
        """Reference of an existing commit."""
        return Reference(self.storage.url, number, _sha(self._record_bytes(number)))

    def load(self, number=None) -> Commit:
        """A commit with its arrays and ledger; the newest by default."""
        if number is None:
            return self._newest()
        if number <= self.pruned() and number not in self.numbers():
            raise self._not_found(number)
        record = self.record(number)
        arrays = {name: self.get_array(digest) for name, digest in record["arrays"].items()}
        ledger = tuple(entry for segment in record["segments"] for entry in self.get_segment(segment))
        return Commit(record["number"], arrays, record["facts"], tuple(record["segments"]), ledger, record["offsets"])

    def _newest(self):
        while True:
            number = self.head()
            try:
                return self.load(number)
            except (ModelNotFound, ModelDamaged):
                if self.head() == number:  # else it has been pruned meanwhile
                    raise

    def history(self) -> list[dict]:
        """What every commit holds, oldest first, from the records alone.

        `number`, `format`, `rows`, `partitions` (rows and ledger entries heard; None where a record does not tell)
        and `offsets`.
        """
        records = [self.record(number) for number in self.numbers()]
        return [
            {name: record[name] for name in ("number", "format", "offsets")}
            | {name: record["facts"].get(name) for name in ("rows", "partitions")}
            for record in records
        ]

    def _record_bytes(self, number):
        try:
            return self.storage.get(_record_name(number))
        except FileNotFoundError as error:
            raise self._not_found(number) from error

    def _not_found(self, number):
        numbers = self.numbers()
        if numbers:
            return ModelNotFound(
                f"{self.storage.url}: expected commit {number}, it holds {numbers[0]} to {numbers[-1]}; name one "
                "of these"
            )
        return ModelNotFound(
            f"{self.storage.url}: expected a model directory, {leads_nowhere(self.storage.url) or 'found no commits'}; "
            "check the path, or make one with `bcmdist fit DATA.zarr --model DIR`"
        )

    def _check(self, number, text):
        damaged = f"{self.storage.url}: commit {number} does not match its checksum; restore it from a copy"
        try:
            record = json.loads(text)
            checksum = record.pop("checksum")
            found = _sha(_canonical(record))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise ModelDamaged(damaged) from error
        if found != checksum or record.get("number") != number or type(record.get("format")) is not int:
            raise ModelDamaged(damaged)
        if record["format"] > FORMAT:
            raise VersionMismatch(
                f"{self.storage.url}: expected model format {FORMAT} or older, got {record['format']}; use bcmdist "
                f"{record.get('software', 'of the version that wrote it')} or newer, this is {__version__}"
            )
        check_fields(record, RECORD, f"{self.storage.url}: commit {number}")
        return {"offsets": {}} | record

    def _blob_place(self, digest):
        return f"{self.storage.url}: blob {digest[:12]}"

    def _put_blob(self, data, before=None):
        """Store bytes under a name that nobody else has; or its name in the commit before, where they are the same.

        Blanks behind the data give them another name; readers of .npy and JSON do not see them.
        """
        digest = _sha(data)
        if digest == before or self.storage.put_if_absent(f"blobs/{digest}", data):
            return digest
        if before is not None and _without_blanks(self._get_blob(before)) == data:
            return before
        return self._put_blob(data + bytes(BLANKS[bit == "1"] for bit in f"{uuid.uuid4().int:0{MOST_BLANKS}b}"))

    def _get_blob(self, digest):
        try:
            data = self.storage.get(f"blobs/{digest}")
        except FileNotFoundError as error:
            raise ModelDamaged(
                f"{self.storage.url}: blob {digest[:12]} is missing; restore the directory from a copy"
            ) from error
        if _sha(data) != digest:
            raise ModelDamaged(
                f"{self.storage.url}: blob {digest[:12]} does not match its checksum ({len(data)} bytes); restore "
                "the directory from a copy"
            )
        return data


def open_store(url) -> ModelStore:
    """The model directory at a path."""
    return ModelStore(open_storage(url))


def record_digest(url, number) -> str:
    """Hash of the record of a commit: everyone who works with it must see the same."""
    return open_store(url).reference(number).digest


def _read_text(storage, name):
    return storage.get(name).decode()


def _record_name(number):
    return f"commits/{number:08d}.json"


def _npy_bytes(array):
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def _without_blanks(blob):
    """A blob without the 128 blanks that `_put_blob` may have put behind it."""
    return blob[:-MOST_BLANKS] if not blob[-MOST_BLANKS:].strip(BLANKS) else blob


def _canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _sha(data):
    return hashlib.sha256(data).hexdigest()

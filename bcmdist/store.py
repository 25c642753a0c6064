"""The model directory: a log of numbered, immutable commits.

    MODEL/blobs/<sha256>             immutable arrays (.npy bytes) and ledger segments (JSON)
    MODEL/commits/00000001.json      one record: what a commit consists of, by hash

A commit exists if and only if its record does, and a record is put if absent: state and ledger
therefore appear together or not at all, a number is taken once, and nothing is overwritten.
Blobs are named by their content and written before the record that names them; a crash leaves
at most blobs that nobody names. On retry the same bytes get the same name; on duplicate delivery
of a record the second put fails and says so; a lost record is a commit that never was.
"""

import contextlib
import functools
import hashlib
import io
import json
import os
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from bcmdist.errors import InvalidOption, ModelDamaged, ModelExists, ModelNotFound, VersionMismatch

FORMAT = 1
RUNNING = "running"  # an entry whose message depends on what was heard before it
# Beside blobs and commits: the rows in the order of spatial cells, and what a fit needs on its way.
CELL_DATA, SCRATCH = "cells.zarr", "scratch"
RECORD_NAME = re.compile(r"\d{8}\.json")


class Storage(Protocol):
    """Named byte strings that are written once. Names are relative, with `/` between parts."""

    url: str

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write durably; False, and no effect, where the name is taken."""

    def get(self, name: str) -> bytes:
        """The bytes; FileNotFoundError where there are none."""

    def names(self, folder: str) -> list[str]:
        """Sorted last parts of the names in a folder."""

    def remove(self, name: str) -> None:
        """Forget a name, and folders that it leaves empty; no error where there is none."""


class LocalStorage:
    """A directory: temporary file, fsync, link (which fails if taken), unlink, fsync of the directory."""

    def __init__(self, root):
        if "://" in str(root) or not str(root):
            raise InvalidOption(f"model: expected a path on a disk that all workers share, got {str(root)!r}; give one")
        self.url = os.path.abspath(root)

    def put_if_absent(self, name, data):
        path = Path(self.url, name)
        if path.exists():
            return False
        _make_directory(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        sync_directory(path.parent)
        return True

    def get(self, name):
        return Path(self.url, name).read_bytes()

    def names(self, folder):
        path = Path(self.url, folder)
        return sorted(n for n in os.listdir(path) if not n.startswith(".tmp-")) if path.is_dir() else []

    def remove(self, name):
        path = Path(self.url, name)
        path.unlink(missing_ok=True)
        for folder in (path.parent, Path(self.url)):
            with contextlib.suppress(OSError):  # not empty, or gone
                folder.rmdir()


def _make_directory(path):
    """Make a directory and its parents, each entry durable."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path):
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: a partition that the committee has heard."""

    key: str
    digest: str
    rows: int
    weight: float = 1.0
    at: str = ""
    """where its message is linearised: "" at its own mode, `RUNNING` at the belief of the moment, else given
    the shared values in the blob of this hash"""
    sites: str = ""
    """hash of the blob with the Gaussian sites of its rows (expectation propagation)"""


@dataclass(frozen=True)
class Commit:
    """A committed state: arrays, ledger and JSON-ready facts."""

    number: int
    arrays: dict[str, np.ndarray]
    facts: dict
    segments: tuple[str, ...]
    """hashes of the ledger's segments"""
    ledger: tuple[Entry, ...]


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
        """Number of the newest commit; 0 where there is none."""
        return max(self.numbers(), default=0)

    def numbers(self) -> list[int]:
        """Numbers of all commits, ascending."""
        names = self.storage.names("commits")
        return [int(n.removesuffix(".json")) for n in names if RECORD_NAME.fullmatch(n)]

    def foreign(self) -> list[str]:
        """Names in the directory that are not ours."""
        names = (n for n in self.storage.names("") if not n.startswith(f"{CELL_DATA}.partial-"))
        return sorted(set(names) - {"blobs", "commits", "canary", CELL_DATA, SCRATCH})

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
        """References of arrays that tasks need for a moment, by name; blobs that were new are removed again."""
        before = set(self.storage.names("blobs"))
        digests = self.put_arrays(arrays)
        try:
            yield {name: BlobReference(self.storage.url, digest) for name, digest in digests.items()}
        finally:
            for digest in set(digests.values()) - before:
                self.storage.remove(f"blobs/{digest}")

    def discard_uncommitted(self):
        """Remove blobs where there is no commit: what is left of a preparation that failed."""
        if not self.numbers():
            for name in self.storage.names("blobs"):
                self.storage.remove(f"blobs/{name}")

    def put_arrays(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Store arrays as blobs; their hashes by name."""
        return {name: self._put_blob(_npy_bytes(array)) for name, array in arrays.items()}

    def get_array(self, digest):
        """The array of a blob, checked against its name."""
        return np.load(io.BytesIO(self._get_blob(digest)), allow_pickle=False)

    def commit(self, number, *, arrays: Mapping[str, str], facts, segments) -> Reference:
        """Write record `number`.

        Parameters
        ----------
        arrays : hashes by name, from `put_arrays`
        facts : JSON-ready
        segments : hashes of ledger segments, from `put_segment`

        Raises
        ------
        ModelExists
            Somebody else has written this number.
        """
        body = {
            "format": FORMAT,
            "number": number,
            "arrays": dict(arrays),
            "facts": facts,
            "segments": list(segments),
        }
        text = _canonical(body | {"checksum": _sha(_canonical(body))})
        if not self.storage.put_if_absent(_record_name(number), text):
            raise ModelExists(
                f"{self.storage.url}: expected to write commit {number}, but it is taken; another process works "
                "on this model: let it finish, or choose another directory"
            )
        return Reference(self.storage.url, number, _sha(text))

    def put_segment(self, entries: list[Entry]) -> str:
        """Store ledger entries as one immutable blob; its hash."""
        return self._put_blob(_canonical([[e.key, e.digest, e.rows, e.weight, e.at, e.sites] for e in entries]))

    def get_segment(self, digest) -> list[Entry]:
        """The ledger entries of a blob, checked against its name."""
        return [Entry(*line) for line in json.loads(self._get_blob(digest))]

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
        record = self.record(self.head() if number is None else number)
        arrays = {name: self.get_array(digest) for name, digest in record["arrays"].items()}
        ledger = tuple(entry for segment in record["segments"] for entry in self.get_segment(segment))
        return Commit(record["number"], arrays, record["facts"], tuple(record["segments"]), ledger)

    def _record_bytes(self, number):
        try:
            return self.storage.get(_record_name(number))
        except FileNotFoundError as error:
            numbers = self.numbers()
            if numbers:
                raise ModelNotFound(
                    f"{self.storage.url}: expected commit {number}, it holds {numbers[0]} to {numbers[-1]}; name one "
                    "of these"
                ) from error
            raise ModelNotFound(
                f"{self.storage.url}: expected a model directory, found no commits; check the path, or make one "
                "with `bcmdist fit DATA.zarr --model DIR`"
            ) from error

    def _check(self, number, text):
        damaged = f"{self.storage.url}: commit {number} does not match its checksum; restore it from a copy"
        try:
            record = json.loads(text)
            checksum = record.pop("checksum")
        except (ValueError, KeyError, AttributeError) as error:
            raise ModelDamaged(damaged) from error
        if _sha(_canonical(record)) != checksum or record["number"] != number:
            raise ModelDamaged(damaged)
        if record["format"] != FORMAT:
            raise VersionMismatch(
                f"{self.storage.url}: expected model format {FORMAT}, got {record['format']}; use the version of "
                "bcmdist that wrote it, or fit again"
            )
        return record

    def _put_blob(self, data):
        digest = _sha(data)
        self.storage.put_if_absent(f"blobs/{digest}", data)
        return digest

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


def record_digest(url, number) -> str:
    """Hash of the record of a commit: everyone who works with it must see the same."""
    return ModelStore(LocalStorage(url)).reference(number).digest


def _read_text(storage, name):
    return storage.get(name).decode()


def _record_name(number):
    return f"commits/{number:08d}.json"


def _npy_bytes(array):
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def _canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _sha(data):
    return hashlib.sha256(data).hexdigest()

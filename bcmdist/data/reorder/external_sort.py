"""External sort: tasks write rows to disk as sorted runs and read them back by ranges of keys.

    URL/<name>.npy    one run: its rows as records (key, row, columns, check), sorted by (key, row)

A run appears under its name only when it is complete and durable, and it never changes. A task that runs twice, even
concurrently, writes the same bytes; a task that dies leaves a `.tmp-` file that is never read.

Every record has a checksum of itself and the header, so that `gather`, which reads only the records it needs, detects
a wrong bit in the records it returns. A file whose length does not match its header is refused. Missing rows are not
detected (a lost run, or a flipped key that misleads the search): callers of `gather` must count rows.
"""

import io
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bcmdist.errors import DataDamaged
from bcmdist.storage.disk import open_file, sync_directory
from bcmdist.storage.interface import TEMPORARY
from bcmdist.storage.paths import room_for
from bcmdist.storage.temporary import abandoned, owned

# An odd number whose powers, modulo 2^64, weight the words of a record (2^64 divided by the golden ratio).
ODD = np.uint64(0x9E3779B97F4A7C15)
HEAD_BYTES = 10  # start of an .npy file: magic, version, length of the header


@dataclass(frozen=True)
class Run:
    """Rows with their sort keys."""

    keys: np.ndarray
    """(n,) int64"""
    rows: np.ndarray
    """(n,) int64, original row numbers"""
    columns: Mapping[str, np.ndarray]
    """arrays of n rows, by name"""


@dataclass(frozen=True)
class Shuffle:
    """Sorted runs in a directory on a disk that all workers share."""

    url: str

    def create(self) -> None:
        """Create the directory. Only the client does this: a late task finds no directory and writes nothing."""
        os.makedirs(self.url, exist_ok=True)
        for name in abandoned(os.listdir(self.url)):
            Path(self.url, name).unlink(missing_ok=True)

    def write(self, name: str, run: Run) -> None:
        """Sort a run by (key, row) and store it; no effect if a valid run of that name exists.

        Raises
        ------
        DiskFull
            Nothing of the run is left on disk.
        """
        if self.has(name):
            return
        head, words = _encode(run)
        with room_for(self.url, len(head) + words.nbytes):
            temporary = os.path.join(self.url, owned(TEMPORARY))
            try:
                with open(temporary, "xb") as file:
                    file.write(head)
                    file.write(words.data)
                    file.flush()
                    os.fsync(file.fileno())
                self._put(name, temporary)
            finally:
                Path(temporary).unlink(missing_ok=True)

    def _put(self, name, temporary):
        try:
            os.link(temporary, self._path(name))
        except FileExistsError:
            if not self.has(name):  # replace a damaged run
                os.replace(temporary, self._path(name))

    def has(self, name: str) -> bool:
        """Return whether a run exists and is undamaged; reads all of it."""
        try:
            self._open(name).verified(slice(None))
        except (FileNotFoundError, DataDamaged):
            return False
        return True

    def gather(self, low: int, high: int) -> Run:
        """Return the rows of all runs with low <= key < high, ordered by (key, row).

        Raises
        ------
        DataDamaged
        """
        layout, slices = None, []
        for name in self.names():
            run = self._open(name)
            layout = layout or run.layout
            if run.layout != layout:
                raise DataDamaged(f"{run.path}: expected columns {layout}, got {run.layout}; remove {self.url}")
            slices.append(run.verified(slice(*np.searchsorted(run.records["key"], np.array([low, high])))))
        if layout is None:
            raise DataDamaged(f"{self.url}: expected sorted runs, found none; repeat the command")
        words = np.concatenate(slices)
        slices.clear()
        records = _records(words, layout)
        records = _records(words[np.lexsort((records["row"], records["key"]))], layout)
        columns = records["columns"]
        return Run(records["key"], records["row"], {name: columns[name] for name in columns.dtype.names})

    def names(self) -> list[str]:
        """Return the names of the existing runs."""
        return sorted(file.removesuffix(".npy") for file in os.listdir(self.url) if file.endswith(".npy"))

    def keep(self, names: Iterable[str]) -> None:
        """Remove all other runs; afterwards the names of these runs are durable.

        Raises
        ------
        DataDamaged
            One of these runs does not exist.
        """
        expected, here = set(names), set(self.names())
        if missing := expected - here:
            raise DataDamaged(
                f"{self._path(min(missing))}: expected a sorted run, it is not there (nor are {len(missing) - 1} more "
                f"of {len(expected)}); repeat the command"
            )
        for name in here - expected:
            self._path(name).unlink(missing_ok=True)
        sync_directory(self.url)

    def row_bytes(self) -> int:
        """Return the bytes per row of a run; 1 if there are no runs."""
        return max((self._open(name).layout.itemsize for name in self.names()[:1]), default=1)

    def remove(self) -> None:
        """Remove all runs."""
        shutil.rmtree(self.url, ignore_errors=True)

    def _path(self, name):
        return Path(self.url, f"{name}.npy")

    def _open(self, name):
        """Open a run, memory-mapped."""
        path = self._path(name)
        with os.fdopen(open_file(path), "rb") as file:
            try:
                head = file.read(HEAD_BYTES)
                head += file.read(int.from_bytes(head[8:], "little"))
                rows, layout = _layout(head)
            except Exception as error:  # any error of numpy
                raise DataDamaged(
                    f"{path}: expected a sorted run ({error}); remove it and repeat the command"
                ) from error
            size, expected = os.fstat(file.fileno()).st_size, len(head) + rows * layout.itemsize
            if size != expected:
                raise DataDamaged(f"{path}: expected {expected} bytes, got {size}; remove it and repeat the command")
            shape = (rows, layout.itemsize // 8)
            words = np.memmap(file, np.uint64, "r", len(head), shape) if rows else np.zeros(shape, np.uint64)
        return _Stored(path, layout, zlib.crc32(head), np.asarray(words))


@dataclass(frozen=True)
class _Stored:
    """A run on disk."""

    path: Path
    layout: np.dtype
    seed: int
    """seed of the checksums"""
    words: np.ndarray
    """(n, W) uint64, memory-mapped: a record has W words, the last one is its checksum"""

    @property
    def records(self) -> np.ndarray:
        return _records(self.words, self.layout)

    def verified(self, some) -> np.ndarray:
        """Return a copy of selected records, as words, after verifying their checksums."""
        words = np.array(self.words[some])
        bad = np.flatnonzero(words[:, -1] != _checks(self.seed, words[:, :-1]))
        if len(bad):
            raise DataDamaged(
                f"{self.path}: record {(some.start or 0) + bad[0]} does not match its check (nor do "
                f"{len(bad) - 1} more of {len(words)} read); remove it and repeat the command"
            )
        return words


def _encode(run):
    """Return the header of a run, and its records as words (n, W)."""
    columns = np.dtype([(name, c.dtype, c.shape[1:]) for name, c in run.columns.items()], align=True)
    fields = [("key", np.int64), ("row", np.int64), ("columns", columns), ("check", np.uint64)]
    records = np.zeros(len(run.keys), np.dtype(fields, align=True))  # zeros also in the padding between fields
    order = np.lexsort((run.rows, run.keys))
    records["key"], records["row"] = run.keys[order], run.rows[order]
    for name, column in run.columns.items():
        records["columns"][name] = column[order]
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(records))
    head = file.getvalue()
    words = records.view(np.uint64).reshape(len(records), records.itemsize // 8)
    words[:, -1] = _checks(zlib.crc32(head), words[:, :-1])
    return head, words


@lru_cache(maxsize=64)
def _layout(head):
    """Return the number and dtype of the records from a header; cached, since parsing takes longer than a small
    read."""
    file = io.BytesIO(head)
    np.lib.format.read_magic(file)
    (rows,), _, layout = np.lib.format.read_array_header_1_0(file)
    fields: Any = layout.fields or {}
    if layout.itemsize % 8 or [fields[name][0] for name in ("key", "row")] != [np.int64] * 2:
        raise ValueError(f"its records are {layout}")
    return rows, layout


def _records(words, layout):
    return words.view(layout)[:, 0]


def _checks(seed, words):
    """Return one checksum per record (n, W - 1): seed + sum_j ODD^j (w_j xor w_j >> 32) modulo 2^64, one-to-one in
    w_j."""
    powers = np.cumprod(np.full(words.shape[1], ODD))
    return (words ^ (words >> np.uint64(32))) @ powers + np.uint64(seed)

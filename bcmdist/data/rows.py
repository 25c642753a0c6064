"""Rows of partitions: read from Zarr arrays or from copies, checked, and identified by a hash of their content."""

import functools
import hashlib
import itertools
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from zict import LRU

from bcmdist.data.checks.manifest import Chunk
from bcmdist.data.dataset import COMPANIONS, Dataset, read_schema
from bcmdist.data.groups import open_group
from bcmdist.data.observations import TARGET_VARIANCE, Observations
from bcmdist.data.partition import Partition
from bcmdist.data.row_copy import load_copy
from bcmdist.data.schemes import reader_of
from bcmdist.data.values import LARGEST, bad_variances, numbers
from bcmdist.errors import BcmdistError, CorruptChunk, InvalidData, MemoryLimit
from bcmdist.storage.cache import get_or_make, least_recently_used
from bcmdist.storage.urls import answering

# Rows that one task reads at a time: enough that large chunks are decoded only a few times, and small compared with an
# expert's matrices.
RUN_ROWS = 16_384

# Upper limit for rows read at a time, whatever the memory: an expert needs far more for them.
LARGEST_RUN_BYTES = 2**32

# Memory for cached rows of partitions; below, the approximate size of the rows of one.
ROWS_BYTES = 2**27
_kept: "LRU[Hashable, Rows]" = least_recently_used(ROWS_BYTES, lambda rows: rows.X.nbytes + 5 * rows.obs.y.nbytes)


@dataclass(frozen=True)
class Rows:
    """Rows of a partition, in original units."""

    X: np.ndarray
    """(n, D), float64"""
    obs: Observations
    """targets are nan if only inputs are read"""
    digest: str
    """SHA-256 of the values of X, y and the companions"""
    X_variance: np.ndarray | None = None
    """(n, D) or (n, D, D), in squared units of X; None unless inputs are uncertain and variances were requested"""
    chunks: Mapping[str, Chunk] = field(default_factory=dict)
    """chunks read for the partition and its neighbours, by key, if the data set has no manifest"""


def read_all(parts: Sequence[Partition]) -> Iterator[tuple[Partition, Rows]]:
    """Yield each partition with its rows; neighbours are read together, up to `RUN_ROWS` rows at a time."""
    for run in _runs(parts):
        if run[0].copy:
            yield from ((part, _read_copy(part)) for part in run)
        elif run[0].data.kept:
            yield from ((part, get_or_make(_kept, part, functools.partial(_read_one, part))) for part in run)
        else:
            yield from _read_run(run)


def _read_one(part):
    ((_, rows),) = _read_run([part])
    return rows


def _read_copy(part):
    """Rows from the copy of a partition; its blob is checked, so they are those that were absorbed."""
    X, obs = load_copy(part.copy.blob, part.rows, part.data.inputs)
    return Rows(X, obs, part.copy.digest)


def _read_run(run):
    """Yield adjacent partitions with their rows, from one read."""
    first, last = run[0], run[-1]
    whole, chunks = _read(first.data, first.start, last.stop)
    for part in run:
        rows = slice(part.start - first.start, part.stop - first.start)
        X, y = whole["X"][rows], whole["y"][rows]
        companions = {name: whole[name][rows] for name in COMPANIONS if name in whole}
        obs = Observations(y, **({"weight": np.ones(len(y))} | companions))
        others = [companions[name] for name in COMPANIONS[1:] if name in companions]
        variance = whole["X_variance"][rows] if first.data.variance else None
        yield part, Rows(X, obs, _digest(X, y, obs.weight, *others), variance, chunks)


def row_numbers(part: Partition) -> np.ndarray:
    """Return the original row numbers of the rows of a reordered data set, (n,) int64."""
    rows = slice(part.start, part.stop)
    return np.asarray(_decoded(open_group(part.data.url)["row"], part.data.url, rows, lambda array: array[rows]))


def read_rows(data: Dataset, rows) -> tuple[np.ndarray, Observations]:
    """Return inputs (n, D) and observations of selected rows (n,), ascending, of a data set, in original units.

    Raises
    ------
    DataDamaged, InvalidData, UnsafeData
    """
    stored = _selected(data, rows)

    def column(name):
        return _meant(data, name, stored(name), int(rows[0]))

    y = np.full(len(rows), np.nan) if data.y is None else column(data.y)
    companions = {"weight": np.ones(len(y))} | {name: column(name) for name in data.companions}
    return column(data.x), Observations(y, **companions)


def read_variances(data: Dataset, rows) -> np.ndarray | None:
    """Return the variances (n, D) or covariances (n, D, D) of the inputs of selected rows, as `read_rows`; None where
    the data set has none or was opened without them."""
    return _checked_variance(data, _selected(data, rows), int(rows[0])) if data.variance else None


def _selected(data, rows):
    """Return a function that reads selected rows of an array as numbers."""
    group, span = open_group(data.url), slice(int(rows[0]), int(rows[-1]) + 1)

    def stored(name):
        values = _decoded(group[name], data.url, span, lambda array: array.oindex[rows])
        return numbers(group[name], values, f"{data.url}: {name}", start=span.start)

    return stored


def changed_chunks(part: Partition, recorded: Mapping[str, Chunk]) -> list[str]:
    """Return the keys of chunks of a partition that differ from those recorded at an earlier read."""
    group: Any = open_group(part.data.url)
    rows = slice(part.start, part.stop)
    for array in (group[name] for name in group.array_keys()):
        if any(key.startswith(f"{array.path}/") for key in recorded):
            _decoded(array, part.data.url, rows, lambda array: array[rows])
    return sorted(key for key, chunk in group.store.seen.items() if recorded.get(key, chunk) != chunk)


def _runs(parts):
    """Group adjacent partitions of one data set, up to `RUN_ROWS` rows per group."""
    run: list[Partition] = []
    for part in parts:
        joins = run and part.data == run[-1].data and part.start == run[-1].stop
        if run and not (joins and part.stop - run[0].start <= RUN_ROWS):
            yield run
            run = []
        run.append(part)
    if run:
        yield run


def _read(data, start, stop):
    """Return checked columns of rows as float64 by name, X (n, D) and others (n,), and the chunks without a
    manifest."""
    _refuse_large(data, stop - start)
    stored, seen = _opened(data, slice(start, stop))
    columns = {"X": _checked(data, data.x, stored, start)}
    unknown = np.full(len(columns["X"]), np.nan)
    columns["y"] = unknown if data.y is None else _checked(data, data.y, stored, start)
    columns |= {name: _checked(data, name, stored, start) for name in data.companions}
    if data.variance:
        columns["X_variance"] = _checked_variance(data, stored, start)
    _refuse_negative(data, columns, start)
    return columns, seen


def _refuse_negative(data, columns, start):
    """Raise `InvalidData` for weights that are not positive, and known variances of targets below 0."""
    bad = np.flatnonzero(columns.get("weight", np.ones(1)) <= 0)
    if len(bad):
        raise InvalidData(
            f"{data.url}: expected positive weights, got {columns['weight'][bad[0]]} at row {start + bad[0]}; drop the "
            "row"
        )
    variance = columns.get(TARGET_VARIANCE, np.zeros(1))
    if len(bad := np.flatnonzero(variance < 0)):
        raise InvalidData(
            f"{data.url}: expected variances of errors, at least 0, in {TARGET_VARIANCE}, got {variance[bad[0]]:g} at "
            f"row {start + bad[0]} ({len(bad)} such values in rows {start} to {start + len(variance) - 1}); correct or "
            "drop these rows"
        )


def _opened(data, rows) -> tuple[Callable[[str], np.ndarray], Mapping[str, Chunk]]:
    """Return a function that reads rows of an array as numbers, and the chunks it has seen."""
    if reader := reader_of(data.url):
        return _entry(data, reader.columns(data.url, data.x, data.y, COMPANIONS), rows), {}
    group = open_group(data.url)

    def stored(name):
        array = group[name]
        values = _decoded(array, data.url, rows, lambda array: array[rows])
        return numbers(array, values, f"{data.url}: {name}", start=rows.start)

    return stored, group.store.seen  # type: ignore[attr-defined]


def _entry(data, columns, rows):
    """Return a function that slices the columns of an entry."""

    def stored(name):
        if len(columns[name]) < data.rows:  # a later read may find more
            raise InvalidData(
                f"{data.url}: expected {data.rows} rows in {name}, as it was found to hold, got {len(columns[name])}; "
                "an entry must not change: deliver other rows under another name"
            )
        return columns[name][rows]

    return stored


def _refuse_large(data, rows):
    need = 8 * rows * (data.inputs + 1 + len(data.companions))
    if need > LARGEST_RUN_BYTES:
        raise MemoryLimit(
            f"{data.url}: expected to read at most {LARGEST_RUN_BYTES / 1e9:.3g} GB at a time, {rows} rows of "
            f"{data.inputs} columns take {need / 1e9:.3g}; take fewer rows per partition, or fewer columns"
        )


def _checked(data, name, stored, start):
    """Return a column, converted for the model and checked, of rows from `start` on."""
    column = _meant(data, name, stored(name), start)
    _check_finite(data, name, column, start)
    return column


def _checked_variance(data, stored, start):
    """Return variances (n, D) or covariances (n, D, D) of the inputs, in the order of the model's columns."""
    variance = stored(data.variance)
    for axis in range(1, variance.ndim if data.take else 1):
        variance = np.take(variance, data.take, axis=axis)
    bad = bad_variances(variance)
    if len(bad):
        row = start + int(bad[0])
        raise InvalidData(
            f"{data.url}: expected finite variances, at least 0, or covariances that are symmetric and positive "
            f"semi-definite, in {data.variance}, got {variance[bad[0]].tolist()} at row {row} (chunk "
            f"{row // data.chunk_rows}); correct it"
        )
    return variance


def _meant(data, name, values, start):
    """Convert values of an array for the model: inputs in its column order, classes as its class numbers."""
    if name == data.x and data.take:
        return values[:, data.take]
    if name == data.y and data.recode:
        bad = np.flatnonzero((values != np.floor(values)) | (values < 0) | (values >= len(data.recode)))
        if len(bad):
            raise InvalidData(
                f"{data.url}: expected the numbers 0 to {len(data.recode) - 1} of its classes in {name}, got "
                f"{values[bad[0]]:g} at row {start + bad[0]}; correct it"
            )
        return np.asarray(data.recode, dtype=float)[values.astype(int)]
    return values


def _decoded(array, url, rows, read):
    """Return `read(array)`; raise `CorruptChunk` naming the first chunk of the rows that cannot be decoded."""
    try:
        with answering(url):
            return read(array)
    except BcmdistError:
        raise
    except (ValueError, RuntimeError, OSError, zlib.error) as error:
        raise CorruptChunk(
            f"{url}: key {_damaged_key(array, rows)}: expected a chunk of {array.path} (rows {rows.start} to "
            f"{rows.stop - 1} were wanted), decoding failed: {error}; restore it from a copy"
        ) from error


def _damaged_key(array, rows):
    """Return the key of the first chunk of the rows that cannot be decoded."""
    shape = array.shards or array.chunks
    first = range(rows.start // shape[0], -(-rows.stop // shape[0]))
    others = (range(-(-length // size)) for length, size in zip(array.shape[1:], shape[1:], strict=True))
    for place in itertools.product(first, *others):
        try:
            array[tuple(slice(k * size, (k + 1) * size) for k, size in zip(place, shape, strict=True))]
        except (ValueError, RuntimeError, OSError, zlib.error):
            return f"{array.path}/{array.metadata.encode_chunk_key(place)}"
    return f"{array.path}/?"


def _check_finite(data, name, column, start):
    bad = np.argwhere(~(np.abs(column) <= LARGEST))
    if len(bad) == 0:
        return
    row = start + int(bad[0, 0])
    place = f"row {row}"
    if column.ndim == 2:
        stored = data.take[bad[0, 1]] if data.take else bad[0, 1]
        place += f", {read_schema(data.url, x=data.x).column(stored)}"
    raise InvalidData(
        f"{data.url}: expected finite numbers (up to {LARGEST:g}) in {name}, got {column[tuple(bad[0])]} at {place} "
        f"(chunk {row // data.chunk_rows}; {len(bad)} such values in rows {start} to {start + len(column) - 1}); "
        "fill or drop these rows"
    )


def _digest(*columns):
    digest = hashlib.sha256()
    for column in columns:
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()

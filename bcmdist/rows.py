"""Rows: what partitions hold, read from Zarr arrays, checked, and named by a hash of their content."""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.errors import DataDamaged, InvalidData, StorageUnreachable
from bcmdist.kept import Kept
from bcmdist.likelihoods import Observations
from bcmdist.partition import COMPANIONS, Data, Partition, chunk_rows, open_group
from bcmdist.storage import answering
from bcmdist.stream import is_entry, read_entry

# Rows that one task reads in one go: enough to decode a large chunk few times, little enough to
# be small beside an expert's matrices.
RUN_ROWS = 16_384

# Larger numbers overflow when they are squared.
LARGEST = 1e150

# Memory for the rows of partitions that are kept, and what the rows of one take, about.
ROWS_BYTES = 2**27
_kept: "Kept[Rows]" = Kept(ROWS_BYTES, lambda rows: rows.X.nbytes + 5 * rows.obs.y.nbytes)


@dataclass(frozen=True)
class Rows:
    """What a partition holds, in original units."""

    X: np.ndarray
    """(n, D), float64"""
    obs: Observations
    """targets nan where only inputs are wanted"""
    digest: str
    """SHA-256 of the values of X, y and the companions"""


def read_all(parts: Sequence[Partition]) -> Iterator[tuple[Partition, Rows]]:
    """Each partition with its rows; neighbours are read in one go, up to `RUN_ROWS` rows."""
    for run in _runs(parts):
        if run[0].data.kept:
            yield from ((part, _kept.get(part, functools.partial(_read_one, part))) for part in run)
        else:
            yield from _read_run(run)


def _read_one(part):
    ((_, rows),) = _read_run([part])
    return rows


def _read_run(run):
    """Neighbouring partitions with their rows."""
    first, last = run[0], run[-1]
    whole = _read(first.data, first.start, last.stop)
    for part in run:
        rows = slice(part.start - first.start, part.stop - first.start)
        X, y = whole["X"][rows], whole["y"][rows]
        companions = {name: whole[name][rows] for name in COMPANIONS if name in whole}
        obs = Observations(y, **({"weight": np.ones(len(y))} | companions))
        others = [companions[name] for name in COMPANIONS[1:] if name in companions]
        yield part, Rows(X, obs, _digest(X, y, obs.weight, *others))


def row_numbers(part: Partition):
    """Where the rows of a reordered data set stood before, (n,) int64."""
    return np.asarray(open_group(part.data.url)["row"][part.start : part.stop])


def read_rows(data: Data, rows) -> tuple[np.ndarray, Observations]:
    """Inputs (n, D) and observations of some rows (n,) of a data set, ascending, in original units.

    Raises
    ------
    DataDamaged, InvalidData
    """
    group = open_group(data.url)

    def column(name):
        try:
            with answering(data.url):
                return np.asarray(group[name].oindex[rows], dtype=float)
        except StorageUnreachable:
            raise
        except (ValueError, RuntimeError, OSError) as error:
            raise DataDamaged(
                f"{data.url}: expected to read {len(rows)} rows of {name} between {rows[0]} and {rows[-1]}, failed: "
                f"{error}; restore the chunk from a copy"
            ) from error

    y = np.full(len(rows), np.nan) if data.y is None else column(data.y)
    return column(data.x), Observations(y, **({"weight": np.ones(len(y))} | {n: column(n) for n in data.companions}))


def _runs(parts):
    """Neighbouring partitions of one data set, up to `RUN_ROWS` rows together."""
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
    """Checked X (n, D), y (n,) and companions (n,) of some rows by name, float64."""
    group = read_entry(data.url, data.x, data.y, COMPANIONS) if is_entry(data.url) else open_group(data.url)
    rows = slice(start, stop)
    columns = {"X": _read_column(group, data, data.x, rows)}
    unknown = np.full(len(columns["X"]), np.nan)
    columns["y"] = unknown if data.y is None else _read_column(group, data, data.y, rows)
    columns |= {name: _read_column(group, data, name, rows) for name in data.companions}
    bad = np.flatnonzero(columns.get("weight", np.ones(1)) <= 0)
    if len(bad):
        raise InvalidData(
            f"{data.url}: expected positive weights, got {columns['weight'][bad[0]]} at row {start + bad[0]}; drop the "
            "row"
        )
    return columns


def _read_column(group, data, name, rows):
    try:
        with answering(data.url):
            column = np.asarray(group[name][rows], dtype=float)
    except StorageUnreachable:
        raise
    except (ValueError, RuntimeError, OSError) as error:
        raise DataDamaged(
            f"{data.url}: expected to read chunk {_damaged_chunk(group[name], rows)} of {name} (rows {rows.start} to "
            f"{rows.stop - 1} were wanted), failed: {error}; restore the chunk from a copy"
        ) from error
    _check_finite(data, name, column, rows.start)
    return column


def _damaged_chunk(array, rows):
    """Number of the first chunk along the rows that cannot be read."""
    size = chunk_rows(array)
    for chunk in range(rows.start // size, -(-rows.stop // size)):
        try:
            array[chunk * size : (chunk + 1) * size]
        except (ValueError, RuntimeError, OSError):
            return chunk
    return rows.start // size


def _check_finite(data, name, column, start):
    bad = np.argwhere(~(np.abs(column) <= LARGEST))
    if len(bad) == 0:
        return
    row = start + int(bad[0, 0])
    place = f"row {row}" + (f", column {bad[0, 1]}" if column.ndim == 2 else "")
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

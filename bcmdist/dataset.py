"""Zarr groups that we write: data sets, and predictions for one. The door to Zarr output.

Arrays are chunked along rows with zstd and a crc32c checksum, so that a flipped bit is an error, and
chunks of zeros are stored too, so that a chunk that is not there is one that was lost. Where one process writes
all of a data set, a manifest lists its chunks (`manifest`).
"""

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from bcmdist.arrays import (
    ALL_STORED,
    COMPANIONS,
    ROWS_COMPLETE,
    Data,
    absolute_url,
    chunk_keys,
    group_store,
    open_group,
)
from bcmdist.checked import recorded
from bcmdist.disk import leads_nowhere, room_for
from bcmdist.errors import DataExists, InvalidData, InvalidOption
from bcmdist.manifest import MANIFEST
from bcmdist.storage import answering, on_objects, open_objects

ROWS_PER_CHUNK = 4096
# Predictions are written in the chunks of X, unless those are so large that a task would not fit.
LARGEST_OUTPUT_CHUNK = 8192
# Store chunks of zeros too. Zarr keeps this with the array in memory, not with the one on disk.
EMPTY_TOO: Any = {"write_empty_chunks": True}


def write_dataset(url, columns: Mapping[str, np.ndarray], *, rows_per_chunk=ROWS_PER_CHUNK, attributes=None):
    """Write row-wise arrays of equal length as a data set.

    Raises
    ------
    DataExists
        There is something at `url`.
    """
    with new_output(url) as place:
        known = {ALL_STORED: True, MANIFEST: {name: len(column) for name, column in columns.items()}}
        with recorded(group_store(place), "w-", attributes=(attributes or {}) | known) as group:
            for name, column in columns.items():
                array = _create_array(group, name, column.shape, column.dtype, rows_per_chunk, "row")
                with room_for(place, column.nbytes):
                    array[...] = column


def append_rows(url, X, y, *, rows_per_chunk=ROWS_PER_CHUNK, **companions):
    """Add rows to a data set of arrays X and y, which is made where there is none; one writer at a time.

    Rows are written, and after that counted by the group's `rows_complete`: readers see all of them or none, and those
    of a writer that died in between are written over by the next one. It is the caller who knows which those were.

    Parameters
    ----------
    X : (n, D)
    y : (n,)
    companions : `weight`, `exposure`, `trials` or `event`, (n,); the same in every call
    rows_per_chunk : of a new data set

    Raises
    ------
    InvalidData
        The data set has other arrays, or the arrays have other shapes.
    """
    columns = {name: np.asarray(values) for name, values in {"X": X, "y": y, **companions}.items()}
    with recorded(group_store(url), "a") as group:
        if "X" not in group:
            group.update_attributes({ALL_STORED: True, ROWS_COMPLETE: 0, MANIFEST: dict.fromkeys(columns, 0)})
        if group.attrs.get(ROWS_COMPLETE) == 0:
            for name, column in columns.items():
                if name not in group:
                    _create_array(group, name, (rows_per_chunk, *column.shape[1:]), float, rows_per_chunk, "row")
        start: Any = group.attrs.get(ROWS_COMPLETE, group["X"].shape[0])  # type: ignore[union-attr]
        _refuse_other_columns(url, group, columns)
        if ROWS_COMPLETE not in group.attrs:
            group.update_attributes({ROWS_COMPLETE: start})
        for name, column in columns.items():
            array = group[name].with_config(EMPTY_TOO)  # type: ignore[union-attr]
            array.resize((start + len(column), *column.shape[1:]))
            with room_for(url, column.nbytes):
                array[start:] = column
                _make_durable(url, array, start)
        group.update_attributes({ROWS_COMPLETE: start + len(columns["X"])})


def _refuse_other_columns(url, group, columns):
    known = {name: group[name].shape[1:] for name in ("X", "y", *COMPANIONS) if name in group}
    new = {name: column.shape[1:] for name, column in columns.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if known != new or len(set(lengths.values())) > 1:
        raise InvalidData(
            f"{url}: expected rows of {known} (shape of a row by array), got {new} with lengths {lengths}; give the "
            "same arrays with one row each"
        )


def _make_durable(url, array, start):
    """Have the disk keep the chunks from row `start` on, before anything counts on them."""
    if "://" in absolute_url(url):
        return
    folder = Path(absolute_url(url), array.path)
    chunks = [folder / key for key in chunk_keys(array, start, array.shape[0])]
    folders = {parent for chunk in chunks for parent in chunk.parents if parent.is_relative_to(folder)}
    metadata = [path for path in (folder / "zarr.json", folder / ".zarray") if path.exists()]
    for path in (*chunks, *metadata, *folders):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def create_dataset(url, examples: Mapping[str, np.ndarray], rows, *, rows_per_chunk, attributes):
    """Empty data set of so many rows, which tasks are to write.

    Parameters
    ----------
    examples : what stands in one row, (1, ...), by name
    """
    group = zarr.open_group(group_store(url), mode="w-", attributes=attributes | {ALL_STORED: True})
    for name, example in examples.items():
        _create_array(group, name, (rows, *example.shape[1:]), example.dtype, rows_per_chunk, "row")


def write_array(url, name, values, *, along, rows_per_chunk=ROWS_PER_CHUNK, attributes):
    """Add an array with attributes of its own to a group; `along` names what its first axis counts."""
    group = zarr.open_group(group_store(url), mode="r+")
    array = _create_array(group, name, values.shape, values.dtype, rows_per_chunk, along)
    array[...] = values
    array.update_attributes(attributes)


def refuse_existing(url):
    """Raise `DataExists` where an output on a local disk would overwrite something."""
    where = absolute_url(url)
    if "://" not in where and os.path.lexists(where):
        found = leads_nowhere(where) or f"{url} exists"
        raise DataExists(f"output: expected a new path, {found}; choose another path or remove it")


@contextlib.contextmanager
def new_output(url):
    """Where to write a group that is to appear at `url`: all of it, or nothing.

    On a local disk a directory beside it, renamed at the end and removed on failure; a task that
    writes late writes to a name nobody reads. On an object store the URL itself, which is emptied
    on failure: what was not removed lacks chunks, and is refused where it is read. Elsewhere the URL itself.

    Raises
    ------
    DataExists
        There is something at `url`.
    """
    where = absolute_url(url)
    if on_objects(where):
        with _objects(where, url):
            yield where
        return
    if "://" in where:
        yield where
        return
    refuse_existing(where)
    place = f"{where}.partial-{uuid.uuid4().hex[:8]}"
    try:
        yield place
        with _taken_meanwhile(url):
            os.rename(place, where)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


@contextlib.contextmanager
def _taken_meanwhile(url):
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise DataExists(
            f"output: expected a new path, something has appeared at {url} meanwhile, perhaps of the same command "
            "elsewhere; choose another path, or remove it"
        ) from error


@contextlib.contextmanager
def _objects(where, url):
    if where.count("/") < 3:
        raise InvalidOption(f"output: expected s3://BUCKET/PREFIX, got {url} without a prefix; give one")
    storage = open_objects(where)
    if storage.names(""):
        raise DataExists(f"output: expected a new URL, {url} holds something; choose another path or remove it")
    try:
        with answering(where):
            yield
    except DataExists:  # somebody else was faster
        raise
    except BaseException:
        storage.remove_all()
        raise


def create_predictions(place, data: Data, columns: Mapping[str, np.ndarray], attributes) -> int:
    """Empty output for predictions at the rows of `data`; rows per chunk.

    Parameters
    ----------
    columns : an example of what is predicted for one row, by name
    """
    rows_per_chunk = min(data.chunk_rows, LARGEST_OUTPUT_CHUNK)
    try:
        group = zarr.open_group(group_store(place), mode="w-", attributes=attributes)
    except zarr.errors.ContainsGroupError as error:
        raise DataExists(f"output: expected a new URL, {place} holds a group; choose another one") from error
    source = open_group(data.url)
    row = (source[data.x].metadata.to_dict().get("dimension_names") or ["row"])[0] or "row"
    for name, example in columns.items():
        shape = (data.rows, *example.shape[1:])
        _create_array(group, name, shape, example.dtype, rows_per_chunk, row)
    for name in _coordinates(source, row, data):
        values = source[name][...]
        _create_array(group, name, values.shape, values.dtype, rows_per_chunk, row)[...] = values
    return rows_per_chunk


def write_rows(url, start, columns: Mapping[str, np.ndarray]):
    """Write rows of an output from row `start` on."""
    with answering(url), room_for(url, sum(values.nbytes for values in columns.values())):
        group = zarr.open_group(group_store(url), mode="r+")
        for name, values in columns.items():
            array = group[name].with_config(EMPTY_TOO)  # type: ignore[union-attr]
            array[start : start + len(values)] = values


def output_names(url) -> str:
    """The arrays of an output group, as text."""
    return ", ".join(sorted(open_group(url).array_keys()))


def _create_array(group, name, shape, dtype, rows_per_chunk, row):
    names = [row, "column", *(f"axis{k}" for k in range(2, len(shape)))][: len(shape)]
    if name == "probability" and len(shape) > 1:
        names[1] = "class"
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=(max(1, min(rows_per_chunk, shape[0])), *shape[1:]),
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        dimension_names=names,
        config=EMPTY_TOO,
    )


def _coordinates(source, row, data):
    """Names of 1-D arrays along the rows that describe them: the dimension's own, and CF's."""
    listed = str(source.attrs.get("coordinates", "")).split()
    return [
        name
        for name in dict.fromkeys([row, *listed])
        if name in source and source[name].shape == (data.rows,) and source[name].dtype.kind in "fiubM"
    ]

"""Zarr groups that we write: data sets, and predictions for one. The door to Zarr output.

Arrays are chunked along rows with zstd and a crc32c checksum, so that a flipped bit is an error, and
chunks of zeros are stored too, so that a chunk that is not there is one that was lost. Where one process writes
all of a data set, a manifest lists its chunks (`manifest`).
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from bcmdist.checked import recorded
from bcmdist.errors import DataExists
from bcmdist.manifest import MANIFEST
from bcmdist.partition import ALL_STORED, Data, absolute_url, open_group

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
        known = {ALL_STORED: True, MANIFEST: list(columns)}
        with recorded(place, "w-", attributes=(attributes or {}) | known) as group:
            for name, column in columns.items():
                array = _create_array(group, name, column.shape, column.dtype, rows_per_chunk, "row")
                array[...] = column


def create_dataset(url, examples: Mapping[str, np.ndarray], rows, *, rows_per_chunk, attributes):
    """Empty data set of so many rows, which tasks are to write.

    Parameters
    ----------
    examples : what stands in one row, (1, ...), by name
    """
    group = zarr.open_group(url, mode="w-", attributes=attributes | {ALL_STORED: True})
    for name, example in examples.items():
        _create_array(group, name, (rows, *example.shape[1:]), example.dtype, rows_per_chunk, "row")


def write_array(url, name, values, *, along, rows_per_chunk=ROWS_PER_CHUNK, attributes):
    """Add an array with attributes of its own to a group; `along` names what its first axis counts."""
    group = zarr.open_group(url, mode="r+")
    array = _create_array(group, name, values.shape, values.dtype, rows_per_chunk, along)
    array[...] = values
    array.update_attributes(attributes)


@contextlib.contextmanager
def new_output(url):
    """Where to write a group that is to appear at `url`: all of it, or nothing.

    On a local disk a directory beside it, renamed at the end and removed on failure; a task that
    writes late writes to a name nobody reads. Elsewhere the URL itself.

    Raises
    ------
    DataExists
        There is something at `url`.
    """
    where = absolute_url(url)
    if "://" in where:
        yield where
        return
    if os.path.exists(where):
        raise DataExists(f"output: expected a new path, {url} exists; choose another --out or remove it")
    place = f"{where}.partial-{uuid.uuid4().hex[:8]}"
    try:
        yield place
        os.rename(place, where)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def create_predictions(place, data: Data, columns: Mapping[str, np.ndarray], attributes) -> int:
    """Empty output for predictions at the rows of `data`; rows per chunk.

    Parameters
    ----------
    columns : an example of what is predicted for one row, by name
    """
    rows_per_chunk = min(data.chunk_rows, LARGEST_OUTPUT_CHUNK)
    try:
        group = zarr.open_group(place, mode="w-", attributes=attributes)
    except zarr.errors.ContainsGroupError as error:
        raise DataExists(f"output: expected a new URL, {place} holds a group; choose another --out") from error
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
    group = zarr.open_group(absolute_url(url), mode="r+")
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

"""Write data sets, at once or by appending rows. All Zarr output of data sets goes through here.

Arrays are chunked along rows with zstd and a crc32c checksum, so that a flipped bit is an error. Chunks of zeros are
stored too, so that a missing chunk means a lost chunk. If one process writes the whole data set, a manifest lists its
chunks (`manifest`).
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from bcmdist.data.archive import packed
from bcmdist.data.checks.checked_store import recorded
from bcmdist.data.checks.manifest import MANIFEST
from bcmdist.data.dataset import ALL_STORED, OPTIONAL_ARRAYS, ROWS_COMPLETE, schema_of
from bcmdist.data.groups import Location, absolute_url, chunk_keys, group_store
from bcmdist.data.outputs import new_output
from bcmdist.data.schema import CLASSES, CODING, GRID_COORDINATES, UNNAMED, Schema, few, frame_names, in_order, is_text
from bcmdist.data.values import PLAIN, as_float, packing_of
from bcmdist.errors import InvalidData, InvalidDtype
from bcmdist.storage.paths import room_for
from bcmdist.storage.urls import answering

ROWS_PER_CHUNK = 4096
# Store chunks of zeros too. Zarr keeps this setting with the array in memory, not on disk.
EMPTY_TOO: Any = {"write_empty_chunks": True}


def write_dataset(
    url: Location,
    columns: Mapping[str, np.ndarray],
    *,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    attributes: Mapping[str, Any] | None = None,
    schema: Schema = UNNAMED,
    y: str = "y",
) -> None:
    """Write row-wise arrays of equal length as a data set, with the names of the columns of X and classes of `y`.

    Parameters
    ----------
    url : path or URL of the new Zarr group
    columns : arrays by name: X (n, D), y (n,) and companions such as weight (n,), in original units
    rows_per_chunk : rows of a chunk, which is read and checked as a whole
    attributes : attributes of the group
    schema : names of the columns of X, and of the classes
    y : name of the targets, to which the class names belong

    Raises
    ------
    DataExists
        Something exists at `url`.
    DiskFull
        The disk has no room for the arrays.

    Examples
    --------
    >>> bcmdist.write_dataset("train.zarr", {"X": X, "y": y})
    >>> bcmdist.open_data("train.zarr").rows
    80
    """
    with new_output(url) as place:
        nbytes = sum(column.nbytes for column in columns.values())
        with room_for(place, nbytes):
            _write_columns(group_store(place), columns, rows_per_chunk, attributes, schema, y)


def packed_dataset(
    columns: Mapping[str, np.ndarray], *, rows_per_chunk=ROWS_PER_CHUNK, attributes=None, schema=UNNAMED, y="y"
) -> bytes:
    """As `write_dataset`, but return the bytes of a file NAME.zarr.zip (`bcmdist.data.archive`)."""
    keys: dict[str, Buffer] = {}
    _write_columns(MemoryStore(keys), columns, rows_per_chunk, attributes, schema, y)
    return packed(keys)


def _write_columns(store, columns, rows_per_chunk, attributes, schema, y):
    manifest = {ALL_STORED: True, MANIFEST: {name: len(column) for name, column in columns.items()}}
    with recorded(store, "w-", attributes=(attributes or {}) | manifest) as group:
        for name, column in columns.items():
            create_array(group, name, column.shape, column.dtype, rows_per_chunk, "row")[...] = column
        _describe(group, schema, y)


def write_pieces(
    url, pieces: Iterable[Mapping[str, np.ndarray]], *, empty, rows_per_chunk=ROWS_PER_CHUNK, attributes=None, schema
) -> int:
    """Write an iterable of pieces of row-wise arrays as a data set and return its number of rows. As `write_dataset`,
    but with only a few pieces in memory at a time.

    Parameters
    ----------
    empty : error message if there are no rows

    Raises
    ------
    DataExists, InvalidData
    """
    rows = 0
    with new_output(url) as place:
        manifest = {ALL_STORED: True, MANIFEST: {}}
        with recorded(group_store(place), "w-", attributes=(attributes or {}) | manifest) as group:
            for columns in _in_whole_chunks(pieces, rows_per_chunk):
                if rows == 0:
                    for name, column in columns.items():
                        create_array(group, name, column.shape, column.dtype, rows_per_chunk, "row")
                    group.update_attributes({MANIFEST: dict.fromkeys(columns, 0)})
                for name, column in columns.items():
                    array: Any = group[name].with_config(EMPTY_TOO)  # type: ignore[union-attr]
                    if rows:
                        array.resize((rows + len(column), *column.shape[1:]))
                    with room_for(place, column.nbytes):
                        array[rows:] = column
                rows += len(columns["X"])
            if rows == 0:
                raise InvalidData(empty)
            _describe(group, schema)
    return rows


def _in_whole_chunks(pieces, rows_per_chunk):
    """Regroup the rows of pieces so that each piece, except the last, ends at a chunk boundary."""
    kept: list[Mapping[str, np.ndarray]] = []
    for piece in pieces:
        kept.append(piece)
        rows = sum(len(one["X"]) for one in kept)
        whole = rows - rows % rows_per_chunk
        if whole:
            joined = _joined(kept)
            yield {name: values[:whole] for name, values in joined.items()}
            kept = [{name: values[whole:] for name, values in joined.items()}] if whole < rows else []
    if kept and len((remaining := _joined(kept))["X"]):
        yield remaining


def _joined(pieces):
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _describe(group, schema, y="y"):
    """Write the names of a schema into the group of X and y."""
    _name_columns(group, schema.columns)
    if schema.coding:
        group["X"].update_attributes({CODING: schema.coding.to_json()})
    if schema.coordinates:
        group["X"].update_attributes({GRID_COORDINATES: list(schema.coordinates)})
    if schema.classes:
        group[y].update_attributes({CLASSES: list(schema.classes)})


def append_rows(url: Location, X: Any, y: Any, *, rows_per_chunk: int = ROWS_PER_CHUNK, **companions: Any) -> None:
    """Append rows to a data set of arrays X and y, created if absent. Only one writer at a time.

    Rows are written first, then counted in the group's `rows_complete`, so readers see all of them or none. Rows of a
    writer that died before counting are overwritten by the next writer; the caller must know which rows to append
    again.

    Parameters
    ----------
    url : path or URL of the Zarr group
    X : (n, D), also a data frame, in original units
    y : (n,), also texts if the data set has classes of these names
    rows_per_chunk : for a new data set
    companions : `weight`, `exposure`, `trials`, `event` or `target_variance`, (n,), and `X_variance`, (n, D) or
        (n, D, D); the same in every call

    Raises
    ------
    InvalidData, InvalidDtype
        The data set has other arrays, columns or classes, or the arrays have other shapes.
    DiskFull
        The disk has no room for the rows.

    Examples
    --------
    >>> bcmdist.append_rows("stream.zarr", X[:50], y[:50])
    >>> bcmdist.append_rows("stream.zarr", X[50:], y[50:])
    >>> bcmdist.open_data("stream.zarr").rows
    80
    """
    names = frame_names(X)
    with recorded(group_store(url), "a") as group:
        schema = schema_of(url, group, group["X"], group["y"]) if {"X", "y"} <= set(group) else Schema(names)
        appended = {"X": in_order(X, schema), "y": _class_numbers(y, schema, url), **companions}
        columns = {name: as_float(values, f"{url}: {name}") for name, values in appended.items()}
        if "X" not in group:
            group.update_attributes({ALL_STORED: True, ROWS_COMPLETE: 0, MANIFEST: dict.fromkeys(columns, 0)})
        if group.attrs.get(ROWS_COMPLETE) == 0:
            for name, column in columns.items():
                if name not in group:
                    create_array(group, name, (rows_per_chunk, *column.shape[1:]), float, rows_per_chunk, "row")
            _name_columns(group, names)
        start: Any = group.attrs.get(ROWS_COMPLETE, group["X"].shape[0])  # type: ignore[union-attr]
        _refuse_other_columns(url, group, columns)
        _refuse_packed(url, group, columns)
        if ROWS_COMPLETE not in group.attrs:
            group.update_attributes({ROWS_COMPLETE: start})
        for name, column in columns.items():
            array = group[name].with_config(EMPTY_TOO)  # type: ignore[union-attr]
            array.resize((start + len(column), *column.shape[1:]))
            with room_for(url, column.nbytes):
                array[start:] = column
                _make_durable(url, array, start)
        group.update_attributes({ROWS_COMPLETE: start + len(columns["X"])})


def _name_columns(group, columns):
    if columns and "column" not in group:
        create_array(group, "column", (len(columns),), str, len(columns), "column")[...] = np.array(columns)


def _class_numbers(y, schema, url):
    """Return targets (n,) as stored in a data set: numbers, or class numbers if its classes have names."""
    y = np.asarray(y)
    if not schema.classes:
        if is_text(y):
            raise InvalidDtype(
                f"{url}: expected numbers in y, got texts; `bcmdist import` labels with their rows first"
            )
        return y
    numbers = {name: number for number, name in enumerate(schema.classes)}
    classes = range(len(numbers))
    labels = y.tolist() if is_text(y) else [schema.classes[int(k)] if k in classes else k for k in y.tolist()]
    odd = [label for label in labels if label not in numbers]
    if odd:
        raise InvalidData(
            f"{url}: expected classes among {few(schema.classes)} in y, got {odd[0]!r}; import them again"
        )
    return np.array([numbers[label] for label in labels])


def _refuse_other_columns(url, group, columns):
    shapes = {name: group[name].shape[1:] for name in ("X", "y", *OPTIONAL_ARRAYS) if name in group}
    new = {name: column.shape[1:] for name, column in columns.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if shapes != new or len(set(lengths.values())) > 1:
        raise InvalidData(
            f"{url}: expected rows of {shapes} (shape of a row by array), got {new} with lengths {lengths}; give the "
            "same arrays with one row each"
        )


def _refuse_packed(url, group, columns):
    for name in columns:
        if packing_of(group[name], f"{url}: {name}") != PLAIN:
            raise InvalidData(
                f"{url}: expected {name} to hold the numbers themselves, its attributes say that they are packed; "
                "append with the software that packed them"
            )


def _make_durable(url, array, start):
    """Flush the chunks from row `start` on to disk (fsync), before they are counted."""
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


def create_dataset(url, examples: Mapping[str, np.ndarray], rows, *, rows_per_chunk, attributes) -> None:
    """Create an empty data set of `rows` rows, to be written by tasks.

    Parameters
    ----------
    examples : values of one row, (1, ...), by name
    """
    group = zarr.open_group(group_store(url), mode="w-", attributes=attributes | {ALL_STORED: True})
    for name, example in examples.items():
        create_array(group, name, (rows, *example.shape[1:]), example.dtype, rows_per_chunk, "row")


def write_array(url, name, values, *, along, rows_per_chunk=ROWS_PER_CHUNK, attributes) -> None:
    """Add an array with its own attributes to a group; `along` is the name of its first dimension."""
    group = zarr.open_group(group_store(url), mode="r+")
    array = create_array(group, name, values.shape, values.dtype, rows_per_chunk, along)
    array[...] = values
    array.update_attributes(attributes)


def write_rows(url, start, columns: Mapping[str, np.ndarray]) -> None:
    """Write rows of an output from row `start` on."""
    with answering(url), room_for(url, sum(values.nbytes for values in columns.values())):
        group = zarr.open_group(group_store(url), mode="r+", use_consolidated=False)
        for name, values in columns.items():
            array: Any = group[name].with_config(EMPTY_TOO)  # type: ignore[union-attr]
            names = array.attrs.get(CLASSES)  # for labels, which are class numbers up to here
            array[start : start + len(values)] = np.array(names)[values.astype(int)] if names else values


def update_attributes(url, name, attributes) -> None:
    """Update the attributes of an array of a group."""
    array: Any = zarr.open_group(group_store(url), mode="r+")[name]
    array.update_attributes(attributes)


def create_array(group, name, shape, dtype, rows_per_chunk, row, across="column") -> zarr.Array:
    """Create an empty array in a group, in chunks of whole rows; `row` and `across` name its dimensions."""
    names = [row, across, *(f"axis{k}" for k in range(2, len(shape)))][: len(shape)]
    return group.create_array(
        name,
        shape=shape,
        dtype=str if np.dtype(dtype).kind in "UT" else dtype,
        chunks=(max(1, min(rows_per_chunk, shape[0])), *shape[1:]),
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        dimension_names=names,
        config=EMPTY_TOO,
    )

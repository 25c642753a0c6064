"""Parquet files, and directories of them, read piece by piece with Arrow, after a check of their row counts.

The files of a directory are read in the order of their paths; parts of paths such as `year=2026` are text columns
(Hive partitioning).

Arrow reads as many rows as the footer of a file declares and ignores values beyond them, so a wrong footer would lose
rows. Therefore the values in the pages are counted from the page headers, which are structures of Thrift's compact
protocol (parquet-format: Thrift.md, PageHeader).
"""

import json
import os
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bcmdist.data.schema import refuse_many_columns
from bcmdist.data.tables.column import CATEGORIES, DATES, NUMBERS, TEXTS, Column, Table
from bcmdist.errors import BcmdistWarning, InvalidData

# Fields of a page header: its size, and the structures of both versions, in which field 1 is the number of values.
SIZE, DATA_PAGE, DATA_PAGE_V2 = 3, 5, 8
# Field types of Thrift's compact protocol.
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
INTEGERS = (4, 5, 6)


def check_counts(path: Path, metadata) -> None:
    """Compare the row counts in a file's footer with the number of values in its columns.

    List columns are not checked, because their number of values differs from the number of rows.

    Parameters
    ----------
    metadata : `pyarrow.parquet.FileMetaData` of the file

    Raises
    ------
    InvalidData
    """
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    if sum(group.num_rows for group in groups) != metadata.num_rows:
        counts = sum(group.num_rows for group in groups)
        raise InvalidData(
            f"{path}: expected its row groups to hold the {metadata.num_rows} rows that its footer declares, they "
            f"declare {counts} rows; write the file again"
        )
    flat = [k for k in range(metadata.num_columns) if metadata.schema.column(k).max_repetition_level == 0]
    with path.open("rb") as file:
        for number, group in enumerate(groups):
            for column in (group.column(k) for k in flat):
                values = _values(file, column)
                if values != group.num_rows:
                    raise InvalidData(
                        f"{path}: expected {group.num_rows} rows in row group {number} as its footer declares, column "
                        f"{column.path_in_schema[:80]!r} holds {values} rows there; write the file again"
                    )


def _values(file, column) -> int:
    """Count the values, including missing ones, in the data pages of a column of a row group."""
    starts = (column.dictionary_page_offset, column.data_page_offset)
    place = min(start for start in starts if start)  # some writers store 0 if there is no dictionary
    end, count = place + column.total_compressed_size, 0
    while place < end:
        file.seek(place)
        header = _struct(file)
        page = header.get(DATA_PAGE) or header.get(DATA_PAGE_V2) or {}
        count += page.get(1, 0)
        if header[SIZE] < 0:  # would seek backwards, forever
            raise ValueError(f"a page declares {header[SIZE]} bytes")
        place = file.tell() + header[SIZE]
    return count


def _struct(file: BinaryIO) -> dict:
    """Read a structure: its fields by number."""
    fields, number = {}, 0
    while head := _byte(file):
        step, kind = head >> 4, head & 15
        number = number + step if step else _integer(file)
        fields[number] = kind == TRUE if kind in (TRUE, FALSE) else _value(file, kind)
    return fields


def _value(file, kind):
    """Read a value that is not part of its field header; None for types that are skipped."""
    if kind in INTEGERS:
        return _integer(file)
    if kind == STRUCT:
        return _struct(file)
    if kind in (LIST, SET):
        head = _byte(file)
        _skip_all(file, head >> 4 if head >> 4 < 15 else _varint(file), head & 15)
    elif kind == MAP:
        if size := _varint(file):
            kinds = _byte(file)
            _skip_all(file, size, kinds >> 4, kinds & 15)
    elif kind in (TRUE, FALSE, BYTE):  # elements of lists
        _byte(file)
    elif kind in (DOUBLE, BINARY):
        file.seek(8 if kind == DOUBLE else _varint(file), os.SEEK_CUR)
    else:
        raise ValueError(f"the header of a page has a field of type {kind}")
    return None


def _skip_all(file, size, *kinds):
    for _ in range(size):
        for kind in kinds:
            _value(file, kind)


def _integer(file) -> int:
    """Read a signed integer (zigzag)."""
    number = _varint(file)
    return number >> 1 ^ -(number & 1)


def _varint(file) -> int:
    """Read an integer of at most 64 bits, seven bits per byte."""
    number = 0
    for shift in range(0, 64, 7):
        byte = _byte(file)
        number |= (byte & 127) << shift
        if byte < 128:
            return number
    raise ValueError("the header of a page has an integer of more than 64 bits")


def _byte(file) -> int:
    byte = file.read(1)
    if not byte:
        raise ValueError("the header of a page is cut off")
    return byte[0]


# Arrow's prefix for row names without a name.
UNNAMED_INDEX = "__index_level_"
# Buffer for each column being read. By default Arrow reads whole row groups, and keeps everything until the end.
BUFFER_BYTES = 2**20


class ParquetFiles:
    """A .parquet file or a directory of them."""

    coordinates: tuple[str, ...] = ()

    def __init__(self, file: Path):
        import pyarrow.parquet  # nothing here works without it

        self.pq, self.pa = pyarrow.parquet, pyarrow
        paths = sorted(file.rglob("*.parquet")) if file.is_dir() else [file]
        self.paths = [path for path in paths if not path.name.startswith((".", "_"))]
        if not self.paths:
            raise InvalidData(f"{file}: expected .parquet files in this directory, found none; check the path")
        for path in self.paths:
            metadata = self.pq.read_metadata(path)
            refuse_many_columns(metadata.num_columns, path)
            check_counts(path, metadata)
        self.parts = [_parts(path, file) for path in self.paths]
        self.schema = self._schema(self.paths[0])
        for path, parts in zip(self.paths[1:], self.parts[1:], strict=True):
            self._refuse_other(path, parts)

    def _schema(self, path):
        schema = self.pq.read_schema(path)
        if len(set(schema.names)) < len(schema.names):
            twice = next(name for name in schema.names if schema.names.count(name) > 1)
            raise InvalidData(
                f"{path}: expected a name of its own for each column, {twice!r} is there twice; rename one"
            )
        return schema

    def _refuse_other(self, path, parts):
        schema = self._schema(path)
        if set(schema.names) != set(self.schema.names) or parts.keys() != self.parts[0].keys():
            odd = sorted(set(schema.names) ^ set(self.schema.names)) or sorted(parts.keys() ^ self.parts[0].keys())
            raise InvalidData(
                f"{path}: expected the columns of {self.paths[0].name}, {odd[0]!r} is in one of them only; write them "
                "alike, or give one after the other"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        found = [name for name in self.schema.names if not name.startswith(UNNAMED_INDEX)]
        if len(found) < len(self.schema.names):
            text = f"{self.paths[0]}: its row names are not used: they have no name; give them one to use it with --id"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
        return (*self._counted, *found, *self.parts[0])

    @cached_property
    def _counted(self) -> dict[str, range]:
        """Range indexes by name, which pandas stores as metadata only."""
        try:
            index = json.loads((self.schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
            ranges = [one for one in index if isinstance(one, dict) and one.get("kind") == "range" and one.get("name")]
            found = {str(one["name"]): range(one["start"], one["stop"], one["step"]) for one in ranges}
        except (ValueError, KeyError, TypeError, AttributeError):  # metadata of other software
            return {}
        return {name: rows for name, rows in found.items() if len(self.paths) == 1 and name not in self.schema.names}

    @cached_property
    def kinds(self) -> dict[str, str] | None:
        """Kinds of the columns, if they are the same in all files; otherwise None."""
        found = {name: kind_of(self.pa, self.schema.field(name).type) for name in self.schema.names}
        for path in self.paths[1:]:
            other = self._schema(path)
            if any(kind_of(self.pa, other.field(name).type) != kind for name, kind in found.items()):
                return None
        return found | dict.fromkeys(self._counted, NUMBERS) | dict.fromkeys(self.parts[0], TEXTS)

    def pieces(self, rows, *, texts=()) -> Iterator[Table]:
        for path, parts in zip(self.paths, self.parts, strict=True):
            start = 0
            with self.pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
                for batch in file.iter_batches(batch_size=rows, columns=self.schema.names):
                    yield self._piece(batch, start, parts)
                    start += batch.num_rows

    def _piece(self, batch, start, parts):
        rows = slice(start, start + batch.num_rows)
        found = {name: of_numpy_range(name, counted[rows]) for name, counted in self._counted.items()}
        stored = [name for name in self.names if name in batch.schema.names]
        found |= {name: of_arrow(self.pa, name, batch.column(name)) for name in stored}
        alike = np.zeros(batch.num_rows, bool)
        return found | {n: Column(n, np.full(batch.num_rows, t, object), TEXTS, alike) for n, t in parts.items()}


def is_parquet_directory(path) -> bool:
    """Return whether a directory holds .parquet files, directly or in subdirectories such as `year=2026`."""
    folder = Path(path)
    return any(next(folder.glob(pattern), None) for pattern in ("*.parquet", "*=*/**/*.parquet"))


def _parts(path, root):
    """Return the columns given by the path of a file below a directory, `NAME=VALUE`."""
    inner = path.parent.relative_to(root).parts if path != root else ()
    return dict(part.split("=", 1) for part in inner if "=" in part)


def of_numpy_range(name, counted) -> Column:
    """Return a range index as a column."""
    return Column(name, np.array(counted, dtype=np.int64), NUMBERS)


def kind_of(pa, kind) -> str:
    """Return the kind of a column of an Arrow type."""
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind):
        return NUMBERS
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return TEXTS
    if types.is_date(kind) or types.is_timestamp(kind):
        return DATES
    if types.is_dictionary(kind):
        return CATEGORIES if kind_of(pa, kind.value_type) in (TEXTS, NUMBERS) else f"values of type {kind}"
    return f"values of type {kind}"


def of_arrow(pa, name, array) -> Column:
    """Convert an Arrow array to a column; numbers with gaps become float64 with nan."""
    kind = kind_of(pa, array.type)
    missing = np.asarray(array.is_null()) if array.null_count else np.zeros(len(array), bool)
    if kind == NUMBERS:
        if pa.types.is_null(array.type):
            return Column(name, np.full(len(array), np.nan), NUMBERS, np.ones(len(array), bool))
        values = array.to_numpy(zero_copy_only=False) if not array.null_count else _with_nan(pa, array)
        return Column(name, values, NUMBERS, missing | np.isnan(values) if values.dtype.kind == "f" else missing)
    if kind == DATES:
        values = array.cast(pa.timestamp("us", getattr(array.type, "tz", None)), safe=False)
        values = np.asarray(values.cast(pa.int64()).fill_null(0)).view("M8[us]")
        return Column(name, values, DATES, missing, getattr(array.type, "tz", None) or "")
    if kind == CATEGORIES:
        array = array.cast(array.type.value_type)
        if kind_of(pa, array.type) == NUMBERS:
            return Column(name, of_arrow(pa, name, array).values, CATEGORIES, missing)
    values = np.array(array.to_pylist(), dtype=object) if kind in (TEXTS, CATEGORIES) else _objects(array)
    if kind in (TEXTS, CATEGORIES):
        values = np.array(["" if gone else v.strip() for v, gone in zip(values, missing, strict=True)], dtype=object)
        missing = missing | (values == "")
    return Column(name, values, kind, missing)


def _with_nan(pa, array):
    """Convert to float64 with nan for null, and booleans to 1 and 0."""
    array = array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array
    return np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=float)


def _objects(array):
    values = np.empty(len(array), dtype=object)
    values[:] = [str(value) for value in array.to_pylist()]
    return values

"""Parquet files, and directories of them, piece by piece. A door to Arrow.

A directory is read file by file in the order of their paths; parts of paths such as `year=2026` are columns of texts,
as Hive writes them.
"""

import json
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from bcmdist.data.schema import refuse_many_columns
from bcmdist.data.tables.column import CATEGORIES, DATES, NUMBERS, TEXTS, Column, Table
from bcmdist.data.tables.parquet_pages import check_counts
from bcmdist.errors import BcmdistWarning, InvalidData

# Arrow's names for row names that have none.
UNNAMED_INDEX = "__index_level_"
# Of each column that is being read. By default whole groups of rows are, and all that was read is kept until the end.
BUFFER_BYTES = 2**20


class ParquetFiles:
    """A .parquet file or a directory of them."""

    def __init__(self, file: Path):
        import pyarrow.parquet  # without it nothing here can be read

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
        """Row names that are counted and not stored, by name, as pandas writes them."""
        try:
            told = json.loads((self.schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
            known = [one for one in told if isinstance(one, dict) and one.get("kind") == "range" and one.get("name")]
            found = {str(one["name"]): range(one["start"], one["stop"], one["step"]) for one in known}
        except (ValueError, KeyError, TypeError, AttributeError):  # metadata of somebody else
            return {}
        return {name: rows for name, rows in found.items() if len(self.paths) == 1 and name not in self.schema.names}

    @cached_property
    def kinds(self) -> dict[str, str] | None:
        """One and the same in all files."""
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
    """Whether a directory holds .parquet files: itself, or in directories such as `year=2026`."""
    folder = Path(path)
    return any(next(folder.glob(pattern), None) for pattern in ("*.parquet", "*=*/**/*.parquet"))


def _parts(path, root):
    """Columns that stand in the path of a file below a directory."""
    inner = path.parent.relative_to(root).parts if path != root else ()
    return dict(part.split("=", 1) for part in inner if "=" in part)


def of_numpy_range(name, counted) -> Column:
    """Counted row names as a column."""
    return Column(name, np.array(counted, dtype=np.int64), NUMBERS)


def kind_of(pa, kind) -> str:
    """What a column of an Arrow type holds."""
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
    """An Arrow array as a column; numbers with gaps as float64 with nan."""
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
    """Numbers with nan for null; true and false as 1 and 0."""
    array = array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array
    return np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=float)


def _objects(array):
    values = np.empty(len(array), dtype=object)
    values[:] = [str(value) for value in array.to_pylist()]
    return values

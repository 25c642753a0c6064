"""Tables: files of named columns, read piece by piece without guessing. This module chooses the reader of a file.

    .csv (any separator; also .tsv, and both with .gz)     .parquet (also a directory of these)
    .npy (structured, or the last column is the target)    .npz (arrays, which are not a table)
    .nc (variables on a grid)                              .zarr (the same, for a group that is not a data set)

Silent corrections of common readers are errors here: renaming a second column of the same name, using a first column
as row names, filling short lines.
"""

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from bcmdist.data.schema import refuse_many_columns
from bcmdist.data.tables.column import Arrays, Table, of_numpy, sliced
from bcmdist.data.tables.delimited import Delimited
from bcmdist.data.tables.grids import ENDINGS as GRID_ENDINGS
from bcmdist.data.tables.grids import grid_file
from bcmdist.data.tables.parquet import ParquetFiles, is_parquet_directory
from bcmdist.errors import BcmdistError, DataNotFound, InvalidData, InvalidOption, MissingExtra
from bcmdist.storage.paths import leads_nowhere

# Maximum number of rows, and of cells, in memory at a time.
PIECE_ROWS, PIECE_CELLS = 65_536, 2**24


class TableFile(Protocol):
    """A table that can be read from its beginning any number of times."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def kinds(self) -> dict[str, str] | None:
        """Kinds of the columns by name, if known without reading them; otherwise None."""

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the columns that are coordinates of a grid."""

    def pieces(self, rows: int, *, texts=()) -> Iterator[Table]:
        """Yield the columns, `rows` rows at a time; `texts` names columns to read as unparsed texts."""


@dataclass(frozen=True)
class InMemory:
    """A table in memory."""

    coordinates: ClassVar[tuple[str, ...]] = ()
    table: Table

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.table)

    @property
    def kinds(self) -> dict[str, str] | None:
        return {name: column.kind for name, column in self.table.items()}

    def pieces(self, rows, *, texts=()) -> Iterator[Table]:
        count = max((len(column.values) for column in self.table.values()), default=0)
        for start in range(0, count, rows):
            yield {name: sliced(column, slice(start, start + rows)) for name, column in self.table.items()}


@dataclass(frozen=True)
class Named:
    """A table whose read errors name its file."""

    file: Path
    table: TableFile

    @property
    def names(self) -> tuple[str, ...]:
        return self.table.names

    @property
    def kinds(self) -> dict[str, str] | None:
        return self.table.kinds

    @property
    def coordinates(self) -> tuple[str, ...]:
        return self.table.coordinates

    def pieces(self, rows=None, *, texts=()) -> Iterator[Table]:
        """Yield `rows` rows at a time; by default as many as `PIECE_ROWS` and `PIECE_CELLS` allow."""
        rows = rows or max(1, min(PIECE_ROWS, PIECE_CELLS // max(1, len(self.names))))
        found = self.table.pieces(rows, texts=texts)
        while (piece := _read(self.file, lambda: next(found, None))) is not None:
            yield piece


def open_table(file, separator=None, *, inputs=(), others=()) -> Named | Arrays:
    """Open a table, or the arrays of an .npz.

    Parameters
    ----------
    separator : separator of a .csv file; detected from its first line by default
    inputs, others : names of the variables of a NetCDF file or a Zarr group that are its columns

    Raises
    ------
    DataNotFound, InvalidData, InvalidOption, MissingExtra
    """
    file = Path(file)
    gridded = ending(file) in GRID_ENDINGS
    reader = functools.partial(grid_file, inputs=inputs, others=others) if gridded else READERS.get(ending(file))
    directory = (reader is ParquetFiles or gridded) and file.is_dir()
    if not file.is_file() and not directory:
        found = leads_nowhere(file) or ("there is something else" if file.exists() else "there is none")
        raise DataNotFound(f"{file}: expected a file, {found}; check the path")
    if reader is None:
        raise InvalidOption(
            f"{file}: expected a file that ends in {', '.join([*READERS, *GRID_ENDINGS])}; convert it first"
        )
    if separator is not None and reader is not Delimited:
        raise InvalidOption(f"{file}: expected a .csv file with --separator, got none; leave it out")
    found = _read(file, lambda: reader(file) if separator is None else Delimited(file, separator))
    return found if isinstance(found, Arrays) else Named(file, found)


def _read(file, act):
    """Return `act()`; convert any error of a reader into one that names the file."""
    try:
        return act()
    except (BcmdistError, MemoryError):
        raise
    except ImportError as error:
        needed, extra = ("xarray", "grids") if ending(file) in GRID_ENDINGS else ("pandas and pyarrow", "tables")
        raise MissingExtra(f"{file}: {file.suffix} files need {needed}; pip install 'bcmdist[{extra}]'") from error
    except Exception as error:
        raise InvalidData(
            f"{file}: expected a {file.suffix} file of numbers, it cannot be read ({' '.join(str(error).split())}); "
            "save it again"
        ) from error


def ending(file) -> str:
    """Return the type of a file from its name, such as .csv, .csv.gz or .parquet (also for a directory of these)."""
    suffixes = Path(file).suffixes
    suffix = "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:]).lower()
    return ".parquet" if suffix not in READERS and os.path.isdir(file) and is_parquet_directory(file) else suffix


def is_table(data) -> bool:
    """Return whether the name of `data` is that of a readable file. False for .zarr, which may be a data set."""
    return "://" not in str(data) and ending(data) in [*READERS, *GRID_ENDINGS[:-1]]


def _npz(file) -> Arrays:
    with np.load(file, allow_pickle=False) as arrays:
        return Arrays({name: arrays[name] for name in arrays.files})


def _npy(file) -> InMemory:
    table = np.load(file, allow_pickle=False, mmap_mode="r")
    if table.dtype.names and table.ndim == 1:
        return InMemory({name: of_numpy(name, table[name]) for name in table.dtype.names})
    if table.dtype.names or table.ndim != 2 or table.shape[1] < 2:
        raise InvalidData(
            f"{file}: expected a 1-D structured array, or a 2-D one whose last column is the target, got shape "
            f"{table.shape}; save it as .npz with X and y"
        )
    refuse_many_columns(table.shape[1], file)
    names = [*(f"column{k}" for k in range(table.shape[1] - 1)), "y"]
    return InMemory({name: of_numpy(name, table[:, k]) for k, name in enumerate(names)})


READERS: dict[str, Callable[[Path], TableFile | Arrays]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".csv": Delimited,
    ".parquet": ParquetFiles,
    ".tsv": Delimited,
    ".csv.gz": Delimited,
    ".tsv.gz": Delimited,
}

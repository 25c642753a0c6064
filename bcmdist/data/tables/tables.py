"""Tables: files of named columns, read without a guess. The door to pandas, with `writing`.

A column is numbers, texts, or something else that has a name (dates, categories, objects). What a reader of such files
would otherwise do in silence - rename a second column of the same name, take a first column for row names, fill short
lines - is an error here.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bcmdist.errors import BcmdistError, BcmdistWarning, DataNotFound, InvalidData, InvalidOption, MissingExtra
from bcmdist.storage.paths import leads_nowhere

NUMBERS, TEXTS, NAMELESS = "numbers", "texts", "values without a name in the first line (row names, say)"


@dataclass(frozen=True)
class Column:
    """A column of a file."""

    name: str
    values: np.ndarray
    """(n,): numbers, or whatever the file holds"""
    kind: str = NUMBERS
    """`NUMBERS`, `TEXTS`, or what else it holds, in words"""
    missing: np.ndarray | None = None
    """where it holds nothing, (n,)"""


Table = dict[str, Column]


class Arrays(dict[str, np.ndarray]):
    """Arrays of any shapes by name, which are no table."""


def read_file(file) -> Table | Arrays:
    """Columns by name of a .csv, .parquet or .npy file, or arrays of an .npz.

    Raises
    ------
    DataNotFound, InvalidData, InvalidOption, MissingExtra
    """
    file = Path(file)
    if not file.is_file():
        found = leads_nowhere(file) or ("there is something else" if file.exists() else "there is none")
        raise DataNotFound(f"{file}: expected a file, {found}; check the path")
    if ending(file) not in READERS:
        raise InvalidOption(f"{file}: expected a file that ends in {', '.join(READERS)}; convert it first")
    try:
        return READERS[ending(file)](file)
    except (BcmdistError, MemoryError):
        raise
    except ImportError as error:
        raise MissingExtra(
            f"{file}: {file.suffix} files need pandas and pyarrow; pip install 'bcmdist[tables]'"
        ) from error
    except Exception as error:  # whatever its reader makes of it
        raise InvalidData(
            f"{file}: expected a {file.suffix} file of numbers, it cannot be read ({' '.join(str(error).split())}); "
            "save it again"
        ) from error


def ending(file) -> str:
    """What a file is, by its name."""
    return Path(file).suffix.lower()


def _npz(file) -> Arrays:
    with np.load(file, allow_pickle=False) as arrays:
        return Arrays({name: arrays[name] for name in arrays.files})


def _npy(file) -> Table:
    table = np.load(file, allow_pickle=False)
    if table.dtype.names and table.ndim == 1:
        return {name: of_numpy(name, table[name]) for name in table.dtype.names}
    if table.dtype.names or table.ndim != 2 or table.shape[1] < 2:
        raise InvalidData(
            f"{file}: expected a 1-D structured array, or a 2-D one whose last column is the target, got shape "
            f"{table.shape}; save it as .npz with X and y"
        )
    names = [*(f"column{k}" for k in range(table.shape[1] - 1)), "y"]
    return {name: of_numpy(name, table[:, k]) for k, name in enumerate(names)}


def of_numpy(name, values) -> Column:
    """An array (n,) as a column."""
    if values.ndim != 1:
        return Column(name, values, f"values of shape {values.shape[1:]}")
    if values.dtype.kind in "fiub" and values.dtype.itemsize <= 8:
        return Column(name, values, NUMBERS, np.isnan(values) if values.dtype.kind == "f" else None)
    if values.dtype.kind in "US":
        texts = np.strings.decode(values, "utf-8") if values.dtype.kind == "S" else values
        return _trimmed(Column(name, texts.astype(object), TEXTS, np.zeros(len(values), bool)))
    return Column(name, values, f"values of type {values.dtype}")


def _trimmed(column: Column) -> Column:
    """Texts without blanks around them; where nothing is left, nothing is there."""
    if column.kind != TEXTS:
        return column
    values = np.array([value.strip() for value in column.values], dtype=object)
    return replace(column, values=values, missing=column.missing | (values == ""))


def _csv(file) -> Table:
    import pandas

    names, nameless = _header(pandas, file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a line with more cells than the header has names, among others
        # Without `index_col` a first column that the header lacks would become row names.
        frame = pandas.read_csv(file, index_col=False, skipinitialspace=True, low_memory=False)
    frame.columns = names
    table = _of_frame(pandas, file, frame)
    return {name: replace(c, kind=NAMELESS) if name in nameless else _trimmed(c) for name, c in table.items()}


def _header(pandas, file) -> tuple[list[str], set[str]]:
    """Names in the first line as they stand there, where pandas renames those that are repeated; and which of them were
    not there."""
    first = pandas.read_csv(file, header=None, nrows=1, dtype=str, skipinitialspace=True, keep_default_na=False)
    said = [str(name).strip() for name in first.iloc[0]]
    names = [name or f"column{k}" for k, name in enumerate(said)]
    hint = "" if len(names) > 1 else _separator_hint(names[0])
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidData(f"{file}: expected a name of its own for each column, {twice!r} is there twice; rename one")
    if hint or all(is_number(name) for name in names):
        raise InvalidData(
            f"{file}: expected names of columns in its first line, separated by commas, got {', '.join(names)[:60]}; "
            f"{hint or 'put a line of names there'}"
        )
    return names, set(names) - set(said)


def _separator_hint(line):
    found = next((mark for mark in (";", "\t", "|") if mark in line), None)
    return found and f"save it with commas in place of {found!r}, and points in its numbers"


def is_number(text) -> bool:
    """Whether a text is one of a number, as Python reads them."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(file) -> Table:
    import pandas

    frame = pandas.read_parquet(file)
    if all(name is not None for name in frame.index.names):  # columns that pandas has set apart
        frame = frame.reset_index()
    elif not isinstance(frame.index, pandas.RangeIndex):
        text = f"{file}: its row names are not used: they have no name; give them one to use it with --id"
        warnings.warn(BcmdistWarning(text), stacklevel=2)
    frame.columns = [str(name) for name in frame.columns]
    return _of_frame(pandas, file, frame)


def _of_frame(pandas, file, frame) -> Table:
    if frame.columns.duplicated().any():
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InvalidData(f"{file}: expected a name of its own for each column, {twice!r} is there twice; rename one")
    return {name: _of_series(pandas, name, frame[name]) for name in frame.columns}


def _of_series(pandas, name, series) -> Column:
    types, missing = pandas.api.types, series.isna().to_numpy()
    if isinstance(series.dtype, pandas.CategoricalDtype):
        return Column(name, series.astype(object).to_numpy(), "categories", missing)
    if types.is_bool_dtype(series.dtype) or (types.is_numeric_dtype(series.dtype) and series.dtype.kind in "fiu"):
        if series.dtype.kind in "iub" and not missing.any():
            return Column(name, series.to_numpy(dtype=getattr(series.dtype, "numpy_dtype", None)), NUMBERS, missing)
        return Column(name, series.to_numpy(dtype=float, na_value=np.nan), NUMBERS, missing)
    if all(isinstance(value, bool) for value in series[~missing]):  # with gaps, or there is nothing else
        values = [np.nan if gone else value for value, gone in zip(series, missing, strict=True)]
        return Column(name, np.array(values, dtype=float), NUMBERS, missing)
    if all(isinstance(value, str) for value in series[~missing]):
        return Column(name, series.to_numpy(dtype=object, na_value=""), TEXTS, missing)
    if types.is_datetime64_any_dtype(series.dtype):
        return Column(name, series.to_numpy(), "dates", missing)
    found = {type(value).__name__ for value in series[~missing].iloc[:1000]}
    kind = "whole numbers beyond 64 bits" if found == {"int"} else f"values of type {', '.join(sorted(found))}"
    return Column(name, series.to_numpy(dtype=object), kind, missing)


READERS: dict[str, Callable[[Path], Table | Arrays]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".csv": _csv,
    ".parquet": _parquet,
}


def as_written(file, column: Column) -> np.ndarray:
    """Values of a column that names rows: numbers where these are what stands in a .csv file, else its texts (007)."""
    if ending(file) != ".csv" or column.kind == TEXTS:
        return column.values
    import pandas

    frame = pandas.read_csv(file, index_col=False, skipinitialspace=True, dtype=str, keep_default_na=False)
    names, _ = _header(pandas, file)
    texts = frame.iloc[:, names.index(column.name)].str.strip().to_numpy(dtype=object)
    return column.values if np.array_equal(column.values.astype(str), texts.astype(str)) else texts

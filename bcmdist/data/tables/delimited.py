"""Delimited text files (.csv, .tsv), read piece by piece with pandas, with limits on their line lengths.

Without an option the separator is detected from the first line. A decimal comma is detected from the first rows, if
the separator is not a comma. Blanks around cells are ignored. Files may be compressed with gzip; lines, and pieces of
rows, that exceed a size limit are refused.
"""

import gzip
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bcmdist.data.schema import refuse_many_columns
from bcmdist.data.tables.column import NAMELESS, NUMBERS, TEXTS, Column, Table, is_number, trimmed
from bcmdist.errors import InvalidData, InvalidOption

# Longer lines are not rows of a table: 20,000 columns may have 50 characters each. Pandas takes 300 bytes of memory for
# each cell beyond the expected ones.
MOST_LINE_BYTES = 2**20
# Limit for the rows in memory at a time; an unclosed quote turns the rest of the file into one cell.
MOST_PIECE_BYTES = 2**30


class BoundedLines(io.RawIOBase):
    """Bytes of a file, decompressed if its name ends in .gz, read once from the beginning.

    Raises
    ------
    InvalidData
        A line is too long, or more than `MOST_PIECE_BYTES` are read without a call of `next_piece`.
    """

    def __init__(self, file: Path, rows: int):
        self.file, self.rows = file, rows
        self.source = gzip.open(file, "rb") if file.suffix.lower() == ".gz" else file.open("rb", buffering=0)  # noqa: SIM115 (`close` does)
        self.line_bytes = self.piece_bytes = 0

    def next_piece(self) -> None:
        """Restart the byte count for the next piece of rows."""
        self.piece_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self.source.readinto(buffer)
        self._check(bytes(memoryview(buffer)[:count]))
        return count

    def close(self) -> None:
        self.source.close()
        super().close()

    def _check(self, data):
        ends = [end for end in (data.rfind(b"\n"), data.rfind(b"\r")) if end >= 0]
        self.line_bytes = len(data) - max(ends) - 1 if ends else self.line_bytes + len(data)
        self.piece_bytes += len(data)
        if self.line_bytes > MOST_LINE_BYTES:
            raise InvalidData(
                f"{self.file}: expected lines of at most {MOST_LINE_BYTES:,} bytes, got a longer one; write one line "
                "for each row"
            )
        if self.piece_bytes > MOST_PIECE_BYTES:
            raise InvalidData(
                f"{self.file}: expected at most {MOST_PIECE_BYTES:,} bytes in {self.rows:,} rows, got more; close the "
                "quote that was opened before, or leave out columns of long texts"
            )


def as_text(lines: BoundedLines) -> io.TextIOWrapper:
    """Return the file as text, read in blocks of a quarter of a megabyte; closing the text closes the file."""
    return io.TextIOWrapper(io.BufferedReader(lines, 2**18), "utf-8", newline="")


def first_line(file: Path) -> bytes:
    """Return the first line of a file.

    Raises
    ------
    InvalidData
        It is longer than `MOST_LINE_BYTES`.
    """
    with io.BufferedReader(BoundedLines(file, 1)) as lines:
        return lines.readline().split(b"\r")[0]


SEPARATORS = (",", ";", "\t", "|")
# Rows from which a decimal comma is detected.
FIRST_ROWS = 1000
COMMA_NUMBER, POINT_NUMBER = re.compile(r"[+-]?\d*,\d+"), re.compile(r"[+-]?\d*\.\d+")


class Delimited:
    """A delimited file with column names in its first line."""

    kinds = None  # types are only known from the cells
    coordinates: tuple[str, ...] = ()

    def __init__(self, file: Path, separator: str | None = None):
        import pandas

        if separator is not None and len(separator) != 1:
            raise InvalidOption(f"--separator: expected one character, got {separator!r}; give one")
        self.file, self.pandas = file, pandas
        line = first_line(file)
        marks = [separator] if separator else SEPARATORS
        refuse_many_columns(1 + max(line.count(mark.encode()) for mark in marks), str(file))
        self.separator = separator or self._separator()
        self.names, self.nameless = self._header()
        self.decimal = "," if self.separator != "," and self._has_commas() else "."

    def _cells(self, separator, **options):
        """Read cells as texts."""
        how = {"dtype": str, "skipinitialspace": separator != "\t", "keep_default_na": False, "header": None}
        with as_text(BoundedLines(self.file, FIRST_ROWS)) as text:
            return self.pandas.read_csv(text, sep=separator, **how, **options)

    def _separator(self):
        """Return the first separator that splits the first line."""
        for mark in SEPARATORS:
            if self._cells(mark, nrows=1).shape[1] > 1:
                return mark
        return ","

    def _header(self) -> tuple[tuple[str, ...], set[str]]:
        """Return the names in the first line unchanged, where pandas would rename duplicates, and the set of generated
        names for columns without one."""
        header = [str(name).strip() for name in self._cells(self.separator, nrows=1).iloc[0]]
        names = [name or f"column{k}" for k, name in enumerate(header)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidData(
                f"{self.file}: expected a name of its own for each column, {twice!r} is there twice; rename one"
            )
        if all(is_number(name.replace(",", ".")) for name in names):
            raise InvalidData(
                f"{self.file}: expected names of columns in its first line, got {', '.join(names)[:60]}; put a line of "
                "names there"
            )
        return tuple(names), set(names) - set(header)

    def _has_commas(self):
        """Return whether numbers have a decimal comma: some of the first cells do, and none has a decimal point."""
        own = {"names": self.names, "index_col": False, "usecols": self.names}  # ignores extra cells in a row
        cells = self._cells(self.separator, skiprows=1, nrows=FIRST_ROWS, **own).to_numpy().ravel()
        texts = [str(cell).strip() for cell in cells]
        return any(map(COMMA_NUMBER.fullmatch, texts)) and not any(map(POINT_NUMBER.fullmatch, texts))

    def pieces(self, rows, *, texts=()) -> Iterator[Table]:
        # Without `index_col` a first column that the header lacks would become row names.
        how = {"index_col": False, "skipinitialspace": self.separator != "\t", "low_memory": False}
        how |= {"header": 0, "names": list(self.names), "dtype": dict.fromkeys(texts, str)}
        lines = BoundedLines(self.file, rows)
        with as_text(lines) as text:
            with _strict():
                reader = self.pandas.read_csv(text, sep=self.separator, decimal=self.decimal, chunksize=rows, **how)
            while True:
                lines.next_piece()
                with _strict():
                    frame = next(reader, None)
                if frame is None:
                    return
                yield {name: self._column(name, frame[name]) for name in self.names}

    def _column(self, name, series):
        column = of_series(self.pandas, name, series)
        return replace(column, kind=NAMELESS) if name in self.nameless else trimmed(column)


def _strict():
    """Turn warnings into errors, for example about a line with more cells than the header."""
    return warnings.catch_warnings(action="error")


def of_frame(frame) -> Table:
    """Convert a pandas data frame with unique column names to a table."""
    import pandas

    return {str(name): trimmed(of_series(pandas, str(name), frame[name])) for name in frame.columns}


def of_series(pandas, name, series) -> Column:
    """Convert a column of a data frame."""
    types, missing = pandas.api.types, series.isna().to_numpy()
    if isinstance(series.dtype, pandas.CategoricalDtype):
        return Column(name, series.astype(object).to_numpy(), "categories", missing)
    if types.is_bool_dtype(series.dtype) or (types.is_numeric_dtype(series.dtype) and series.dtype.kind in "fiu"):
        if series.dtype.kind in "iub" and not missing.any():
            return Column(name, series.to_numpy(dtype=getattr(series.dtype, "numpy_dtype", None)), NUMBERS, missing)
        return Column(name, series.to_numpy(dtype=float, na_value=np.nan), NUMBERS, missing)
    if all(isinstance(value, bool) for value in series[~missing]):  # Booleans with gaps, or no values at all
        values = [np.nan if gone else value for value, gone in zip(series, missing, strict=True)]
        return Column(name, np.array(values, dtype=float), NUMBERS, missing)
    if all(isinstance(value, str) for value in series[~missing]):
        return Column(name, series.to_numpy(dtype=object, na_value=""), TEXTS, missing)
    if types.is_datetime64_any_dtype(series.dtype):
        return Column(name, *_instants(series, missing))
    found = {type(value).__name__ for value in series[~missing].iloc[:1000]}
    kind = "whole numbers beyond 64 bits" if found == {"int"} else f"values of type {', '.join(sorted(found))}"
    return Column(name, series.to_numpy(dtype=object), kind, missing)


def _instants(series, missing):
    """Return datetime64 in UTC (n,), and the other fields of a column of dates."""
    zone = getattr(series.dtype, "tz", None)
    if zone is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    return series.to_numpy(dtype="M8[us]"), "dates", missing, "" if zone is None else str(zone)

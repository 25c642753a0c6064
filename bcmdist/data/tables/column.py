"""Columns of a table: numbers, texts, categories, dates, or another type described in words."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.errors import InvalidDtype

NUMBERS, TEXTS, CATEGORIES, DATES = "numbers", "texts", "categories", "dates"
# Texts that table readers parse as numbers.
PLAIN_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NAMELESS = "values without a name in the first line (row names, say)"


@dataclass(frozen=True)
class Column:
    """A column of a file, or a piece of it."""

    name: str
    values: np.ndarray
    """(n,): numbers, texts, datetime64 in UTC, or other objects of the file"""
    kind: str = NUMBERS
    """one of the constants above, or a description of another type"""
    missing: np.ndarray | None = None
    """mask of missing values, (n,)"""
    zone: str = ""
    """time zone with which dates were stored; "" if none"""

    @property
    def gaps(self) -> np.ndarray:
        """Mask of missing values, (n,)."""
        return np.zeros(len(self.values), bool) if self.missing is None else self.missing


Table = dict[str, Column]


class Arrays(dict[str, np.ndarray]):
    """Arrays of any shape by name, which do not form a table."""


def of_numpy(name, values) -> Column:
    """Return an array (n,) as a column."""
    if values.ndim != 1:
        return Column(name, values, f"values of shape {values.shape[1:]}")
    if values.dtype.kind in "fiub" and values.dtype.itemsize <= 8:
        return Column(name, values, NUMBERS, np.isnan(values) if values.dtype.kind == "f" else None)
    if values.dtype.kind == "M":
        return Column(name, values, DATES, np.isnat(values))
    if values.dtype.kind in "US":
        texts = np.strings.decode(values, "utf-8") if values.dtype.kind == "S" else values
        return trimmed(Column(name, texts.astype(object), TEXTS, np.zeros(len(values), bool)))
    return Column(name, values, f"values of type {values.dtype}")


def trimmed(column: Column) -> Column:
    """Strip blanks around texts; empty texts become missing."""
    if column.kind != TEXTS:
        return column
    values = np.array([value.strip() for value in column.values], dtype=object)
    return replace(column, values=values, missing=column.gaps | (values == ""))


def sliced(column: Column, rows: slice) -> Column:
    """Return some rows of a column."""
    missing = None if column.missing is None else column.missing[rows]
    return replace(column, values=column.values[rows], missing=missing)


def is_number(text) -> bool:
    """Return whether Python parses a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_texts(column: Column) -> np.ndarray:
    """Return values as texts (n,), independent of their storage: 3 and 3.0 are "3"; "" for missing values."""
    values = column.values
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)
        texts = [str(int(v)) if w else repr(float(v)) for v, w in zip(values.tolist(), whole.tolist(), strict=True)]
    else:
        texts = [str(value).strip() for value in values.tolist()]
    found = np.array(texts, dtype=object)
    found[column.gaps] = ""
    return found


def is_plain(text) -> bool:
    """Return whether a text is empty, or a number to table readers."""
    return text == "" or PLAIN_NUMBER.fullmatch(text) is not None


def described(column: Column, is_expected: Callable[[str], bool] = is_plain, *, start=0) -> str:
    """Describe a column that is not numeric in words; texts for which `known` is false are counted as odd."""
    if column.kind != TEXTS:
        return f"{column.kind} in {column.name!r}"
    odd = np.flatnonzero([not is_expected(value) for value in column.values.tolist()])
    first = column.values[odd[0]] if len(odd) else ""
    return odd_texts(column.name, len(odd), len(column.values), first, start + odd[0] if len(odd) else 0)


def odd_texts(name, odd, cells, first, row) -> str:
    """Describe in words how many cells of a text column are odd, and the first of them."""
    if not odd:
        return f"texts in {name!r} (numbers, as texts or beyond 64 bits)"
    many = f"{odd} of {cells} cells" if odd < cells else "all cells"
    return f"texts in {name!r} ({many}, the first {first!r} at row {row})"


def refuse_kind(column: Column, where, expected: str, start=0) -> None:
    """Raise `InvalidDtype` for a column whose type is not the expected one, naming its first invalid cell."""
    raise InvalidDtype(
        f"{where}: expected {expected} in the inputs, got {described(column, start=start)}; correct them"
    )

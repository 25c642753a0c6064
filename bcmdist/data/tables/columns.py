"""Columns of files as the numbers, labels and names of rows that data sets hold, or an error that names the cell."""

import re

import numpy as np

from bcmdist.data.schema import class_codes
from bcmdist.data.tables.tables import NUMBERS, TEXTS, Column, as_written, is_number
from bcmdist.data.values import LARGEST, as_float
from bcmdist.errors import InvalidData, InvalidDtype

# Of a text that readers of tables take for a number.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# Classes of text, at most: more are names of rows.
MOST_LABELS = 1000
# What is no name of one row.
_MANY = (list, dict, tuple, set, np.ndarray)
FILL = "fill or drop these rows"
NO_TARGET = "fill or drop these rows, or give --no-target where they are to be predicted"


def _is_plain(text):
    return text == "" or NUMBER.fullmatch(text)


def described(column: Column, is_number=_is_plain) -> str:
    """What a column that is no number holds, in words; `is_number` tells which of its texts are not odd."""
    if column.kind != TEXTS:
        return f"{column.kind} in {column.name!r}"
    odd = np.flatnonzero([not is_number(value) for value in column.values])
    if not len(odd):
        return f"texts in {column.name!r} (numbers, as texts or beyond 64 bits)"
    many = f"{len(odd)} of {len(column.values)} cells" if len(odd) < len(column.values) else "all cells"
    return f"texts in {column.name!r} ({many}, the first {column.values[odd[0]]!r} at row {odd[0]})"


def numbers_of(column: Column, file) -> np.ndarray:
    """Finite float64 numbers of a column, (n,)."""
    if column.kind != NUMBERS:
        raise InvalidDtype(f"{file}: expected numbers, got {described(column)}; correct them, or code them as numbers")
    values = as_float(column.values, f"{file}: {column.name!r}")
    refuse_gaps(values, file, repr(column.name))
    return values


def refuse_gaps(values, file, name, remedy=FILL) -> None:
    bad = np.argwhere(~((values <= LARGEST) & (values >= -LARGEST)))  # without copies of the numbers
    if len(bad):
        raise InvalidData(
            f"{file}: expected a finite number (up to {LARGEST:g}) in each row of {name}, got "
            f"{values[tuple(bad[0])]} at row {bad[0, 0]} ({len(bad)} such values); {remedy}"
        )


def names_of_rows(column: Column, file) -> np.ndarray:
    """Numbers or texts (n,) of a column that names rows."""
    if column.missing is not None and column.missing.any():
        row = np.flatnonzero(column.missing)[0]
        raise InvalidData(f"{file}: expected a name in each row of {column.name!r}, none at row {row}; fill it")
    values = as_written(file, column)
    if values.dtype.kind in "iu":
        return values
    try:
        if values.ndim != 1 or values.dtype.kind in "cV" or any(isinstance(value, _MANY) for value in values.flat):
            raise TypeError(column.kind)
        values.astype(np.dtypes.StringDType())  # raises where they are no Unicode text
        return values.astype(str)
    except (TypeError, ValueError) as error:
        raise InvalidDtype(
            f"{file}: expected a number or text in each row of {column.name!r}, got others ({error}); convert them"
        ) from error


def target_of(column: Column, file) -> tuple[np.ndarray, tuple[str, ...]]:
    """Targets (n,), and the names of their classes where they are texts."""
    if column.kind == NUMBERS:
        values = column.values
        if values.dtype.kind != "b":
            refuse_gaps(as_float(values, f"{file}: {column.name!r}"), file, repr(column.name), NO_TARGET)
        return values, ()
    if column.missing is not None and column.missing.any():
        row = np.flatnonzero(column.missing)[0]
        raise InvalidData(f"{file}: expected a label in each row of {column.name!r}, none at row {row}; {NO_TARGET}")
    if column.kind not in (TEXTS, "categories") or not all(isinstance(value, str) for value in column.values):
        raise InvalidDtype(
            f"{file}: expected numbers or labels in {column.name!r}, got {described(column)}; code them as numbers"
        )
    numeric = [is_number(value) for value in column.values]
    if any(numeric):
        raise InvalidDtype(
            f"{file}: expected numbers, or labels that are none, in {column.name!r}, got both: "
            f"{described(column, is_number)}; correct these cells"
        )
    return labels_of(column.values, file, column.name)


def labels_of(values, file, name) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers (n,) of text labels, and their names."""
    codes, classes = class_codes(values, f"{file}: {name}")
    if len(classes) > MOST_LABELS:
        raise InvalidDtype(
            f"{file}: expected numbers, or at most {MOST_LABELS} different labels, in {name!r}, got {len(classes)} "
            f"different texts; name another target with --y"
        )
    return codes, classes

"""Conversion of columns that are not inputs: targets, labels, companions and row identifiers. Errors name the cell."""

import re
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.schema import class_codes
from bcmdist.data.tables.coding import numbers_of_texts
from bcmdist.data.tables.column import CATEGORIES, NUMBERS, TEXTS, Column, as_texts, described
from bcmdist.data.tables.look import Look
from bcmdist.data.tables.quantities import Form
from bcmdist.data.values import LARGEST, as_float
from bcmdist.errors import InvalidData, InvalidDtype

# Maximum number of text classes: columns with more hold row identifiers.
MOST_LABELS = 1000
# Types that cannot identify a row.
_MANY = (list, dict, tuple, set, np.ndarray)
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
FILL = "fill or drop these rows"
NO_TARGET = "fill or drop these rows, or predict them (`bcmdist predict`; import: --no-target)"


def numbers_of(column: Column, file, *, start=0, gaps=False) -> np.ndarray:
    """Return finite float64 numbers of a piece of a column, (n,); with `gaps` missing values are nan."""
    if column.kind != NUMBERS:
        raise InvalidDtype(
            f"{file}: expected numbers, got {described(column, start=start)}; correct them, or code them as numbers"
        )
    values = as_float(column.values, f"{file}: {column.name!r}", start=start)
    refuse_gaps(values, file, repr(column.name), start=start, also_nan=not gaps)
    return values


def refuse_gaps(values, file, name, remedy=FILL, *, start=0, also_nan=True) -> None:
    """Raise `InvalidData` if values are not finite numbers; with `also_nan=False` nan is accepted."""
    bad = ~((values <= LARGEST) & (values >= -LARGEST))  # avoids copies of the numbers
    bad = np.argwhere(bad if also_nan else bad & ~np.isnan(values))
    if len(bad):
        raise InvalidData(
            f"{file}: expected a finite number (up to {LARGEST:g}) in each row of {name}, got "
            f"{values[tuple(bad[0])]} at row {start + bad[0, 0]} ({len(bad)} such values); {remedy}"
        )


def refuse_negative(values, file, name, *, start=0) -> None:
    """Raise `InvalidData` if variances (n,) are below 0; nan is accepted."""
    if len(bad := np.flatnonzero(values < 0.0)):
        raise InvalidData(
            f"{file}: expected variances of errors, at least 0, in {name!r}, got {values[bad[0]]:g} at row "
            f"{start + bad[0]} ({len(bad)} such values); correct or drop these rows"
        )


# --- Row identifiers ---


def names_of_rows(column: Column, file, *, start=0) -> np.ndarray:
    """Return the whole numbers or texts (n,) of a column of row identifiers."""
    if column.gaps.any():
        row = start + np.flatnonzero(column.gaps)[0]
        raise InvalidData(f"{file}: expected a name in each row of {column.name!r}, none at row {row}; fill it")
    values = column.values
    if values.dtype.kind in "iu":
        return values
    try:
        odd = any(isinstance(value, _MANY) for value in values.flat) or column.kind.startswith("values of type list")
        if values.ndim != 1 or values.dtype.kind in "cV" or odd:
            raise TypeError(column.kind)
        values.astype(np.dtypes.StringDType())  # raises if they are not valid Unicode
        return values.astype(str)
    except (TypeError, ValueError) as error:
        raise InvalidDtype(
            f"{file}: expected a number or text in each row of {column.name!r}, got others ({error}); convert them"
        ) from error


def all_whole(column: Column) -> bool:
    """Return whether row identifiers are whole numbers, or texts of such in canonical form."""
    return column.values.dtype.kind in "iu" or (
        column.kind == TEXTS and all(WHOLE.fullmatch(text) for text in column.values.tolist())
    )


# --- Targets ---


@dataclass(frozen=True)
class Target:
    """How the target of a table becomes numbers."""

    classes: tuple[str, ...] = ()
    """sorted names of the classes, if the target is text"""
    dtype: np.dtype | type = float
    """of the numbers"""
    form: Form | None = None
    """how numbers are written as texts; None for numbers"""

    def numbers(self, column: Column, file, *, start=0, gaps=False) -> np.ndarray:
        """Return targets (n,) of a piece, with classes as their numbers; with `gaps` missing values are nan."""
        if not self.classes:
            if self.form is not None and column.kind == TEXTS:
                column = replace(column, values=numbers_of_texts(column, self.form, file, start=start), kind=NUMBERS)
            if column.kind != NUMBERS:
                raise InvalidDtype(
                    f"{file}: expected numbers in {column.name!r}, got {described(column, start=start)}; correct them"
                )
            values = as_float(column.values, f"{file}: {column.name!r}", start=start)
            refuse_gaps(values, file, repr(column.name), NO_TARGET, start=start, also_nan=not gaps)
            return values
        numbers = {name: float(k) for k, name in enumerate(self.classes)} | {"": np.nan}
        return np.array([numbers[text] for text in as_texts(column).tolist()])


def target_of(look: Look, file, *, gaps=False, lenient=False) -> Target:
    """Return the conversion of a target from the first pass over it; with `gaps` missing values are accepted, and where
    `lenient` texts of numbers with units and the like.

    Raises
    ------
    InvalidData, InvalidDtype
    """
    name = look.name
    if look.kinds <= {NUMBERS}:
        return Target((), look.dtype if look.dtype is not None and not look.gaps else np.dtype(float))
    form = look.as_quantity() if lenient else None
    if form is not None:
        return Target((), np.dtype(float), form)
    if look.gaps and not gaps:
        raise InvalidData(
            f"{file}: expected a label in each row of {name!r}, none at row {look.first_gap}; {NO_TARGET}"
        )
    if not look.kinds <= {TEXTS, CATEGORIES}:
        raise InvalidDtype(
            f"{file}: expected numbers or labels in {name!r}, got {look.described()}; code them as numbers"
        )
    if look.odd < look.seen:
        raise InvalidDtype(
            f"{file}: expected numbers, or labels that are none, in {name!r}, got both: {look.described()}; correct "
            "these cells"
        )
    _refuse_many(len(look.levels), file, name)
    return Target(class_codes(list(look.levels), f"{file}: {name}")[1], np.dtype(np.int64))


def numbers_of_text(values, file, name) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return class numbers (n,) of text labels, and the class names."""
    codes, classes = class_codes(values, f"{file}: {name}")
    _refuse_many(len(classes), file, name)
    return codes, classes


def _refuse_many(count, file, name):
    if count > MOST_LABELS:
        many = f"more than {MOST_LABELS}" if count == MOST_LABELS + 1 else count
        raise InvalidDtype(
            f"{file}: expected numbers, or at most {MOST_LABELS} different labels, in {name!r}, got {many} different "
            "texts; name another target with --y"
        )

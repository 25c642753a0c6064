"""First pass over the columns of a table: collect statistics piece by piece in bounded memory, and choose codes.

Numbers stay numbers. Texts are dates if most of them are (then all must be), and categories if there are few distinct
texts for many rows. Other columns are refused, unless the user gives their type.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bcmdist.data.tables.coding import Category, Code, Date, Number, Quantity
from bcmdist.data.tables.column import CATEGORIES, DATES, NUMBERS, TEXTS, Column, as_texts, is_plain, odd_texts
from bcmdist.data.tables.dates import day_of, days, has_zone
from bcmdist.data.tables.quantities import Form, Quantities
from bcmdist.data.values import LARGEST, as_float
from bcmdist.errors import InvalidData

# For texts that the user has not called a category: maximum number of distinct texts, and minimum number of rows for
# each. Both arbitrary: row identifiers have one row each, and remarks a few.
USUAL_LEVELS, ROWS_PER_LEVEL = 100, 3
# Names of columns that identify rows, if their values do.
NAMES_ROWS = re.compile(
    r"(id|index|row|rowid|row_?n(o|r|um(ber)?)|unnamed: \d+|column0|.*[_ -]id|id[_ -].*)", re.IGNORECASE
)
# Dates with the year at the end, whose order of day and month is not known.
DATED = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2,4}( .*)?")
# Maximum number of categories of a column that the user has called a category: one input each.
MOST_LEVELS = 1000


@dataclass
class Look:
    """Statistics of a column; `see` adds a piece."""

    name: str
    form: str = ""
    """format of its dates, if given"""
    leveled: bool = False
    """whether its values are categories, even if they look like numbers"""
    rows: int = 0
    gaps: int = 0
    first_gap: int | None = None
    kinds: set[str] = field(default_factory=set)
    """kinds of its pieces that are not empty"""
    dtype: np.dtype | None = None
    """common dtype of its numbers"""
    total: float = 0.0
    """sum of its numbers, or of its dates in days"""
    ascending: bool = True
    """whether its numbers are whole, each larger than the one before"""
    last: float = -np.inf
    """its last number"""
    levels: Counter = field(default_factory=Counter)
    """rows by text; at most `MOST_LEVELS` + 1 texts"""
    odd: int = 0
    """number of texts that are not numbers"""
    first_odd: tuple[str, int] = ("", 0)
    quantities: Quantities = field(default_factory=Quantities)
    """its texts as numbers with units and the like"""
    read_as: Form | None = None
    """how its texts are read as numbers"""
    undated: int = 0
    """number of texts that are not dates"""
    first_undated: tuple[str, int] = ("", 0)
    zones: set[bool] = field(default_factory=set)
    """whether dates have a time zone; both if mixed"""
    hours: bool = False
    """whether a date is not a midnight"""

    def see(self, column: Column) -> None:
        """Add the next piece of the column."""
        gaps = column.gaps
        if gaps.any() and self.first_gap is None:
            self.first_gap = self.rows + int(np.argmax(gaps))
        self.gaps += int(gaps.sum())
        if not gaps.all():
            self.kinds.add(column.kind)
            self._see_values(column, gaps)
        self.rows += len(gaps)

    def _see_values(self, column, gaps):
        if self.leveled:
            self._see_levels(Counter(as_texts(column)[~gaps].tolist()))
            return
        if column.kind == NUMBERS:
            values = column.values
            self.dtype = values.dtype if self.dtype is None else np.result_type(self.dtype, values.dtype)
            numbers = as_float(values, repr(self.name), start=self.rows)
            self.total += float(np.sum(numbers, where=np.abs(numbers) <= LARGEST))
            self._see_order(numbers[~gaps])
        if column.kind == DATES:
            self.zones.add(bool(column.zone))
            found = days(column, self.name)
            self.total += float(np.nansum(found))
            self.hours |= bool(np.any(np.mod(found[~gaps], 1.0) != 0.0))
        if column.kind in (TEXTS, CATEGORIES):
            self._see_texts(as_texts(column)[~gaps].tolist(), column)

    def _see_order(self, numbers):
        if self.ascending and self.names_rows_by_name:
            steps = np.diff(numbers, prepend=self.last)
            self.ascending = bool(np.all(steps > 0.0) and np.all(numbers == np.floor(numbers)))
            self.last = float(numbers[-1])

    def _see_texts(self, texts, column):
        found = Counter(texts)
        self._see_levels(found)
        for text, count in found.items():
            self.quantities.see(text, count)
            if not is_plain(text):
                self.first_odd = self.first_odd if self.odd else (text, self._row(column, text))
                self.odd += count
            try:
                day = day_of(text, self.form)
                self.total += day * count
                self.hours |= day % 1.0 != 0.0
                self.zones.add(has_zone(text, self.form))
            except ValueError:
                self.first_undated = self.first_undated if self.undated else (text, self._row(column, text))
                self.undated += count

    def _see_levels(self, found):
        for text, count in found.items():
            if len(self.levels) <= MOST_LEVELS or text in self.levels:
                self.levels[text] += count

    def _row(self, column, text):
        return self.rows + int(np.argmax(as_texts(column) == text))

    @property
    def seen(self) -> int:
        """Number of rows that are not missing."""
        return self.rows - self.gaps

    @property
    def names_rows_by_name(self) -> bool:
        """Whether the name of the column is one that identifiers of rows usually have."""
        return NAMES_ROWS.fullmatch(self.name.strip()) is not None

    @property
    def names_rows(self) -> bool:
        """Whether the column holds identifiers of rows: it is named so, and its whole numbers ascend."""
        return self.names_rows_by_name and self.ascending and self.kinds == {NUMBERS} and not self.gaps

    @property
    def mixed(self) -> bool:
        """Whether some pieces are texts and others are not: readers infer the type of each piece separately."""
        return TEXTS in self.kinds and len(self.kinds) > 1

    @property
    def mean(self) -> float:
        """Mean of the numbers, or of the dates in days; 0 if there are none."""
        return self.total / max(1, self.seen)

    def described(self) -> str:
        """Describe the content of the column in words."""
        if not self.kinds:
            return f"nothing in {self.name!r}"
        if self.kinds != {TEXTS}:
            return f"{' and '.join(sorted(self.kinds))} in {self.name!r}"
        text = odd_texts(self.name, self.odd, self.rows - self.gaps, *self.first_odd)
        if self.odd < self.seen or self.is_usual:
            return text
        many = f"more than {MOST_LEVELS}" if len(self.levels) > MOST_LEVELS else f"{len(self.levels)}"
        return text.removesuffix(")") + f"; {many} different ones)"

    @property
    def remedy(self) -> str:
        """The option with which texts of unclear type are used."""
        text = self.first_undated[0]
        if DATED.fullmatch(text):
            mark = next(mark for mark in "./-" if mark in text)
            year = "%Y" if len(text.split()[0].split(mark)[-1]) == 4 else "%y"
            return f"--date '{self.name}={mark.join(('%d', '%m', year))}' reads dates, with its parts in their order"
        return f"--category {quoted(self.name)} takes texts for levels"

    @property
    def is_usual(self) -> bool:
        """Whether texts are a category by default: few distinct texts, none of them a number."""
        few = len(self.levels) <= min(USUAL_LEVELS, self.seen // ROWS_PER_LEVEL)
        return few and self.odd == self.seen

    def category(self, indicated, where) -> Category:
        """Return the column as a category.

        Raises
        ------
        InvalidData
            There are too many distinct values.
        """
        if len(self.levels) > MOST_LEVELS:
            raise InvalidData(
                f"{where}: expected at most {MOST_LEVELS} levels of the category {self.name!r}, got more; each would "
                f"be an input: join rare ones, or leave it out with --drop {self.name!r}"
            )
        return Category(self.name, tuple(sorted(self.levels)), indicated)

    def date(self, cycles, indicated, where) -> Date:
        """Return the column as dates.

        Raises
        ------
        InvalidData
            Some values are not dates, or only some have a time zone.
        """
        if self.undated:
            text, row = self.first_undated
            expected = f"of the format {self.form!r}" if self.form else "such as 2026-03-01 or 2026-03-01T12:30:00Z"
            raise InvalidData(
                f"{where}: expected a date {expected} in each row of {self.name!r}, got {text!r} at row {row} "
                f"({self.undated} of {self.seen} rows); correct it, or say --date '{self.name}=FORMAT' with the parts "
                "of strptime, such as %d.%m.%Y"
            )
        if len(self.zones) > 1:
            raise InvalidData(
                f"{where}: expected times with a zone in all rows of {self.name!r} or in none, got both; write the "
                "zone in every row (Z for UTC), or in none"
            )
        return Date(self.name, self.zones == {True}, self.form, cycles, self.mean if indicated else None)

    def as_quantity(self) -> Form | None:
        """Return how all texts are written as numbers, and count marks of missing numbers as gaps; None if they are
        not, or have been counted before."""
        form = self.quantities.form() if self.kinds == {TEXTS} else None
        if form is not None:
            self.read_as = form
            self.total = self.quantities.total(form)
            self.gaps += self.quantities.gaps
            self.quantities.gaps = 0
        return form

    def code(self, where, *, cycles=(), indicate=False, lenient=False) -> Code | None:
        """Choose the code of the column; return None if its type is unclear.

        Parameters
        ----------
        cycles : cycles to add as inputs; implies that the column holds dates, as `form` does
        indicate : whether gaps are to be filled and marked by an indicator
        lenient : whether texts may be numbers with units, thousands separators and the like
        """
        form = self.as_quantity() if lenient and not (self.leveled or self.form or cycles) else None
        if form is not None:
            mean = self.mean if indicate and self.gaps else None
            return Quantity(self.name, form.unit, form.decimal, mean)
        indicated = indicate and self.gaps > 0
        if self.leveled:
            return self.category(indicated, where)
        dated = TEXTS in self.kinds and 2 * self.undated < self.seen
        if self.form or cycles or self.kinds == {DATES} or (self.kinds == {TEXTS} and dated):
            return self.date(cycles, indicated, where) if self.kinds <= {TEXTS, DATES} else None
        if not self.kinds and indicated:
            return None  # nothing to fill gaps with
        if self.kinds <= {NUMBERS}:
            return Number(self.name, self.mean if indicated else None)
        if self.kinds == {CATEGORIES} or (self.kinds == {TEXTS} and self.is_usual):
            return self.category(indicated, where)
        return None


def quoted(name) -> str:
    """Quote a name for a shell."""
    return name if name.isidentifier() else f"'{name}'"


class Choice(NamedTuple):
    """How the columns of a table become inputs."""

    codes: dict[str, Code]
    """by column, without those that are left out"""
    unclear: list[Look]
    """columns that are left out since their type is unclear"""
    numbering: list[Look]
    """columns that are left out since they number the rows"""


def choose_codes(
    looks: Mapping[str, Look],
    where,
    *,
    cycles: Mapping[str, tuple] = MappingProxyType({}),
    inputs: Collection[str] = (),
    indicate: bool,
    lenient: bool,
) -> Choice:
    """Choose the codes of the columns of a table from the first pass over it.

    Parameters
    ----------
    cycles, indicate, lenient : as of `Look.code`, the cycles by column
    inputs : columns that are inputs even if they number the rows, as all are if no others are left
    """
    codes = {
        name: look.code(where, cycles=cycles.get(name, ()), indicate=indicate, lenient=lenient)
        for name, look in looks.items()
    }
    unclear = [look for name, look in looks.items() if codes[name] is None]
    numbering = [look for name, look in looks.items() if look.names_rows and name not in inputs]
    if len(numbering) == len(looks):
        numbering = []
    left_out = {look.name for look in numbering}
    return Choice({n: code for n, code in codes.items() if code and n not in left_out}, unclear, numbering)


def described_quantities(looks: Iterable[Look]) -> list[str]:
    """Describe the columns whose texts are read as numbers: the name, and the first text that needs it as a number."""
    told = []
    for look in looks:
        if look.kinds == {TEXTS} and (form := look.read_as):
            first = look.quantities.example
            told.append(f"{look.name!r} ({first!r} as {form.number(first):g})" if first else repr(look.name))
    return told

"""A first look at the columns of a table: piece by piece in bounded memory, and what each becomes by what was seen.

Numbers stay numbers. Texts are dates where all of them are, and categories where few of them stand for many rows;
what else there is is refused, unless somebody says what it is.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from bcmdist.data.tables.coding import Category, Code, Date, Number
from bcmdist.data.tables.column import CATEGORIES, DATES, NUMBERS, TEXTS, Column, as_texts, is_plain, odd_texts
from bcmdist.data.tables.dates import day_of, days, has_zone
from bcmdist.data.values import LARGEST, as_float
from bcmdist.errors import InvalidData

# Of texts that nobody has called a category: levels at most, and rows for each of them. Both arbitrary: names of rows
# have one row each, and remarks some.
USUAL_LEVELS, ROWS_PER_LEVEL = 100, 3
# Levels at most, of columns that somebody has: one input each.
MOST_LEVELS = 1000


@dataclass
class Look:
    """What was seen of a column so far; `see` adds a piece."""

    name: str
    form: str = ""
    """format of its dates, where one was said"""
    leveled: bool = False
    """whether its values are levels, whatever they look like"""
    rows: int = 0
    gaps: int = 0
    first_gap: int | None = None
    kinds: set[str] = field(default_factory=set)
    """of its pieces that hold anything"""
    dtype: np.dtype | None = None
    """of its numbers"""
    total: float = 0.0
    """of its numbers, or of the days of its dates"""
    levels: Counter = field(default_factory=Counter)
    """rows by text; `MOST_LEVELS` + 1 texts at most"""
    odd: int = 0
    """texts that are no numbers"""
    first_odd: tuple[str, int] = ("", 0)
    undated: int = 0
    """texts that are no dates"""
    first_undated: tuple[str, int] = ("", 0)
    zones: set[bool] = field(default_factory=set)
    """whether dates say their zone"""

    def see(self, column: Column) -> None:
        """Take note of the next piece of the column."""
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
        if column.kind == DATES:
            self.zones.add(bool(column.zone))
            self.total += float(np.nansum(days(column, self.name)))
        if column.kind in (TEXTS, CATEGORIES):
            self._see_texts(as_texts(column)[~gaps].tolist(), column)

    def _see_texts(self, texts, column):
        found = Counter(texts)
        self._see_levels(found)
        for text, count in found.items():
            if not is_plain(text):
                self.first_odd = self.first_odd if self.odd else (text, self._row(column, text))
                self.odd += count
            try:
                self.total += day_of(text, self.form) * count
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
        """Rows that hold something."""
        return self.rows - self.gaps

    @property
    def mixed(self) -> bool:
        """Whether some pieces are texts and others are not: a reader that is shown a part of a column guesses."""
        return TEXTS in self.kinds and len(self.kinds) > 1

    @property
    def mean(self) -> float:
        """Of the numbers or days that are there; 0 where none is."""
        return self.total / max(1, self.seen)

    def described(self) -> str:
        """What it holds, in words."""
        if self.kinds != {TEXTS}:
            return f"{' and '.join(sorted(self.kinds))} in {self.name!r}"
        told = odd_texts(self.name, self.odd, self.rows - self.gaps, *self.first_odd)
        if self.odd < self.seen or self.is_usual:
            return told
        many = f"more than {MOST_LEVELS}" if len(self.levels) > MOST_LEVELS else f"{len(self.levels)}"
        return told.removesuffix(")") + f"; {many} different ones)"

    @property
    def is_usual(self) -> bool:
        """Whether texts are a category that nobody has to call one: none of them is a number."""
        few = len(self.levels) <= min(USUAL_LEVELS, self.seen // ROWS_PER_LEVEL)
        return few and self.odd == self.seen

    def category(self, indicated, where) -> Category:
        """Its texts as levels.

        Raises
        ------
        InvalidData
            There are too many.
        """
        if len(self.levels) > MOST_LEVELS:
            raise InvalidData(
                f"{where}: expected at most {MOST_LEVELS} levels of the category {self.name!r}, got more; each would "
                f"be an input: join rare ones, or leave it out with --drop {self.name!r}"
            )
        return Category(self.name, tuple(sorted(self.levels)), indicated)

    def date(self, cycles, indicated, where) -> Date:
        """Its values as dates.

        Raises
        ------
        InvalidData
            Some are none, or some say their zone and others do not.
        """
        if self.undated:
            text, row = self.first_undated
            wanted = f"of the format {self.form!r}" if self.form else "such as 2026-03-01 or 2026-03-01T12:30:00Z"
            raise InvalidData(
                f"{where}: expected a date {wanted} in each row of {self.name!r}, got {text!r} at row {row} "
                f"({self.undated} of {self.seen} rows); correct it, or say --date '{self.name}=FORMAT' with the parts "
                "of strptime, such as %d.%m.%Y"
            )
        if len(self.zones) > 1:
            raise InvalidData(
                f"{where}: expected times with a zone in all rows of {self.name!r} or in none, got both; write the "
                "zone in every row (Z for UTC), or in none"
            )
        return Date(self.name, self.zones == {True}, self.form, cycles, self.mean if indicated else None)

    def code(self, where, *, cycles=(), indicate=False) -> Code | None:
        """What the column becomes; None where that cannot be told.

        Parameters
        ----------
        cycles : of its dates; it is dates where there are any, or where `form` is given
        indicate : whether gaps are to be filled and indicated
        """
        indicated = indicate and self.gaps > 0
        if self.leveled:
            return self.category(indicated, where)
        dated = TEXTS in self.kinds and 2 * self.undated < self.seen
        if self.form or cycles or self.kinds == {DATES} or (self.kinds == {TEXTS} and dated):
            return self.date(cycles, indicated, where) if self.kinds <= {TEXTS, DATES} else None
        if self.kinds <= {NUMBERS}:
            return Number(self.name, self.mean if indicated else None)
        if self.kinds == {CATEGORIES} or (self.kinds == {TEXTS} and self.is_usual):
            return self.category(indicated, where)
        return None

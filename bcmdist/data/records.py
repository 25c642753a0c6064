"""Rows as records, of messages or of a table: values by column name, converted to arrays of numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from bcmdist.data.reader import EntryShape
from bcmdist.data.values import as_float
from bcmdist.errors import InvalidData

NUMBERS = (int, float, Decimal)


@dataclass(frozen=True)
class Records:
    """Rows of one entry."""

    url: str
    names: tuple[str, ...]
    """columns, in the order in which a model without names takes its inputs"""
    rows: Sequence[Sequence[Any]]
    """(n, names)"""
    label: Callable[[int], str]
    """names a row in errors, by its number: "offset 17" """

    def shape(self, x, y, companions) -> EntryShape:
        """Return the shape of the entry (`bcmdist.data.reader.Reader`).

        Raises
        ------
        InvalidData
            A column is missing, or a value of a column of numbers is null or a text.
        """
        inputs, others, unused = self._numbers(y, companions)
        return EntryShape(len(self.rows), len(inputs), tuple(n for n in others if n != y), tuple(inputs), unused)

    def columns(self, x, y, companions) -> dict[str, np.ndarray]:
        """Return the columns of the entry; errors as `shape`."""
        inputs, others, _ = self._numbers(y, companions)
        return others | {x: np.column_stack(list(inputs.values()))}

    def _numbers(self, y, companions):
        """Return the inputs and the other columns (n,) by name, and the names of columns of texts."""
        if y is not None and y not in self.names:
            raise InvalidData(
                f"{self.url}: expected a column {y}, found {', '.join(self.names) or 'none'}; add it to the rows"
            )
        values = dict(zip(self.names, zip(*self.rows, strict=True), strict=True))
        unused = tuple(
            name for name in self.names if name != y and not any(isinstance(v, NUMBERS) for v in values[name])
        )
        found = {name: self._column(name, values[name]) for name in self.names if name not in unused}
        others = {name: found.pop(name) for name in (y, *companions) if name in found}
        if not found:
            raise InvalidData(
                f"{self.url}: expected columns of numbers as inputs besides {', '.join(others)}, found none; add them"
            )
        return found, others, unused

    def _column(self, name, values):
        bad = next((k for k, value in enumerate(values) if not isinstance(value, NUMBERS)), None)
        if bad is not None:
            got = "null" if values[bad] is None else repr(values[bad])
            raise InvalidData(
                f"{self.url}: expected a number in {name}, got {got:.80} at {self.label(bad)}; correct or leave out "
                "the row where it is written, or go on without these rows (--on-error skip)"
            )
        return as_float(np.asarray(values), f"{self.url}: {name}")

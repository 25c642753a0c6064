"""Series of a table as rows of a data set: each value with the L values before it, the newest first.

    X[i] = (y[t-1], ..., y[t-L]),   y[i] = y[t]

Rows follow each other in time, of several series those of each one, which a column names. Read once, piece by piece:
between pieces the last L values of each series are kept.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bcmdist.data.schema import few
from bcmdist.data.tables.columns import names_of_rows, numbers_of
from bcmdist.data.tables.tables import Named
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption

LAG = re.compile(r"(.+)\[t-(\d+)\]")


def lag_names(y: str, lags: int) -> tuple[str, ...]:
    """Names of the inputs, the newest first."""
    return tuple(f"{y}[t-{k}]" for k in range(1, lags + 1))


def series_of(columns: Sequence[str]) -> str | None:
    """The series of which columns are the last values, the newest first; None where they are something else."""
    first = LAG.fullmatch(columns[0]) if columns else None
    return first[1] if first and tuple(columns) == lag_names(first[1], len(columns)) else None


@dataclass
class Lagged:
    """The rows of a table as series.

    Parameters
    ----------
    y : name of the column of the values
    lags : L >= 1
    id : name of the column that names series; None: all rows are one
    """

    table: Named
    y: str
    lags: int
    id: str | None = None
    last: dict[Any, np.ndarray] = field(default_factory=dict)
    """the last values of each series by its name, the oldest first, at most L, as far as was read"""

    def __post_init__(self):
        if self.lags < 1:
            raise InvalidOption(f"--lags: expected at least 1, got {self.lags}; give a positive number")
        for option, name in (("--y", self.y), ("--id", self.id)):
            if name is not None and name not in self.table.names:
                raise DataNotFound(
                    f"{self.table.file}: expected a column {name!r}, found {few(self.table.names)}; name another with "
                    f"{option}"
                )

    @property
    def unused(self) -> dict[str, str]:
        """Why other columns are not used, by name."""
        return {name: "--lags" for name in self.table.names if name not in (self.y, self.id)}

    def pieces(self) -> Iterator[dict[str, np.ndarray]]:
        """X (n, L), y (n,), `row`, and what names series under its own name, for rows with L values before them.

        Raises
        ------
        InvalidData, InvalidDtype
        """
        start = 0
        for piece in self.table.pieces():
            values = numbers_of(piece[self.y], self.table.file, start=start)
            names = np.zeros(len(values), int)
            if self.id is not None:
                names = names_of_rows(piece[self.id], self.table.file, start=start)
            yield self._rows(values, names, start)
            start += len(values)

    def read(self) -> None:
        """Read all of it for the last values.

        Raises
        ------
        InvalidData
            A series is shorter than L; or as `pieces`.
        """
        for _ in self.pieces():
            pass
        short = [name for name, values in self.last.items() if len(values) < self.lags]
        if short or not self.last:
            what = f"{len(self.last[short[0]])} of {short[0]!r}" if short and self.id else "fewer"
            raise InvalidData(
                f"{self.table.file}: expected at least {self.lags} values of each series, got {what}; add earlier ones"
            )

    def _rows(self, values, names, start):
        known, series = np.unique(names, return_inverse=True)
        X, y, row = [np.empty((0, self.lags))], [np.empty(0)], [np.empty(0, int)]
        for k, name in enumerate(known.tolist()):
            mine = np.flatnonzero(series == k)
            before = self.last.get(name, np.empty(0))
            whole = np.concatenate([before, values[mine]])
            self.last[name] = whole[-self.lags :]
            if len(whole) <= self.lags:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(whole, self.lags + 1)
            X.append(windows[:, -2::-1])
            y.append(windows[:, -1])
            row.append(start + mine[self.lags - len(before) :])
        numbers = np.concatenate(row)
        order = np.argsort(numbers)
        columns = {"X": np.concatenate(X)[order], "y": np.concatenate(y)[order], "row": numbers[order]}
        return columns if self.id is None else columns | {self.id: names[numbers[order] - start]}

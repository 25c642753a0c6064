"""Time series in a table as rows of a data set: the inputs of each value are the L values before it, the newest first.

    X[i] = (y[t-1], ..., y[t-L], z[t], ..., z[t-K]),   y[i] = y[t]

z are other columns, one after the other, whose values are known in advance: a control signal, the hour of the day.
Rows are in the order of time. A table may hold several series, identified by a column. The table is read once, piece by
piece; the last values of each series are kept between pieces.
"""

import itertools
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


@dataclass(frozen=True)
class Lags:
    """Specification of the lagged inputs of a row.

    Raises
    ------
    InvalidOption
    """

    y: str
    """name of the series"""
    lags: int
    """L >= 1, number of values before the row"""
    x: tuple[str, ...] = ()
    """names of the columns that are known in advance"""
    x_lags: int = 0
    """K >= 0, number of values of these columns before the row"""

    def __post_init__(self):
        if self.lags < 1:
            raise InvalidOption(f"--lags: expected at least 1, got {self.lags}; give a positive number")
        if self.x_lags < 0 or (self.x_lags and not self.x):
            raise InvalidOption(f"--x-lags: expected 0 or more, and --x, got {self.x_lags}; correct it")
        if taken := [name for name in (self.y, *self.x) if LAG.fullmatch(name)]:
            raise InvalidOption(
                f"--lags: expected columns whose names do not end in [t-1], got {taken[0]!r}; rename it"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the inputs."""
        last = [f"{self.y}[t-{k}]" for k in range(1, self.lags + 1)]
        inputs = [f"{x}[t-{k}]" if k else x for x in self.x for k in range(self.x_lags + 1)]
        return (*last, *inputs)

    @property
    def before(self) -> int:
        """Number of preceding rows that each row needs."""
        return max(self.lags, self.x_lags)

    def rows(self, values) -> np.ndarray:
        """Return the inputs (n, D) of all rows but the first `before`, from the values and known columns (N, 1 + E)."""
        n = len(values) - self.before
        lags = [(0, range(1, self.lags + 1)), *((1 + e, range(self.x_lags + 1)) for e in range(len(self.x)))]
        return np.column_stack([values[self.before - k :, column][:n] for column, back in lags for k in back])


def lags_of(columns: Sequence[str]) -> Lags | None:
    """Recover the lags from the names of inputs, in order; None if these are not lagged inputs."""
    first = LAG.fullmatch(columns[0]) if columns else None
    if first is None:
        return None
    last = list(itertools.takewhile(lambda name: (lag := LAG.fullmatch(name)) and lag[1] == first[1], columns))
    inputs = columns[len(last) :]
    x = tuple(name for name in inputs if not LAG.fullmatch(name))
    found = Lags(first[1], len(last), x, len(inputs) // len(x) - 1 if x else 0)
    return found if found.columns == tuple(columns) else None


@dataclass
class Lagged:
    """The rows of a table as series with lagged inputs.

    Parameters
    ----------
    id : name of the column that identifies series; None: all rows are one series
    ahead : whether the values are in the future, so that only the known columns are read
    """

    table: Named
    lags: Lags
    id: str | None = None
    ahead: bool = False
    last: dict[Any, np.ndarray] = field(default_factory=dict)
    """values and known columns, (m, 1 + E), of the last rows read of each series, by its name; m is at most the number
    of preceding rows that a row needs"""

    def __post_init__(self):
        options = {"--y": () if self.ahead else (self.lags.y,), "--x": self.lags.x, "--id": (self.id,) * bool(self.id)}
        for option, names in options.items():
            for name in names:
                if name not in self.table.names:
                    raise DataNotFound(
                        f"{self.table.file}: expected a column {name!r}, found {few(self.table.names)}; name another "
                        f"with {option}"
                    )

    @property
    def unused(self) -> dict[str, str]:
        """Reason for which other columns are not used, by name."""
        return {name: "--lags" for name in self.table.names if name not in (self.lags.y, self.id, *self.lags.x)}

    def pieces(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield X (n, D), y (n,), `row`, and the series identifiers under their own name, for rows with enough
        preceding rows.

        Raises
        ------
        InvalidData, InvalidDtype
        """
        start = 0
        for values, names in self._read():
            yield self._rows(values, names, start)
            start += len(values)

    def read(self) -> None:
        """Read the whole table to obtain the last values of each series.

        Raises
        ------
        InvalidData
            A series is too short; or as `pieces`.
        """
        for _ in self.pieces():
            pass
        self._refuse_short(self.last, self.lags.before, "add earlier ones")

    def future_inputs(self, names, steps: int) -> np.ndarray:
        """Return the known columns of the first rows of each series, (n, steps, E).

        Raises
        ------
        InvalidData
        """
        found: dict[Any, np.ndarray] = {name: np.empty((0, 1 + len(self.lags.x))) for name in names}
        for values, series in self._read():
            for name in np.unique(series).tolist():
                if name in found:
                    found[name] = np.concatenate([found[name], values[series == name]])[:steps]
        self._refuse_short(found, steps, "add the rows that are to be forecast, or lower --steps")
        return np.stack([found[name][:, 1:] for name in names])

    def _refuse_short(self, found, rows, remedy):
        short = [name for name, values in found.items() if len(values) < rows]
        if short or not found:
            what = f"{len(found[short[0]])} of {short[0]!r}" if short and self.id else "fewer"
            raise InvalidData(
                f"{self.table.file}: expected at least {rows} values of each series, got {what}; {remedy}"
            )

    def _read(self):
        """Yield the values and known columns (n, 1 + E), and the series identifiers (n,), of each piece."""
        start, columns = 0, [self.lags.y, *self.lags.x]
        for piece in self.table.pieces():
            seen = columns[1:] if self.ahead else columns
            numbers = [numbers_of(piece[name], self.table.file, start=start) for name in seen]
            values = np.column_stack([np.zeros_like(numbers[0]), *numbers] if self.ahead else numbers)
            names = np.zeros(len(values), int)
            if self.id is not None:
                names = names_of_rows(piece[self.id], self.table.file, start=start)
            yield values, names
            start += len(values)

    def _rows(self, values, names, start):
        labels, series = np.unique(names, return_inverse=True)
        before, width = self.lags.before, values.shape[1]
        X, y, row = [np.empty((0, len(self.lags.columns)))], [np.empty(0)], [np.empty(0, int)]
        for k, name in enumerate(labels.tolist()):
            mine = np.flatnonzero(series == k)
            kept = self.last.get(name, np.empty((0, width)))
            whole = np.concatenate([kept, values[mine]])
            self.last[name] = whole[-before:]
            if len(whole) > before:
                X.append(self.lags.rows(whole))
                y.append(whole[before:, 0])
                row.append(start + mine[before - len(kept) :])
        numbers = np.concatenate(row)
        order = np.argsort(numbers)
        columns = {"X": np.concatenate(X)[order], "y": np.concatenate(y)[order], "row": numbers[order]}
        return columns if self.id is None else columns | {self.id: names[numbers[order] - start]}

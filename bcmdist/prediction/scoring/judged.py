"""Rows with their predictions and scores, the basis of score totals and plots.

`+` concatenates rows; an object without rows is the identity.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from bcmdist.data.observations import Observations, joined
from bcmdist.prediction.interface import LatentOfRows
from bcmdist.prediction.scoring.pit import Places
from bcmdist.prediction.scoring.scores import Scores, class_scores, event_scores, real_scores


@dataclass(frozen=True)
class Judged:
    """n rows in original units with predictions and scores; the fields are empty if there are no rows."""

    number: np.ndarray
    """row numbers in the data set, (n,)"""
    X: np.ndarray
    """(n, D)"""
    obs: Observations | None
    """in the units of the model"""
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    """(n,) or (n, C) by name: `y` (class numbers for classes), the predicted columns and `log_density`; for numbers
    also `low`, `high` and `seen` of `Places`, and `crps` of measurements or `deviance` of counts and lifetimes"""
    train_mean: float = float("nan")
    """mean of the training targets"""
    around: LatentOfRows | None = None
    """uncertainty of X; None if the inputs are certain"""

    def __len__(self) -> int:
        return len(self.number)

    def __add__(self, other: "Judged") -> "Judged":
        if not len(self) or not len(other):
            return self if len(self) else other
        assert self.obs is not None
        assert other.obs is not None
        number, X = (np.concatenate(pair) for pair in ((self.number, other.number), (self.X, other.X)))
        columns = {name: np.concatenate([values, other.columns[name]]) for name, values in self.columns.items()}
        around = None if self.around is None or other.around is None else self.around + other.around
        return Judged(number, X, joined(self.obs, other.obs), columns, self.train_mean, around)

    def __getitem__(self, rows) -> "Judged":
        """Select rows by position."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        obs, around = self.obs and self.obs[rows], self.around and self.around[rows]
        return Judged(self.number[rows], self.X[rows], obs, columns, self.train_mean, around)

    @property
    def y(self) -> np.ndarray:
        """Targets, (n,)."""
        return self.columns.get("y", np.empty(0))

    @property
    def observed(self) -> Observations:
        """Observations with targets in original units and companions in the units of the model."""
        assert self.obs is not None
        return replace(self.obs, y=self.y)

    @property
    def where(self) -> Places:
        """PIT ranges of the numbers in their predictive distributions."""
        return Places(self.columns["low"], self.columns["high"], self.columns["seen"])

    def scores(self) -> Scores:
        """Score totals over the rows."""
        column = self.columns
        if "probability" in column and "low" not in column:
            return class_scores(self.y, column)
        if "deviance" in column:
            costs = column["log_density"], column["deviance"]
            return event_scores(self.observed, column, *costs, self.where, number=self.number)
        found: dict = {"train_mean": self.train_mean, "crps": column["crps"]}
        return real_scores(self.y, column, column["log_density"], self.where, **found)


def nothing(inputs: int) -> Judged:
    """An empty `Judged` with `inputs` input columns."""
    return Judged(np.empty(0, np.int64), np.empty((0, inputs)), None)

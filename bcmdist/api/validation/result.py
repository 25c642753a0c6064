"""Result of a cross-validation: scores of each fold, of all rows, and by their distance from the kept rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np

from bcmdist.data.groups import Location
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.prediction.scored_rows import Judged

PICTURE = "bcmdist.api.pictures.distance"  # imported on first use
KEPT = "scaling and warps of the inputs, hyper-parameters and query points, as learned from all rows of the model"
# Scores in tables, where the model has them.
SHOWN = ("rmse", "mae", "mnlp", "crps", "accuracy", "log_loss", "brier", "deviance", "coverage50", "coverage95")
# Groups of rows of about equal distance: their number, and the fewest rows of each.
DISTANCES, LEAST_ROWS = 10, 30
EQUAL_DIGITS = 9  # distances on a grid that differ only after these digits are equal


@dataclass(frozen=True)
class FoldScores:
    """Scores of the rows of one fold, predicted from the rows that were kept."""

    rows: int
    """rows left out"""
    kept: int
    """rows that the committee absorbed"""
    description: str
    """names of the groups, or the range of times; else empty"""
    distance: float
    """median distance of the rows left out to the nearest kept row"""
    scores: dict[str, Any]
    """as of `Scores.summary`"""
    mean: dict[str, float]
    """scores of the mean of the kept rows as the prediction"""


@dataclass(frozen=True)
class DistanceScores:
    """Scores of all rows whose distance to the nearest kept row lies in a range."""

    rows: int
    low: float
    high: float
    distance: float
    """median distance"""
    scores: dict[str, Any]
    mean: dict[str, float]


@dataclass(frozen=True)
class ValidationResult:
    """Scores of rows that were left out, each predicted by a committee of the rows that were kept."""

    by: str
    """how rows were left out: blocks, rows, group:COLUMN or time:COLUMN"""
    method: str
    """prediction method"""
    rows: int
    """number of predictions; with times, earlier rows are not predicted"""
    scores: dict[str, Any]
    """scores of all rows left out"""
    mean: dict[str, float]
    """scores of the mean of the kept rows as the prediction"""
    folds: tuple[FoldScores, ...]
    distances: tuple[DistanceScores, ...]
    """from near to far"""
    unit: str
    """unit of the distances, in words"""
    kept: str = KEPT
    """what was not learned again without the rows left out"""

    def to_json(self) -> dict[str, Any]:
        """The scores of all rows on the first level, folds and distances as lists; JSON-ready."""
        found = asdict(self)
        scores = found.pop("scores")
        return {"rows": found.pop("rows"), "method": found.pop("method"), **scores, **found}

    def lines(self) -> list[str]:
        """A table in text: a line for each fold, for all rows, and for the mean of the kept rows."""
        names = [name for name in SHOWN if name in self.scores]
        described = any(fold.description for fold in self.folds)
        table = [["fold", "rows", "distance", *names, *(["left out"] if described else [])]]
        for number, fold in enumerate(self.folds, start=1):
            cells = [f"{number}", f"{fold.rows:,}", _short(fold.distance), *_cells(fold.scores, names)]
            table.append([*cells, *([fold.description] if described else [])])
        table.append(["all", f"{self.rows:,}", "", *_cells(self.scores, names), *([""] if described else [])])
        table.append(["mean", "", "", *_cells(self.mean, names), *([""] if described else [])])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in table]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def plot(self, out: Location) -> None:
        """Write a picture of errors and coverage over the distance to the nearest kept row (.png, .svg or .pdf).

        Raises
        ------
        InvalidOption, MissingExtra
        """
        import_module(PICTURE).distance_picture(out, self)


def _cells(scores: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [_short(scores[name]) if name in scores else "" for name in names]


def _short(value: float) -> str:
    return f"{value:.4g}"


@dataclass(frozen=True)
class Scored:
    """Rows left out of one fold, with predictions, losses of the mean, and distances."""

    judged: Judged
    losses: dict[str, np.ndarray]
    """as of `mean_losses`"""
    distance: np.ndarray
    """(n,)"""
    kept: int
    description: str

    def scores(self) -> FoldScores:
        """Scores of the fold."""
        found = _scores(self.judged), mean_scores(self.losses)
        return FoldScores(len(self.judged), self.kept, self.description, float(np.median(self.distance)), *found)


def mean_scores(losses: dict[str, np.ndarray], rows: slice | IntArray = slice(None)) -> dict[str, float]:
    """Return the scores of the mean at some rows, from its losses (`mean_losses`)."""
    found = {name: float(values[rows].mean()) for name, values in losses.items()}
    return {name: float(np.sqrt(value)) if name == "rmse" else value for name, value in found.items()}


def _scores(rows: Judged) -> dict[str, Any]:
    """Scores of some rows, without the histogram of places."""
    return {name: value for name, value in rows.scores().summary().items() if name != "pit"}


def result_of(folds: list[Scored], *, by: str, method: str, unit: str) -> ValidationResult:
    """Sum up the scores of folds."""
    rows = sum((fold.judged for fold in folds[1:]), folds[0].judged)
    losses = {name: np.concatenate([fold.losses[name] for fold in folds]) for name in folds[0].losses}
    distance = np.concatenate([fold.distance for fold in folds])
    return ValidationResult(
        by,
        method,
        len(rows),
        rows.scores().summary(),
        mean_scores(losses),
        tuple(fold.scores() for fold in folds),
        tuple(_by_distance(rows, losses, distance)),
        unit,
    )


def _by_distance(rows: Judged, losses: dict[str, np.ndarray], distance: FloatArray) -> Iterator[DistanceScores]:
    """Scores of groups of about equally many rows; rows of equal distance are in one group."""
    groups = max(1, min(DISTANCES, len(rows) // LEAST_ROWS))
    level = np.round(distance / (distance.max() or 1.0), EQUAL_DIGITS)
    edges = np.unique(np.quantile(level, np.linspace(0.0, 1.0, groups + 1)))
    group = np.searchsorted(edges[1:-1], level, side="right")
    for k in np.unique(group):
        some = np.flatnonzero(group == k)
        near = distance[some]
        ranges = (len(some), float(near.min()), float(near.max()), float(np.median(near)))
        yield DistanceScores(*ranges, _scores(rows[some]), mean_scores(losses, some))

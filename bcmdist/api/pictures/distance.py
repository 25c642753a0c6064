"""Picture of a cross-validation: errors and coverage over the distance to the nearest kept row."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bcmdist.api.pictures import paper
from bcmdist.api.pictures.paper import BAND, LINE, QUIET
from bcmdist.api.pictures.scores import wilson
from bcmdist.api.validation.result import DistanceScores, ValidationResult
from bcmdist.data.groups import Location
from bcmdist.linalg.arrays import FloatArray

ERRORS = {"rmse": "RMSE", "log_loss": "log loss (nats)", "deviance": "deviance"}  # the first that the model has
SHARES = {"coverage95": 0.95, "coverage50": 0.5, "accuracy": None}  # those that the model has, and what is expected
WIDE = 30.0  # a larger ratio of distances gets a logarithmic scale


def distance_picture(path: Location, result: ValidationResult) -> None:
    """Write the picture of a cross-validation to a file."""
    paper.check(path)
    with paper.styled():
        paper.save(over_distance(result), path)


def over_distance(result: ValidationResult) -> Any:
    """Draw the error of rows at about equal distances, beside that of the mean, and how many intervals hold."""
    points = result.distances
    place = np.array([point.distance for point in points])
    rows = max(point.rows for point in points)
    title = f"{result.rows:,} rows left out in {len(result.folds)} folds by {result.by}; up to {rows:,} rows a point"
    figure, axes = paper.sheet(title, width=9.0, height=3.8, ncols=2)
    error = next(name for name in ERRORS if name in result.scores)
    axes[0].plot(place, [point.scores[error] for point in points], "o-", color=LINE, markersize=4, label="model")
    axes[0].plot(
        place, [point.mean[error] for point in points], "s--", color=QUIET, markersize=3, label="mean of the kept rows"
    )
    axes[0].set(ylabel=ERRORS[error])
    axes[0].set_ylim(bottom=min(0.0, axes[0].get_ylim()[0]))
    axes[0].legend(fontsize="small")
    _draw_shares(axes[1], place, points, [name for name in SHARES if name in result.scores])
    for one in axes:
        one.set(xlabel=f"distance to the nearest kept row, {result.unit}")
        paper.logarithmic(one, x=bool(place.min() > 0 and place.max() > WIDE * place.min()))
    return figure


def _draw_shares(axis: Any, place: FloatArray, points: Sequence[DistanceScores], names: Sequence[str]) -> None:
    """Draw shares of rows with their 95 % intervals."""
    rows = np.array([point.rows for point in points], dtype=float)
    for name, color in zip(names, (LINE, "0.4"), strict=False):
        share = np.array([point.scores[name] for point in points])
        low, high = wilson(share * rows, rows)
        axis.fill_between(place, low, high, color=BAND if color == LINE else "0.88")
        expected = SHARES[name]
        label = name if expected is None else f"{100 * expected:.0f} % intervals"
        axis.plot(place, share, "o-", color=color, markersize=4, label=f"{label} (band: 95 %)")
        if expected is not None:
            axis.axhline(expected, color=QUIET, linestyle="--", linewidth=0.8)
    axis.set(ylabel="share of rows" if "coverage95" in names else names[0], ylim=(0.0, 1.02))
    axis.legend(fontsize="small", loc="lower left")

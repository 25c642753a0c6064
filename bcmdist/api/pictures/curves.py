"""Curves against the number of rows absorbed: learning curves of the demo and of commits, and drift."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bcmdist.api.pictures import paper
from bcmdist.api.pictures.paper import LINE, QUIET
from bcmdist.data.groups import Location
from bcmdist.linalg.arrays import FloatArray
from bcmdist.storage.entry import NUMBER_SCORES

SMOOTHED = 20  # the moving average in a picture of drift covers 1 / SMOOTHED of the arrivals


def learning_curve(
    path: Location, curve: Sequence[Mapping[str, float]], *, majority_share: float, test_rows: int | None = None
) -> None:
    """Write a picture of accuracy and log loss against rows absorbed (GBCM paper, figure 2).

    Parameters
    ----------
    curve : points with `rows`, `accuracy` and `log_loss`
    majority_share : share of the larger class, drawn for comparison
    test_rows : number of rows on which each point was scored, for 95 % intervals
    """
    with paper.styled():
        title = f"Learning curve against noise-free labels; the larger class alone: {majority_share:.1%} right"
        figure, (left, right) = paper.sheet(title, width=9.0, height=3.8, ncols=2)
        rows, right_share, loss = (
            np.array([point[name] for point in curve], dtype=float) for name in ("rows", "accuracy", "log_loss")
        )
        error = 1.96 * np.sqrt(right_share * (1.0 - right_share) / test_rows) if test_rows else None
        left.errorbar(rows, right_share, yerr=error, fmt="o-", color=LINE, capsize=2, markersize=4)
        left.set(xlabel="rows seen", ylabel="accuracy (with 95 % intervals)" if test_rows else "accuracy")
        if len(curve):
            half_width = 0.0 if error is None else error
            left.set_ylim(*paper.limits(right_share - half_width, right_share + half_width))
            if left.get_ylim()[0] <= majority_share:
                left.axhline(majority_share, color=QUIET, linestyle="--", label="larger class")
                left.legend()
        right.plot(rows, loss, "o-", color=LINE, markersize=4)
        right.set(xlabel="rows seen", ylabel="log loss (nats)")
        for axes in (left, right):
            paper.logarithmic(axes, x=True)
        paper.save(figure, path)


def commits(points: Sequence[Sequence[float]], *, title: str, names: Sequence[str]) -> Any:
    """Draw two scores of n commits against rows absorbed.

    Parameters
    ----------
    points : (n, 5): rows absorbed, and two scores, each followed by its standard error
    names : names of the two scores
    """
    table = np.asarray(points, dtype=float)
    figure, axes = paper.sheet(title, width=9.0, height=3.8, ncols=2)
    for one, column, name in zip(axes, (1, 3), names, strict=True):
        error = 1.96 * table[:, column + 1]
        one.errorbar(table[:, 0], table[:, column], yerr=error, fmt="o-", color=LINE, capsize=2, markersize=4)
        one.set(xlabel="rows absorbed", ylabel=f"{name} (with 95 % intervals)")
        paper.logarithmic(one, x=True)
    return figure


def drift_picture(path: Location, table: FloatArray) -> None:
    """Write the picture of `drift` to a file."""
    with paper.styled():
        paper.save(drift(table), path)


def drift(table: FloatArray) -> Any:
    """Draw how well partitions were predicted before they were absorbed, in the order of arrival.

    Parameters
    ----------
    table : (n, 2 or 3), scores recorded on arrival (`bcmdist.prediction.errors.drift.arrivals`)
    """
    title = f"{len(table):,} partitions that arrived, each predicted before it was absorbed"
    figure, (left, right) = paper.sheet(title, width=9.0, height=3.8, ncols=2)
    number = np.arange(1, len(table) + 1)
    numbers = table.shape[1] == len(NUMBER_SCORES)
    share = "share of rows in their 95 % intervals" if numbers else "accuracy"
    for axes, values, name in (
        (left, table[:, 0], "log score (nats a row; more is better)"),
        (right, table[:, 1], share),
    ):
        axes.plot(number, values, ".", color="0.7", label="one partition")
        width = max(1, len(table) // SMOOTHED)
        smooth = np.convolve(values, np.ones(width) / width, mode="valid")
        axes.plot(number[width - 1 :], smooth, color=LINE, label=f"mean of the last {width}")
        axes.set(xlabel="partition, by arrival", ylabel=name)
    if numbers:
        right.axhline(0.95, color=QUIET, linestyle="--", label="as predicted")
    right.legend(fontsize="small")
    return figure

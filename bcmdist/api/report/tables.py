"""Tables of a report: calibration by predicted standard deviation, and the rows that were predicted worst."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bcmdist.api.relevance import Feature
from bcmdist.api.report.page import number
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.prediction.scored_rows import Judged
from bcmdist.prediction.scoring import pit

GROUPS = 10
WORST = 10
MOST_INPUTS = 6  # features shown per row

Table = tuple[list[str], list[list[Any]]]
"""column names, and rows of cells"""


def by_deviation(rows: Judged) -> Table:
    """Group rows into deciles of the predicted standard deviation; compare predictions and observations of each."""
    return _classes(rows) if "label" in rows.columns else _numbers(rows)


def deviation(rows: Judged) -> FloatArray:
    """Return predicted standard deviations of observations, (n,).

    For classes, sqrt(p (1 - p)) with p the probability of the most probable class.
    """
    if "label" in rows.columns:
        p = rows.columns["probability"].max(axis=1)
        variance: FloatArray = p * (1.0 - p)
    else:
        variance = rows.columns["observation_variance"]
    return np.sqrt(variance)


def groups(values: FloatArray) -> list[np.ndarray]:
    """Return indices of values (n,) in ascending order, split into up to ten groups of equal size."""
    return [some for some in np.array_split(np.argsort(values, kind="stable"), GROUPS) if len(some)]


def _numbers(rows: Judged) -> Table:
    sd, where, table = deviation(rows), rows.where, []
    error = rows.y - rows.columns["observation_mean"]
    held = {level: pit.covered(where, level) for level in (0.5, 0.95)}
    censored = not where.seen.all()
    for decile, some in enumerate(groups(sd), start=1):
        seen = some[where.seen[some]]
        rms = float(np.sqrt(np.mean(error[seen] ** 2))) if len(seen) else float("nan")
        cells: list[Any] = [decile, len(some), float(np.sqrt(np.mean(sd[some] ** 2))), rms]
        cells += [with_error(held[level][some].mean(), level, len(some)) for level in held]
        table.append([*cells, f"{1.0 - where.seen[some].mean():.0%}"] if censored else cells)
    root = "root mean square error" + (", ended" if censored else "")
    names = ["decile", "rows", "predicted deviation", root, "50 % intervals hold", "95 % intervals hold"]
    return [*names, "censored"] if censored else names, table


def _classes(rows: Judged) -> Table:
    p = rows.columns["probability"]
    right, best, table = p.argmax(axis=1) == rows.y, p.max(axis=1), []
    for decile, some in enumerate(groups(deviation(rows)), start=1):
        expected = float(best[some].mean())
        share = with_error(right[some].mean(), expected, len(some))
        table.append([decile, len(some), float(deviation(rows)[some].mean()), f"{expected:.1%}", share])
    return ["decile", "rows", "predicted deviation", "likeliest class expected right", "was right"], table


def with_error(share: float, expected: float, rows: int) -> str:
    """Return a share of rows as text, with its standard error under the expected share."""
    return f"{share:.1%} ± {np.sqrt(expected * (1.0 - expected) / rows):.1%}"


def worst_rows(rows: Judged, features: list[Feature], order: IntArray, labels: Sequence[str] | Sequence[int]) -> Table:
    """Return the rows with the lowest predictive density, worst first, with their most relevant features.

    Parameters
    ----------
    order : indices of the features, most relevant first
    labels : class labels
    """
    worst = np.argsort(rows.columns["log_density"], kind="stable")[:WORST]
    shown = [features[k] for k in order[:MOST_INPUTS]]
    describe = _class_cells if "label" in rows.columns else _number_cells
    head, cells = describe(rows, worst, labels)
    inputs = [[feature.shown(rows.X[row]) for feature in shown] for row in worst]
    table = [[int(rows.number[row]), *some, *x] for row, some, x in zip(worst, cells, inputs, strict=True)]
    return ["row", *head, *(feature.name for feature in shown)], table


def _number_cells(
    rows: Judged, worst: IntArray, labels: Sequence[str] | Sequence[int]
) -> tuple[list[str], list[list[Any]]]:
    column = rows.columns
    wide = [(float(column["lower95"][k]), float(column["upper95"][k])) for k in worst]
    found = [(float(rows.y[k]), float(column["observation_mean"][k])) for k in worst]
    sd = deviation(rows)
    cells: list[list[Any]] = [
        [y, mean, f"{number(low)} to {number(high)}", (y - mean) / float(sd[k]), -float(column["log_density"][k])]
        for k, (y, mean), (low, high) in zip(worst, found, wide, strict=True)
    ]
    for row, k in zip(cells, worst, strict=True):
        if not column["seen"][k]:
            row[0] = f"over {number(row[0])} (censored)"
    return ["observed", "predicted", "95 % interval", "deviations off", "negative log density"], cells


def _class_cells(
    rows: Judged, worst: IntArray, labels: Sequence[str] | Sequence[int]
) -> tuple[list[str], list[list[Any]]]:
    p = rows.columns["probability"]
    names = list(map(str, labels))
    cells = []
    for k in worst:
        true, predicted = int(rows.y[k]), int(p[k].argmax())
        cells.append([names[true], names[predicted], f"{p[k, true]:.2%}", f"{p[k, predicted]:.2%}"])
    return ["true class", "predicted class", "probability of the true one", "of the predicted one"], cells

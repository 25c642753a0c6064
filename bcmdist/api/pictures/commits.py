"""Learning curve of a model: scores of its commits on the same test rows, against rows absorbed."""

from typing import Any

import numpy as np

from bcmdist.api.pictures.curves import commits
from bcmdist.api.pictures.subject import Subject
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.predictive_model import PREDICTORS
from bcmdist.prediction.scored_rows import Judged, score_predictions

MOST_COMMITS = 12
MOST_ROWS = 2000  # rows on which each commit is scored


def learning(subject: Subject) -> Any:
    """Draw scores against rows absorbed, for commits that have not been pruned."""
    numbers = _chosen(subject.snapshot)
    some = subject.judged[: min(len(subject.judged), MOST_ROWS)]
    points, names = [], ("", "")
    for number in numbers:
        found, names = _scored(Snapshot.load(subject.snapshot.url, commit=number), some)
        points.append(found)
    title = f"Learning curve of {len(points)} commits (the committee alone): {len(some):,} rows of {subject.data}"
    return commits(points, title=title, names=names)


def _chosen(snapshot: Snapshot) -> list[int]:
    """Return up to `MOST_COMMITS` commit numbers, about evenly spaced in the logarithm of the rows absorbed.

    Of commits with equal numbers of rows, one is used.
    """
    absorbed: dict[int, int] = {}
    for commit in snapshot.store.history():
        if commit["number"] <= snapshot.commit and commit["rows"]:
            absorbed[commit["rows"]] = commit["number"]
    if len(absorbed) < 2:
        raise InvalidOption(
            f"--what learning: expected commits that have absorbed different numbers of rows, {snapshot.url} holds "
            f"{len(absorbed)}; ingest data piece by piece (--commit-every), or choose another picture"
        )
    rows = np.array(sorted(absorbed))
    targets = np.geomspace(rows[0], rows[-1], MOST_COMMITS)
    return [absorbed[n] for n in np.unique(rows[np.abs(rows[:, None] - targets).argmin(axis=0)]).tolist()]


def _scored(snapshot: Snapshot, rows: Judged) -> tuple[tuple[float, ...], tuple[str, str]]:
    """Return (rows absorbed, two scores each followed by its standard error), and the names of the two scores."""
    model = snapshot.model
    found = score_predictions(PREDICTORS["committee"].of_snapshot(snapshot), rows.X, rows.obs, rows.number)
    loss = -found.columns["log_density"]
    kind = model.likelihood.kind_of_target
    if kind == "classes":
        other, name = (
            (found.columns["probability"].argmax(axis=1) != rows.y).astype(float),
            "share of rows that are wrong",
        )
    elif kind == "events":
        other, name = found.columns["deviance"], "mean deviance"
    else:
        squares = (rows.y - found.columns["observation_mean"]) ** 2
        root, error = _mean(squares)
        return (snapshot.committee.total.rows, *_mean(loss), np.sqrt(root), 0.5 * error / np.sqrt(root)), (LOSS, "RMSE")
    return (snapshot.committee.total.rows, *_mean(loss), *_mean(other)), (LOSS, name)


LOSS = "mean negative log density (nats)"


def _mean(values: FloatArray) -> tuple[float, float]:
    return values.mean(), values.std() / np.sqrt(max(1, len(values) - 1))

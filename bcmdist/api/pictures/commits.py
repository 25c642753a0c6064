"""A picture of what a model has learned: scores of its commits on the same rows, which it has not absorbed."""

from typing import Any

import numpy as np

from bcmdist.api.pictures.curves import commits
from bcmdist.api.pictures.subject import Subject
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.prediction.predictors import PREDICTORS
from bcmdist.prediction.scored_rows import score_predictions

MOST_COMMITS = 12
MOST_ROWS = 2000  # on which each is scored


def learning(subject: Subject) -> Any:
    """A figure of scores against rows absorbed, of commits that are still there."""
    numbers = _chosen(subject.snapshot)
    some = subject.judged[: min(len(subject.judged), MOST_ROWS)]
    points, names = [], ("", "")
    for number in numbers:
        found, names = _scored(Snapshot.load(subject.snapshot.url, commit=number), some)
        points.append(found)
    told = f"Learning curve of {len(points)} commits (the committee alone): {len(some):,} rows of {subject.data}"
    return commits(points, title=told, names=names)


def _chosen(snapshot):
    """Numbers of commits that have absorbed rows, each some other number, spread along its logarithm."""
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
    wanted = np.geomspace(rows[0], rows[-1], MOST_COMMITS)
    return [absorbed[n] for n in np.unique(rows[np.abs(rows[:, None] - wanted).argmin(axis=0)]).tolist()]


def _scored(snapshot, rows):
    """Rows absorbed, and two figures with their standard errors; what these are."""
    model = snapshot.model
    found = score_predictions(PREDICTORS["committee"].of_snapshot(snapshot), rows.X, rows.obs, rows.number)
    loss = -found.columns["log_density"]
    if model.likelihood.categorical:
        other, name = (
            (found.columns["probability"].argmax(axis=1) != rows.y).astype(float),
            "share of rows that are wrong",
        )
    elif model.likelihood.events:
        other, name = found.columns["deviance"], "mean deviance"
    else:
        squares = (rows.y - found.columns["observation_mean"]) ** 2
        root, error = _mean(squares)
        return (snapshot.committee.total.rows, *_mean(loss), np.sqrt(root), 0.5 * error / np.sqrt(root)), (LOSS, "RMSE")
    return (snapshot.committee.total.rows, *_mean(loss), *_mean(other)), (LOSS, name)


LOSS = "mean negative log density (nats)"


def _mean(values):
    return values.mean(), values.std() / np.sqrt(max(1, len(values) - 1))

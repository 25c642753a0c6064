"""Simple baselines that a model should beat, and boosted trees, scored on the same rows.

The simple baselines are the mean, linear least squares, and the mean of the nearest neighbours. All learn from a sample
of the training rows or of a given data set. Numbers are predicted with normal errors, whose variance is estimated from
left-out training rows; known variances of targets weigh rows, and are added to it. Classes are predicted by shares,
counts by rates per exposure, lifetimes by time at risk per event.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from bcmdist.api.comparison.boosted_trees import NAME, Learned, boosted_classes, boosted_numbers, boosted_rates
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.groups import Location
from bcmdist.data.observations import Observations
from bcmdist.data.partition import Partition
from bcmdist.data.rows import read_rows
from bcmdist.data.tables.origin import of_one_file
from bcmdist.errors import BcmdistError
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.scaling import likeliest_variance
from bcmdist.model.targets import model_observations
from bcmdist.prediction.datasets import open_new_rows
from bcmdist.prediction.observation import unit_deviance
from bcmdist.prediction.scored_rows import Judged
from bcmdist.prediction.scoring.ranking import comparable
from bcmdist.prediction.scoring.scores import class_scores

MOST_ROWS = 10_000  # most training rows
MANY_ROWS, RUNS = 1_000_000, 100  # of more rows, so many runs of consecutive ones are read
NEIGHBOURS = 10
LEFT_OUT = 2000  # training rows left out to estimate the error variance of nearest neighbours
BLOCK = 2**22  # distances held in memory at a time
MOST_WORK = 4e10  # multiplications for all distances; beyond, neighbours are searched among fewer training rows
# Lower bounds: of predicted rates and times as a share of their mean, and of class probabilities. Arbitrary.
LEAST_SHARE = 0.05
LEAST_PROBABILITY = 1e-3


@dataclass(frozen=True)
class Training:
    """Rows that baselines learn from."""

    X: np.ndarray
    """scaled inputs, (n, D)"""
    obs: Observations
    """targets and companions, in the units of the model"""
    y: np.ndarray
    """targets in original units; class numbers for classes; (n,)"""
    description: str
    """number and origin of the rows, in words"""

    def __getitem__(self, rows: Any) -> "Training":
        """Select rows by a mask or by position."""
        return replace(self, X=self.X[rows], obs=self.obs[rows], y=self.y[rows])


def training_data(snapshot: Snapshot, train: Location | None) -> Dataset | str:
    """Return the data set that baselines learn from: `train`, default: the training data. If missing, the reason.

    Raises
    ------
    DataNotFound, InvalidData
        `train` cannot be used.
    """
    model = snapshot.model
    url = train or snapshot.facts.survey.data
    if url is None:
        return "the model does not say which rows it was fitted to; give --train TRAIN.zarr"
    try:
        return open_data(url, x=model.x_name, y=model.y_name, schema=model.schema)
    except BcmdistError:
        if train:
            raise
        return f"the rows that the model was fitted to are not at {url} any more; give --train TRAIN.zarr"


def training_rows(snapshot: Snapshot, data: Dataset, *, named: str, seed: int = 0) -> Training:
    """Return a random sample of at most `MOST_ROWS` rows of a data set. `named`: name of the data set, for texts.

    Raises
    ------
    InvalidData, UnsupportedTarget
    """
    rows = sampled(data.rows, seed)
    return training_at(snapshot, data, rows, f"{len(rows):,} of the {data.rows:,} rows of {named}")


def training_at(snapshot: Snapshot, data: Dataset, rows: IntArray, description: str) -> Training:
    """Return the rows of a data set with the given numbers (n,), ascending.

    Raises
    ------
    InvalidData, UnsupportedTarget
    """
    model = snapshot.model
    X, obs = read_rows(data, rows)
    obs = model_observations(model, Partition(data, 0, data.rows), obs, X)
    y = obs.y if model.likelihood.categorical else model.scaling.of_rows(obs).targets(obs.y, model.likelihood.units)
    return Training(model.scaling.inputs(X), obs, y, description)


Compared = tuple[dict[str, dict[str, float]], int | None]
"""scores by name, by the name of a baseline; the number of training rows that these have learned from"""


def compared(
    snapshot: Snapshot, source: Location, *, x: str | None = None, y: str | None = None, seed: int = 0
) -> Compared:
    """Return the scores of each baseline at a random sample of at most `MOST_ROWS` rows of a data set with targets.

    There are none if the training data cannot be read, or are the data to be scored, or if rows observe several
    outputs, each in a unit of its own.
    """
    model, train = snapshot.model, training_data(snapshot, None)
    data = open_new_rows(snapshot, source, x=x, y=y or model.y_name)
    if isinstance(train, str) or same_rows(snapshot.facts.survey.data, source) or model.outputs:
        return {}, None
    number = sampled(data.rows, seed)
    X, obs = read_rows(data, number)
    obs = model_observations(model, Partition(data, 0, data.rows), obs, X)
    targets = obs.y if model.likelihood.categorical else model.scaling.targets(obs.y, model.likelihood.units)
    rows = Judged(number, X, obs, {"y": targets}, model.scaling.training_mean(model.likelihood.units))
    try:
        training = training_rows(snapshot, train, named="the training data")
    except BcmdistError:  # altered since, or lost
        return {}, None
    return baselines(snapshot, training, rows), len(training.y)


def sampled(rows: int, seed: int = 0) -> np.ndarray:
    """Return random row numbers (n,), ascending, at most `MOST_ROWS`: of many rows in runs, each of which lies in one
    chunk or two, so that few chunks are read."""
    rng = np.random.default_rng(seed)
    if rows <= MANY_ROWS:
        return np.sort(rng.choice(rows, min(rows, MOST_ROWS), replace=False))
    length = MOST_ROWS // RUNS
    starts = np.sort(rng.choice(rows // length, RUNS, replace=False)) * length
    return (starts[:, None] + np.arange(length)).ravel()


def same_rows(one: str | None, other: Location) -> bool:
    """Return whether two paths lead to the same data set, or to one that was imported from the same file."""
    if one is None or "://" in str(other):
        return False
    return os.path.realpath(one) == os.path.realpath(other) or of_one_file(one, other)


def baselines(snapshot: Snapshot, training: Training, rows: Judged) -> dict[str, dict[str, float]]:
    """Return the scores of each baseline on `rows`, with the names of the model's scores."""
    likelihood = snapshot.model.likelihood
    kind = {"classes": _classes, "events": _events, "numbers": _numbers}[likelihood.kind_of_target]
    X = snapshot.model.scaling.inputs(rows.X)
    score = kind(snapshot, training, rows)
    found = {name: score(*learn(training, X, score.targets)) for name, learn in LEARNERS.items()}
    trees = score.trees(training.X, X)
    return found if trees is None else found | {NAME: score(*trees)}


# --- Learning ---


def _mean(training: Training, X: FloatArray, targets: FloatArray) -> Learned:
    every = np.arange(len(targets))
    mean = np.average(targets, axis=0, weights=training.obs.reliability)
    return np.tile(mean, (len(X), 1)), np.tile(mean, (len(every), 1)), every


def _linear(training: Training, X: FloatArray, targets: FloatArray) -> Learned:
    """Least squares with an intercept; leave-one-out predictions by leverages (Allen's PRESS)."""
    design, new = (np.column_stack([np.ones(len(Z)), Z]) for Z in (training.X, X))
    root = np.sqrt(training.obs.reliability)[:, None]
    weights = np.linalg.lstsq(root * design, root * targets, rcond=None)[0]
    U, s, _ = np.linalg.svd(root * design, full_matrices=False)
    leverage = (U[:, s > s[0] * 1e-10] ** 2).sum(axis=1).clip(max=0.99)
    fitted = design @ weights
    return new @ weights, targets - (targets - fitted) / (1.0 - leverage)[:, None], np.arange(len(targets))


def _nearest(training: Training, X: FloatArray, targets: FloatArray) -> Learned:
    few = max(NEIGHBOURS + 1, int(MOST_WORK / (len(X) + LEFT_OUT) / X.shape[1]))
    neighbours, values, weight = training.X[:few], targets[:few], training.obs.reliability[:few]
    out = np.arange(min(LEFT_OUT, len(neighbours)))

    def averaged(near: IntArray) -> FloatArray:
        share = weight[near] / weight[near].sum(axis=1, keepdims=True)
        means: FloatArray = np.einsum("mk,mkt->mt", share, values[near])
        return means

    return (
        averaged(nearest(neighbours, X, NEIGHBOURS)),
        averaged(nearest(neighbours, neighbours[out], NEIGHBOURS, but=out)),
        out,
    )


LEARNERS: dict[str, Callable[..., Learned]] = {
    "mean": _mean,
    "linear least squares": _linear,
    "nearest neighbours": _nearest,
}


def nearest(train_X: FloatArray, X: FloatArray, k: int, *, but: IntArray | None = None) -> np.ndarray:
    """Return the indices (m, k) of the k rows of `train_X` (n, D) nearest to each row of X (m, D).

    `but` (m,): for each row of X, the index of a row to exclude.
    """
    k = max(1, min(k, len(train_X) - (but is not None)))  # a single row is its own neighbour
    found, squares = np.empty((len(X), k), np.int64), (train_X**2).sum(axis=1)
    step = max(1, BLOCK // len(train_X))
    for start in range(0, len(X), step):
        some = slice(start, start + step)
        distance = squares - 2.0 * X[some] @ train_X.T  # without |x|^2, which is the same for all `train_X`
        if but is not None:
            distance[np.arange(len(distance)), but[some]] = np.inf
        found[some] = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return found


# --- Scoring ---


@dataclass(frozen=True)
class _Scored:
    """Targets (n, T) that baselines average, and the function that scores the averages."""

    targets: np.ndarray
    score: Callable[..., dict[str, float]]
    trees: Callable[..., Learned | None]
    """what boosted trees predict in place of averages, from inputs of training rows and of new ones"""

    def __call__(self, new: FloatArray, left_out: FloatArray, which: IntArray) -> dict[str, float]:
        return self.score(new, left_out, which)


def _numbers(snapshot: Snapshot, training: Training, rows: Judged) -> _Scored:
    y, square = rows.y, snapshot.model.scaling.length(snapshot.model.likelihood.units) ** 2
    known, weight = square * rows.observed.target_variance, rows.observed.reliability**2

    def score(new: FloatArray, left_out: FloatArray, which: IntArray) -> dict[str, float]:
        error, own = y - new[:, 0], square * training.obs.target_variance[which]
        variance = likeliest_variance(training.y[which] - left_out[:, 0], own) + known
        squares = np.mean(error**2)
        total = np.mean((y - rows.train_mean) ** 2)
        return {
            "rmse": float(np.sqrt(squares)),
            **({"weighted_rmse": float(np.sqrt(np.average(error**2, weights=weight)))} if known.any() else {}),
            "nmse": float(squares / total) if total > 0 else float("nan"),
            "mae": float(np.abs(error).mean()),
            "mnlp": float(0.5 * np.mean(np.log(2.0 * np.pi * variance) + error**2 / variance)),
        }

    def trees(X: FloatArray, new: FloatArray) -> Learned | None:
        found = boosted_numbers(X, training.y, new, weight=training.obs.reliability)
        return found and (found[0][:, None], found[1][:, None], found[2])

    return _Scored(training.y[:, None], score, trees)


def _classes(snapshot: Snapshot, training: Training, rows: Judged) -> _Scored:
    C = len(snapshot.model.class_labels)

    def score(new: FloatArray, *_: Any) -> dict[str, float]:
        p = np.maximum(new, LEAST_PROBABILITY)
        p /= p.sum(axis=1, keepdims=True)
        found = class_scores(rows.y, {"probability": p}).summary()
        return {name: found[name] for name in ("accuracy", "log_loss", "brier", "auc")}

    return _Scored(
        (training.y[:, None] == np.arange(C)).astype(float),
        score,
        lambda X, new: boosted_classes(X, training.y, C, new),
    )


def _events(snapshot: Snapshot, training: Training, rows: Judged) -> _Scored:
    """Counts and lifetimes: average the target and its denominator (exposure, trials, or events) separately."""
    likelihood, model = snapshot.model.likelihood, snapshot.model
    timed = "event" in likelihood.companions
    size = training.obs.event if timed else training.obs.exposure * np.maximum(training.obs.trials, 1.0)
    total = max(size.sum(), 1.0 if timed else np.finfo(float).tiny)  # at least one event, where all are censored
    overall, least = training.obs.y.sum() / total, LEAST_SHARE * total / len(size)
    obs: Any = rows.obs

    def score(new: FloatArray, *_: Any) -> dict[str, float]:
        rate = np.maximum(new[:, 0], 0.0) / np.maximum(new[:, 1], least)
        rate = np.clip(rate, LEAST_SHARE * overall, None)
        trials = np.maximum(obs.trials, 1.0)
        if "trials" in likelihood.companions:
            rate = np.clip(rate, LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY)
        mean = rate if timed else rate * obs.exposure * trials
        predicted = model.scaling.original("observation_mean", mean, likelihood.units)
        ranked = comparable(rows.y / (obs.exposure * trials), obs.event, mean / (obs.exposure * trials), rows.number)
        return {
            "deviance": float(
                unit_deviance(cast(OneProcess, likelihood), replace(obs, weight=np.ones(len(obs))), mean).mean()
            ),
            "concordance": ranked.concordance(len(rows))[0],
            "mae": float(np.abs(rows.y - predicted).mean()),
        }

    def trees(X: FloatArray, new: FloatArray) -> Learned | None:
        """Counts per exposure; of lifetimes the events per time at risk, the exact likelihood of constant hazards."""
        y, typical = training.obs.y, size.mean()
        found = boosted_rates(X, size, y, new) if timed else boosted_rates(X, y, size, new)
        if found is None:
            return None
        pairs = [
            np.column_stack([1.0 / p, np.ones(len(p))] if timed else [p, np.ones(len(p))]) * typical for p in found[:2]
        ]
        return pairs[0], pairs[1], found[2]

    return _Scored(np.column_stack([training.obs.y, size]), score, trees)

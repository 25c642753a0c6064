"""Tasks of partitions: predict their rows, score them, or check that a model can have them."""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.reorder.external_sort import Run, Shuffle
from bcmdist.data.rows import row_numbers
from bcmdist.data.writing import write_rows
from bcmdist.model.model import Model
from bcmdist.model.targets import check_support, model_observations
from bcmdist.prediction.fitted import load_fitted
from bcmdist.prediction.row_predictor import StoredPredictor
from bcmdist.prediction.scoring.judged import Judged, nothing
from bcmdist.prediction.scoring.ranking import scattered
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.uncertain.input_uncertainty import InputUncertainty
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class Check:
    """Refuse observations that a model cannot have; returns the number of rows."""

    fitted: Reference

    def __call__(self, part, rows) -> int:
        model = load_fitted(self.fitted).model
        if part.data.y is None:
            _check_companions(model, part, rows)
        else:
            model_observations(model, part, rows.obs)
        return part.rows


@dataclass(frozen=True)
class Score:
    """Totals of the scores of the rows of a partition."""

    predictor: StoredPredictor
    way: str | None = None
    """in which uncertain inputs are averaged over (`WAYS`); None where they are certain"""

    def __call__(self, part, rows) -> Scores:
        predictor = self.predictor.load()
        number = _numbers(self, part)
        obs = model_observations(predictor.model, part, rows.obs)
        return predictor.score(Judged(number, rows.X, obs, around=input_uncertainty_of(rows, self.way))).scores()


@dataclass(frozen=True)
class ScoredRows:
    """The rows of a partition beside their predictions: about a share of them, by their numbers in the data set, so
    that any partitioning of it gives the same."""

    predictor: StoredPredictor
    share: float
    way: str | None = None
    """as of `Score`"""

    def __call__(self, part, rows) -> Judged:
        predictor = self.predictor.load()
        number = _numbers(self, part)
        some = share_of(number, self.share)
        obs = model_observations(predictor.model, part, rows.obs)
        if not some.any():
            return nothing(predictor.model.inputs)
        around = input_uncertainty_of(rows, self.way)
        return predictor.score(Judged(number[some], rows.X[some], obs[some], around=around and around[some]))


@dataclass(frozen=True)
class Predict:
    """Write the predictions of a partition to an output group; returns the number of rows.

    Each partition owns whole chunks of the output, so that no two tasks write to one chunk, and
    writing twice writes the same.
    """

    predictor: StoredPredictor
    out: str
    way: str | None = None
    """as of `Score`"""

    def __call__(self, part, rows) -> int:
        predictor = self.predictor.load()
        _check_companions(predictor.model, part, rows)
        around = input_uncertainty_of(rows, self.way)
        write_rows(self.out, part.start, predictor.predict(rows.X, rows.obs, around=around))
        return part.rows


@dataclass(frozen=True)
class PredictInCells:
    """Write the predictions of a partition in the order of cells as a run of the rows they stand for."""

    predictor: StoredPredictor
    shuffle: Shuffle

    def __call__(self, part, rows) -> int:
        row, predictor = row_numbers(part), self.predictor.load()
        self.shuffle.write(f"{part.start}-{part.stop}", Run(row, row, predictor.predict(rows.X, rows.obs)))
        return part.rows


def input_uncertainty_of(rows, way: str | None) -> InputUncertainty | None:
    """By how much the inputs of rows of a partition may be off; None where they are certain."""
    return None if way is None or rows.X_variance is None else InputUncertainty(rows.X_variance, way)


def share_of(number, share) -> np.ndarray:
    """Whether each row belongs to about a share of them all, by their numbers, (n,)."""
    return scattered(number) <= np.uint64(min(share * 2.0**64, 2.0**64 - 2.0**11))  # the next below 2^64


def _numbers(task, part):
    """Of the rows of a partition in their data set, (n,)."""
    return row_numbers(part) if task.predictor.in_cells and not task.way else np.arange(part.start, part.stop)


def _check_companions(model: Model, part, rows):
    """Targets are not looked at."""
    if {"exposure", "trials"} & set(model.likelihood.companions):
        check_support(model.likelihood, part, replace(rows.obs, y=np.zeros(part.rows)))

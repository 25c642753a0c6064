"""Predictions at the rows of a partition, and their scores."""

import functools
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bcmdist.data.reorder.external_sort import Run, Shuffle
from bcmdist.data.rows import row_numbers
from bcmdist.data.writing import write_rows
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.targets import check_support, model_observations
from bcmdist.prediction.calibration import uncalibrated
from bcmdist.prediction.finite import finite_latent, refuse_nan
from bcmdist.prediction.fitted import load_fitted
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.latent import marginal
from bcmdist.prediction.observation import observe, predictive, unit_deviance
from bcmdist.prediction.scoring.judged import Judged, nothing
from bcmdist.prediction.scoring.pit import pit_ranges
from bcmdist.prediction.scoring.ranking import scattered
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.uncertain.input_uncertainty import InputUncertainty, Latent
from bcmdist.prediction.unseen import latent_over_categories
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class Check:
    """Refuse observations that a model cannot have; returns the number of rows."""

    fitted: Reference

    def __call__(self, part, rows) -> int:
        fitted = load_fitted(self.fitted)
        if part.data.y is None:
            _check_companions(fitted, part, rows)
        else:
            model_observations(fitted.model, part, rows.obs)
        return part.rows


@dataclass(frozen=True)
class Score:
    """Totals of the scores of a partition under a fitted model."""

    fitted: Reference
    predictor: type[Predictor]
    way: str | None = None
    """in which uncertain inputs are averaged over (`WAYS`); None where they are certain"""

    def __call__(self, part, rows) -> Scores:
        fitted = self.predictor.of_commit(self.fitted)
        number = row_numbers(part) if fitted.in_cells and not self.way else np.arange(part.start, part.stop)
        around = input_uncertainty_of(rows, self.way)
        return score_rows(fitted, rows.X, model_observations(fitted.model, part, rows.obs), number, around)


def input_uncertainty_of(rows, way: str | None) -> InputUncertainty | None:
    """By how much the inputs of rows of a partition may be off; None where they are certain."""
    return None if way is None or rows.X_variance is None else InputUncertainty(rows.X_variance, way)


def score_rows(fitted: Predictor, X, obs, number, around: InputUncertainty | None = None) -> Scores:
    """Scores of the predictions at rows of X against observations in the units of the model, in original units.

    `number`: of the rows in their data set, (n,).
    """
    return score_predictions(fitted, X, obs, number, around).scores()


@dataclass(frozen=True)
class ScoredRows:
    """The rows of a partition beside their predictions under a fitted model: about a share of them, by their numbers
    in the data set, so that any partitioning of it gives the same."""

    fitted: Reference
    predictor: type[Predictor]
    share: float
    way: str | None = None
    """as of `Score`"""

    def __call__(self, part, rows) -> Judged:
        fitted = self.predictor.of_commit(self.fitted)
        number = row_numbers(part) if fitted.in_cells and not self.way else np.arange(part.start, part.stop)
        some = share_of(number, self.share)
        obs = model_observations(fitted.model, part, rows.obs)
        if not some.any():
            return nothing(fitted.model.inputs)
        around = input_uncertainty_of(rows, self.way)
        return score_predictions(fitted, rows.X[some], obs[some], number[some], around and around[some])


def share_of(number, share) -> np.ndarray:
    """Whether each row belongs to about a share of them all, by their numbers, (n,)."""
    return scattered(number) <= np.uint64(min(share * 2.0**64, 2.0**64 - 2.0**11))  # the next below 2^64


def score_again(fitted: Predictor, rows: Judged) -> Judged:
    """The same rows, perhaps with other inputs, beside new predictions."""
    return score_predictions(fitted, rows.X, rows.obs, rows.number, rows.around)


def score_predictions(fitted: Predictor, X, obs, number, around: InputUncertainty | None = None) -> Judged:
    """Rows of X and observations in the units of the model beside what is predicted for them, in original units."""
    model, scaling, units = fitted.model, fitted.model.scaling, fitted.model.likelihood.units
    inputs = model.scaling.inputs(X)
    (mean, variance), errors = _latent(fitted, inputs, around), _errors(fitted, inputs)
    seen = predictive_of(fitted, mean, variance, obs, **errors)
    if model.likelihood.categorical:
        own = np.take_along_axis(seen["probability"], obs.y.astype(int)[:, None], axis=1)[:, 0]
        with np.errstate(divide="ignore"):
            return Judged(number, X, obs, seen | {"y": obs.y, "log_density": np.log(own)}, around=around)
    likelihood = cast(OneProcess, model.likelihood)
    said = predictive(likelihood, mean, variance, obs, **errors)
    densities = likelihood.densities(replace(obs, weight=np.ones(len(obs))))  # of a censored row there is none
    found = {"log_density": said.log_density(obs) + densities * scaling.log_jacobian(units)}
    found |= vars(pit_ranges(likelihood, said, obs))
    if likelihood.events:
        found["deviance"] = unit_deviance(likelihood, obs, seen["observation_mean"])
    else:
        found["crps"] = said.crps(obs.y) * scaling.length(units)
    named = {name: scaling.original(name, values, units) for name, values in seen.items()}
    found["y"] = scaling.targets(obs.y, units)
    return Judged(number, X, obs, named | found, scaling.training_mean(units), around)


@dataclass(frozen=True)
class Predict:
    """Write the predictions of a partition to an output group; returns the number of rows.

    Each partition owns whole chunks of the output, so that no two tasks write to one chunk, and
    writing twice writes the same.
    """

    fitted: Reference
    predictor: type[Predictor]
    out: str
    way: str | None = None
    """as of `Score`"""

    def __call__(self, part, rows) -> int:
        fitted = self.predictor.of_commit(self.fitted)
        _check_companions(fitted, part, rows)
        write_rows(
            self.out, part.start, predict_rows(fitted, rows.X, rows.obs, around=input_uncertainty_of(rows, self.way))
        )
        return part.rows


@dataclass(frozen=True)
class PredictInCells:
    """Write the predictions of a partition in the order of cells as a run of the rows they stand for."""

    fitted: Reference
    predictor: type[Predictor]
    shuffle: Shuffle

    def __call__(self, part, rows) -> int:
        fitted = self.predictor.of_commit(self.fitted)
        row = row_numbers(part)
        self.shuffle.write(f"{part.start}-{part.stop}", Run(row, row, predict_rows(fitted, rows.X, rows.obs)))
        return part.rows


def _check_companions(fitted, part, rows):
    """Targets are not looked at."""
    if {"exposure", "trials"} & set(fitted.model.likelihood.companions):
        check_support(fitted.model.likelihood, part, replace(rows.obs, y=np.zeros(part.rows)))


def _latent(fitted, inputs, around):
    return finite_latent(*(latent_over_categories(fitted, inputs) if around is None else around.latent(fitted, inputs)))


def _errors(fitted, inputs) -> dict:
    """What is known of the errors at scaled inputs, for `predictive`."""
    spread = fitted.spread
    return {"shape": spread.shape, "widening": functools.partial(spread.widening, inputs) if spread.scale else None}


def predictive_of(fitted: Predictor, mean, variance, obs, **errors) -> dict[str, np.ndarray]:
    """What latent beliefs say of observations in the units of the model, by name."""
    likelihood = fitted.model.likelihood
    if likelihood.needs_calibration or fitted.calibration is not None:
        calibration = fitted.calibration or uncalibrated(2 if mean.ndim == 1 else mean.shape[1])
        p = calibration.probability(mean, marginal(variance))
    elif likelihood.per_class:
        p = likelihood.class_probability(mean, variance)
    else:
        return observe(likelihood, mean, variance, obs, **errors)
    return {"probability": p, "label": p.argmax(axis=1)}


def with_class_names(model, said) -> dict[str, np.ndarray]:
    """Predictions whose labels are texts where the classes have names."""
    names = model.schema.classes
    return said | {"label": np.array(names)[said["label"]]} if names and "label" in said else said


def predict_rows(fitted: Predictor, X, obs, quantiles=(), around: Latent | None = None) -> dict[str, np.ndarray]:
    """All predicted quantities at rows of X in original units, by name; `quantile0.9` for 0.9 among `quantiles`.

    `obs`: of the observations to predict, weight, exposure and trials; the targets are not looked at.
    """
    model = fitted.model
    likelihood, units = model.likelihood, model.likelihood.units
    inputs, obs = model.scaling.inputs(X), model.scaling.observations(obs, units)
    (mean, variance), errors = _latent(fitted, inputs, around), _errors(fitted, inputs)
    seen = predictive_of(fitted, mean, variance, obs, **errors)
    named = {"mean": mean, "variance": marginal(variance)} | seen
    if quantiles:
        said = predictive(likelihood, mean, variance, obs, **errors)
        named |= {f"quantile{q:g}": said.quantile(q) for q in quantiles}
    out = {name: model.scaling.original(name, values, units) for name, values in named.items()}
    refuse_nan(out)
    if model.classes is not None:
        out["label"] = np.asarray(model.classes, dtype=int)[out["label"]]
    return out

"""Predictions at the rows of a partition, and their scores."""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.reorder.external_sort import Run, Shuffle
from bcmdist.data.rows import row_numbers
from bcmdist.data.writing import write_rows
from bcmdist.model.likelihoods import Likelihood, Softmax, task_of
from bcmdist.model.targets import check_support, model_observations
from bcmdist.prediction.calibration import uncalibrated
from bcmdist.prediction.finite import finite_latent, refuse_nan
from bcmdist.prediction.fitted import load_fitted
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.latent import marginal
from bcmdist.prediction.observation import crps, observe, predictive, unit_deviance
from bcmdist.prediction.scoring.pit import pit_ranges
from bcmdist.prediction.scoring.scores import Scores, class_scores, event_scores, real_scores
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

    def __call__(self, part, rows) -> Scores:
        fitted = self.predictor.of_commit(self.fitted)
        number = row_numbers(part) if fitted.in_cells else np.arange(part.start, part.stop)
        return score_rows(fitted, rows.X, model_observations(fitted.model, part, rows.obs), number)


def score_rows(fitted: Predictor, X, obs, number) -> Scores:
    """Scores of the predictions at rows of X against observations in the units of the model, in original units.

    `number`: of the rows in their data set, (n,).
    """
    model, kind = fitted.model, fitted.model.likelihood.scaling
    mean, variance = finite_latent(*fitted.latent(model.scaling.inputs(X)))
    seen = predictive_of(fitted, mean, variance, obs)
    task = task_of(model.likelihood.name)
    if task == "classification":
        return class_scores(obs.y, seen)
    scale = model.scaling.y_scale if kind in ("affine", "scale") else 1.0
    assert isinstance(model.likelihood, Likelihood)
    said = predictive(model.likelihood, mean, variance, obs)
    jacobian = model.scaling.log_jacobian(kind)
    log_density = said.log_density(obs) + (obs.event * jacobian if task == "lifetimes" else jacobian)
    where = pit_ranges(model.likelihood, said, obs)
    named = {name: model.scaling.original(name, values, kind) for name, values in seen.items()}
    if task != "regression":
        deviance = unit_deviance(model.likelihood, obs, seen["observation_mean"])
        return event_scores(replace(obs, y=obs.y * scale), named, log_density, deviance, where, number=number)
    y = obs.y * scale + model.scaling.y_mean
    train_mean = model.scaling.y_scale if kind == "scale" else model.scaling.y_mean
    return real_scores(y, named, log_density, where, train_mean=train_mean, crps=crps(said, obs.y) * scale)


@dataclass(frozen=True)
class Predict:
    """Write the predictions of a partition to an output group; returns the number of rows.

    Each partition owns whole chunks of the output, so that no two tasks write to one chunk, and
    writing twice writes the same.
    """

    fitted: Reference
    predictor: type[Predictor]
    out: str

    def __call__(self, part, rows) -> int:
        fitted = self.predictor.of_commit(self.fitted)
        _check_companions(fitted, part, rows)
        write_rows(self.out, part.start, predict_rows(fitted, rows.X, rows.obs))
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


def predictive_of(fitted: Predictor, mean, variance, obs):
    """What latent beliefs say of observations in the units of the model, by name."""
    likelihood = fitted.model.likelihood
    if likelihood.needs_calibration or fitted.calibration is not None:
        calibration = fitted.calibration or uncalibrated(2 if mean.ndim == 1 else mean.shape[1])
        p = calibration.probability(mean, marginal(variance))
    elif isinstance(likelihood, Softmax):
        p = likelihood.class_probability(mean, variance)
    else:
        assert isinstance(likelihood, Likelihood), "regression on one-hot targets is calibrated"
        return observe(likelihood, mean, variance, obs)
    return {"probability": p, "label": p.argmax(axis=1)}


def with_class_names(model, said):
    """Predictions whose labels are texts where the classes have names."""
    names = model.schema.classes
    return said | {"label": np.array(names)[said["label"]]} if names and "label" in said else said


def predict_rows(fitted: Predictor, X, obs, quantiles=()):
    """All predicted quantities at rows of X in original units, by name; `quantile0.9` for 0.9 among `quantiles`.

    `obs`: of the observations to predict, weight, exposure and trials; the targets are not looked at.
    """
    model = fitted.model
    kind = model.likelihood.scaling
    mean, variance = finite_latent(*fitted.latent(model.scaling.inputs(X)))
    seen = predictive_of(fitted, mean, variance, model.scaling.observations(obs, kind))
    named = {"mean": mean, "variance": marginal(variance)} | seen
    if quantiles:
        assert isinstance(model.likelihood, Likelihood), "classes have no quantiles"
        said = predictive(model.likelihood, mean, variance, model.scaling.observations(obs, kind))
        named |= {f"quantile{q:g}": said.quantile(q) for q in quantiles}
    out = {name: model.scaling.original(name, values, kind) for name, values in named.items()}
    refuse_nan(out)
    if model.classes is not None:
        out["label"] = np.asarray(model.classes, dtype=int)[out["label"]]
    return out

"""Predictions and scores of rows in original units, from a predictor of f.

NaN predictions raise an error that names the first such row.

`Judged` holds rows with their predictions and scores, the basis of score totals and plots: `+` concatenates rows, and
an object without rows is the identity.
"""

import functools
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from bcmdist.data.observations import Observations, joined, unweighted
from bcmdist.errors import InvalidOption, NotFinite
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.model import Model
from bcmdist.prediction.errors.platt_scaling import uncalibrated
from bcmdist.prediction.exceedance import exceedance
from bcmdist.prediction.interface import Latent, LatentOfRows, LatentPredictor
from bcmdist.prediction.latent import marginal
from bcmdist.prediction.observation import Scaled, observe, predictive, unit_deviance
from bcmdist.prediction.scoring.pit import Places, pit_ranges
from bcmdist.prediction.scoring.scores import Scores, class_scores, event_scores, real_scores
from bcmdist.prediction.terms import refuse_terms, term_names
from bcmdist.prediction.transformed_moments import transformed_crps, transformed_moments
from bcmdist.prediction.unseen import latent_over_categories, unseen_rows


@dataclass(frozen=True)
class Judged:
    """n rows in original units with predictions and scores; the fields are empty if there are no rows."""

    number: np.ndarray
    """row numbers in the data set, (n,)"""
    X: np.ndarray
    """(n, D)"""
    obs: Observations | None
    """in the units of the model"""
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    """(n,) or (n, C) by name: `y` (class numbers for classes), the predicted columns and `log_density`; for numbers
    also `low`, `high` and `seen` of `Places`, and `crps` of measurements or `deviance` of counts and lifetimes"""
    train_mean: float = float("nan")
    """mean of the training targets"""
    uncertainty: LatentOfRows | None = None
    """uncertainty of X; None if the inputs are certain"""

    def __len__(self) -> int:
        return len(self.number)

    def __add__(self, other: "Judged") -> "Judged":
        if not len(self) or not len(other):
            return self if len(self) else other
        assert self.obs is not None
        assert other.obs is not None
        number, X = (np.concatenate(pair) for pair in ((self.number, other.number), (self.X, other.X)))
        columns = {name: np.concatenate([values, other.columns[name]]) for name, values in self.columns.items()}
        a, b = self.uncertainty, other.uncertainty
        uncertainty = None if a is None or b is None else a + b
        return Judged(number, X, joined(self.obs, other.obs), columns, self.train_mean, uncertainty)

    def __getitem__(self, rows) -> "Judged":
        """Select rows by position."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        obs, uncertainty = self.obs and self.obs[rows], self.uncertainty and self.uncertainty[rows]
        return Judged(self.number[rows], self.X[rows], obs, columns, self.train_mean, uncertainty)

    @property
    def y(self) -> np.ndarray:
        """Targets, (n,)."""
        return self.columns.get("y", np.empty(0))

    @property
    def observed(self) -> Observations:
        """Observations with targets in original units and companions in the units of the model."""
        assert self.obs is not None
        return replace(self.obs, y=self.y)

    @property
    def where(self) -> Places:
        """PIT ranges of the numbers in their predictive distributions."""
        return Places(self.columns["low"], self.columns["high"], self.columns["seen"])

    def scores(self) -> Scores:
        """Score totals over the rows."""
        column = self.columns
        if "probability" in column and "low" not in column:
            return class_scores(self.y, column)
        if "deviance" in column:
            costs = column["log_density"], column["deviance"]
            return event_scores(self.observed, column, *costs, self.where, number=self.number)
        found: dict = {"train_mean": column.get("train_mean", self.train_mean), "crps": column["crps"]}
        found["reliability"] = self.observed.reliability
        return real_scores(self.y, column, column["log_density"], self.where, **found)


def scores_by_output(model: Model, rows: Judged) -> Scores:
    """`Judged.scores`, with those of each output where rows observe several."""
    if not model.outputs or rows.obs is None:
        return rows.scores()
    number = rows.obs.output
    each = {name: rows[number == k].scores() for k, name in enumerate(model.outputs) if np.any(number == k)}
    return rows.scores().with_outputs(each)


def nothing(inputs: int) -> Judged:
    """An empty `Judged` with `inputs` input columns."""
    return Judged(np.empty(0, np.int64), np.empty((0, inputs)), None)


def finite_latent(mean, variance) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of f unchanged; raise `NotFinite` if a value is not finite."""
    for name, values in (("mean", mean), ("variance", variance)):
        _refuse(name, values, ~np.isfinite(values))
    return mean, variance


def refuse_nan(predictions) -> None:
    """Raise `NotFinite` if a predicted quantity is NaN.

    Infinite values are allowed: heavy tails may have infinite moments.
    """
    for name, values in predictions.items():
        _refuse(name, values, np.isnan(values))


def _refuse(name, values, wrong):
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise NotFinite(
            f"prediction: expected numbers, got {name} {values[tuple(place)]} at row {place[0]} of {len(values)} "
            f"({int(wrong.sum())} such); check that inputs are in the range of the training data, else "
            "restore the model from a copy"
        )


def score_rows(fitted: LatentPredictor, X, obs, number, uncertainty: LatentOfRows | None = None) -> Scores:
    """Score totals, in original units, of the predictions at rows of X against observations in the units of the model.

    `number`: numbers of the rows in their data set, (n,).
    """
    return score_predictions(fitted, X, obs, number, uncertainty).scores()


def score_predictions(fitted: LatentPredictor, X, obs, number, uncertainty: LatentOfRows | None = None) -> Judged:
    """Predictions and scores, in original units, at rows of X with observations in the units of the model."""
    return score_latent(
        fitted, X, obs, number, _latent(fitted, fitted.model.scaling.inputs(X), uncertainty), uncertainty
    )


def score_latent(fitted: LatentPredictor, X, obs, number, latent, uncertainty: LatentOfRows | None = None) -> Judged:
    """As `score_predictions`, from mean and variance of f at the rows."""
    model, scaling, units = fitted.model, fitted.model.scaling.of_rows(obs), fitted.model.likelihood.units
    (mean, variance), errors = latent, _errors(fitted, model.scaling.inputs(X))
    seen = predictive_of(fitted, mean, variance, obs, **errors)
    if model.likelihood.categorical:
        own = np.take_along_axis(seen["probability"], obs.y.astype(int)[:, None], axis=1)[:, 0]
        with np.errstate(divide="ignore"):
            return Judged(number, X, obs, seen | {"y": obs.y, "log_density": np.log(own)}, uncertainty=uncertainty)
    likelihood = cast(OneProcess, model.likelihood)
    predicted = predictive(likelihood, mean, variance, obs, **errors)
    densities = likelihood.densities(replace(obs, weight=np.ones(len(obs))))  # 0 for a censored row
    y = scaling.targets(obs.y, units)
    found = {"log_density": predicted.log_density(obs) + densities * scaling.log_jacobians(y, units)}
    found |= vars(pit_ranges(likelihood, predicted, obs))
    if likelihood.events:
        found["deviance"] = unit_deviance(likelihood, obs, seen["observation_mean"])
    elif isinstance(predicted, Scaled) and scaling.transform:
        found["crps"] = transformed_crps(predicted, y, scaling, units)
    else:
        found["crps"] = predicted.crps(obs.y) * scaling.length(units)
    if scaling.outputs:
        found["train_mean"] = np.array(scaling.outputs.training_mean)[obs.output]
    found |= {"y": y}
    whole = model.scaling.training_mean(units)
    return Judged(number, X, obs, _original(model, scaling, seen, predicted) | found, whole, uncertainty)


def _original(model, scaling, named, predicted=None) -> dict[str, np.ndarray]:
    """Predicted quantities by name, in original units; `predicted`: distribution of observations, in model units.

    `scaling`: that of the rows, `Scaling.of_rows`.
    """
    units = model.likelihood.units
    found = {name: scaling.original(name, values, units) for name, values in named.items()}
    if isinstance(predicted, Scaled) and scaling.transform:
        found["observation_mean"], found["observation_variance"] = transformed_moments(predicted, scaling)
    return found


def _latent(fitted, inputs, uncertainty):
    found = latent_over_categories(fitted, inputs) if uncertainty is None else uncertainty.latent(fitted, inputs)
    return finite_latent(*found)


def _errors(fitted, inputs) -> dict:
    """Error shape and variance factors at scaled inputs, as keyword arguments of `predictive`."""
    found = fitted.error_distribution
    widening = None if found.constant else functools.partial(found.widening, inputs)
    return {"shape": found.shape, "widening": widening}


def predictive_of(fitted: LatentPredictor, mean, variance, obs, **errors) -> dict[str, np.ndarray]:
    """Predicted columns by name, in the units of the model, from latent means and variances."""
    likelihood = fitted.model.likelihood
    if likelihood.needs_calibration or fitted.calibration is not None:
        calibration = fitted.calibration or uncalibrated(2 if mean.ndim == 1 else mean.shape[1])
        p = calibration.probability(mean, marginal(variance))
    elif likelihood.per_class:
        p = likelihood.class_probability(mean, variance)
    else:
        return observe(likelihood, mean, variance, obs, **errors)
    return {"probability": p, "label": p.argmax(axis=1)}


def with_class_names(model, predicted) -> dict[str, np.ndarray]:
    """`predicted` with labels replaced by class names, if the classes have names."""
    names = model.schema.classes
    return predicted | {"label": np.array(names)[predicted["label"]]} if names and "label" in predicted else predicted


def predict_rows(
    fitted: LatentPredictor, X, obs, quantiles=(), uncertainty: Latent | None = None, above=()
) -> dict[str, np.ndarray]:
    """All predicted quantities at rows of X in original units, by name; `quantile0.9` for 0.9 in `quantiles`, and
    `above2.5` for 2.5 in `above`.

    `obs`: weight, exposure and trials of the observations to predict; its targets are ignored.
    """
    model = fitted.model
    likelihood, units = model.likelihood, model.likelihood.units
    given, inputs, obs = obs, model.scaling.inputs(X), model.scaling.observations(obs, units, X)
    (mean, variance), errors = _latent(fitted, inputs, uncertainty), _errors(fitted, inputs)
    seen = predictive_of(fitted, mean, variance, obs, **errors)
    named, predicted = {"mean": mean, "variance": _within(marginal(variance), seen, model)} | seen, None
    if quantiles or model.scaling.transform:
        predicted = predictive(likelihood, mean, variance, obs, **errors)
        named |= {f"quantile{q:g}": predicted.quantile(q) for q in quantiles}
    out = _original(model, model.scaling.of_rows(obs), named, predicted)
    out |= exceedance(model, X, mean, named["variance"], given, above)
    refuse_nan(out)
    if model.classes is not None:
        out["label"] = np.asarray(model.classes, dtype=int)[out["label"]]
    return out


def _within(variance, seen, model):
    """Variance of the latent function, (n,) or (n, C), not above that of the observation, which contains it.

    Measured errors may be smaller than predicted ones: then the variance of observations is lowered, and would be
    below that of the function.
    """
    return np.minimum(variance, seen["observation_variance"]) if model.normal else variance


@dataclass(frozen=True)
class Marginals:
    """Predicted moments at n points, in the units of the model; of one process."""

    mean: np.ndarray
    """of f, (n,)"""
    variance: np.ndarray
    """of f, as `predict_rows` reports it, (n,)"""
    shrink: np.ndarray
    """factor of the standard deviation of f by the committee that gives `variance`, at most 1, (n,); see `_within`"""
    noise: np.ndarray
    """variance of an observation given f, (n,); 0 unless the likelihood is normal"""


def marginals(fitted: LatentPredictor, inputs, obs) -> Marginals:
    """Marginals at scaled inputs (n, D), for observations with the weights of `obs`."""
    mean, variance = _latent(fitted, inputs, None)
    if not fitted.model.likelihood.normal:
        return Marginals(mean, variance, np.ones(len(mean)), np.zeros(len(mean)))
    total = predictive(fitted.model.likelihood, mean, variance, obs, **_errors(fitted, inputs)).variance
    lowered = np.minimum(variance, total)
    shrink = np.sqrt(lowered / np.maximum(variance, np.finfo(float).tiny))
    return Marginals(mean, lowered, np.where(variance > 0.0, shrink, 1.0), total - lowered)


def predict_terms(predictor: LatentPredictor, X) -> dict[str, np.ndarray]:
    """Terms at rows of X (n, D), in original units: `term` (T,), `term_mean` and `term_variance`, (n, T) or (n, T, C).

    The means add up to the predicted `mean`; the last one is that of the prior mean, with the mean of the targets.

    Raises
    ------
    InvalidOption
        The model has no terms, or a row has a level that training lacks.
    """
    model = predictor.model
    refuse_terms(model)
    inputs = model.scaling.inputs(X)
    if len(unseen := np.flatnonzero(unseen_rows(model, inputs))):
        raise InvalidOption(
            f"terms: expected levels of training in all rows, got another one at row {unseen[0]} ({len(unseen)} such "
            "rows), whose prediction is an average over levels; leave these rows out"
        )
    mean, variance = predictor.terms(inputs)
    scaling = model.scaling.of_rows(model.scaling.with_outputs(unweighted(np.zeros(len(X))), X))
    units, along = model.likelihood.units, (-1, *[1] * (mean.ndim - 1))
    length = np.reshape(units.latent_length(scaling.y_scale), along)
    mean, variance = mean * length, variance * length**2
    mean[:, -1] += np.reshape(scaling.original("mean", np.zeros(1), units), (-1, *[1] * (mean.ndim - 2)))
    return {"term": np.array(term_names(model)), "term_mean": mean, "term_variance": variance}

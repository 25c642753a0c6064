"""Losses of the mean of the kept rows as a prediction of the rows left out, which a model should beat.

Numbers are predicted with the normal distribution of the mean and variance of the kept targets, classes with their
shares, counts and lifetimes with the rate of all kept rows.
"""

from dataclasses import replace
from typing import Any, cast

import numpy as np
from scoringrules import crps_normal

from bcmdist.api.comparison.baselines import LEAST_PROBABILITY
from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.model import Model
from bcmdist.prediction.observation import unit_deviance
from bcmdist.prediction.scored_rows import Judged


def mean_losses(model: Model, kept: Observations, rows: Judged) -> dict[str, np.ndarray]:
    """Return losses (n,) of rows left out, by the name of the score that is their mean (of `rmse`: its root).

    Parameters
    ----------
    kept : observations of the kept rows, in the units of the model
    """
    kind = model.likelihood.kind_of_target
    return {"numbers": _of_numbers, "classes": _of_classes, "events": _of_events}[kind](model, kept, rows)


def _of_numbers(model: Model, kept: Observations, rows: Judged) -> dict[str, FloatArray]:
    y = model.scaling.of_rows(kept).targets(kept.y, model.likelihood.units)
    count = np.maximum(np.bincount(kept.output, minlength=max(1, len(model.outputs))), 1)  # rows of each output
    means = np.bincount(kept.output, y, len(count)) / count
    squares = np.bincount(kept.output, (y - means[kept.output]) ** 2, len(count)) / count
    mean, variance = means[rows.observed.output], np.maximum(squares, np.finfo(float).tiny)[rows.observed.output]
    error = rows.y - mean
    return {
        "rmse": error**2,
        "mae": np.abs(error),
        "mnlp": 0.5 * np.log(2.0 * np.pi * variance) + 0.5 * error**2 / variance,
        "crps": crps_normal(rows.y, mean, np.sqrt(variance), backend="numpy"),
    }


def _of_classes(model: Model, kept: Observations, rows: Judged) -> dict[str, FloatArray]:
    C, own = rows.columns["probability"].shape[1], rows.y.astype(int)
    p = np.maximum(np.bincount(kept.y.astype(int), minlength=C) / len(kept), LEAST_PROBABILITY)
    p /= p.sum()
    squares = ((p - np.eye(C)[own]) ** 2).sum(axis=1) / (2.0 if C == 2 else 1.0)
    return {"accuracy": (own == p.argmax()).astype(float), "log_loss": -np.log(p[own]), "brier": squares}


def _of_events(model: Model, kept: Observations, rows: Judged) -> dict[str, FloatArray]:
    likelihood, tiny = cast(OneProcess, model.likelihood), np.finfo(float).tiny
    obs: Any = rows.obs
    timed = "event" in likelihood.companions
    kept_size: Any = kept.event if timed else kept.exposure * np.maximum(kept.trials, 1.0)
    size = 1.0 if timed else obs.exposure * np.maximum(obs.trials, 1.0)
    mean = np.full(len(rows), max(kept.y.sum() / max(kept_size.sum(), tiny), tiny)) * size
    predicted = model.scaling.original("observation_mean", mean, likelihood.units)
    deviance = unit_deviance(likelihood, replace(obs, weight=np.ones(len(obs))), mean)
    return {"deviance": deviance, "mae": np.abs(rows.y - predicted)}

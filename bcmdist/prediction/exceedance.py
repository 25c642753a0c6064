"""Probabilities that the mean of an observation lies above thresholds.

The mean of an observation is a strictly increasing function of f, the inverse link. So P(mean > t) = P(f > link(t)),
with f ~ N(mean, variance). For normal errors the mean is f itself, and for transformed targets it is the median.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from scipy.special import ndtr

from bcmdist.errors import InvalidOption
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.model import Model


def refuse_thresholds(model: Model, above: Sequence[float]) -> None:
    """Raise `InvalidOption` for thresholds that are not finite numbers, or for a model of classes."""
    wrong = [t for t in above if isinstance(t, (bool, str)) or not np.isfinite(t)]
    if wrong:
        raise InvalidOption(f"--above: expected finite numbers, got {wrong[0]!r:.80}; correct it")
    if above and (model.likelihood.categorical or model.likelihood.processes > 1):
        raise InvalidOption(
            f"--above: expected a model of numbers, got {model.likelihood.name}; leave the thresholds out, and see the "
            "probabilities of classes"
        )


def above_name(threshold: float) -> str:
    """Name of the column of a threshold."""
    return f"above{threshold:g}"


def exceedance(model: Model, X, mean, variance, obs, above: Sequence[float]) -> dict[str, np.ndarray]:
    """P(mean of an observation > t), (n,), by the names of the thresholds t.

    Parameters
    ----------
    X : inputs (n, D), scaled or not, which determine the output of each row
    mean, variance : of f, (n,), in the units of the model
    obs : exposure and trials of the observations, in original units
    above : thresholds in original units of targets
    """
    return {above_name(t): upper_tail(mean, np.sqrt(variance), _latent_threshold(model, X, obs, t)) for t in above}


def upper_tail(mean, sd, threshold) -> np.ndarray:
    """P(f > threshold) for f ~ N(mean, sd^2), (n,); 0 or 1 where sd is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (mean - threshold) / sd
    return np.where(sd > 0.0, ndtr(z), (mean > threshold) * 1.0)


def _latent_threshold(model, X, obs, threshold):
    """The f at which the mean of each observation is the threshold, (n,)."""
    units = model.likelihood.units
    at = model.scaling.observations(replace(obs, y=np.full(len(obs), float(threshold))), units, X)
    return at.y if model.likelihood.normal else cast(OneProcess, model.likelihood).link(at, at.y)

"""What a row says of what comes out of the last layer, f ~ N(m, v), to some power (Minka 2004, power EP; SYSTEMS D9).

    1 / power log E p(y | f)^power

Power 1 is the log density of the row. Lower ones think less of how well a row is predicted and more of what it says of
f: 0 is the bound of variational inference.
"""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.methods.deep.classes import log_averages
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.likelihoods.tilted import tilted_site


@dataclass(frozen=True)
class Said:
    """Of n rows, with the gradient in moments and in the noise of the layer."""

    value: float
    mean: np.ndarray
    """(n, U)"""
    variance: np.ndarray
    """(n, U)"""
    noise: float


def said(likelihood: Likelihood, obs: Observations, m, v, noise, power=1.0) -> Said:
    """Of f ~ N(m, v), (n, U) each, of one process or of one for each class, independent.

    `noise`, which v has in it, is that of normal errors, and of other targets none.
    """
    if likelihood.per_class:
        return _of_classes(obs, m, v, power)
    m, v = m[:, 0], v[:, 0]
    if likelihood.normal:
        return _of_numbers(likelihood.targets(obs), m, v - noise, noise, 1.0 / obs.weight, power)
    return _of_targets(likelihood, replace(obs, weight=power * obs.weight), m, v, power)


def _of_classes(obs, m, v, power) -> Said:
    """By the softmax; a row of weight w counts as w rows."""
    value, to_mean, to_variance = log_averages(obs.y, power, m, v)
    share = obs.weight / power
    return Said(float(value @ share), to_mean * share[:, None], to_variance * share[:, None], 0.0)


def _of_numbers(y, m, v, noise, share, power) -> Said:
    """By log E N(y; f, s)^p = log N(y; m, v + s / p) + (1 - p) / 2 log 2 pi s - 1/2 log p."""
    s = noise * share
    error, variance = y - m, v + s / power
    value = -0.5 * (error**2 / variance + np.log(variance) + power * np.log(2.0 * np.pi) + np.log(power))
    to_variance = 0.5 * (error**2 / variance - 1.0) / variance
    noise_slope = (to_variance @ share + 0.5 * (1.0 - power) * len(y) * power / noise) / power
    value = (value + 0.5 * (1.0 - power) * np.log(s)).sum() / power
    mean, variance = error / variance / power, to_variance / power
    return Said(float(value), mean[:, None], variance[:, None], float(noise_slope / power))


def _of_targets(likelihood, obs, m, v, power) -> Said:
    """By the site that gives N(m, v) the moments of what is believed with the row: in its terms

    d/dm = (nu - tau m) / (1 + tau v),   d/dv = ((d/dm)^2 - tau / (1 + tau v)) / 2
    """
    log_z, tau, nu = tilted_site(likelihood, obs, m, v)
    slope = (nu - tau * m) / (1.0 + tau * v)
    bend = 0.5 * (slope**2 - tau / (1.0 + tau * v))
    return Said(float(log_z.sum()) / power, slope[:, None] / power, bend[:, None] / power, 0.0)

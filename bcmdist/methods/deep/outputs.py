"""Log expectation of a power of a row's likelihood over the output f ~ N(m, v) of the last layer, with gradients.

    1 / power log E p(y | f)^power

(Minka 2004, power EP; SYSTEMS D9.) Power 1 gives the log predictive density of the row. Lower powers put less weight on
the quality of predictions and more on the information about f; power 0 is the bound of variational inference.
"""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.methods.deep.classes import log_averages
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.likelihoods.tilted import tilted_site


@dataclass(frozen=True)
class LogExpectation:
    """Value for n rows, with gradients in the moments and in the noise of the layer."""

    value: float
    mean: np.ndarray
    """(n, U)"""
    variance: np.ndarray
    """(n, U)"""
    noise: float


def log_expectation(likelihood: Likelihood, obs: Observations, m, v, noise, power=1.0) -> LogExpectation:
    """Log expectation for f ~ N(m, v), (n, U) each, of one process or of one independent process per class.

    `noise` is the part of v that is Gaussian noise; it is not used for other targets.
    """
    if likelihood.per_class:
        return _of_classes(obs, m, v, power)
    m, v = m[:, 0], v[:, 0]
    if likelihood.normal:
        return _of_numbers(likelihood.targets(obs), m, v - noise, noise, obs, power)
    return _of_targets(likelihood, replace(obs, weight=power * obs.weight), m, v, power)


def _of_classes(obs, m, v, power) -> LogExpectation:
    """Softmax; a row of weight w counts as w rows."""
    value, to_mean, to_variance = log_averages(obs.y, power, m, v)
    share = obs.weight / power
    return LogExpectation(float(value @ share), to_mean * share[:, None], to_variance * share[:, None], 0.0)


def _of_numbers(y, m, v, noise, obs, power) -> LogExpectation:
    """Gaussian: log E N(y; f, s)^p = log N(y; m, v + s / p) + (1 - p) / 2 log 2 pi s - 1/2 log p."""
    share = 1.0 / obs.weight
    s = noise * share + obs.target_variance
    error, variance = y - m, v + s / power
    value = -0.5 * (error**2 / variance + np.log(variance) + power * np.log(2.0 * np.pi) + np.log(power))
    to_variance = 0.5 * (error**2 / variance - 1.0) / variance
    noise_slope = (to_variance @ share + 0.5 * (1.0 - power) * power * (share / s).sum()) / power
    value = (value + 0.5 * (1.0 - power) * np.log(s)).sum() / power
    mean, variance = error / variance / power, to_variance / power
    return LogExpectation(float(value), mean[:, None], variance[:, None], float(noise_slope / power))


def _of_targets(likelihood, obs, m, v, power) -> LogExpectation:
    """From the site that gives N(m, v) the moments of belief times likelihood:

    d/dm = (nu - tau m) / (1 + tau v),   d/dv = ((d/dm)^2 - tau / (1 + tau v)) / 2
    """
    log_z, tau, nu = tilted_site(likelihood, obs, m, v)
    slope = (nu - tau * m) / (1.0 + tau * v)
    bend = 0.5 * (slope**2 - tau / (1.0 + tau * v))
    return LogExpectation(float(log_z.sum()) / power, slope[:, None] / power, bend[:, None] / power, 0.0)

"""Predictive distribution of an observation, given a latent posterior N(mean, variance).

    p(y) = integral N(f; mean, variance) p(y | f) df

In closed form for Gaussian likelihoods and two classes; by quadrature over f for other likelihoods (`averages`).
Provides moments, cdf, quantiles and log density.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from bcmdist.data.observations import Observations
from bcmdist.model.likelihoods import OneProcess
from bcmdist.prediction import averages
from bcmdist.prediction.errors.quantile_recalibration import Scored, quantile_recalibrated
from bcmdist.prediction.errors.scale_mixture import NORMAL, Shape
from bcmdist.prediction.predictive import Numbers, Predictive

# The prediction interval.
LOW, HIGH = 0.025, 0.975
# Least posterior standard deviation, as a share of 1 + |mean|: quadrature nodes must differ in floating point.
LEAST_SD = 1e-9

Widening = Callable[[np.ndarray], np.ndarray | float]


def predictive(
    likelihood, mean, variance, obs: Observations, *, shape: Shape = NORMAL, widening: Widening | None = None
) -> Predictive:
    """Predictive distribution of new observations with the companions of `obs`, given f ~ N(mean, variance), (n,) each.

    Parameters
    ----------
    likelihood : of one process (`OneProcess`)
    shape : distribution of the errors of numeric targets, in units of their standard deviation, or of normal
        scores if the likelihood is not Gaussian
    widening : maps predicted variances (n,) to factors that multiply them
    """
    if likelihood.normal:
        predicted = variance + likelihood.noise(obs)
        return Scaled(mean, predicted if widening is None else predicted * widening(predicted), shape)
    if likelihood.categorical:
        return _Classes(*likelihood.class_probability(mean, variance).T)
    mixed = _Mixture(likelihood, mean, np.maximum(variance, (LEAST_SD * (1.0 + np.abs(mean))) ** 2), obs)
    return quantile_recalibrated(mixed, shape, 1.0 if widening is None else widening(mixed.variance))


def observe(likelihood, mean, variance, obs: Observations, **errors) -> dict[str, np.ndarray]:
    """Predicted columns by name, (n,) each; `probability` of two classes is (n, 2). `errors`: as for `predictive`.

    Numeric targets: mean, variance, 95 % interval, and the other `columns` of the likelihood (the median, or the
    probability of success in one trial). Classes: probability and label.
    """
    if likelihood.categorical:
        p = likelihood.class_probability(mean, variance)
        return {"probability": p, "label": p.argmax(axis=1)}
    predicted = predictive(likelihood, mean, variance, obs, **errors)
    found = {name: COLUMNS[name](predicted) for name in likelihood.columns if name in COLUMNS}
    if "probability" not in likelihood.columns:
        return found
    return found | {"probability": predictive(likelihood, mean, variance, replace(obs, trials=np.ones(len(obs)))).mean}


COLUMNS: dict[str, Callable[[Predictive], np.ndarray]] = {
    "observation_mean": lambda predicted: predicted.mean,
    "observation_variance": lambda predicted: predicted.variance,
    "lower95": lambda predicted: predicted.quantile(LOW),
    "upper95": lambda predicted: predicted.quantile(HIGH),
    "median": lambda predicted: predicted.quantile(0.5),
}
"""Predicted columns of numeric targets by name, except the probability of success in one trial."""


@dataclass(frozen=True)
class Scaled(Numbers):
    """m + sqrt(v) z with z distributed as `shape`. `variance` is v, as the model predicts it, for any shape."""

    m: np.ndarray
    v: np.ndarray
    shape: Shape

    @property
    def mean(self) -> np.ndarray:
        return self.m

    @property
    def variance(self) -> np.ndarray:
        return self.v

    def cdf(self, y) -> np.ndarray:
        return self.shape.cdf((y - self.m) / np.sqrt(self.v))

    def quantile(self, q) -> np.ndarray:
        return self.m + self.shape.quantile(q) * np.sqrt(self.v)

    def log_density(self, obs) -> np.ndarray:
        return self.shape.log_density((obs.y - self.m) / np.sqrt(self.v)) - 0.5 * np.log(self.v)

    def standardised(self, obs, generator) -> np.ndarray:
        return (obs.y - self.m) / np.sqrt(self.v)

    def crps(self, y) -> np.ndarray:
        sd = np.sqrt(self.v)
        return sd * self.shape.crps((y - self.m) / sd)


@dataclass(frozen=True)
class _Classes(Predictive):
    """Class 1 with probability `yes`, class 0 with probability `no`."""

    no: np.ndarray
    yes: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.yes

    @property
    def variance(self) -> np.ndarray:
        return self.yes * self.no

    def cdf(self, y) -> np.ndarray:
        return np.where(y < 0, 0.0, np.where(y < 1, self.no, 1.0))

    def quantile(self, q) -> np.ndarray:
        return np.where(self.no >= q, 0.0, 1.0)

    def log_density(self, obs) -> np.ndarray:
        # Finite for a class that is impossible in floating point.
        return np.log(np.clip(np.where(obs.y == 1, self.yes, self.no), np.finfo(float).tiny, 1.0))


@dataclass(frozen=True)
class _Mixture(Scored):
    """Average of p(y | f) over the latent posterior."""

    likelihood: OneProcess
    latent_mean: np.ndarray
    latent_variance: np.ndarray
    obs: Observations

    @property
    def discrete(self) -> bool:
        return self.likelihood.discrete

    @property
    def mean(self) -> np.ndarray:
        return self._moments[0]

    @property
    def variance(self) -> np.ndarray:
        return self._moments[1]

    @cached_property
    def _moments(self):
        return self._average(averages.moments, self.obs)

    def cdf(self, y) -> np.ndarray:
        return self._average(averages.cdf, self._at(y))

    def normal_score(self, y) -> np.ndarray:
        return self._average(averages.normal_score, self._at(self.likelihood.replace_zeros(y)))

    def quantile(self, q) -> np.ndarray:
        return self.at_normal_score(ndtri(q))

    def at_normal_score(self, z) -> np.ndarray:
        return self._average(averages.quantile, self.obs, np.broadcast_to(z, len(self.obs)))

    def log_density(self, obs) -> np.ndarray:
        return self._average(averages.log_density, replace(obs, weight=np.ones(len(obs))))

    def censored(self, obs) -> np.ndarray:
        return (obs.event != 1) & ("event" in self.likelihood.companions)

    def _at(self, y):
        return replace(self.obs, y=np.broadcast_to(np.asarray(y, dtype=float), len(self.obs)))

    def _average(self, function, *of):
        return averages.in_blocks(function, self.likelihood, self.latent_mean, self.latent_variance, *of)


def unit_deviance(likelihood: OneProcess, obs: Observations, mean) -> np.ndarray:
    """Twice the log-density loss of each row against a saturated model, if its mean is `mean`, (n,).

    McCullagh & Nelder (1989), section 2.3. A censored row is compared with certain survival. All counts use the Poisson
    deviance, because the negative binomial deviance decreases with its shape: so models of the same counts can be
    compared.
    """
    family, once = likelihood.compared(), replace(obs, weight=np.ones(len(obs)))
    best, f = family.saturated(once), family.link(once, mean)
    return 2.0 * (family.log_density(once, best) - family.log_density(once, f))

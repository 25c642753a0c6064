"""Likelihoods of positive targets with mean exp(f): gamma and inverse Gaussian, both with the log link.

(The canonical links of both need latents of one sign, which a Gaussian process does not guarantee.)
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import BoolArray, FloatArray
from bcmdist.model.likelihoods.distribution import Distribution
from bcmdist.model.likelihoods.interface import SHAPE_BOUNDS, OneProcess, bounded_exp, bounded_log, parameter, positive
from bcmdist.model.special import erfcx, gammaln, ndtr
from bcmdist.model.units import POSITIVE


@dataclass(frozen=True)
class Gamma(OneProcess):
    """Mean mu = exp(f), variance mu^2 / shape.

    With u = shape y / mu: log p = shape log u - u - log y - log Gamma(shape), score u - shape, curvature u.
    """

    shape: FloatArray = parameter(1.0, SHAPE_BOUNDS, widens=-1.0)
    name = "gamma"
    task = "regression"
    support = "positive numbers"
    units = POSITIVE

    def unsupported(self, obs: Observations) -> BoolArray:
        return ~positive(obs.y)

    def log_ratio(self, obs: Observations, f: FloatArray) -> FloatArray:
        """log u, (n,)."""
        return np.log(self.shape * obs.y) - f

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        log_u = self.log_ratio(obs, f)
        return obs.weight * (self.shape * log_u - bounded_exp(log_u) - np.log(obs.y) - gammaln(self.shape))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * (bounded_exp(self.log_ratio(obs, f)) - self.shape)

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * bounded_exp(self.log_ratio(obs, f))

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return self.curvature(obs, f)

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        law: Distribution = stats.gamma(self.shape, scale=bounded_exp(f) / self.shape)
        return law

    def saturated(self, obs: Observations) -> FloatArray:
        return bounded_log(obs.y)


@dataclass(frozen=True)
class InverseGaussian(OneProcess):
    """Mean mu = exp(f), variance dispersion mu^3.

    log p = -1/2 log(2 pi dispersion y^3) - (y - mu)^2 / (2 dispersion mu^2 y),
    score (y - mu) / (dispersion mu^2); not log-concave, the curvature is Fisher's 1 / (dispersion mu).
    """

    dispersion: FloatArray = parameter(1.0, (1e-4, 1e2), widens=1.0)
    name = "inverse_gaussian"
    task = "regression"
    support = "positive numbers"
    units = POSITIVE
    log_concave = False

    def unsupported(self, obs: Observations) -> BoolArray:
        return ~positive(obs.y)

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        gap = bounded_exp(0.5 * np.log(obs.y) - f) - 1.0 / np.sqrt(obs.y)
        return -0.5 * obs.weight * (gap**2 / self.dispersion + np.log(2.0 * np.pi * self.dispersion * obs.y**3))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * (bounded_exp(np.log(obs.y) - 2.0 * f) - bounded_exp(-f)) / self.dispersion

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * bounded_exp(-f) / self.dispersion + np.zeros_like(obs.y)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return self.curvature(obs, f)

    def hessian(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * (2.0 * bounded_exp(np.log(obs.y) - 2.0 * f) - bounded_exp(-f)) / self.dispersion

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        relative_variance = self.dispersion * bounded_exp(f)
        law: Distribution = INVERSE_GAUSSIAN(relative_variance, scale=bounded_exp(f) / relative_variance)
        return law

    def saturated(self, obs: Observations) -> FloatArray:
        return bounded_log(obs.y)


class _InverseGaussian(stats.rv_continuous):
    """scipy's inverse Gaussian with the same parameter, and a distribution function that is stable for any mean.

    F(x) = Phi(a) + exp(2 / mu) Phi(-b) with a = (x / mu - 1) / sqrt(x), b = (x / mu + 1) / sqrt(x). Because 2 / mu =
    (b^2 - a^2) / 2, the second term is erfcx(b / sqrt(2)) exp(-a^2 / 2) / 2, which neither overflows nor cancels.
    """

    def _cdf(self, x: FloatArray, mu: FloatArray) -> FloatArray:
        root = np.sqrt(x)
        a, b = (x / mu - 1.0) / root, (x / mu + 1.0) / root
        second: FloatArray = 0.5 * erfcx(b / np.sqrt(2.0)) * np.exp(-0.5 * a**2)
        return ndtr(a) + second

    def _logpdf(self, x: FloatArray, mu: FloatArray) -> FloatArray:
        return -0.5 * np.log(2.0 * np.pi * x**3) - (x / mu - 1.0) ** 2 / (2.0 * x)

    def _pdf(self, x: FloatArray, mu: FloatArray) -> FloatArray:
        return np.exp(self._logpdf(x, mu))

    def _stats(self, mu: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        return mu, mu**3, 3.0 * np.sqrt(mu), 15.0 * mu

    def _rvs(
        self, mu: FloatArray, size: int | tuple[int, ...] | None = None, *, random_state: np.random.Generator
    ) -> FloatArray:
        return random_state.wald(mu, 1.0, size=size)


INVERSE_GAUSSIAN = _InverseGaussian(a=0.0, name="inverse_gaussian")

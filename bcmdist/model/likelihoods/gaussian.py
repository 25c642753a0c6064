"""Likelihoods of real targets: Gaussian noise, and Student's t for data with outliers."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy import stats

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import BoolArray, FloatArray
from bcmdist.model.likelihoods.distribution import Distribution
from bcmdist.model.likelihoods.interface import NOISE_BOUNDS, OneProcess, aligned, parameter
from bcmdist.model.special import betaln
from bcmdist.model.units import AFFINE


@dataclass(frozen=True)
class Gaussian(OneProcess):
    """y = f + e, e ~ N(0, noise_variance / weight + target_variance).

    Where there are several outputs, each has a noise variance of its own.
    """

    noise_variance: FloatArray = parameter(0.1, NOISE_BOUNDS, widens=1.0)
    """(1,), or (P,) for P outputs"""
    name = "gaussian"
    task = "regression"
    exact = True
    support = "finite numbers"
    units = AFFINE
    companions = ("target_variance",)

    def unsupported(self, obs: Observations) -> BoolArray:
        return ~np.isfinite(obs.y)

    def targets(self, obs: Observations) -> FloatArray:
        return obs.y

    def noise(self, obs: Observations) -> FloatArray:
        return self.learned_noise(obs) + obs.target_variance

    def learned_noise(self, obs: Observations) -> FloatArray:
        several = len(self.noise_variance) > 1
        return (self.noise_variance[obs.output] if several else self.noise_variance) / obs.weight

    def noise_slopes(self, obs: Observations, g: FloatArray) -> FloatArray:
        if len(self.noise_variance) == 1:
            return super().noise_slopes(obs, g)
        sums = np.bincount(obs.output, g * self.learned_noise(obs), minlength=len(self.noise_variance))
        return cast(FloatArray, sums)  # numpy declares counts, even of weights

    def for_outputs(self, count: int) -> "Gaussian":
        return replace(self, noise_variance=np.broadcast_to(self.noise_variance, count).copy())

    def densities(self, obs: Observations) -> FloatArray:
        return np.ones(len(obs))  # independent of the weight, which divides the noise

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        noise = self.noise(obs)
        return -0.5 * ((obs.y - f) ** 2 / noise + np.log(2.0 * np.pi * noise))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return (obs.y - f) / self.noise(obs)

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return 1.0 / self.noise(obs) + np.zeros_like(f)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return np.zeros_like(obs.y * f)

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        law: Distribution = stats.norm(f, np.sqrt(self.noise(aligned(obs, f))))
        return law

    def saturated(self, obs: Observations) -> FloatArray:
        return obs.y


@dataclass(frozen=True)
class StudentT(OneProcess):
    """y = f + s e with e of Student's t distribution, so that outliers have little influence.

    log p = log c - (nu + 1)/2 log(1 + (y - f)^2 / (nu s^2)), not concave; the curvature is Fisher's,
    (nu + 1) / ((nu + 3) s^2) (Lange, Little & Taylor 1989).
    """

    noise_variance: FloatArray = parameter(0.1, NOISE_BOUNDS, widens=1.0)
    """s^2, the squared scale; the variance is nu / (nu - 2) times s^2"""
    degrees_of_freedom: FloatArray = parameter(4.0, (2.1, 1e3))  # the variance is infinite up to 2
    """nu"""
    name = "student_t"
    task = "regression"
    support = "finite numbers"
    units = AFFINE
    log_concave = False

    def unsupported(self, obs: Observations) -> BoolArray:
        return ~np.isfinite(obs.y)

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        nu, scale = self.degrees_of_freedom, self.degrees_of_freedom * self.noise_variance
        constant = -betaln(0.5 * nu, 0.5) - 0.5 * np.log(scale)
        return obs.weight * (constant - 0.5 * (nu + 1.0) * np.log1p((obs.y - f) ** 2 / scale))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        nu, gap = self.degrees_of_freedom, obs.y - f
        return obs.weight * (nu + 1.0) * gap / (nu * self.noise_variance + gap**2)

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        nu = self.degrees_of_freedom
        return obs.weight * (nu + 1.0) / ((nu + 3.0) * self.noise_variance) + np.zeros_like(f)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return np.zeros_like(obs.y * f)

    def hessian(self, obs: Observations, f: FloatArray) -> FloatArray:
        nu, scale = self.degrees_of_freedom, self.degrees_of_freedom * self.noise_variance
        square = (obs.y - f) ** 2
        return obs.weight * (nu + 1.0) * (scale - square) / (scale + square) ** 2

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        law: Distribution = stats.t(self.degrees_of_freedom, f, np.sqrt(self.noise_variance))
        return law

    def saturated(self, obs: Observations) -> FloatArray:
        return obs.y

    def typical(self, obs: Observations, f: FloatArray) -> FloatArray:
        return f  # the mean does not exist up to one degree of freedom

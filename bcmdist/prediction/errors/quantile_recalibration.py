"""Quantile recalibration of predictive distributions (counts, lifetimes, other numbers) by normal scores.

If a predictive distribution F is correct, z = Phi^-1(F(y)) is standard normal. The actual distribution of z is
estimated from left-out rows, as that of s Z, where Z has a fitted shape and s^2 is the scale factor of the errors:

    P*(Y <= y) = P(s Z <= z(y)),    y*(q) = F^-1(Phi(s z_q)),    p*(y) = p(y) shape(z / s) / (s phi(z))

For a whole number, whose z lies between z(y - 1) and z(y), p*(y) = P(z(y - 1) < s Z <= z(y)).
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from bcmdist.prediction.errors.scale_mixture import NORMAL, Shape
from bcmdist.prediction.predictive import Numbers, Predictive

# Normal scores are clipped to +-`FARTHEST`: beyond it, densities are corrected by the same ratio as there.
FARTHEST = 7.0
# Largest normal score of a quantile: beyond it, tail probabilities underflow.
LARGEST = 30.0
# If z(y) - z(y - 1) of a whole number is at most this, its probability is computed from the density.
CLOSE = 1e-4


class Scored(Numbers):
    """A predictive distribution that can compute normal scores."""

    @property
    @abstractmethod
    def discrete(self) -> bool:
        """Whether it is a distribution of whole numbers."""

    @abstractmethod
    def normal_score(self, y) -> np.ndarray:
        """Normal scores of y, (n,): the z with P(Z <= z) = P(Y <= y) for Z ~ N(0, 1)."""

    @abstractmethod
    def at_normal_score(self, z) -> np.ndarray:
        """Smallest y (n,) whose normal score is at least z (n,)."""

    @abstractmethod
    def censored(self, obs) -> np.ndarray:
        """True for censored rows, for which only Y > y was observed, (n,)."""

    def score_range(self, obs) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper limits of the normal score of each observation, (n,) each.

        From z(y - 1) to z(y) for a whole number; from z(y) to infinity if censored; both z(y) otherwise. A range that
        lies wholly beyond +-`FARTHEST` is extended to reach it.
        """
        high = self.normal_score(obs.y)
        low = np.where(obs.y < 1.0, -np.inf, self.normal_score(obs.y - 1.0)) if self.discrete else high
        high = np.where(self.censored(obs), np.inf, high)
        return np.minimum(low, FARTHEST), np.maximum(high, -FARTHEST)

    def standardised(self, obs, generator) -> np.ndarray:
        """Normal scores of observations, (n,).

        Those of whole numbers and censored lifetimes are drawn from their range under the predictive distribution
        (randomised quantile residuals, Dunn & Smyth 1996).
        """
        low, high, sign = _lower_tail(*self.score_range(obs))
        a, b = ndtr(low), ndtr(high)
        drawn = ndtri(a + (b - a) * generator.uniform(size=len(a)))
        return sign * np.clip(np.where(low < high, drawn, low), -FARTHEST, FARTHEST)


@dataclass(frozen=True)
class QuantileRecalibrated(Predictive):
    """A predictive distribution whose normal scores have a given shape and scale.

    The mean is that of the model; the variance is the model's times the factor, and ignores the shape.
    """

    base: Scored
    """the distribution that the model predicts"""
    shape: Shape
    """of Z"""
    factor: np.ndarray | float
    """s^2, (n,) or a scalar"""

    @property
    def mean(self) -> np.ndarray:
        return self.base.mean

    @property
    def variance(self) -> np.ndarray:
        return self.base.variance * self.factor

    def cdf(self, y) -> np.ndarray:
        return self.shape.cdf(self.base.normal_score(y) / np.sqrt(self.factor))

    def quantile(self, q) -> np.ndarray:
        z = self.shape.quantile(q) * np.sqrt(self.factor)
        return self.base.at_normal_score(np.clip(z, -LARGEST, LARGEST))

    def log_density(self, obs) -> np.ndarray:
        low, high = self.base.score_range(obs)
        middle = 0.5 * (np.clip(low, -FARTHEST, FARTHEST) + np.clip(high, -FARTHEST, FARTHEST))
        dense = self.base.log_density(obs) + self._log_ratio(middle)
        wide = (high - low > CLOSE) & (low < FARTHEST) & (high > -FARTHEST)
        below, above, sign = _lower_tail(low, high)
        sd = np.sqrt(self.factor)
        inside = np.where(
            sign > 0.0,
            self.shape.cdf(above / sd) - self.shape.cdf(below / sd),
            self.shape.mirrored.cdf(above / sd) - self.shape.mirrored.cdf(below / sd),
        )
        return np.where(wide, np.log(np.maximum(inside, np.finfo(float).tiny)), dense)

    def _log_ratio(self, z):
        """Correction (n,) of the model's log densities at normal scores z (n,)."""
        sd = np.sqrt(self.factor)
        return self.shape.log_density(z / sd) - np.log(sd) - NORMAL.log_density(z)


def _lower_tail(low, high):
    """Mirror ranges that start above 0, since lower-tail probabilities keep all digits.

    Returns lower limits, upper limits, and the sign, -1 for mirrored ranges, else 1.
    """
    mirrored = low > 0.0
    return np.where(mirrored, -high, low), np.where(mirrored, -low, high), np.where(mirrored, -1.0, 1.0)


def quantile_recalibrated(predicted: Scored, shape: Shape, factor) -> Predictive:
    """A predictive distribution with recalibrated shape and scale; unchanged for shape N(0, 1) and a factor of 1."""
    return (
        predicted
        if shape.normal and np.ndim(factor) == 0 and factor == 1.0
        else QuantileRecalibrated(predicted, shape, factor)
    )

"""Counts, lifetimes and other numbers whose errors have a shape of their own, by their normal scores.

Of a distribution F that a model predicts, z = Phi^-1(F(y)) is a standard normal where it is right: rows left out tell
what z is in truth. With Z of a shape and s^2 a factor that varies as the scale of errors does, it is taken as s Z:

    P*(Y <= y) = P(s Z <= z(y)),    y*(q) = F^-1(Phi(s z_q)),    p*(y) = p(y) shape(z / s) / (s phi(z))

and of a whole number, whose z lies somewhere from z(y - 1) to z(y), p*(y) = P(z(y - 1) < s Z <= z(y)).
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from bcmdist.prediction.errors.scale_mixture import NORMAL, Shape
from bcmdist.prediction.predictive import Numbers, Predictive

# Normal scores are known to this; beyond, densities differ from those of the model as they do there.
FARTHEST = 7.0
# Quantiles are looked for up to this normal score: probabilities beyond are no numbers.
LARGEST = 30.0
# Of whole numbers that are so close in z the probability is a density's.
CLOSE = 1e-4


class Scored(Numbers):
    """A distribution of which normal scores are known."""

    @property
    @abstractmethod
    def discrete(self) -> bool:
        """Whether it is of whole numbers."""

    @abstractmethod
    def normal_score(self, y) -> np.ndarray:
        """The z at which P(Z <= z) = P(Y <= y) for Z ~ N(0, 1), (n,)."""

    @abstractmethod
    def at_normal_score(self, z) -> np.ndarray:
        """Smallest y whose normal score is no less than z (n,), (n,)."""

    @abstractmethod
    def censored(self, obs) -> np.ndarray:
        """True for rows of which only Y > y is known, (n,)."""

    def score_range(self, obs) -> tuple[np.ndarray, np.ndarray]:
        """Limits of the normal score of each observation, (n,) each: a whole number from that of the one before to
        its own, a censored life beyond its own, any other at its own; what lies beyond `FARTHEST` is there."""
        high = self.normal_score(obs.y)
        low = np.where(obs.y < 1.0, -np.inf, self.normal_score(obs.y - 1.0)) if self.discrete else high
        high = np.where(self.censored(obs), np.inf, high)
        return np.minimum(low, FARTHEST), np.maximum(high, -FARTHEST)

    def standardised(self, obs, generator) -> np.ndarray:
        """Normal scores, those of whole numbers and censored lives drawn from their range as the model has it (Dunn &
        Smyth 1996)."""
        low, high, sign = _lower_tail(*self.score_range(obs))
        a, b = ndtr(low), ndtr(high)
        drawn = ndtri(a + (b - a) * generator.uniform(size=len(a)))
        return sign * np.clip(np.where(low < high, drawn, low), -FARTHEST, FARTHEST)


@dataclass(frozen=True)
class Reshaped(Predictive):
    """What a model says, with normal scores of a shape and scale. Its mean is the model's; its variance is multiplied
    by the factor, whatever the shape makes of it."""

    base: Scored
    shape: Shape
    factor: np.ndarray | float
    """s^2, (n,) or one for all"""

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
        below, above, _ = _lower_tail(low, high)
        sd = np.sqrt(self.factor)
        inside = self.shape.cdf(above / sd) - self.shape.cdf(below / sd)
        return np.where(wide, np.log(np.maximum(inside, np.finfo(float).tiny)), dense)

    def _log_ratio(self, z):
        """By how much log densities at normal scores z (n,) exceed those of the model."""
        sd = np.sqrt(self.factor)
        return self.shape.log_density(z / sd) - np.log(sd) - NORMAL.log_density(z)


def _lower_tail(low, high):
    """Ranges mirrored so that they begin below 0, where probabilities have all their digits; and -1 for those that
    were, else 1."""
    mirrored = low > 0.0
    return np.where(mirrored, -high, low), np.where(mirrored, -low, high), np.where(mirrored, -1.0, 1.0)


def reshaped(said: Scored, shape: Shape, factor) -> Predictive:
    """What a model says, in a shape and scale; as it is, where they are those that it assumes."""
    return said if shape.normal and np.ndim(factor) == 0 and factor == 1.0 else Reshaped(said, shape, factor)

"""Likelihoods of C classes: softmax, and regression on one-hot targets.

Both have one latent process per class, f (n, C), all with the same kernel. Targets are class numbers 0 to C - 1.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.stats import qmc

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import BoolArray, FloatArray
from bcmdist.model.likelihoods.interface import CLASSES, Likelihood, parameter
from bcmdist.model.special import logsumexp, softmax
from bcmdist.model.units import COUNTED

# Number of Gaussian draws for averages of class probabilities; Sobol points need a power of two. The error of a
# probability is about 1e-3 (measured in the tests).
DRAWS = 256
DRAWS_SEED = 20001  # the same for every row and model, so that results do not depend on batches


@dataclass(frozen=True)
class PerClass(Likelihood):
    """Base of the likelihoods with one latent process per class."""

    classes: int | None
    """C; None where only the support of labels is checked"""
    task = "classification"
    support = "whole numbers as class labels"
    units = COUNTED
    columns = CLASSES
    per_class = True

    @classmethod
    def default(cls, classes: int | None = None) -> Self:
        return cls(classes)

    @property
    def processes(self) -> int:
        return self.classes or 0

    def unsupported(self, obs: Observations) -> BoolArray:
        """True for targets that are not class numbers, (n,); where `classes` is None, not whole numbers."""
        broken: BoolArray = obs.y != np.floor(obs.y)
        return broken if self.classes is None else broken | (obs.y < 0) | (obs.y >= self.classes)

    def one_hot(self, obs: Observations) -> FloatArray:
        """1 for a row's own class and 0 for the others, (n, C)."""
        rows: FloatArray = np.eye(self.processes)[obs.y.astype(int)]
        return rows


@dataclass(frozen=True)
class AnySoftmax(PerClass):
    """P(y = c) = exp(f_c) / sum_d exp(f_d)     (GBCM paper, section 5.3; SYSTEMS G8).

    The negative Hessian of a row is W = diag(p) - p p'. Subclasses differ only in `curvature`, the form of W in
    messages. All of them use the exact joint mode.
    """

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        own = np.take_along_axis(f, obs.y.astype(int)[:, None], axis=1)[:, 0]
        return obs.weight * (own - logsumexp(f))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight[:, None] * (self.one_hot(obs) - softmax(f))

    def probability(self, obs: Observations, f: FloatArray) -> FloatArray:
        """Weight times class probability at f, (n, C): the curvature of the Poisson form."""
        return obs.weight[:, None] * softmax(f)

    @abstractmethod
    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        """Diagonal approximation of W in messages that keep classes separate, (n, C)."""

    def class_probability(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Softmax averaged over quasi-random draws."""
        total = np.zeros_like(mean)
        for u in _draws(self.processes):
            shift = np.sqrt(variance) * u if variance.ndim == 2 else np.linalg.cholesky(variance) @ u
            total += softmax(mean + shift)
        return np.minimum(total / DRAWS, 1.0)

    def learned_as(self) -> "OneHot":
        return OneHot.default(max(2, self.processes))


@dataclass(frozen=True)
class Softmax(AnySoftmax):
    """Softmax with W approximated by diag(p); classes are separate.

    W is diag(p) after integrating out an unknown offset common to all f_c of the row (the multinomial as independent
    Poisson counts, Baker 1994). Differences of f_c, on which alone probabilities depend, therefore keep their
    uncertainty.
    """

    name = "softmax"

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return self.probability(obs, f)


@dataclass(frozen=True)
class SoftmaxFisher(AnySoftmax):
    """Softmax with W approximated by diag(p (1 - p)) as in the paper; classes are separate.

    Variances of f_c are too small, those of differences f_c - f_d too large.
    """

    name = "softmax_fisher"

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        p = softmax(f)
        return obs.weight[:, None] * (p * (1.0 - p))


@dataclass(frozen=True)
class SoftmaxCoupled(AnySoftmax):
    """Softmax with the exact W: messages are joint over all classes, C^2 times as large as a single class's."""

    name = "softmax_coupled"
    coupled = True

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return self.probability(obs, f)


def _draws(classes: int) -> FloatArray:
    rule = qmc.MultivariateNormalQMC(np.zeros(classes), rng=np.random.default_rng(DRAWS_SEED))
    draws: FloatArray = rule.random(DRAWS)
    return draws


# Lower bound of the learned noise variance for targets of +1 and -1. Where equal rows have equal labels, the evidence
# of a regression grows without limit as the noise goes to 0, although labels are not function values.
LEAST_LABEL_NOISE = 0.05


@dataclass(frozen=True)
class OneHot(PerClass):
    """Regression on +1 for a row's own class and -1 for the others (GBCM paper, section 6.5).

    The cost is that of one regression: all classes share the factor and the precision. Probabilities come from a
    calibration fitted to held-out predictions (Platt 2000).
    """

    noise_variance: FloatArray = parameter(0.1, (LEAST_LABEL_NOISE, 10.0), widens=1.0)
    name = "onehot"
    exact = True
    needs_calibration = True

    def targets(self, obs: Observations) -> FloatArray:
        """+1 and -1, (n, C)."""
        return 2.0 * self.one_hot(obs) - 1.0

    def noise(self, obs: Observations) -> FloatArray:
        return self.noise_variance / obs.weight

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        noise = self.noise(obs)[:, None]
        total: FloatArray = ((self.targets(obs) - f) ** 2 / noise + np.log(2.0 * np.pi * noise)).sum(axis=1)
        return -0.5 * total

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return (self.targets(obs) - f) / self.noise(obs)[:, None]

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return 1.0 / self.noise(obs)[:, None] + np.zeros_like(f)

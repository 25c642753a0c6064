"""Likelihoods of C classes: softmax, and regression on one-hot targets.

Both have one latent process per class, f (n, C), all with the same kernel. Targets are class
numbers 0 to C - 1.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import logsumexp, softmax
from scipy.stats import qmc

from bcmdist.model.likelihoods.interface import CLASSES, Likelihood, parameter
from bcmdist.model.units import COUNTED

# Gaussian draws by which class probabilities are averaged; a power of two, as Sobol points want.
# The error of a probability is about 1e-3 (measured in the tests).
DRAWS = 256
DRAWS_SEED = 20001  # the same for every row and every model, so that batches do not matter


@dataclass(frozen=True)
class PerClass(Likelihood):
    """A likelihood of classes with a latent process for each."""

    classes: int | None
    """C; None where only the support of labels is asked for"""
    task = "classification"
    support = "whole numbers as class labels"
    units = COUNTED
    columns = CLASSES
    per_class = True
    categorical = True

    @classmethod
    def default(cls, classes=None) -> Self:
        return cls(classes)

    @property
    def processes(self) -> int:
        return self.classes or 0

    def unsupported(self, obs) -> np.ndarray:
        """True for targets that are no class number, (n,); for unknown `classes`, that are no label."""
        broken = obs.y != np.floor(obs.y)
        return broken if self.classes is None else broken | (obs.y < 0) | (obs.y >= self.classes)

    def one_hot(self, obs) -> np.ndarray:
        """1 for a row's own class and 0 for the others, (n, C)."""
        return np.eye(self.processes)[obs.y.astype(int)]


@dataclass(frozen=True)
class AnySoftmax(PerClass):
    """P(y = c) = exp(f_c) / sum_d exp(f_d)     (GBCM paper, section 5.3; SYSTEMS G8).

    The negative Hessian of a row is W = diag(p) - p p'; how a message represents it, `curvature`, is what the members
    differ in. The mode is the exact joint one in all of them.
    """

    def log_density(self, obs, f) -> np.ndarray:
        own = np.take_along_axis(f, obs.y.astype(int)[:, None], axis=1)[:, 0]
        return obs.weight * (own - logsumexp(f, axis=1))

    def score(self, obs, f) -> np.ndarray:
        return obs.weight[:, None] * (self.one_hot(obs) - softmax(f, axis=1))

    def probability(self, obs, f) -> np.ndarray:
        """Weight times class probability at f, (n, C): the curvature of the Poisson form."""
        return obs.weight[:, None] * softmax(f, axis=1)

    @abstractmethod
    def curvature(self, obs, f) -> np.ndarray:
        """What stands for the diagonal of W where messages keep classes apart, (n, C)."""

    def class_probability(self, mean, variance) -> np.ndarray:
        """Average softmax by quasi-random draws."""
        total = np.zeros_like(mean)
        for u in _draws(self.processes):
            shift = np.sqrt(variance) * u if variance.ndim == 2 else np.linalg.cholesky(variance) @ u
            total += softmax(mean + shift, axis=1)
        return total / DRAWS

    def learned_as(self) -> "OneHot":
        return OneHot.default(max(2, self.processes))


@dataclass(frozen=True)
class Softmax(AnySoftmax):
    """Softmax by diag(p), classes apart.

    W is diag(p) with an unknown offset common to all f_c of the row (the multinomial as independent Poisson counts,
    Baker 1994), so that differences, which alone matter to probabilities, keep their uncertainty.
    """

    name = "softmax"

    def curvature(self, obs, f) -> np.ndarray:
        return self.probability(obs, f)


@dataclass(frozen=True)
class SoftmaxFisher(AnySoftmax):
    """Softmax by diag(p (1 - p)), the paper's, classes apart: variances of f_c are too small, of differences f_c - f_d
    too large."""

    name = "softmax_fisher"

    def curvature(self, obs, f) -> np.ndarray:
        p = softmax(f, axis=1)
        return obs.weight[:, None] * (p * (1.0 - p))


@dataclass(frozen=True)
class SoftmaxCoupled(AnySoftmax):
    """Softmax by W itself: messages about all classes at once, C^2 times as large as one class's."""

    name = "softmax_coupled"
    coupled = True

    def curvature(self, obs, f) -> np.ndarray:
        return self.probability(obs, f)


def _draws(classes):
    return qmc.MultivariateNormalQMC(np.zeros(classes), rng=np.random.default_rng(DRAWS_SEED)).random(DRAWS)


# Least noise variance that learning may choose for targets of +1 and -1. Where equal rows have equal labels the
# evidence of a regression grows without end as the noise goes to 0, though labels are no function values; on
# validation rows of letter, ijcnn1 and glass, .03 to .1 gave the best log loss and accuracy.
LEAST_LABEL_NOISE = 0.05


@dataclass(frozen=True)
class OneHot(PerClass):
    """Regression on +1 for a row's own class and -1 for the others (GBCM paper, section 6.5).

    The cost is that of one regression: all classes share the factor and the precision. Probabilities
    come from a calibration that is fitted on held-out predictions (Platt 2000).
    """

    noise_variance: np.ndarray = parameter(0.1, (LEAST_LABEL_NOISE, 10.0), widens=1.0)
    name = "onehot"
    exact = True
    needs_calibration = True

    def targets(self, obs) -> np.ndarray:
        """+1 and -1, (n, C)."""
        return 2.0 * self.one_hot(obs) - 1.0

    def noise(self, obs) -> np.ndarray:
        return self.noise_variance / obs.weight

    def log_density(self, obs, f) -> np.ndarray:
        noise = self.noise(obs)[:, None]
        return -0.5 * ((self.targets(obs) - f) ** 2 / noise + np.log(2.0 * np.pi * noise)).sum(axis=1)

    def score(self, obs, f) -> np.ndarray:
        return (self.targets(obs) - f) / self.noise(obs)[:, None]

    def curvature(self, obs, f) -> np.ndarray:
        return 1.0 / self.noise(obs)[:, None] + np.zeros_like(f)

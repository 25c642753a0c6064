"""Likelihoods of C classes: softmax, and regression on one-hot targets.

Both have one latent process per class, f (n, C), all with the same kernel. Targets are class
numbers 0 to C - 1.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp, softmax
from scipy.stats import qmc

# Gaussian draws by which class probabilities are averaged; a power of two, as Sobol points want.
# The error of a probability is about 1e-3 (measured in the tests).
DRAWS = 256
DRAWS_SEED = 20001  # the same for every row and every model, so that batches do not matter


@dataclass(frozen=True)
class Softmax:
    """P(y = c) = exp(f_c) / sum_d exp(f_d)     (GBCM paper, section 5.3; SYSTEMS G8).

    The negative Hessian of a row is W = diag(p) - p p'. How a message represents it is `weights`:

    "coupled"  W itself; messages about all classes at once, C^2 times as large as one class's
    "fisher"   diag(p (1 - p)): the paper's, classes apart; variances of f_c too small, of
               differences f_c - f_d too large
    "poisson"  diag(p), classes apart: W is diag(p) with an unknown offset common to all f_c of the row
               (the multinomial as independent Poisson counts, Baker 1994), so that differences, which
               alone matter to probabilities, keep their uncertainty

    The mode is the exact joint one in all three.
    """

    processes: int
    """C"""
    weights: str = "poisson"
    scaling = "none"
    support = "whole numbers as class labels"
    companions = ()
    exact = False
    needs_calibration = False

    @property
    def name(self):
        return "softmax" if self.weights == "poisson" else f"softmax_{self.weights}"

    @property
    def coupled(self):
        return self.weights == "coupled"

    @property
    def parameters(self):
        return {}

    def with_parameters(self, values):
        return self

    def unsupported(self, obs):
        return unsupported_classes(obs, self.processes)

    def targets(self, obs):
        """One-hot rows, (n, C)."""
        return np.eye(self.processes)[obs.y.astype(int)]

    def log_density(self, obs, f):
        own = np.take_along_axis(f, obs.y.astype(int)[:, None], axis=1)[:, 0]
        return obs.weight * (own - logsumexp(f, axis=1))

    def score(self, obs, f):
        return obs.weight[:, None] * (self.targets(obs) - softmax(f, axis=1))

    def probability(self, obs, f):
        """Weight times class probability at f, (n, C): the curvature of the Poisson form."""
        return obs.weight[:, None] * softmax(f, axis=1)

    def curvature(self, obs, f):
        p = softmax(f, axis=1)
        return obs.weight[:, None] * (p * (1.0 - p) if self.weights == "fisher" else p)

    def class_probability(self, mean, covariance, calibration=None):
        """Average softmax over f ~ N(mean, covariance), (n, C), by quasi-random draws.

        Parameters
        ----------
        mean : (n, C); covariance : (n, C) variances, or (n, C, C)
        """
        total = np.zeros_like(mean)
        for u in _draws(self.processes):
            shift = np.sqrt(covariance) * u if covariance.ndim == 2 else np.linalg.cholesky(covariance) @ u
            total += softmax(mean + shift, axis=1)
        return total / DRAWS


def _draws(classes):
    return qmc.MultivariateNormalQMC(np.zeros(classes), rng=np.random.default_rng(DRAWS_SEED)).random(DRAWS)


# Least noise variance that learning may choose for targets of +1 and -1. Where equal rows have equal labels the
# evidence of a regression grows without end as the noise goes to 0, though labels are no function values; on
# validation rows of letter, ijcnn1 and glass, .03 to .1 gave the best log loss and accuracy.
LEAST_LABEL_NOISE = 0.05


@dataclass(frozen=True)
class OneHot:
    """Regression on +1 for a row's own class and -1 for the others (GBCM paper, section 6.5).

    The cost is that of one regression: all classes share the factor and the precision. Probabilities
    come from a calibration that is fitted on held-out predictions (Platt 2000).
    """

    processes: int
    noise_variance: np.ndarray
    name = "onehot"
    bounds: ClassVar[dict] = {"noise_variance": (LEAST_LABEL_NOISE, 10.0)}
    scaling = "none"
    support = "whole numbers as class labels"
    companions = ()
    exact = True
    needs_calibration = True

    def __post_init__(self):
        object.__setattr__(self, "noise_variance", np.atleast_1d(np.asarray(self.noise_variance, dtype=float)))

    @property
    def parameters(self):
        return {"noise_variance": self.noise_variance}

    def with_parameters(self, values):
        return replace(self, **values)

    def unsupported(self, obs):
        return unsupported_classes(obs, self.processes)

    def targets(self, obs):
        """+1 and -1, (n, C)."""
        return 2.0 * np.eye(self.processes)[obs.y.astype(int)] - 1.0

    def noise(self, obs):
        """Noise variance of each row, (n,)."""
        return self.noise_variance / obs.weight


def unsupported_classes(obs, classes):
    """True for targets that are no class number, (n,); for unknown `classes`, that are no label."""
    broken = obs.y != np.floor(obs.y)
    return broken if classes is None else broken | (obs.y < 0) | (obs.y >= classes)

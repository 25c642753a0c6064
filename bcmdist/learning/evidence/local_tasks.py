"""Log evidence of single partitions, which learning sums."""

from dataclasses import dataclass

import numpy as np

from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts import softmax
from bcmdist.experts.evidence import local_evidence
from bcmdist.experts.residual import prior_covariance
from bcmdist.learning.left_out.density import left_out_density, left_out_labels
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference


@dataclass(frozen=True)
class Evidence:
    """A sum of log evidences with its gradient; `failures` counts partitions without one."""

    value: float
    gradient: np.ndarray
    failures: int
    reason: str = ""
    """of a failure, in words"""

    def __add__(self, other: "Evidence") -> "Evidence":
        return Evidence(
            self.value + other.value,
            self.gradient + other.gradient,
            self.failures + other.failures,
            self.reason or other.reason,
        )


@dataclass(frozen=True)
class _Tried:
    """Hyper-parameters to be tried on a partition."""

    scaling: BlobReference
    kernel: Kernel
    mean: str
    likelihood: Likelihood
    classes: tuple[float, ...] | None

    def _seen(self, rows):
        """Inputs (n, D) and observations in the units of the model."""
        scaling = load_scaling(self.scaling)
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units)
        return scaling.inputs(rows.X), obs


@dataclass(frozen=True)
class LocalEvidence(_Tried):
    """Log evidence of a partition on its own at given hyper-parameters.

    A partition at which the hyper-parameters fail numerically counts as a failure and not as an
    error: the optimiser has stepped too far.
    """

    def __call__(self, part, rows):
        X, obs = self._seen(rows)
        try:
            value, gradient = local_evidence(self.kernel, Mean(self.mean), self.likelihood, X, obs)
        except (NotPositiveDefinite, LaplaceNotConverged) as error:
            nothing = np.zeros(len(self.kernel.theta) + len(self.likelihood.parameters))
            return Evidence(0.0, nothing, 1, f"{part.key}: {error}")
        return Evidence(value, gradient, 0)


@dataclass(frozen=True)
class LeftOut(_Tried):
    """How well the first rows of a neighbourhood, its centre, are predicted from the others; -inf where it fails.

    One log density, or of labels one for each steepness of their probabilities: the best of the sums is meant.
    """

    central: int

    def __call__(self, part, rows):
        X, obs = self._seen(rows)
        K = prior_covariance(self.kernel.cross(X, X), Mean(self.mean), X)
        try:
            density = left_out_labels if self.likelihood.on_labels else left_out_density
            return np.atleast_1d(density(K, self.likelihood, obs, min(self.central, len(X))))
        except (NotPositiveDefinite, LaplaceNotConverged):
            return np.array([-np.inf])


@dataclass(frozen=True)
class ClassEvidence(_Tried):
    """Log evidence of classes of a partition on its own; -inf where it fails numerically."""

    def __call__(self, part, rows):
        X, obs = self._seen(rows)
        K = prior_covariance(self.kernel.cross(X, X), Mean(self.mean), X)
        try:
            return softmax.log_evidence(K, obs, self.likelihood)
        except (NotPositiveDefinite, LaplaceNotConverged):
            return -np.inf

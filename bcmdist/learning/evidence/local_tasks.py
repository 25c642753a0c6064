"""Log evidence of single partitions, which learning sums."""

from dataclasses import dataclass

import numpy as np

from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts import softmax
from bcmdist.experts.evidence import local_evidence
from bcmdist.experts.residual import prior_covariance
from bcmdist.learning.left_out.density import left_out_density, left_out_labels
from bcmdist.model import model as models
from bcmdist.model.likelihoods import make_likelihood
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
    kernel: str
    kernel_parameters: dict[str, list[float]]
    mean: str
    likelihood: str
    likelihood_parameters: dict[str, list[float]]
    classes: tuple[float, ...] | None

    def _given(self, rows):
        """Kernel and likelihood, and the rows as they see them."""
        kernel = models.kernel_from(self.kernel, self.kernel_parameters, inputs=rows.X.shape[1])
        likelihood = models.likelihood_from(self.likelihood, self.likelihood_parameters, self.classes)
        scaling = load_scaling(self.scaling)
        obs = scaling.observations(class_numbers(rows.obs, self.classes), likelihood.units)
        return kernel, likelihood, scaling.inputs(rows.X), obs


@dataclass(frozen=True)
class LocalEvidence(_Tried):
    """Log evidence of a partition on its own at given hyper-parameters.

    A partition at which the hyper-parameters fail numerically counts as a failure and not as an
    error: the optimiser has stepped too far.
    """

    def __call__(self, part, rows):
        kernel, likelihood, X, obs = self._given(rows)
        try:
            value, gradient = local_evidence(kernel, Mean(self.mean), likelihood, X, obs)
        except (NotPositiveDefinite, LaplaceNotConverged) as error:
            nothing = np.zeros(len(kernel.theta) + len(likelihood.parameters))
            return Evidence(0.0, nothing, 1, f"{part.key}: {error}")
        return Evidence(value, gradient, 0)


@dataclass(frozen=True)
class LeftOut(_Tried):
    """How well the first rows of a neighbourhood, its centre, are predicted from the others; -inf where it fails.

    One log density, or of labels one for each steepness of their probabilities: the best of the sums is meant.
    """

    central: int

    def __call__(self, part, rows):
        kernel, likelihood, X, obs = self._given(rows)
        K = prior_covariance(kernel.cross(X, X), Mean(self.mean), X)
        try:
            density = left_out_labels if likelihood.on_labels else left_out_density
            return np.atleast_1d(density(K, likelihood, obs, min(self.central, len(X))))
        except (NotPositiveDefinite, LaplaceNotConverged):
            return np.array([-np.inf])


@dataclass(frozen=True)
class ClassEvidence:
    """Log evidence of classes of a partition on its own; -inf where it fails numerically."""

    scaling: BlobReference
    kernel: str
    kernel_parameters: dict[str, list[float]]
    mean: str
    likelihood: str
    classes: tuple[float, ...]

    def __call__(self, part, rows):
        kernel = models.kernel_from(self.kernel, self.kernel_parameters, inputs=rows.X.shape[1])
        X = load_scaling(self.scaling).inputs(rows.X)
        obs = class_numbers(rows.obs, self.classes)
        K = prior_covariance(kernel.cross(X, X), Mean(self.mean), X)
        try:
            return softmax.log_evidence(K, obs, make_likelihood(self.likelihood, len(self.classes)))
        except (NotPositiveDefinite, LaplaceNotConverged):
            return -np.inf

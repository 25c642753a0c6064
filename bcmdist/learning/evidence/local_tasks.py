"""Tasks for single partitions: their log evidence, and predictions of left-out rows."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from zict import LRU

from bcmdist.data.rows import ROWS_BYTES
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts import softmax
from bcmdist.experts.evidence import leave_one_out, local_evidence
from bcmdist.learning.left_out.blocks import block_numbers, densities_by_block, means_by_block
from bcmdist.learning.left_out.density import (
    block_errors,
    densities_a_row,
    left_out_densities,
    left_out_errors,
    left_out_labels,
    normal_density,
)
from bcmdist.model.kernels import Kernel, squared_distance
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean, prior_covariance
from bcmdist.model.model import named_parameters
from bcmdist.model.targets import class_numbers
from bcmdist.storage.cache import get_or_make, least_recently_used
from bcmdist.storage.commits import BlobReference


@dataclass(frozen=True)
class Evidence:
    """Sum of log evidences with its gradient; `failures` counts partitions that failed numerically."""

    value: float
    gradient: np.ndarray
    failures: int
    reason: str = ""
    """message of one of the failures"""

    def __add__(self, other: "Evidence") -> "Evidence":
        return Evidence(
            self.value + other.value,
            self.gradient + other.gradient,
            self.failures + other.failures,
            self.reason or other.reason,
        )


# Scaled inputs of the partitions on which hyper-parameters are tried, by scaling and content: some hundred candidates
# are tried on each, and warping the inputs takes a tenth of the time of an evidence.
_scaled: "LRU[Hashable, np.ndarray]" = least_recently_used(ROWS_BYTES, lambda X: X.nbytes)


def _inputs(reference: BlobReference, rows) -> np.ndarray:
    """Scaled inputs (n, D) of rows; read-only."""

    def made():
        X = load_scaling(reference).inputs(rows.X)
        X.flags.writeable = False
        return X

    return get_or_make(_scaled, (reference, rows.digest), made)


@dataclass(frozen=True)
class _Tried:
    """Trial hyper-parameters of a task on one partition."""

    scaling: BlobReference
    kernel: Kernel
    mean: str
    likelihood: Likelihood
    classes: tuple[float, ...] | None

    def _seen(self, rows):
        """Inputs (n, D) and observations in the units of the model."""
        obs = load_scaling(self.scaling).observations(
            class_numbers(rows.obs, self.classes), self.likelihood.units, rows.X
        )
        return _inputs(self.scaling, rows), obs

    def _log_units(self, rows):
        """Log of the length of one unit of the model at each target, in original units, (n,): with errors multiplied
        by these lengths, densities are in original units, so that they can be compared between transforms."""
        scaling = load_scaling(self.scaling)
        own = scaling.of_rows(scaling.with_outputs(rows.obs, rows.X))
        jacobians = own.log_jacobians(rows.obs.y, self.likelihood.units)
        return np.broadcast_to(-jacobians, len(rows.obs.y))


@dataclass(frozen=True)
class LocalEvidence(_Tried):
    """Task: log evidence of a partition by itself with its gradient, at given hyper-parameters.

    Numerical failure at the hyper-parameters is counted, not raised: the optimiser has stepped too far.
    """

    of_rows: ClassVar[Callable[..., tuple[float, np.ndarray]]] = staticmethod(local_evidence)

    def __call__(self, part, rows):
        X, obs = self._seen(rows)
        try:
            value, gradient = self.of_rows(self.kernel, Mean(self.mean), self.likelihood, X, obs)
        except (NotPositiveDefinite, LaplaceNotConverged) as error:
            nothing = np.zeros(sum(map(len, named_parameters(self.kernel, self.likelihood).values())))
            return Evidence(0.0, nothing, 1, f"{part.key}: {error}")
        return Evidence(value, gradient, 0)


@dataclass(frozen=True)
class LocalLeaveOneOut(LocalEvidence):
    """Task: sum of the log densities of a partition's rows, each given the others; otherwise as `LocalEvidence`."""

    of_rows = staticmethod(leave_one_out)


@dataclass(frozen=True)
class RowsLeftOut:
    """Predictions of left-out rows, (k, n); adding appends rows.

    Gaussian noise: errors and their variances (k = 2), in the units of the targets as given. Class labels: a log
    probability per steepness. Other likelihoods: one log density (k = 1).
    """

    values: np.ndarray

    def __add__(self, other: "RowsLeftOut") -> "RowsLeftOut":
        return RowsLeftOut(np.concatenate([self.values, other.values], axis=1))


@dataclass(frozen=True)
class LeftOut(_Tried):
    """Task: leave-one-out predictions (`RowsLeftOut`) of the first `central` rows of a neighbourhood.

    If they cannot be computed, errors are infinite and log densities -inf.
    """

    central: int

    def __call__(self, part, rows):
        X, obs = self._seen(rows)
        K, count = prior_covariance(self.kernel.cross(X, X), Mean(self.mean), X), min(self.central, len(X))
        try:
            if self.likelihood.on_labels:
                return RowsLeftOut(left_out_labels(K, self.likelihood, obs, count))
            if self.likelihood.normal:
                error, variance = left_out_errors(K, self.likelihood, obs, count)
                unit = np.exp(self._log_units(rows)[:count])
                return RowsLeftOut(np.array([error * unit, variance * unit**2]))
            return RowsLeftOut(left_out_densities(K, self.likelihood, obs, count)[None])
        except (NotPositiveDefinite, LaplaceNotConverged):
            return RowsLeftOut(failed(self.likelihood, count))


def failed(likelihood: Likelihood, count: int) -> np.ndarray:
    """Return the values that `RowsLeftOut` holds for rows that could not be predicted."""
    if likelihood.normal:
        return np.array([np.full(count, np.inf), np.ones(count)])
    return np.full((densities_a_row(likelihood), count), -np.inf)


@dataclass(frozen=True)
class BlockLeftOut(_Tried):
    """Task: mean log density of the centre of a neighbourhood given only the rows around it, (1, 1); -inf on failure.

    The centre is a ball around the first row, as large as the gaps in the data.
    """

    radius: float
    unit: tuple[float, ...]
    """metric of the radius, (D,)"""

    def __call__(self, part, rows):
        X, obs = self._seen(rows)
        inside = squared_distance(X, X[:1], np.array(self.unit))[:, 0] < self.radius**2
        order, count = np.argsort(~inside, kind="stable"), int(inside.sum())
        X, obs = X[order], obs[order]
        try:
            K = prior_covariance(self.kernel.cross(X, X), Mean(self.mean), X)
            error, variance = block_errors(K, self.likelihood, obs, count)
        except NotPositiveDefinite:
            return RowsLeftOut(np.full((1, 1), -np.inf))
        density = normal_density(error, variance) - self._log_units(rows)[order[:count]]
        return RowsLeftOut(np.full((1, 1), density.mean()))


@dataclass(frozen=True)
class BlocksOfSample(_Tried):
    """Task: mean log density of each block of a sample, given the rows outside of it; -inf on failure.

    Values (1 + k, B): the size, as its position in `left_out.blocks.CUTS`, and the density; of class labels one a
    steepness.
    """

    drawn: BlobReference
    """scaling of the inputs by which blocks are drawn: candidates of other scalings leave out the same blocks"""
    unit: tuple[float, ...]
    """metric in which a block is compact, (D,)"""

    def __call__(self, part, rows):
        X, obs = self._seen(rows)
        numbers = block_numbers(_inputs(self.drawn, rows) / np.array(self.unit))
        try:
            K = prior_covariance(self.kernel.cross(X, X), Mean(self.mean), X)
            densities = densities_by_block(K, self.likelihood, obs, numbers)
            if self.likelihood.normal:
                densities = densities - self._log_units(rows)
        except (NotPositiveDefinite, LaplaceNotConverged):
            densities = np.full((densities_a_row(self.likelihood), *numbers.shape), -np.inf)
        means = [[means_by_block(own, d) for own, d in zip(numbers, one, strict=True)] for one in densities]
        sizes = np.repeat(np.arange(len(numbers)), [len(one) for one in means[0]])
        return RowsLeftOut(np.array([sizes, *(np.concatenate(one) for one in means)]))


@dataclass(frozen=True)
class ClassEvidence(_Tried):
    """Task: log evidence of a partition's class labels by itself; -inf on numerical failure."""

    def __call__(self, part, rows):
        X, obs = self._seen(rows)
        K = prior_covariance(self.kernel.cross(X, X), Mean(self.mean), X)
        try:
            return softmax.log_evidence(K, obs, self.likelihood)
        except (NotPositiveDefinite, LaplaceNotConverged):
            return -np.inf

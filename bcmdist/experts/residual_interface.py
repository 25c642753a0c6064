"""Interfaces for the residual: how an expert treats the part of f not explained by v; implementations in `residual`."""

from abc import ABC, abstractmethod

import numpy as np

from bcmdist.experts.factor import Factor
from bcmdist.experts.low_rank import LowRank
from bcmdist.linalg.arrays import FloatArray, FloatOrArray
from bcmdist.model.shared.interface import Shared, refuse_negative
from bcmdist.runtime import memory


class Residual(ABC):
    """Lam ~ cov(f | v) of the n rows of one partition."""

    @abstractmethod
    def factor(self, noise: FloatOrArray) -> Factor:
        """Factor of R = Psi + Lam for noise variances (n,) or one scalar. May overwrite this residual."""

    @abstractmethod
    def site(self, w: FloatArray) -> Factor:
        """Factor of B = I + w^1/2 Lam w^1/2 for weights w (n,) >= 0."""

    @abstractmethod
    def __matmul__(self, x: FloatArray) -> FloatArray:
        """Return Lam x for x (n,) or (n, m)."""

    @abstractmethod
    def pull(self, h: FloatArray, B: FloatArray) -> FloatArray:
        """Return (I + h Lam)^-1 B for h (n,) of any sign and B (n, m)."""

    @abstractmethod
    def left(self, w: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the diagonal of Lam - Lam T Lam, (n,), and (I + Lam w)^-1 V, (n, S), given weights w (n,).

        T = (Lam + w^-1)^-1.
        """

    @property
    @abstractmethod
    def covariance(self) -> FloatArray | LowRank:
        """Lam as the covariance of a prior: a matrix or `LowRank`."""

    @abstractmethod
    def plus(self, A: FloatArray) -> FloatArray | LowRank:
        """Return Lam + A A' for A (n, S), in the same form as `covariance`."""


class Kind(ABC):
    """A treatment of the part of f not explained by v; creates the `Residual` of given rows."""

    couples: bool
    """whether it couples the rows of a partition, which requires n x n matrices"""
    joint_modes: bool = True
    """whether the modes of several processes can be searched jointly, as for a softmax"""
    keeps: float = 1.0
    """share of the residual variance that f keeps at each row, correlated between rows or not; 0 without a residual"""

    @abstractmethod
    def residual(self, shared: Shared, V: FloatArray, X: FloatArray) -> Residual:
        """Residual of the rows X (n, D), scaled, with design V (n, S)."""

    @abstractmethod
    def own_prior(self, shared: Shared, V: FloatArray, X: FloatArray) -> tuple[FloatArray | LowRank, Residual]:
        """Return the prior cov(f) of these rows, in the form of `Residual.covariance`, and their residual."""

    @abstractmethod
    def variance(self, shared: Shared, V: FloatArray, X: FloatArray) -> FloatArray:
        """var(f | v) at new rows X, (n,)."""

    @abstractmethod
    def joint_lower(self, shared: Shared, V: FloatArray, X: FloatArray) -> FloatArray:
        """Lower triangle of cov(f | v) between new rows X, (n, n), under the model."""

    @abstractmethod
    def expert_bytes(
        self, rows: int, shared: int, *, kernels: int, laplace: bool, classes: int, coupled: bool
    ) -> float:
        """Peak bytes of an expert of `rows` rows with `shared` shared variables (`runtime.memory`)."""

    def prediction_bytes(self, rows: int, shared: int, *, kernels: int) -> float:
        """Peak bytes of predicting a block of `rows` rows (`runtime.memory`)."""
        return memory.prediction_bytes(rows, shared, kernels=kernels)

    def local_bytes(self, neighbours: int, rows: int, shared: int, *, kernels: int, classes: int) -> float:
        """Peak bytes of predicting `rows` rows, each with `neighbours` neighbouring rows (`runtime.memory`)."""
        return memory.local_bytes(neighbours, rows, shared, kernels=kernels, classes=classes)


class Kept(Kind):
    """At new points the full residual covariance of the kernel is kept."""

    def variance(self, shared: Shared, V: FloatArray, X: FloatArray) -> FloatArray:
        return left_variance(shared, V, X)

    def joint_lower(self, shared: Shared, V: FloatArray, X: FloatArray) -> FloatArray:
        covariance = shared.residual_lower(V, shared.kernel.cross(X, X))
        variance = np.diag(covariance).copy()
        refuse_negative(variance, shared.kernel.diagonal(X))
        covariance[np.diag_indices_from(covariance)] = np.maximum(variance, 0.0)
        return covariance


def left_variance(shared: Shared, V: FloatArray, X: FloatArray) -> FloatArray:
    """Residual variance of the kernel given v at rows X (n, D) with design V (n, S): (n,), at least 0."""
    residual = shared.residual_variance(V, X)
    refuse_negative(residual, shared.kernel.diagonal(X))
    return np.maximum(residual, 0.0)

"""The interfaces of what an expert does with the rest of f: see `residual` for those that there are."""

from abc import ABC, abstractmethod

import numpy as np

from bcmdist.experts.factor import Factor
from bcmdist.experts.low_rank import LowRank
from bcmdist.model.shared.interface import Shared, refuse_negative
from bcmdist.runtime import memory


class Residual(ABC):
    """Lam of the n rows of a partition."""

    @abstractmethod
    def factor(self, noise) -> Factor:
        """Of R = Psi + Lam for noise variances (n,), or one for all. May use up this residual."""

    @abstractmethod
    def site(self, w) -> Factor:
        """Of B = I + w^1/2 Lam w^1/2 for weights w (n,) >= 0."""

    @abstractmethod
    def __matmul__(self, x):
        """Lam x for x (n,) or (n, m)."""

    @abstractmethod
    def pull(self, h, B) -> np.ndarray:
        """(I + h Lam)^-1 B for h (n,) of any sign and B (n, m)."""

    @abstractmethod
    def left(self, w, V) -> tuple[np.ndarray, np.ndarray]:
        """What rows with weights w leave: the diagonal of Lam - Lam T Lam, (n,), and (I + Lam w)^-1 V, (n, S).

        T = (Lam + w^-1)^-1.
        """

    @property
    @abstractmethod
    def covariance(self) -> np.ndarray | LowRank:
        """Lam as the covariance of a prior: a matrix or `LowRank`."""

    @abstractmethod
    def plus(self, A) -> np.ndarray | LowRank:
        """Lam + A A' for A (n, S), as `covariance`."""


class Kind(ABC):
    """How a committee treats the rest of f: makes the `Residual` of any rows."""

    couples: bool
    """whether it couples the rows of a partition, which takes matrices of them"""
    together: bool = True
    """whether modes of several processes can be searched together, as those of a softmax"""
    keeps: float = 1.0
    """share of the variance left by the shared variables that rows keep, if only each for itself"""

    @abstractmethod
    def residual(self, shared: Shared, V, X) -> Residual:
        """Of the rows X (n, D), scaled, with design V (n, S)."""

    @abstractmethod
    def own_prior(self, shared: Shared, V, X) -> tuple[np.ndarray | LowRank, Residual]:
        """cov(f) of these rows before anything is absorbed, as `Residual.covariance`; and their residual."""

    @abstractmethod
    def variance(self, shared: Shared, V, X) -> np.ndarray:
        """var(f | v) at new rows X, (n,)."""

    @abstractmethod
    def joint_lower(self, shared: Shared, V, X) -> np.ndarray:
        """Lower triangle of cov(f | v) between new rows X, (n, n), as the model has it."""

    @abstractmethod
    def expert_bytes(self, rows, shared, *, kernels, laplace, classes, coupled) -> float:
        """Peak bytes of an expert of so many rows about so many shared variables (`runtime.memory`)."""

    def prediction_bytes(self, rows, shared, *, kernels) -> float:
        """Peak bytes of predicting a block of so many rows (`runtime.memory`)."""
        return memory.prediction_bytes(rows, shared, kernels=kernels)

    def local_bytes(self, around, rows, shared, *, kernels, classes) -> float:
        """Peak bytes of predicting so many rows with the rows around each (`runtime.memory`)."""
        return memory.local_bytes(around, rows, shared, kernels=kernels, classes=classes)


class Kept(Kind):
    """New points keep all that v leaves of them, as the kernel has it."""

    def variance(self, shared, V, X) -> np.ndarray:
        return left_variance(shared, V, X)

    def joint_lower(self, shared, V, X) -> np.ndarray:
        covariance = shared.residual_lower(V, shared.kernel.cross(X, X))
        variance = np.diag(covariance).copy()
        refuse_negative(variance, shared.kernel.diagonal(X))
        covariance[np.diag_indices_from(covariance)] = np.maximum(variance, 0.0)
        return covariance


def left_variance(shared: Shared, V, X) -> np.ndarray:
    """What v leaves of the kernel's variance at rows X (n, D) with design V (n, S), (n,), at least 0."""
    residual = shared.residual_variance(V, X)
    refuse_negative(residual, shared.kernel.diagonal(X))
    return np.maximum(residual, 0.0)

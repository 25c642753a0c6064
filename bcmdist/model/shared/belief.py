"""Gaussian beliefs about the shared variables."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.linalg.arrays import FloatArray


class Belief(ABC):
    """The Gaussian posterior N(mean, Lambda^-1) of the shared variables v, independent between processes."""

    mean: FloatArray
    """(..., S)"""
    factor: FloatArray
    """L, lower Cholesky factor of the posterior *precision* Lambda = L L', (S, S) or (..., S, S); beliefs without a
    factor raise `InvalidOption`"""

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log |Lambda|, summed over processes."""

    @property
    @abstractmethod
    def degrees_of_freedom(self) -> float:
        """tr(I - Lambda^-1), mean over processes: how many shared variables the data determine (SYSTEMS I.8)."""

    @abstractmethod
    def length(self, move: FloatArray) -> float:
        """Length (move' Lambda move)^1/2 of a change of the shared variables, (..., S), in the metric of the precision.

        An upper bound of the change of every prediction in units of its standard deviation.
        """

    @abstractmethod
    def __getitem__(self, k: int) -> "Belief":
        """Belief about process or member k."""

    @property
    @abstractmethod
    def accuracy(self) -> dict[str, float]:
        """Report of the numerical accuracy of the belief, JSON-ready; empty where the only error is rounding."""


@dataclass(frozen=True)
class Factored(Belief):
    """A belief with the Cholesky factor of its precision."""

    mean: FloatArray
    factor: FloatArray

    @property
    def log_determinant(self) -> float:
        sharing = _blocks(self.mean, 1) // _blocks(self.factor, 2)
        return sharing * linalg.log_determinant(self.factor)

    @property
    def degrees_of_freedom(self) -> float:
        shared = self.factor.shape[-1]
        factors = self.factor.reshape(-1, shared, shared)
        return float(shared - np.mean([np.trace(linalg.inverse(np.asfortranarray(L))) for L in factors]))

    def length(self, move: FloatArray) -> float:
        if self.factor.ndim == 2:
            return float(np.linalg.norm(move @ self.factor))
        return float(np.linalg.norm([m @ L for m, L in zip(move, self.factor, strict=True)]))

    def __getitem__(self, k: int) -> "Factored":
        """Belief about process k; needs one factor per process."""
        return Factored(self.mean[k], self.factor[k])

    @property
    def accuracy(self) -> dict[str, float]:
        return {}


def factored(eta: FloatArray, precision: FloatArray) -> Factored:
    """N(Lambda^-1 eta, Lambda^-1) with Lambda = I + precision (GBCM paper, eqs. 14-15).

    Parameters
    ----------
    eta : (..., S), precision : (S, S) or (..., S, S), of a sum of messages
    """
    if precision.ndim == 2:
        factor = _factor(precision)
        return Factored(linalg.cholesky_solve(factor, eta.T).T, factor)
    factors = np.stack([_factor(one) for one in precision])
    return Factored(np.stack([linalg.cholesky_solve(L, h) for L, h in zip(factors, eta, strict=True)]), factors)


def _factor(precision: FloatArray) -> FloatArray:
    shared = len(precision)
    return linalg.cholesky(np.asfortranarray(np.eye(shared) + precision), name="committee precision")


def _blocks(array: FloatArray, axes: int) -> int:
    """Number of processes along the leading axes."""
    return math.prod(array.shape[: array.ndim - axes])

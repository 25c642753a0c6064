"""What somebody believes of the shared variables: a Gaussian."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from bcmdist import linalg


class Belief(ABC):
    """The Gaussian posterior N(mean, Lambda^-1) of the shared variables v, process by process."""

    mean: np.ndarray
    """(..., S)"""
    factor: np.ndarray
    """L, lower Cholesky factor of the posterior *precision* Lambda = L L', (S, S) or (..., S, S); a belief that has
    none refuses to give it, with an `InvalidOption`"""

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log |Lambda|, summed over processes."""

    @property
    @abstractmethod
    def degrees_of_freedom(self) -> float:
        """tr(I - Lambda^-1), the mean over processes: how many shared variables the data determine (SYSTEMS I.8)."""

    @abstractmethod
    def length(self, move) -> float:
        """Length (move' Lambda move)^1/2 of a move of the shared variables, (..., S), in the metric of the precision.

        It bounds the change of every prediction in units of its standard deviation.
        """

    @abstractmethod
    def __getitem__(self, k) -> "Belief":
        """That of one of several processes or models."""

    @property
    @abstractmethod
    def told(self) -> dict[str, float]:
        """What is to be said of how it was computed, JSON-ready; nothing where rounding is all that it errs by."""


@dataclass(frozen=True)
class Factored(Belief):
    """A belief whose precision was factored: all of it is at hand."""

    mean: np.ndarray
    factor: np.ndarray

    @property
    def log_determinant(self) -> float:
        sharing = _blocks(self.mean, 1) // _blocks(self.factor, 2)
        return sharing * linalg.log_determinant(self.factor)

    @property
    def degrees_of_freedom(self) -> float:
        shared = self.factor.shape[-1]
        factors = self.factor.reshape(-1, shared, shared)
        return float(shared - np.mean([np.trace(linalg.inverse(np.asfortranarray(L))) for L in factors]))

    def length(self, move) -> float:
        if self.factor.ndim == 2:
            return float(np.linalg.norm(move @ self.factor))
        return float(np.linalg.norm([m @ L for m, L in zip(move, self.factor, strict=True)]))

    def __getitem__(self, k) -> "Factored":
        """Of those that have a factor each."""
        return Factored(self.mean[k], self.factor[k])

    @property
    def told(self) -> dict[str, float]:
        return {}


def factored(eta, precision) -> Factored:
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


def _factor(precision):
    shared = len(precision)
    return linalg.cholesky(np.asfortranarray(np.eye(shared) + precision), name="committee precision")


def _blocks(array, axes):
    """Number of processes that stand along the leading axes."""
    return math.prod(array.shape[: array.ndim - axes])

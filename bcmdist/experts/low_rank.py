"""Covariances of rows that nothing but the shared variables couples: a diagonal and an outer product, no matrix."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bcmdist import linalg


@dataclass(frozen=True)
class LowRank:
    """K = diag(d) + U U' of n rows; of a matrix it has what the search for a mode needs: `@`, `diagonal`, `abs`."""

    d: np.ndarray
    """(n,), >= 0"""
    U: np.ndarray
    """(n, S)"""

    def __len__(self):
        return len(self.d)

    def __matmul__(self, a):
        """K a for a (n,) or (n, m)."""
        return (self.d * a.T).T + self.U @ (self.U.T @ a)

    def __abs__(self):
        """A bound of the absolute values of K."""
        return LowRank(self.d, np.abs(self.U))

    def diagonal(self) -> np.ndarray:
        """(n,)"""
        return self._variances

    @cached_property
    def _variances(self):
        return self.d + np.einsum("ij,ij->i", self.U, self.U)

    def solver(self, root) -> Callable:
        """B^-1 of B = I + root K root, as a function of b (n,), for root (n,), in O(n S^2).

        With D = I + root d root and T = D^-1/2 root U:  B^-1 = D^-1/2 (I - T (I + T'T)^-1 T') D^-1/2
        """
        sd = np.sqrt(1.0 + root**2 * self.d)
        if self.U.shape[1] == 0:
            return lambda b: b / sd**2
        T = np.multiply((root / sd)[:, None], self.U, order="F")
        inner = linalg.gram(T)
        inner[np.diag_indices_from(inner)] += 1.0
        L = linalg.cholesky(inner, name="I + U'w U of an expert")

        def solve(b):
            b = b / sd
            return (b - T @ linalg.cholesky_solve(L, T.T @ b)) / sd

        return solve

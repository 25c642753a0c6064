"""Diagonal plus low-rank covariances, of rows that only the shared variables couple; no n x n matrix is formed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bcmdist import linalg


@dataclass(frozen=True)
class LowRank:
    """K = diag(d) + U U' of n rows, with the matrix operations that the mode search needs: `@`, `diagonal`, `abs`."""

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
        """Elementwise upper bound of |K|."""
        return LowRank(self.d, np.abs(self.U))

    def diagonal(self) -> np.ndarray:
        """Diagonal of K, (n,)."""
        return self._variances

    @cached_property
    def _variances(self):
        return self.d + np.einsum("ij,ij->i", self.U, self.U)

    def solver(self, root) -> Callable:
        """Return the function b -> B^-1 b for B = I + root K root, with root and b (n,); O(n S^2) to build.

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

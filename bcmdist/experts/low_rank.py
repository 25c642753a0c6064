"""Diagonal plus low-rank covariances, of rows that only the shared variables couple; no n x n matrix is formed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from bcmdist import linalg
from bcmdist.linalg.arrays import FloatArray

Solver = Callable[[np.ndarray], np.ndarray]
"""From b (n,) or (n, m) to A^-1 b for a matrix A (n, n)."""


class Covariance(Protocol):
    """What the search of a mode needs of a covariance K (n, n); a matrix and `LowRank` have it.

    Other classes also register an implementation of `laplace.step_solver`.
    """

    def __len__(self) -> int: ...

    def __matmul__(self, a: FloatArray, /) -> FloatArray: ...

    def __abs__(self) -> "Covariance": ...

    def diagonal(self) -> FloatArray: ...


@dataclass(frozen=True)
class LowRank:
    """K = diag(d) + U U' of n rows, with the matrix operations that the mode search needs: `@`, `diagonal`, `abs`."""

    d: FloatArray
    """(n,), >= 0"""
    U: FloatArray
    """(n, S)"""

    def __len__(self) -> int:
        return len(self.d)

    def __matmul__(self, a: FloatArray) -> FloatArray:
        """K a for a (n,) or (n, m)."""
        return (self.d * a.T).T + self.U @ (self.U.T @ a)

    def __abs__(self) -> "LowRank":
        """Elementwise upper bound of |K|."""
        return LowRank(self.d, np.abs(self.U))

    def diagonal(self) -> FloatArray:
        """Diagonal of K, (n,)."""
        return self._variances

    @cached_property
    def _variances(self) -> FloatArray:
        variances: FloatArray = self.d + np.einsum("ij,ij->i", self.U, self.U)
        return variances

    def solver(self, root: FloatArray) -> Solver:
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

        def solve(b: FloatArray) -> FloatArray:
            b = b / sd
            solved: FloatArray = (b - T @ linalg.cholesky_solve(L, T.T @ b)) / sd
            return solved

        return solve

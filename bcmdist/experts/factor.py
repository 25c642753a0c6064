"""Whitening factors of experts: triangular where rows are coupled, one number per row where they are not."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bcmdist import linalg
from bcmdist.linalg.arrays import FloatArray, IntArray

# Rows per block, so that a block stays in the cache until its product is computed.
GRAM_ROWS = 512


class Factor(ABC):
    """T with T'T = A^-1 of a positive definite A (n, n)."""

    @abstractmethod
    def whiten(self, B: np.ndarray) -> np.ndarray:
        """Return T B for B (n,) or (n, m), Fortran-ordered; may overwrite B."""

    @abstractmethod
    def weigh(self, root: FloatArray, B: np.ndarray) -> np.ndarray:
        """Return T diag(root) B for root (n,) and B (n, m), a new Fortran-ordered matrix."""

    @abstractmethod
    def gram(self, root: FloatArray, B: np.ndarray) -> np.ndarray:
        """Return W'W, (m, m), for W = T diag(root) B."""

    @abstractmethod
    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return A^-1 b for b (n,) or (n, m)."""

    @abstractmethod
    def inverse_diagonal(self, rows: IntArray) -> np.ndarray:
        """Diagonal of A^-1 at the given row indices (k,)."""

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log |A|"""


@dataclass(frozen=True)
class Triangular(Factor):
    """A = L L'."""

    L: np.ndarray
    """(n, n), lower"""

    def whiten(self, B: np.ndarray) -> np.ndarray:
        return linalg.solve_lower(self.L, B)

    def weigh(self, root: FloatArray, B: np.ndarray) -> np.ndarray:
        return linalg.solve_lower(self.L, np.multiply(root[:, None], B, order="F"))

    def gram(self, root: FloatArray, B: np.ndarray) -> np.ndarray:
        return linalg.gram(self.weigh(root, B))

    def solve(self, b: np.ndarray) -> np.ndarray:
        return linalg.cholesky_solve(self.L, b)

    def inverse_diagonal(self, rows: IntArray) -> np.ndarray:
        units = np.zeros((len(self.L), len(rows)), order="F")
        units[rows, np.arange(len(rows))] = 1.0
        white = linalg.solve_lower(self.L, units)
        diagonal: np.ndarray = np.einsum("ij,ij->j", white, white)
        return diagonal

    @property
    def log_determinant(self) -> float:
        return linalg.log_determinant(self.L)


@dataclass(frozen=True)
class Scales(Factor):
    """A = diag(sd^2)."""

    sd: FloatArray
    """(n,)"""

    def whiten(self, B: FloatArray) -> FloatArray:
        over = (1.0 / self.sd).reshape(-1, *[1] * (B.ndim - 1))
        return np.multiply(B, over, out=B)

    def weigh(self, root: FloatArray, B: FloatArray) -> FloatArray:
        return np.multiply((root / self.sd)[:, None], B, order="F")

    def gram(self, root: FloatArray, B: FloatArray) -> FloatArray:
        weights, G = (root / self.sd)[:, None], np.zeros((B.shape[1], B.shape[1]), order="F")
        for start in range(0, len(B), GRAM_ROWS):
            some = slice(start, start + GRAM_ROWS)
            G = linalg.add_gram_lower(G, np.multiply(weights[some], B[some], order="F"))
        return linalg.mirror(G)

    def solve(self, b: FloatArray) -> FloatArray:
        return (b.T / self.sd**2).T

    def inverse_diagonal(self, rows: IntArray) -> FloatArray:
        return 1.0 / self.sd[rows] ** 2

    @property
    def log_determinant(self) -> float:
        return 2.0 * float(np.log(self.sd).sum())


@dataclass(frozen=True)
class Rotated(Factor):
    """A = diag(sd) (I + F F') diag(sd), with few columns in F: T = (I + F F')^-1/2 diag(1 / sd).

    With F'F = E diag(s) E':  (I + F F')^-1/2 = I - F E diag((1 - (1 + s)^-1/2) / s) E'F'.
    """

    sd: FloatArray
    """(n,)"""
    F: FloatArray
    """(n, M)"""

    @cached_property
    def _spectrum(self) -> tuple[FloatArray, FloatArray]:
        s, E = np.linalg.eigh(linalg.gram(np.asfortranarray(self.F)))
        return np.maximum(s, 0.0), E

    def _within(self, of_spectrum: Callable[[FloatArray], FloatArray], Y: FloatArray) -> FloatArray:
        """Return F E diag(c) E'F'Y, where c = of_spectrum(s)."""
        s, E = self._spectrum
        return self.F @ (E @ (of_spectrum(s) * (E.T @ (self.F.T @ Y)).T).T)

    def whiten(self, B: FloatArray) -> FloatArray:
        Y = (B.T / self.sd).T
        return np.asfortranarray(Y - self._within(_root_share, Y))

    def weigh(self, root: FloatArray, B: FloatArray) -> FloatArray:
        return self.whiten(root[:, None] * B)

    def gram(self, root: FloatArray, B: FloatArray) -> FloatArray:
        return linalg.gram(self.weigh(root, B))

    def solve(self, b: FloatArray) -> FloatArray:
        y = (b.T / self.sd).T
        return ((y - self._within(lambda s: 1.0 / (1.0 + s), y)).T / self.sd).T

    def inverse_diagonal(self, rows: IntArray) -> FloatArray:
        s, E = self._spectrum
        reach = (self.F[rows] @ E) / np.sqrt(1.0 + s)
        diagonal: FloatArray = (1.0 - np.einsum("ij,ij->i", reach, reach)) / self.sd[rows] ** 2
        return diagonal

    @property
    def log_determinant(self) -> float:
        return float(2.0 * np.log(self.sd).sum() + np.log1p(self._spectrum[0]).sum())


def _root_share(s: FloatArray) -> FloatArray:
    """(1 - (1 + s)^-1/2) / s, which is 1/2 at 0."""
    least = np.finfo(float).tiny
    return np.where(s > least, -np.expm1(-0.5 * np.log1p(s)) / np.maximum(s, least), 0.5)

"""Factors of what experts whiten their rows by: triangular where rows are coupled, one number per row where not."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from bcmdist import linalg

# Rows that are weighed at a time: they stay in the cache until their product is made.
GRAM_ROWS = 512


class Factor(ABC):
    """T with T'T = A^-1 of a positive definite A (n, n)."""

    @abstractmethod
    def whiten(self, B) -> np.ndarray:
        """T B for B (n,) or (n, m); may overwrite B, Fortran-ordered."""

    @abstractmethod
    def weigh(self, root, B) -> np.ndarray:
        """T diag(root) B for root (n,) and B (n, m), a new Fortran-ordered matrix."""

    @abstractmethod
    def gram(self, root, B) -> np.ndarray:
        """W'W of W = T diag(root) B, (m, m)."""

    @abstractmethod
    def solve(self, b) -> np.ndarray:
        """A^-1 b for b (n,) or (n, m)."""

    @abstractmethod
    def inverse_diagonal(self, rows) -> np.ndarray:
        """That of A^-1 at some rows (k,)."""

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log |A|"""


@dataclass(frozen=True)
class Triangular(Factor):
    """A = L L'."""

    L: np.ndarray
    """(n, n), lower"""

    def whiten(self, B) -> np.ndarray:
        return linalg.solve_lower(self.L, B)

    def weigh(self, root, B) -> np.ndarray:
        return linalg.solve_lower(self.L, np.multiply(root[:, None], B, order="F"))

    def gram(self, root, B) -> np.ndarray:
        return linalg.gram(self.weigh(root, B))

    def solve(self, b) -> np.ndarray:
        return linalg.cholesky_solve(self.L, b)

    def inverse_diagonal(self, rows) -> np.ndarray:
        units = np.zeros((len(self.L), len(rows)), order="F")
        units[rows, np.arange(len(rows))] = 1.0
        white = linalg.solve_lower(self.L, units)
        return np.einsum("ij,ij->j", white, white)

    @property
    def log_determinant(self) -> float:
        return linalg.log_determinant(self.L)


@dataclass(frozen=True)
class Scales(Factor):
    """A = diag(sd^2)."""

    sd: np.ndarray
    """(n,)"""

    def whiten(self, B) -> np.ndarray:
        over = (1.0 / self.sd).reshape(-1, *[1] * (B.ndim - 1))
        return np.multiply(B, over, out=B)

    def weigh(self, root, B) -> np.ndarray:
        return np.multiply((root / self.sd)[:, None], B, order="F")

    def gram(self, root, B) -> np.ndarray:
        weights, G = (root / self.sd)[:, None], np.zeros((B.shape[1], B.shape[1]), order="F")
        for start in range(0, len(B), GRAM_ROWS):
            some = slice(start, start + GRAM_ROWS)
            G = linalg.add_gram_lower(G, np.multiply(weights[some], B[some], order="F"))
        return linalg.mirror(G)

    def solve(self, b) -> np.ndarray:
        return (b.T / self.sd**2).T

    def inverse_diagonal(self, rows) -> np.ndarray:
        return 1.0 / self.sd[rows] ** 2

    @property
    def log_determinant(self) -> float:
        return 2.0 * float(np.log(self.sd).sum())

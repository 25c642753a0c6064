"""Factors of what experts whiten their rows by: triangular where rows are coupled, one number per row where not."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from bcmdist import linalg


class Factor(ABC):
    """T with T'T = A^-1 of a positive definite A (n, n)."""

    @abstractmethod
    def whiten(self, B):
        """T B for B (n,) or (n, m); may overwrite B, Fortran-ordered."""

    @abstractmethod
    def weigh(self, root, B):
        """T diag(root) B for root (n,) and B (n, m), a new Fortran-ordered matrix."""

    @abstractmethod
    def solve(self, b):
        """A^-1 b for b (n,) or (n, m)."""

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log |A|"""


@dataclass(frozen=True)
class Triangular(Factor):
    """A = L L'."""

    L: np.ndarray
    """(n, n), lower"""

    def whiten(self, B):
        return linalg.solve_lower(self.L, B)

    def weigh(self, root, B):
        return linalg.solve_lower(self.L, np.multiply(root[:, None], B, order="F"))

    def solve(self, b):
        return linalg.cholesky_solve(self.L, b)

    @property
    def log_determinant(self):
        return linalg.log_determinant(self.L)


@dataclass(frozen=True)
class Scales(Factor):
    """A = diag(sd^2)."""

    sd: np.ndarray
    """(n,)"""

    def whiten(self, B):
        over = (1.0 / self.sd).reshape(-1, *[1] * (B.ndim - 1))
        return np.multiply(B, over, out=B)

    def weigh(self, root, B):
        return np.multiply((root / self.sd)[:, None], B, order="F")

    def solve(self, b):
        return (b.T / self.sd**2).T

    @property
    def log_determinant(self):
        return 2.0 * float(np.log(self.sd).sum())

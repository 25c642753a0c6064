"""The precision Lambda = I + B' w B of Fourier and mean weights: its products, and a preconditioner.

In whitened form B = (D cas(k.t), h(x)), with D the prior standard deviations of the Fourier weights. The P columns h of
the mean form a border of the Toeplitz-structured part.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from bcmdist import linalg
from bcmdist.methods.fourier.toeplitz import Gram

# The block of the weights of largest prior variance is factored for the preconditioner; its factor fits in a cache.
FACTORED = 1000


@dataclass(frozen=True)
class FeaturePrecision:
    """Lambda, (S, S), as an operator."""

    gram: Gram
    scale: np.ndarray
    """D, (B,)"""
    border: np.ndarray
    """block between Fourier and mean weights, whitened, (B, P)"""
    corner: np.ndarray
    """block of the mean weights, (P, P)"""

    @property
    def size(self) -> int:
        """Number S of weights."""
        return len(self.scale) + len(self.corner)

    def __call__(self, v) -> np.ndarray:
        """Return Lambda v for v (..., S)."""
        B = len(self.scale)
        features, mean = v[..., :B], v[..., B:]
        found = v.copy()
        found[..., :B] += self.scale * (self.gram @ (self.scale * features)) + mean @ self.border.T
        found[..., B:] += features @ self.border + mean @ self.corner
        return found

    def plus(self, other: "FeaturePrecision") -> "FeaturePrecision":
        """The precision of the rows of both, with the prior counted once."""
        lags, border = self.gram.lags + other.gram.lags, self.border + other.border
        return FeaturePrecision(Gram(lags), self.scale, border, self.corner + other.corner)

    def without_prior(self) -> np.ndarray:
        """Lambda - I, (S, S), dense."""
        B = len(self.scale)
        found, slabs = np.empty((self.size,) * 2, order="F"), self.gram.shape[0]
        for k in range(slabs):
            some = slice(k * B // slabs, (k + 1) * B // slabs)
            found[:B, some] = (self.scale[some, None] * self.gram.slab(k) * self.scale).T
        return self._bordered(found, slice(None))

    def _block(self, some):
        """Lambda - I for some Fourier weights and all mean weights."""
        D, b = self.scale[some], len(some)
        found = np.zeros((b + len(self.corner),) * 2, order="F")
        found[:b, :b] = D[:, None] * self.gram.block(some) * D
        return self._bordered(found, some)

    def _bordered(self, block, some):
        """Write the rows and columns of the mean weights to a block of some Fourier weights."""
        b = len(block) - len(self.corner)
        block[:b, b:] = self.border[some]
        block[b:, :b] = self.border[some].T
        block[b:, b:] = self.corner
        return block

    @cached_property
    def preconditioner(self) -> "Preconditioner":
        """Preconditioner from the block of the weights of largest prior variance and the diagonal of the others."""
        largest = np.sort(np.argsort(-self.scale, kind="stable")[:FACTORED])
        block = self._block(largest)
        block[np.diag_indices_from(block)] += 1.0
        L = linalg.cholesky(block, name="precision of the largest weights")
        inverse = np.ascontiguousarray(solve_triangular(L, np.eye(len(L)), lower=True))
        diagonal = np.append(1.0 + self.scale**2 * self.gram.diagonal(), np.ones(len(self.corner)))
        some = np.append(largest, np.arange(len(self.scale), self.size))
        diagonal[some] = 1.0
        return Preconditioner(some, inverse, np.sqrt(diagonal), 2.0 * float(np.log(np.diag(L)).sum()))


@dataclass(frozen=True)
class Preconditioner:
    """C with C C' near Lambda: lower triangular for some weights, diagonal for the others (an approximate root)."""

    some: np.ndarray
    """indices of the weights in the triangle, (b,)"""
    inverse: np.ndarray
    """inverse of the triangle, (b, b)"""
    sd: np.ndarray
    """diagonal of the other weights; ones at `some`, (S,)"""
    log_determinant_of_some: float

    @property
    def log_determinant(self) -> float:
        """log |C C'|"""
        return self.log_determinant_of_some + 2.0 * float(np.log(self.sd).sum())

    def solve(self, r) -> np.ndarray:
        """Return C^-1 r for r (..., S)."""
        found = r / self.sd
        found[..., self.some] = r[..., self.some] @ self.inverse.T
        return found

    def precondition(self, r) -> np.ndarray:
        """Return (C C')^-1 r for r (..., S)."""
        return self.solve_transposed(self.solve(r))

    def solve_transposed(self, r) -> np.ndarray:
        """Return C^-T r for r (..., S)."""
        found = r / self.sd
        found[..., self.some] = r[..., self.some] @ self.inverse
        return found


@dataclass(frozen=True)
class DensePrecision:
    """A precision (S, S) in full."""

    matrix: np.ndarray

    def __call__(self, v) -> np.ndarray:
        return v @ self.matrix

    def plus(self, other: FeaturePrecision) -> "DensePrecision":
        """The precision of the rows of both, with the prior counted once."""
        return DensePrecision(self.matrix + other.without_prior())

    @cached_property
    def preconditioner(self) -> "DenseInverse":
        """The inverse, from a factor."""
        return DenseInverse(linalg.cholesky(np.array(self.matrix, order="F"), name="precision of the weights"))


@dataclass(frozen=True)
class DenseInverse:
    """The inverse of a matrix with a lower Cholesky factor (S, S)."""

    factor: np.ndarray

    def precondition(self, r) -> np.ndarray:
        """Return the product with r (S,)."""
        return linalg.cholesky_solve(self.factor, r)


class UnitPrecision:
    """The precision I of weights without rows."""

    def __call__(self, v) -> np.ndarray:
        return v

    def plus(self, other: FeaturePrecision) -> FeaturePrecision:
        """The other precision: the prior counts once."""
        return other

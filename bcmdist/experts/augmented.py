"""Augmented experts: rows of a partition are correlated given v through some support rows (SYSTEMS I.2 and T13).

    Lam ~ Lam_is Lam_ss^-1 Lam_si = B B',    Lam_ab = k(a, b) - V_a V_b'

The reduced-rank Gaussian process of the support rows s, augmented jointly by all query points (RRGP* of Quinonero-
Candela's thesis, 3.3.3, with the sign of its variance corrected). At the query points the prior is exact, and no n x n
matrix is formed. With all rows in the support this is the block residual of the committee machine; with none it is
subset of regressors. The support has as many rows as there are query points, evenly spaced over the partition.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.experts.factor import Rotated
from bcmdist.experts.low_rank import LowRank
from bcmdist.experts.residual_interface import Kept, Residual
from bcmdist.model.shared.interface import refuse_negative
from bcmdist.runtime import memory

# Residual variances of support rows below this share of the prior variance are rounding, or determined by the others.
LEAST_LEFT = 1e-8


@dataclass(frozen=True)
class Spanned(Residual):
    """Lam = B B'."""

    B: np.ndarray
    """(n, M), Fortran-ordered"""

    @property
    def covariance(self) -> LowRank:
        return LowRank(np.zeros(len(self.B)), self.B)

    def factor(self, noise) -> Rotated:
        sd = np.sqrt(noise + np.zeros(len(self.B)))
        return Rotated(sd, self.B / sd[:, None])

    def site(self, w) -> Rotated:
        return Rotated(np.ones(len(self.B)), np.sqrt(w)[:, None] * self.B)

    def __matmul__(self, x):
        return self.B @ (self.B.T @ x)

    def pull(self, h, B) -> np.ndarray:
        inner = np.eye(self.B.shape[1]) + self.B.T @ (h[:, None] * self.B)
        return B - h[:, None] * (self.B @ np.linalg.solve(inner, self.B.T @ B))

    def left(self, w, V) -> tuple[np.ndarray, np.ndarray]:
        wB = w[:, None] * self.B
        L = linalg.cholesky(np.asfortranarray(np.eye(self.B.shape[1]) + self.B.T @ wB), name="I + B'w B of an expert")
        left = linalg.solve_right_transposed(L, self.B.copy(order="F"))
        return np.einsum("ij,ij->i", left, left), V - self.B @ linalg.cholesky_solve(L, wB.T @ V)

    def plus(self, A) -> LowRank:
        return LowRank(np.zeros(len(self.B)), np.hstack([self.B, A]))


class Augmented(Kept):
    """Residuals correlated through the support rows of the partition; new points keep their full residual variance."""

    couples = False

    def residual(self, shared, V, X) -> Spanned:
        some = support(len(X), shared.functions)
        Lam_ss = shared.residual_cross(V[some], X[some], V[some], X[some])
        prior = shared.kernel.diagonal(X[some])
        refuse_negative(np.diag(Lam_ss), prior)
        kept = _independent(Lam_ss, LEAST_LEFT * prior.mean())
        some, Lam_ss = some[kept], np.asfortranarray(Lam_ss[np.ix_(kept, kept)])
        L = linalg.cholesky(Lam_ss, name="cov(support rows | query) of an augmented expert")
        Lam_is = shared.residual_cross(V, X, V[some], X[some])
        return Spanned(np.asfortranarray(linalg.solve_right_transposed(L, np.asfortranarray(Lam_is))))

    def own_prior(self, shared, V, X) -> tuple[LowRank, Spanned]:
        residual = self.residual(shared, V, X)
        return residual.plus(V), residual

    def expert_bytes(self, rows, shared, *, kernels, laplace, classes, coupled) -> float:
        how = {"kernels": kernels, "laplace": laplace, "classes": classes, "coupled": coupled}
        return 2 * memory.independent_expert_bytes(rows, shared, **how)


def support(rows: int, count: int) -> np.ndarray:
    """Indices of at most `count` of `rows` rows, evenly spaced."""
    return np.unique(np.linspace(0, rows - 1, min(rows, count)).round().astype(int))


def _independent(Lam, least):
    """Indices, ascending, of rows whose variance given the others exceeds `least`."""
    mean = np.diag(Lam).mean()
    return linalg.independent_rows(Lam, least / mean) if mean > least else np.empty(0, dtype=int)

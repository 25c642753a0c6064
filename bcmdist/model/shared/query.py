"""The query set: the points through which all experts speak (`query_selection` chooses them).

`Query` is the prior prepared once for many uses: the factor L of the query covariance
Kqq = L L' and everything needed to write any input in terms of the shared variables

    v = (L^-1 g(X^q), w) ~ N(0, I),     f(x) = b(x)' v + remainder,   b(x) = (L^-1 k(X^q, x), h(x))

with g the process of the kernel, h and w the basis and weights of the mean. The remainder is
what the query set cannot explain; its prior covariance is `residual`.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.model.kernels import Kernel
from bcmdist.model.mean import Mean


@dataclass(frozen=True)
class Query:
    """Query points with the prior they belong to; made by `prepare`."""

    points: np.ndarray
    """Query inputs in scaled units, (Q, D)"""
    kernel: Kernel
    mean: Mean
    factor: np.ndarray
    """L with L L' = k(X^q, X^q) + jitter I, (Q, Q)"""
    jitter: float
    """in units of the kernel"""

    @property
    def jitter_share(self):
        """The jitter in units of the mean variance of the query values."""
        return float(self.jitter / self.kernel.diagonal(self.points).mean())

    @property
    def shared(self):
        """Number S = Q + P of shared variables."""
        return len(self.points) + self.mean.weights(self.points.shape[1])

    def whiten(self, X):
        """Rows b(x)' of the whitened design: (n, D) -> (n, S), Fortran-ordered."""
        Q = len(self.points)
        V = np.empty((len(X), self.shared), order="F")
        V[:, :Q] = linalg.solve_right_transposed(self.factor, self.kernel.cross(X, self.points))
        V[:, Q:] = self.mean.design(X)
        return V

    def residual_lower(self, V, K):
        """Lower triangle of cov(f | v) = K - V V' for K = k(X, X); overwrites that of K.

        The columns of the mean weights cancel against their part of the prior covariance.
        """
        return linalg.subtract_outer_lower(K, V[:, : len(self.points)])

    def residual(self, V, X, V2, X2):
        """cov(f, f' | v) between the rows of X (n, D) and of X2 (m, D) with designs V and V2, (n, m)."""
        Q = len(self.points)
        return self.kernel.cross(X, X2) - V[:, :Q] @ V2[:, :Q].T

    def residual_variance(self, V, X):
        """Diagonal of cov(f | v) at the rows of X, (n,)."""
        Vq = V[:, : len(self.points)]
        return self.kernel.diagonal(X) - np.einsum("ij,ij->i", Vq, Vq)


def prepare(points, *, kernel, mean, jitters=linalg.JITTER_LADDER) -> Query:
    """Query set at given points, (Q, D) in scaled units.

    Parameters
    ----------
    jitters : shares of the mean variance to try, ascending; a single one where nothing else may be chosen

    Raises
    ------
    NotPositiveDefinite
        None of them makes the query covariance positive definite.
    """
    points = np.array(points, dtype=float)
    Kqq = kernel.cross(points, points)
    factor, jitter = linalg.cholesky_with_jitter(Kqq, name="query covariance k(X^q, X^q)", ladder=jitters)
    return Query(points, kernel, mean, factor, jitter)

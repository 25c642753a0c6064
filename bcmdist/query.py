"""The query set: the points through which all experts speak, and how to choose them.

`Query` is the prior prepared once for many uses: the factor L of the query covariance
Kqq = L L' and everything needed to write any input in terms of the shared variables

    v = (L^-1 g(X^q), w) ~ N(0, I),     f(x) = b(x)' v + remainder,   b(x) = (L^-1 k(X^q, x), h(x))

with g the process of the kernel, h and w the basis and weights of the mean. The remainder is
what the query set cannot explain; its prior covariance is `residual`.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.errors import InvalidOption
from bcmdist.kernels import Kernel
from bcmdist.mean import Mean

QUERY_METHODS = ("kmeans", "random")

KMEANS_ITERATIONS = 25  # the committee needs spread-out points, not the optimal clustering


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
    def shared(self):
        """Number S = Q + P of shared variables."""
        return len(self.points) + self.mean.weights(self.points.shape[1])

    def whiten(self, X):
        """Rows b(x)' of the whitened design: (n, D) -> (n, S), Fortran-ordered."""
        Q = len(self.points)
        V = np.empty((len(X), self.shared), order="F")
        V[:, :Q] = self.kernel.cross(X, self.points)
        linalg.solve_right_transposed(self.factor, V[:, :Q])
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


def prepare(points, *, kernel, mean) -> Query:
    """Query set at given points, (Q, D) in scaled units.

    Raises
    ------
    NotPositiveDefinite
        No jitter of the ladder makes the query covariance positive definite.
    """
    points = np.array(points, dtype=float)
    Kqq = kernel.cross(points, points)
    factor, jitter = linalg.cholesky_with_jitter(Kqq, name="query covariance k(X^q, X^q)")
    return Query(points, kernel, mean, factor, jitter)


def select_points(sample, count, *, kernel, method="kmeans", seed=0):
    """At most `count` well-spread query points from sampled rows.

    k-means centres, or random rows, in the metric of the kernel's lengthscales; points which the
    others already determine to double precision are dropped.

    Parameters
    ----------
    sample : (n, D)
        Rows in scaled units.
    kernel : Kernel
        With its final hyper-parameters.

    Returns
    -------
    (Q, D) with Q <= min(count, n)

    Raises
    ------
    InvalidOption
        The method has no such name, or the kernel is zero at all rows.
    """
    if method not in QUERY_METHODS:
        raise InvalidOption(f"query method: expected one of {', '.join(QUERY_METHODS)}, got {method!r}; give one")
    sample = np.unique(sample, axis=0)
    if count < len(sample):
        choose = _kmeans_centres if method == "kmeans" else _random_rows
        sample = choose(sample, count, _metric(kernel, sample.shape[1]), seed)
    K = kernel.cross(sample, sample)
    if not np.any(np.diag(K) > 0):
        raise InvalidOption("kernel: expected a positive variance at some rows, it is zero at all; choose another one")
    return sample[linalg.independent_rows(K)]


def _random_rows(sample, count, metric, seed):
    return sample[np.random.default_rng(seed).choice(len(sample), count, replace=False)]


def _kmeans_centres(sample, count, metric, seed):
    from sklearn.cluster import KMeans  # takes a second to import

    means = KMeans(count, n_init=1, init="random", max_iter=KMEANS_ITERATIONS, random_state=seed)
    return means.fit(sample / metric).cluster_centers_ * metric


def _metric(kernel, inputs):
    """The shortest lengthscale of each input over the parts of a kernel, (D,)."""
    scales = [np.broadcast_to(v, inputs) for n, v in kernel.parameters.items() if n.endswith("lengthscale")]
    return np.min(scales, axis=0) if scales else np.ones(inputs)

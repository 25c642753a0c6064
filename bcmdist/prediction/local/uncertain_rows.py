"""Rows whose inputs were measured with errors, for local experts.

The target of a row is seen at its true input x, which is normal around the measured one. A local prediction needs the
mean and covariance of the values f(x) of its rows, averaged over x (kriging adjusted for location errors: Cressie &
Kornak 2003; Cervone & Pillai 2015):

    cov(f(x), f(x')) = E k(x, x')  of two rows,    var f(x) = E k(x, x),    cov(f(x), f(z)) = E k(x, z)

So local predictions are the best linear ones, with the right variance on average over fields, whatever the size of
the errors. f(x) is not normal, as it is taken to be, and that an error matters more where f is steep is not used.
Rows stay at their measured inputs: at the most probable ones, which were fitted to the targets, targets would count
twice.

Expectations are means over 2 D points u +- sqrt(D) r, for r the D axes of the covariance of a row's errors, which are
exact for cubic functions (McNamee & Stenger 1967), and give covariances that are positive semi-definite. A row is given
by these points, side by side: (2 D^2,).
"""

from dataclasses import dataclass

import numpy as np

from bcmdist.prediction.local.committee_at_rows import CommitteeAtRows


def possible_inputs(X, roots) -> np.ndarray:
    """Points (n, 2 D^2) that stand for rows with measured inputs X (n, D) and errors of covariance R R'.

    roots : R of each row, (n, D, D)
    """
    n, D = X.shape
    moves = np.sqrt(D) * np.swapaxes(roots, 1, 2)
    return (X[:, None] + np.concatenate([moves, -moves], axis=1)).reshape(n, -1)


def mean_cross(kernel, X, X2, inputs: int) -> np.ndarray:
    """Mean of k over the points of rows X and X2, (n, m); a single point each for new rows (n, D)."""
    a, b = X.reshape(len(X), -1, inputs), X2.reshape(len(X2), -1, inputs)
    pairs = [(p, q) for p in np.moveaxis(a, 1, 0) for q in np.moveaxis(b, 1, 0)]
    total = kernel.cross(*pairs[0])
    for p, q in pairs[1:]:
        total += kernel.cross(p, q)
    total /= len(pairs)
    return total


@dataclass(frozen=True)
class AtUncertainRows(CommitteeAtRows):
    """`exact`, for values that are means over the points of rows, or values at new rows (n, D)."""

    exact: CommitteeAtRows

    def __init__(self, exact: CommitteeAtRows):
        for name, value in {"exact": exact, "shared": exact.shared, "belief": exact.belief}.items():
            object.__setattr__(self, name, value)

    @property
    def block_rows(self) -> int:  # type: ignore[override]
        return self.exact.block_rows

    def columns(self, X) -> np.ndarray:
        return _mean_of(self.exact.columns(self._points(X)), len(X))

    def mean(self, V) -> np.ndarray:
        return self.exact.mean(V)

    def left_lower(self, V, X) -> np.ndarray:
        return np.asfortranarray(self.left_cross(V, X, V, X))

    def left_cross(self, V, X, V2, X2) -> np.ndarray:
        return self.prior_cross(X, X2) - self.explained(V) @ self.explained(V2).T

    def left_variance(self, V, X) -> np.ndarray:
        return self.exact.left_variance(V, X)

    def prior_cross(self, X, X2) -> np.ndarray:
        return mean_cross(self.shared.kernel, X, X2, self.shared.inputs)

    def explained(self, A) -> np.ndarray:
        return self.exact.explained(A)

    def belief_root(self, A, k) -> np.ndarray:
        return self.exact.belief_root(A, k)

    def stacked_rows(self, X, rows) -> np.ndarray:
        width = rows.shape[1] // self.shared.inputs if rows.size else 1
        return np.concatenate([np.tile(X, (1, width)), rows])

    def input_noise(self, V, X) -> np.ndarray:
        """E k(x, x) less the variance of the mean over points, and the variance of the prior mean over points, (n,)."""
        points, kernel = X.reshape(len(X), -1, self.shared.inputs), self.shared.kernel
        each = np.moveaxis(points, 1, 0)
        variance = np.mean([kernel.diagonal(p) for p in each], axis=0)
        variance -= np.mean([[_paired(kernel, p, q) for p in each] for q in each], axis=(0, 1))
        weights = self.exact.columns(self._points(X))
        weights[:, : self.shared.functions] = 0.0
        means = self.exact.mean(weights).reshape(len(X), -1)
        return np.maximum(variance, 0.0) + means.var(axis=1)

    def _points(self, X):
        return X.reshape(-1, self.shared.inputs)


def _paired(kernel, p, q):
    """k(p_i, q_i), (n,), in blocks."""
    blocks = range(0, len(p), 64)
    return np.concatenate([kernel.cross(p[a : a + 64], q[a : a + 64]).diagonal() for a in blocks])


def _mean_of(values, rows):
    return values.reshape(rows, -1, values.shape[1]).mean(axis=1) if len(values) > rows else values

"""Predictions by Fourier features: at random draws of rows outside the box, and leave-one-out at training rows.

Rows are independent given the weights, with residual variance t (`Fourier.truncated_variance`).

`FourierAtRows` is the committee in the form that local experts use. The columns of a row are V m and V R, with R R' =
Lambda^-1 or, for many weights, its average over probes. A design with thousands of features is never formed.

Local experts agree with the committee where the truncated frequencies do not matter. They agree with the Gaussian
process of the periodic kernel where the neighbours are all rows and the belief is that of these rows as one block.
Otherwise the committee treats the truncated frequencies as independent noise, so with many rows per weight it is
overconfident, most of all near the highest frequency (tests/benchmarks/README.md).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist import linalg
from bcmdist.experts.leave_one_out import cavity
from bcmdist.methods.fourier.belief import PREDICTION_ROWS, IterativeBelief
from bcmdist.methods.fourier.messages import conditional_mode, expert_mode
from bcmdist.model.kernels import cross_lower
from bcmdist.model.shared.belief import Factored
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.local.committee_at_rows import CommitteeAtRows


@dataclass(frozen=True)
class FourierAtRows(CommitteeAtRows):
    """Columns of means and roots: the first C columns are the means of C processes, which share the root columns."""

    shared: Any
    """`Fourier`"""
    belief: Factored | IterativeBelief
    block_rows = PREDICTION_ROWS

    def columns(self, X) -> np.ndarray:
        blocks = range(0, max(len(X), 1), self.block_rows)
        return np.vstack([self._means_and_roots(X[a : a + self.block_rows]) for a in blocks])

    def _means_and_roots(self, X):
        """V m and V R, (n, C + K)."""
        if isinstance(self.belief, Factored):
            V = self.shared.design(X)
            return np.column_stack([V @ self.belief.mean.T, linalg.solve_right_transposed(self.belief.factor, V)])
        roots = np.stack([one.root for one in self.belief.probes()])
        means = self.belief.mean.reshape(-1, self.shared.size)
        return self.shared.design_product(X, np.vstack([means, roots / np.sqrt(len(roots))])).T

    def mean(self, V) -> np.ndarray:
        return V[:, 0] if self.belief.mean.ndim == 1 else V[:, : len(self.belief.mean)]

    def left_lower(self, V, X) -> np.ndarray:
        left, (i, j) = cross_lower(self.shared.kernel, X), np.tril_indices(len(X))
        left[i, j] += self.shared.residual_less_kernel(X[i] - X[j])
        return left

    def left_cross(self, V, X, V2, X2) -> np.ndarray:
        return self.prior_cross(X, X2)

    def left_variance(self, V, X) -> np.ndarray:
        return self.shared.kernel.diagonal(X) + self.shared.residual_less_kernel(np.zeros((1, X.shape[1])))

    def prior_cross(self, X, X2) -> np.ndarray:
        lags = (X2[:, None] - X).reshape(-1, X.shape[1])
        return self.shared.kernel.cross(X, X2) + self.shared.residual_less_kernel(lags).reshape(len(X2), len(X)).T

    def explained(self, A) -> np.ndarray:
        return A[:, :0]

    def belief_root(self, A, k) -> np.ndarray:
        return A[:, self.belief.mean.size // self.shared.size :]


def predict_draws(shared, predictor, X) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at drawn rows X (n, D); rows outside the box are treated as far from all training rows.

    Outside, f(x) = h(x)'w + g(x), with the posterior of the mean weights w and the prior of g.
    """
    outside = ((shared.low > X) | (shared.high < X)).any(axis=1)
    if not outside.any():
        return predictor.latent(X)
    return _merged(outside, predictor.latent(X[~outside]), _far_from_rows(shared, predictor.belief, X[outside]))


def _merged(outside, near, far):
    """Combine the moments of rows inside and outside the box, in the order of all rows."""
    mean, variance = (np.empty((len(outside), *one.shape[1:])) for one in near)
    mean[~outside], variance[~outside] = near
    mean[outside], variance[outside] = far
    return mean, variance


def _far_from_rows(shared, belief, X):
    """Mean and variance where the data inform the mean function only, (n,) each, or (n, C)."""
    H = shared.mean.design(X)
    mean = H @ belief.mean[..., shared.functions :].T
    variance = shared.kernel.diagonal(X) + np.einsum("ij,jk,ik->i", H, _mean_covariance(shared, belief), H)
    return mean, variance if mean.ndim == 1 else np.repeat(variance[:, None], mean.shape[1], axis=1)


def _mean_covariance(shared, belief):
    """Covariance of the mean weights, (P, P), by polarisation: x'C y = (|x + y|^2 - |x - y|^2) / 4 in the norm of C."""
    P = shared.size - shared.functions
    units = np.eye(P, shared.size, shared.functions)
    if isinstance(belief, Factored):
        A = linalg.solve_right_transposed(belief.factor, np.asfortranarray(units))
        return A @ A.T
    pairs = (units[:, None] + sign * units for sign in (1.0, -1.0))
    sums, differences = (belief.variances(one.reshape(-1, shared.size)).reshape(P, P) for one in pairs)
    return 0.25 * (sums - differences)


def leave_one_out(shared, likelihood, X, obs, belief, rows, copies, at) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out mean and variance of f at some rows, (k,) each: removes the row's site from the belief in b'v."""
    t, (mean, variance) = shared.truncated_variance, predict_latent(shared, belief, X[rows])
    if likelihood.exact:
        curvature = copies / (likelihood.noise(obs)[rows] + t)
        score = curvature * (likelihood.targets(obs)[rows] - mean)
    else:
        if at is None:
            f = expert_mode(shared, likelihood, X, obs)
        else:
            f, _ = conditional_mode(shared, likelihood, X, obs, at)
        f, obs = f[rows], obs[rows]
        w = likelihood.curvature(obs, f)
        share = copies / (1.0 + w * t)
        score, curvature = share * (w * (f - mean) + likelihood.score(obs, f)), share * w
    mean, variance = cavity(mean, variance - t, score, curvature)
    return mean, variance + t


def degrees_share(shared, likelihood, X, obs, belief) -> float:
    """Effective degrees of freedom of rows (`prediction.diagnosis.diagnosis`), averaged over processes."""
    t, (_, variance) = shared.truncated_variance, predict_latent(shared, belief, X)
    if likelihood.exact:
        w = 1.0 / likelihood.noise(obs)
    else:
        w = likelihood.curvature(obs, conditional_mode(shared, likelihood, X, obs, belief.mean)[0])
    scale = 1.0 + w * t
    return float(np.mean((w / scale**2) @ (variance - t)) + np.sum(w * t / scale))

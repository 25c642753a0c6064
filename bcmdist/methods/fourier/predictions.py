"""Predictions by Fourier features: at random draws of rows outside the box, and leave-one-out at training rows.

Rows are independent given the weights, with residual variance t (`Fourier.truncated_variance`).
"""

import numpy as np

from bcmdist import linalg
from bcmdist.experts.expert import find_mode
from bcmdist.methods.fourier.messages import FourierCovariance, conditional_mode
from bcmdist.model.shared.belief import Factored
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import left_out


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
        prior = FourierCovariance(shared, X)
        f = find_mode(prior, obs, likelihood) if at is None else conditional_mode(shared, likelihood, X, obs, at)[0]
        f, obs = f[rows], obs[rows]
        w = likelihood.curvature(obs, f)
        share = copies / (1.0 + w * t)
        score, curvature = share * (w * (f - mean) + likelihood.score(obs, f)), share * w
    mean, variance = left_out(mean, variance - t, score, curvature)
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

"""Log evidence of one expert on its own, with its gradient in the log hyper-parameters.

Hyper-parameter learning maximises the sum over a few partitions. theta is the kernel's log parameters followed by the
likelihood's. The weights of the prior mean are integrated out together with the kernel's process.

For Laplace experts, f is the mode, g the score there, w the weights of the log determinant (the curvature, or its
expectation), and h = -d2 log p / df2 the Hessian, which determines how the mode moves and may be negative where p is
not log-concave. For most likelihoods w = h.
"""

from typing import cast

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.experts.laplace import laplace_mode
from bcmdist.experts.leave_one_out import from_precision
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood, OneProcess, slopes
from bcmdist.model.mean import Mean, prior_covariance

# Where the share w var(f | y) is below this, the difference 1 - T_ii / w_i has lost four digits.
LEAST_LEFT = 1e-4

Evidence = tuple[float, FloatArray, FloatArray]
"""log p(y), with its derivatives in the covariance (n, n) of f and in the likelihood's log parameters."""


def local_evidence(
    kernel: Kernel, mean: Mean, likelihood: Likelihood, X: FloatArray, obs: Observations
) -> tuple[float, FloatArray]:
    """log p(y | theta) of the rows X (n, D) alone, and its gradient.

    Returns
    -------
    value : float, in nats; gradient : (P,)
    """
    K, pullback = kernel.cross_and_pullback(X, X)
    K = prior_covariance(K, mean, X)
    value, adjoint, tail = evidence_of_covariance(K, likelihood, obs)
    return value, np.concatenate([pullback(adjoint), tail])


def evidence_of_inputs(
    kernel: Kernel, mean: Mean, likelihood: Likelihood, X: FloatArray, obs: Observations
) -> tuple[float, FloatArray]:
    """log p(y | X) of the rows X (n, D) alone, as `local_evidence`, and its gradient (n, D) with respect to X."""
    K = prior_covariance(kernel.cross(X, X), mean, X)
    value, adjoint, _ = evidence_of_covariance(K, likelihood, obs)
    return value, kernel.input_gradient(X, X, adjoint + adjoint.T) + mean.input_gradient(X, adjoint)


def evidence_of_covariance(K: FloatArray, likelihood: Likelihood, obs: Observations) -> Evidence:
    """log p(y) under f ~ N(0, K), with its derivatives in K (n, n) and in the likelihood's log parameters.

    Overwrites K.
    """
    return _gaussian(K, likelihood, obs) if likelihood.exact else _laplace(K, cast(OneProcess, likelihood), obs)


def leave_one_out(
    kernel: Kernel, mean: Mean, likelihood: Likelihood, X: FloatArray, obs: Observations
) -> tuple[float, FloatArray]:
    """sum_i log p(y_i | all other y, theta) of the rows X (n, D) alone, and its gradient, for Gaussian noise.

    (Geisser's surrogate predictive probability; Sundararajan & Keerthi 2001; Rasmussen & Williams 2006, 5.10 to 5.13;
    SYSTEMS T26.) Shapes as in `local_evidence`.
    """
    K, pullback = kernel.cross_and_pullback(X, X)
    value, adjoint, tail = _left_out(prior_covariance(K, mean, X), likelihood, obs)
    return value, np.concatenate([pullback(adjoint), tail])


def _gaussian(K: FloatArray, likelihood: Likelihood, obs: Observations) -> Evidence:
    """log N(y; 0, K + Psi); d/dK = 1/2 (a a' - (K + Psi)^-1) with a = (K + Psi)^-1 y.

    (Rasmussen & Williams 2006, eq. 5.9; the noise adds its own diagonal, whose known part is constant.) C processes
    share the covariance: y and a are (n, C), and the sum over processes is returned.
    """
    noise, y = likelihood.noise(obs), likelihood.targets(obs)
    K[np.diag_indices_from(K)] += noise
    L = linalg.cholesky(K, name="covariance of a partition's targets")
    a = linalg.cholesky_solve(L, y).reshape(len(y), -1)
    processes = a.shape[1]
    constant = processes * (linalg.log_determinant(L) + len(y) * np.log(2.0 * np.pi))
    adjoint = linalg.inverse(L)
    adjoint *= -0.5 * processes
    for one in a.T:
        adjoint = linalg.add_outer(adjoint, 0.5, one)
    return float(-0.5 * (np.vdot(y, a) + constant)), adjoint, likelihood.noise_slopes(obs, np.diag(adjoint))


def _left_out(K: FloatArray, likelihood: Likelihood, obs: Observations) -> Evidence:
    """Sum of log N(e_i; 0, s_i) of leave-one-out errors e_i with variances s_i, and its derivatives.

    With T = (K + Psi)^-1, a = T y, u = T e and w = (s + e^2) / 2:  d/dK = 1/2 (u a' + a u') - T diag(w) T
    = 1/4 ((u + a)(u + a)' - (u - a)(u - a)') - T diag(w) T. C processes share the covariance, as in `_gaussian`.
    """
    noise, y = likelihood.noise(obs), likelihood.targets(obs)
    K[np.diag_indices_from(K)] += noise
    T = linalg.inverse(linalg.cholesky(K, name="covariance of a partition's targets"))
    y = y.reshape(len(y), -1)
    a = T @ y
    error, variance = from_precision(a, np.diag(T)[:, None].copy())
    u, w = T @ error, 0.5 * (variance + error**2).sum(axis=1)
    value = -0.5 * np.sum(error**2 / variance + np.log(2.0 * np.pi * variance))
    T *= np.sqrt(w)[:, None]
    adjoint = linalg.gram(T)
    adjoint *= -1.0
    for above, below in zip((u + a).T, (u - a).T, strict=True):
        adjoint = linalg.add_outer(linalg.add_outer(adjoint, 0.25, above), -0.25, below)
    return float(value), adjoint, likelihood.noise_slopes(obs, np.diag(adjoint))


def _laplace(K: FloatArray, likelihood: OneProcess, obs: Observations) -> Evidence:
    """Laplace evidence and its derivative with respect to K (SYSTEMS I.4).

    With T = (K + w^-1)^-1,  v = 1/2 var(f | y) third,  t = (I + h K)^-1 v:
    d/dK = 1/2 (g g' - T) + 1/2 (t g' + g t')     (the last part: the mode moves with K)
         = 1/2 ((g + t)(g + t)' - t t' - T)
    """
    f = laplace_mode(K, obs, likelihood)
    g = likelihood.score(obs, f)
    L, T, left = weighted_inverse(K, likelihood.curvature(obs, f))
    value = likelihood.log_density(obs, f).sum() - 0.5 * (g @ f) - 0.5 * linalg.log_determinant(L)
    variance = posterior_variance(K, L, likelihood.curvature(obs, f), left)
    t = corrected_mode_shift(0.5 * variance * likelihood.third(obs, f), K, T, likelihood, obs, f)
    tail = likelihood_gradient(likelihood, obs, f, variance, K @ t)
    T *= -0.5
    return float(value), linalg.add_outer(linalg.add_outer(T, 0.5, g + t), -0.5, t), tail


def weighted_inverse(K: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """L with L L' = B = I + w^1/2 K w^1/2, T = w^1/2 B^-1 w^1/2 = (K + w^-1)^-1, w >= 0, and the diagonal of B^-1."""
    root = np.sqrt(w)
    L = linalg.cholesky(linalg.identity_plus_scaled(K, root), name="I + w^1/2 K w^1/2")
    T = linalg.inverse(L)
    left = np.diag(T).copy()
    T *= root[:, None]
    T *= root
    return L, T, left


def posterior_variance(K: FloatArray, L: FloatArray, w: FloatArray, left: FloatArray) -> FloatArray:
    """Diagonal of K - K T K at the last k rows, (k,), from L and the diagonal of B^-1 there (k,) of `weighted_inverse`.

    For rows with enough information about their f this is (1 - left) / w, since K T = I - T / w. For the other rows
    that difference cancels, and a triangular solve is used.
    """
    first, own = len(K) - len(left), w[len(K) - len(left) :]
    faint = np.flatnonzero(1.0 - left < LEAST_LEFT)
    variance, at = np.divide(1.0 - left, own, out=np.zeros(len(own)), where=own > 0.0), first + faint
    C = linalg.solve_lower(L, np.multiply(np.sqrt(w)[:, None], K[:, at], order="F"))
    variance[faint] = K[at, at] - np.einsum("ij,ij->j", C, C)
    return variance


def has_separate_hessian(likelihood: OneProcess) -> bool:
    """Whether the likelihood's Hessian differs from its curvature."""
    return type(likelihood).hessian is not OneProcess.hessian


def corrected_mode_shift(
    x: FloatArray, K: FloatArray, T: FloatArray, likelihood: OneProcess, obs: Observations, f: FloatArray
) -> FloatArray:
    """(I + h K)^-1 x for x (n,) or (n, m): the net change of the score after the mode has moved.

    Equals x - T K x where h = w. Otherwise h may be negative, and the system is solved directly.
    """
    if not has_separate_hessian(likelihood):
        return x - T @ (K @ x)
    return cast(FloatArray, np.linalg.solve(np.eye(len(K)) + likelihood.hessian(obs, f)[:, None] * K, x))


def likelihood_gradient(
    likelihood: OneProcess, obs: Observations, f: FloatArray, variance: FloatArray, reach: FloatArray
) -> FloatArray:
    """Derivatives of a Laplace evidence with respect to the likelihood's log parameters.

    sum (dlog p - 1/2 var(f | y) dw + reach dg). The first two terms hold f fixed; the last is the movement of the mode:
    df = (I + K h)^-1 K dg, so that reach = K (I + h K)^-1 v.
    """
    all_slopes = [slopes(likelihood, obs, f, name) for name in likelihood.parameters]
    return np.array([density.sum() - 0.5 * variance @ w + reach @ g for density, g, w in all_slopes], dtype=float)

"""Gradient of the log evidence of a committee with independent rows: fitc and sor, with Gaussian noise.

As `committee_gradient`, but only the shared variables couple the rows. With r_j = psi_j + lam_j the variance of target
j given v, N(m, Sigma) the posterior of v, and V the whitened design,

    a = (y - V m) / r,  (H V)_j = 1/2 (a_j m' - V_j Sigma / r_j),  h_j = 1/2 (a_j^2 - 1 / r_j + V_j Sigma V_j' / r_j^2)

are a vector, the rows of H V and the diagonal of H = d log p / dC = 1/2 (C^-1 y y' C^-1 - C^-1), with C the covariance
of all targets. No matrix has the size of a partition squared (SYSTEMS I.3 with a diagonal residual). The residual
determines which part of h is due to the variance of k(x, x) that the shared variables leave unexplained: all of h
(fitc), or nothing (sor).
"""

from dataclasses import dataclass

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.experts.residual import kind_of
from bcmdist.learning.evidence.committee_gradient import query_gradient, query_pullback, times_inverse
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.shared.query import Query

DIAGONAL_ROWS = 32  # rows at a time: kernels differentiate matrices, so k(x, x) is the diagonal of small ones


@dataclass(frozen=True)
class Adjoints:
    """Derivatives of the log evidence due to a block of rows."""

    diagonal: np.ndarray
    """derivative in k(x, x), (n,)"""
    cross: np.ndarray
    """derivative in k(X, X^q), (n, Q)"""
    query: np.ndarray
    """this expert's part of L^-1 G L^-T, with G the derivative in k(X^q, X^q), (Q, Q)"""
    log_noise: np.ndarray
    """derivatives in the log parameters of the noise"""


def adjoints(query: Query, likelihood: OneProcess, X, obs: Observations, mean, covariance) -> Adjoints:
    """Derivatives due to the scaled rows X (n, D), for the posterior N(mean, covariance) of v given all rows."""
    kind = kind_of(query)
    V = query.design(X)
    r = likelihood.noise(obs) + kind.variance(query, V, X)
    a, Q = (likelihood.targets(obs) - V @ mean) / r, query.functions
    VSigma = V @ covariance
    VSigma /= r[:, None]
    h = 0.5 * (a**2 - (1.0 - np.einsum("ij,ij->i", VSigma, V)) / r)
    own, Vq = kind.keeps * h, V[:, :Q]
    both = np.multiply.outer(a, mean[:Q])  # 2 H V
    both -= VSigma[:, :Q]
    inner = own[:, None] * Vq
    to_query = Vq.T @ (inner - both)
    both -= 2.0 * inner
    return Adjoints(own, times_inverse(both, query.factor), to_query, likelihood.noise_slopes(obs, h))


def expert_share(query: Query, X, found: Adjoints) -> np.ndarray:
    """Part of the gradient in the log parameters of kernel and likelihood due to the rows X, (P,)."""
    _, cross_pullback = query.kernel.cross_and_pullback(X, query.points)
    kernel = cross_pullback(found.cross) + query_pullback(query, found.query)
    return np.concatenate([kernel + diagonal_pullback(query.kernel, X, found.diagonal), found.log_noise])


def points_share(query: Query, X, found: Adjoints) -> np.ndarray:
    """Part of the gradient in the coordinates of the query points due to the rows X, (Q, D)."""
    return query.kernel.input_gradient(X, query.points, found.cross) + query_gradient(query, found.query)


def diagonal_pullback(kernel: Kernel, X, g) -> np.ndarray:
    """Derivatives of sum_j g_j k(x_j, x_j) in the kernel's log parameters."""
    total = np.zeros(len(kernel.theta))
    if not np.any(g):
        return total
    for start in range(0, len(X), DIAGONAL_ROWS):
        some = slice(start, start + DIAGONAL_ROWS)
        total += kernel.cross_and_pullback(X[some], X[some])[1](np.diag(g[some]))
    return total

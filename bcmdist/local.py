"""The local expert: what the rows around a new point add to the committee's belief (PIC with halo).

The shared variables v carry what lies far away; given them, the rows nearby say the rest:

    f(x) | v, rows:   mean  b'v + c' T (y - V v),   variance  k(x, x) - b_q'b_q - c' T c
    c = cov(f(x), f | v) = k(X, x) - V_q b_q,       T = (cov(f | v) + Psi)^-1

averaged over the committee's belief in v. If the rows are one partition of the committee this is PIC (Snelson &
Ghahramani 2007); with one partition it is the exact GP. Other likelihoods are made Gaussian at the mode of
these rows given the belief's mean; no pseudo-target is divided by a weight.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.committee import Belief
from bcmdist.expert import find_mode
from bcmdist.likelihoods import AnyLikelihood, Gaussian, Observations, OneHot
from bcmdist.prediction import refuse_negative
from bcmdist.query import Query


@dataclass(frozen=True)
class LocalExpert:
    """Rows with what they say beyond the shared variables; made by `local_expert`."""

    X: np.ndarray
    """(n, D), scaled"""
    V: np.ndarray
    """whitened design, (n, S)"""
    root: np.ndarray | None
    """w^1/2, (n,), of a linearised likelihood; None for ones"""
    factor: np.ndarray
    """L with T = root L^-T L^-1 root, (n, n)"""
    W: np.ndarray
    """L^-1 root V, (n, S)"""
    pull: np.ndarray
    """T (y - V m) at the belief's mean m: (n,), or (n, C) for C processes"""


def local_expert(query: Query, likelihood: AnyLikelihood, X, obs: Observations, belief: Belief) -> LocalExpert:
    """The rows X (n, D), scaled, with targets `obs`, under a committee's belief.

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    V = query.whiten(X)
    Lam = query.residual_lower(V, query.kernel.cross(X, X))
    if isinstance(likelihood, Gaussian | OneHot):
        Lam[np.diag_indices_from(Lam)] += likelihood.noise(obs)
        L = linalg.cholesky(Lam, name="cov(y | query) of a local expert")
        W = linalg.solve_lower(L, V.copy(order="F"))
        pull = linalg.cholesky_solve(L, likelihood.targets(obs) - V @ belief.mean.T)
        return LocalExpert(X, V, None, L, W, pull)
    prior_mean = V @ belief.mean
    f = find_mode(linalg.mirror(Lam), obs, likelihood, prior_mean)
    root = np.sqrt(likelihood.curvature(obs, f))
    L = linalg.cholesky(linalg.identity_plus_scaled(Lam, root), name="I + w^1/2 cov(f | query) w^1/2")
    W = linalg.solve_lower(L, np.asfortranarray(root[:, None] * V))
    return LocalExpert(X, V, root, L, W, likelihood.score(obs, f))


def predict_local(query: Query, belief: Belief, expert: LocalExpert, X):
    """Mean and variance of the latent f at the rows of X (n, D), scaled: (n,), or (n, C) for C processes.

    mean = b'm + c'T(y - V m),   variance = k - b_q'b_q - |s|^2 + a' Lambda^-1 a
    with s = L^-1 root c and a = b - W's
    """
    B = query.whiten(X)
    Q = len(query.points)
    c = query.kernel.cross(expert.X, X)
    c -= expert.V[:, :Q] @ B[:, :Q].T
    mean = B @ belief.mean.T + c.T @ expert.pull
    if expert.root is not None:
        c *= expert.root[:, None]
    s = linalg.solve_lower(expert.factor, c)
    residual = query.residual_variance(B, X) - np.einsum("ij,ij->j", s, s)
    refuse_negative(residual, query.kernel.diagonal(X))
    A = linalg.solve_right_transposed(belief.factor, np.asfortranarray(B - s.T @ expert.W))
    variance = np.maximum(residual, 0.0) + np.einsum("ij,ij->i", A, A)
    return mean, variance if mean.ndim == 1 else np.repeat(variance[:, None], mean.shape[1], axis=1)

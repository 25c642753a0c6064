"""Gradient of the log evidence of a whole committee in the log hyper-parameters.

A map and a reduce over the experts once the posterior N(mu, Sigma) of the shared variables v has been computed:
each expert returns one number per parameter, from its rows and this posterior. The sum of these and the term of the
prior of v are the gradient (SYSTEMS I.3, whitened). theta is the kernel's log parameters followed by the likelihood's.
A Laplace committee at its converged mode first needs the sum of another small message, `mode_share`: the weights
change with the mode, and the mode with theta (I.4).

    Gaussian:  total = sum expert_share(..., belief);  committee_gradient(query, belief, total)
    Laplace:   shift = mode_shift(belief, sum mode_share(..., belief))
               total = sum expert_share(..., belief, shift);  committee_gradient(query, belief, total, shift)

The query points are held fixed, and so is the jitter on their covariance in units of their mean variance.
`points_share` and `points_gradient` are the counterparts for the query points: derivatives in their coordinates,
with everything else held fixed.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.experts.evidence import (
    corrected_mode_shift,
    has_separate_hessian,
    likelihood_gradient,
    posterior_variance,
    weighted_inverse,
)
from bcmdist.experts.laplace import laplace_mode
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.query import Query


@dataclass(frozen=True)
class ModeShare:
    """One expert's part of the equations (I + precision) shift = pull; they add."""

    pull: np.ndarray
    """(S,)"""
    precision: np.ndarray | None
    """(S, S), symmetric; None if it equals the precision of the messages, which the posterior already includes"""

    def __add__(self, other: "ModeShare") -> "ModeShare":
        if self.precision is None or other.precision is None:
            return ModeShare(self.pull + other.pull, None)
        return ModeShare(self.pull + other.pull, self.precision + other.precision)

    def weighted(self, weight) -> "ModeShare":
        """The same rows, each counted `weight` times."""
        return ModeShare(weight * self.pull, None if self.precision is None else weight * self.precision)


def mode_share(query: Query, likelihood: OneProcess, X, obs: Observations, belief: Belief) -> ModeShare:
    """Contribution of the likelihood's third derivatives at the rows X (n, D) to the shift of the mode.

    With Lam = cov(f | v) and v_j = 1/2 var(f_j | y) third_j:
    pull = V'(I + h Lam)^-1 v,  precision = V'(I + h Lam)^-1 h V

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    own = has_separate_hessian(likelihood)
    if len(X) == 0:
        return ModeShare(np.zeros(query.size), np.zeros((query.size, query.size)) if own else None)
    V = query.design(X)
    Lam = linalg.mirror(query.residual_lower(V, query.kernel.cross(X, X)))
    f, T, _, v = _at_mode(V, Lam, likelihood, obs, belief)
    pull = V.T @ corrected_mode_shift(v, Lam, T, likelihood, obs, f)
    if not own:
        return ModeShare(pull, None)
    shifted = corrected_mode_shift(likelihood.hessian(obs, f)[:, None] * V, Lam, T, likelihood, obs, f)
    return ModeShare(pull, V.T @ shifted)


def mode_shift(belief: Belief, total: ModeShare) -> np.ndarray:
    """sum V't over all experts, (S,), with t = (I + h K)^-1 v and K the covariance of all rows.

    Raises
    ------
    NotPositiveDefinite
        The Hessian is not positive definite, so the posterior mean is not at a maximum.
    """
    if total.precision is None:
        return linalg.cholesky_solve(belief.factor, total.pull)
    A = np.asfortranarray(np.eye(len(total.pull)) + total.precision)
    return linalg.cholesky_solve(linalg.cholesky(A, name="Hessian of the committee at its mode"), total.pull)


def expert_share(query: Query, likelihood: OneProcess, X, obs: Observations, belief: Belief, shift=None) -> np.ndarray:
    """Part of the gradient due to the rows X (n, D), scaled, with targets `obs`: (P,).

    Parameters
    ----------
    belief : posterior of the whole committee; for a Laplace committee at convergence
    shift : (S,), from `mode_shift`; None for Gaussian noise, which has no third derivatives

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    if len(X) == 0:
        return np.zeros(len(query.kernel.theta) + sum(map(len, likelihood.parameters.values())))
    K, pullback = query.kernel.cross_and_pullback(X, X)
    (to_rows, to_cross, to_query), tail = _derivatives(query, likelihood, X, K.copy(order="F"), obs, belief, shift)
    _, cross_pullback = query.kernel.cross_and_pullback(X, query.points)
    return np.concatenate([pullback(to_rows) + cross_pullback(to_cross) + query_pullback(query, to_query), tail])


def points_share(query: Query, likelihood: OneProcess, X, obs: Observations, belief: Belief, shift=None) -> np.ndarray:
    """Part of the gradient in the coordinates of the query points, (Q, D), due to the rows X; as `expert_share`."""
    if len(X) == 0:
        return np.zeros_like(query.points)
    K = query.kernel.cross(X, X)
    (_, to_cross, to_query), _ = _derivatives(query, likelihood, X, K, obs, belief, shift)
    return query.kernel.input_gradient(X, query.points, to_cross) + query_gradient(query, to_query)


def committee_gradient(query: Query, belief: Belief, total, shift=None) -> np.ndarray:
    """The gradient (P,): the sum (P,) of all expert shares plus the `prior_share`."""
    own = prior_share(query, belief, shift)
    return total + np.pad(own, (0, len(total) - len(own)))


def points_gradient(query: Query, belief: Belief, total, shift=None) -> np.ndarray:
    """The gradient (Q, D) in the query points, from the sum (Q, D) of all `points_share`."""
    return total + query_gradient(query, _prior_adjoint(query, belief, shift))


def prior_share(query: Query, belief: Belief, shift=None) -> np.ndarray:
    """Part of the gradient in the kernel's log parameters due to the prior of the shared variables."""
    return query_pullback(query, _prior_adjoint(query, belief, shift))


def _prior_adjoint(query, belief, shift):
    """Return A = 1/2 (mu mu' + Sigma - I); L^-T A L^-1 is the derivative in Kqq.

    For a Laplace committee (mu + shift)(mu + shift)' - shift shift' replaces mu mu'.
    """
    Q = len(query.points)
    A = linalg.inverse(belief.factor)[:Q, :Q] - np.eye(Q)
    for sign, total in _totals(belief, shift):
        A += sign * np.outer(total[:Q], total[:Q])
    return 0.5 * A


def _derivatives(query, likelihood, X, K, obs, belief, shift):
    """`_adjoints` at the rows X with K = k(X, X), and the derivatives in the likelihood's log parameters."""
    V = query.design(X)
    Lam = linalg.mirror(query.residual_lower(V, K))
    if likelihood.normal:
        return _gaussian(query, V, Lam, likelihood, obs, belief)
    assert shift is not None, "the mode of a likelihood that is not Gaussian moves"
    return _laplace(query, V, Lam, likelihood, obs, belief, shift)


def _gaussian(query, V, Lam, likelihood, obs, belief):
    """Adjoints, and the derivative in the log noise: T = (Lam + Psi)^-1, a = T (y - V mu)."""
    Lam[np.diag_indices_from(Lam)] += likelihood.noise(obs)
    L = linalg.cholesky(Lam, name="cov(y | query) of a Gaussian expert")
    a = linalg.cholesky_solve(L, obs.y - V @ belief.mean)
    adjoints = _adjoints(query, V, linalg.inverse(L), [a], belief, None)
    return adjoints, likelihood.noise_slopes(obs, np.diag(adjoints[0]))


def _laplace(query, V, Lam, likelihood, obs, belief, shift):
    """Adjoints, and derivatives in the likelihood's log parameters, at the mode f of the committee.

    With T = (Lam + w^-1)^-1, the score g and t = (I + h Lam)^-1 (v - h V shift), which are the rows of
    (I + h K)^-1 v for the covariance K of all rows: 1/2 ((g + t)(g + t)' - t t') replaces 1/2 a a'.
    """
    f, T, variance, v = _at_mode(V, Lam, likelihood, obs, belief)
    moved = V @ shift
    t = corrected_mode_shift(v - likelihood.hessian(obs, f) * moved, Lam, T, likelihood, obs, f)
    tail = likelihood_gradient(likelihood, obs, f, variance, moved + Lam @ t)
    return _adjoints(query, V, T, [likelihood.score(obs, f) + t, t], belief, shift), tail


def _at_mode(V, Lam, likelihood, obs, belief):
    """f, T = (Lam + w^-1)^-1, var(f | all y) and v = 1/2 var third, at the mode given the posterior mean.

    var(f | all y) = diag(Lam - Lam T Lam + M Sigma M') with M = (I + Lam w)^-1 V.
    """
    f = laplace_mode(Lam, obs, likelihood, V @ belief.mean)
    w = likelihood.curvature(obs, f)
    L, T, left = weighted_inverse(Lam, w)
    M = V - Lam @ (T @ V)
    whitened = linalg.solve_lower(belief.factor, np.asfortranarray(M.T))
    variance = posterior_variance(Lam, L, w, left) + np.einsum("ij,ij->j", whitened, whitened)
    return f, T, variance, 0.5 * variance * likelihood.third(obs, f)


def _totals(belief, shift):
    """Pairs (sign, V'x summed over all rows), one per term sign/2 x x' of the derivative in the full covariance."""
    return [(1.0, belief.mean)] if shift is None else [(1.0, belief.mean + shift), (-1.0, shift)]


def _adjoints(query, V, T, xs, belief, shift):
    """Derivatives of the log evidence in k(X, X), k(X, Xq) and this expert's part of L^-1 k(Xq, Xq) L^-T.

    With H the block of these rows of 1/2 (sum sign x x' - C^-1), C the covariance of all targets,
    and A = sum sign x (V'x)' - T V Sigma over the columns of the query values:
    H,  (A - 2 H V_q) L^-1,  V_q'(H V_q - A)
    """
    Q = len(query.points)
    Vq, TV = V[:, :Q], T @ V
    TVSigma = linalg.cholesky_solve(belief.factor, TV.T).T
    H = np.asfortranarray(0.5 * (TVSigma @ TV.T - T))
    A = -TVSigma[:, :Q]
    for x, (sign, total) in zip(xs, _totals(belief, shift), strict=True):
        H = linalg.add_outer(H, 0.5 * sign, x)
        A = A + sign * np.outer(x, total[:Q])
    HVq = H @ Vq
    return H, times_inverse(A - 2.0 * HVq, query.factor), Vq.T @ (HVq - A)


def times_inverse(B, L) -> np.ndarray:
    """B L^-1 for a lower factor."""
    return linalg.solve_lower_transposed(L, np.array(B.T, order="F")).T


def query_pullback(query, A) -> np.ndarray:
    """Derivatives in the kernel's log parameters from the adjoint L^-T A L^-1 of Kqq."""
    _, pullback = query.kernel.cross_and_pullback(query.points, query.points)
    return pullback(_covariance_adjoint(query, A))


def query_gradient(query, A) -> np.ndarray:
    """Derivatives in the query points, which are both arguments of k(Xq, Xq)."""
    G = _covariance_adjoint(query, A)
    return query.kernel.input_gradient(query.points, query.points, G + G.T)


def _covariance_adjoint(query, A):
    """Adjoint of k(Xq, Xq), whose mean diagonal scales the jitter, from the adjoint L^-T A L^-1 of Kqq."""
    right = times_inverse(A, query.factor)
    G = linalg.solve_lower_transposed(query.factor, np.asfortranarray(right))
    G[np.diag_indices_from(G)] += query.jitter_share * np.trace(G) / len(G)
    return G

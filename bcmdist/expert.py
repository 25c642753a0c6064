"""The expert: turns the rows of one partition into a message about the shared variables.

Gaussian rows need no approximation. Any other likelihood is made Gaussian at the mode of the
expert's own posterior (Laplace by damped Fisher scoring: GBCM paper, section 5.1 and Appendix A).
Both then condense into a message by the whitened form of Appendix B (SYSTEMS I.4, I.7).
"""

import numpy as np

from bcmdist import linalg
from bcmdist.errors import LaplaceNotConverged
from bcmdist.likelihoods import Gaussian, Likelihood, Observations
from bcmdist.message import Message, zero
from bcmdist.query import Query

NEWTON_STEPS = 100
NEWTON_HALVINGS = 20
# The mode is where the score equals K^-1 f; both are of order one per row of weight one.
SCORE_TOLERANCE = 1e-9
# Relative change of the log posterior that rounding alone can produce.
ROUNDING = 1e-13


def expert_message(query: Query, likelihood: Likelihood, X, obs: Observations) -> Message:
    """Message of the rows X (n, D), scaled, with targets `obs`; no rows give the zero message.

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    if len(X) == 0:
        return zero(query.shared)
    V = query.whiten(X)
    K = query.kernel.cross(X, X)
    if isinstance(likelihood, Gaussian):
        return gaussian_message(V, query.residual_lower(V, K), obs, likelihood.noise(obs))
    f = laplace_mode(prior_covariance(K, query.mean, X), obs, likelihood)
    return laplace_message(V, query.residual_lower(V, K), obs, likelihood, f)


def prior_covariance(K, mean, X):
    """cov(f) = K + H H' of a partition, the mean's weights included; full, a new matrix."""
    H = mean.design(X)
    return K + H @ H.T


def gaussian_message(V, residual_lower, obs, noise) -> Message:
    """Exact message of y = f + e; overwrites `residual_lower` and `V`.

    R = Psi + cov(f | v) = L_R L_R',  W = L_R^-1 V,  z = L_R^-1 y:
    precision = W'W,  eta = W'z,  evidence = log N(y; 0, R)     (Appendix B, eqs. 12-15)
    """
    R = residual_lower
    R[np.diag_indices_from(R)] += noise
    L = linalg.cholesky(R, name="cov(y | query) of a Gaussian expert")
    z = linalg.solve_lower(L, obs.y)
    W = linalg.solve_lower(L, V)
    evidence = -0.5 * (z @ z + linalg.log_determinant(L) + len(z) * np.log(2.0 * np.pi))
    return Message(W.T @ z, linalg.gram(W), float(evidence), len(z))


def laplace_message(V, residual_lower, obs, likelihood, f) -> Message:
    """Message of a likelihood linearised at f (n,); overwrites `V`.

    With the score s, the weights w, g = w f + s and Lam = cov(f | v)     (SYSTEMS I.4)

    B = I + w^1/2 Lam w^1/2 = L L',  W = L^-1 w^1/2 V:
    precision = W'W,  eta = V'(I + w Lam)^-1 g,
    evidence = sum log p(y|f) - 1/2 (f'w f + 2 f's - g'Lam (I + w Lam)^-1 g) - 1/2 log|B|

    Nothing is divided by w: saturated rows have weights that vanish.
    """
    w, s = likelihood.curvature(obs, f), likelihood.score(obs, f)
    g, root = w * f + s, np.sqrt(w)
    Lam = linalg.mirror(residual_lower)
    L = linalg.cholesky(linalg.identity_plus_scaled(Lam, root), name="I + w^1/2 Lam w^1/2")
    a = g - root * linalg.cholesky_solve(L, root * (Lam @ g))
    eta = V.T @ a
    V *= root[:, None]
    W = linalg.solve_lower(L, V)
    constant = likelihood.log_density(obs, f).sum() - 0.5 * (f @ (w * f) + 2.0 * f @ s)
    evidence = constant + 0.5 * (g @ (Lam @ a)) - 0.5 * linalg.log_determinant(L)
    return Message(eta, linalg.gram(W), float(evidence), len(f))


def laplace_mode(K, obs, likelihood):
    """Mode of p(y | f) N(f; 0, K), (n,), by damped Fisher scoring.

    Iterates in a = K^-1 f, which needs no inverse of K (Rasmussen & Williams 2006, alg. 3.1); a
    step is halved until the log posterior does not fall.

    Raises
    ------
    LaplaceNotConverged
        The score still differs from K^-1 f after `NEWTON_STEPS` steps, or no step improves.
    """
    a, f = np.zeros(len(K)), np.zeros(len(K))
    value = likelihood.log_density(obs, f).sum()
    for _ in range(NEWTON_STEPS):
        s = likelihood.score(obs, f)
        gap = np.max(np.abs(s - a) / np.maximum(obs.weight, 1.0))
        if gap <= SCORE_TOLERANCE:
            return f
        a_step = _newton_step(K, f, a, s, likelihood.curvature(obs, f))
        f_step = K @ a_step
        step, found = _line_search(value, a, f, a_step, f_step, obs, likelihood)
        if found is None:
            if gap <= np.sqrt(SCORE_TOLERANCE):
                return f  # rounding, not divergence, keeps the step from improving
            break
        value, a, f = found, a + step * a_step, f + step * f_step
    raise LaplaceNotConverged(
        f"expected the score at the mode within {SCORE_TOLERANCE:g} of K^-1 f, got {gap:.1e} after at most "
        f"{NEWTON_STEPS} damped steps (largest |f| {np.abs(f).max():.1e}, prior variance up to "
        f"{np.diag(K).max():.1e}); lower the kernel's variance, or check the targets"
    )


def _newton_step(K, f, a, s, w):
    """Change of a = K^-1 f in a full step of Fisher scoring."""
    root = np.sqrt(w)
    L = linalg.cholesky(linalg.identity_plus_scaled(K, root), name="I + w^1/2 K w^1/2")
    g = w * f + s
    return g - root * linalg.cholesky_solve(L, root * (K @ g)) - a


def _line_search(value, a, f, a_step, f_step, obs, likelihood):
    """Largest step of 1, 1/2, 1/4, ... that does not lower the log posterior, and its value."""
    step = 1.0
    for _ in range(NEWTON_HALVINGS):
        f_new = f + step * f_step
        new = likelihood.log_density(obs, f_new).sum() - 0.5 * (a + step * a_step) @ f_new
        if new >= value - ROUNDING * (1.0 + abs(value)):
            return step, new
        step /= 2.0
    return step, None

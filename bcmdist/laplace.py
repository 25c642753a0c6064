"""The Laplace approximation of one expert: the mode of its rows and the message linearised there.

The mode belongs to a Gaussian prior of the rows' latents: that of the expert on its own (first pass;
GBCM paper, section 5.1 and Appendix A), or the one conditional on the committee's belief of the
shared variables (later passes; SYSTEMS I.5). Nothing is divided by a weight or multiplied by the
inverse of a covariance: saturated rows, duplicates and noise-free directions need no care.
"""

import numpy as np

from bcmdist import linalg
from bcmdist.errors import LaplaceNotConverged
from bcmdist.message import Message

NEWTON_STEPS = 100
NEWTON_HALVINGS = 30
# The mode is where the score equals K^-1 (f - prior mean), to this change of f.
SCORE_TOLERANCE = 1e-9
# Closer than this, steps that stop improving are held up by rounding: counts of a million have scores of that size.
ROUGH_TOLERANCE = 3e-5
STALLED_STEPS, STALLED_SHARE = 5, 0.9
# Relative change of the log posterior that rounding alone can produce: its terms are about w (1 + |f|) each, and
# cancel where counts are large.
ROUNDING = 1e-13


def laplace_mode(K, obs, likelihood, prior_mean=None):
    """Mode of p(y | f) N(f; prior_mean, K), (n,), by damped Fisher scoring from the prior mean.

    Iterates in a = K^-1 (f - prior_mean), which needs no inverse of K (Rasmussen & Williams 2006,
    alg. 3.1); a step is halved until the log posterior does not fall.

    Raises
    ------
    LaplaceNotConverged
        The score still differs from a after `NEWTON_STEPS` steps, or no step improves.
    """

    def newton(f, gap, s, w=None):
        w = likelihood.step_weight(obs, f) if w is None else w
        root = np.sqrt(w)
        L = linalg.cholesky(linalg.identity_plus_scaled(K, root), name="I + w^1/2 K w^1/2")
        b = w * gap + s
        return b - root * linalg.cholesky_solve(L, root * (K @ b))

    prior_mean = np.zeros(len(K)) if prior_mean is None else prior_mean
    # Where each row on its own would have its latent: one step from there is how generalised linear models start.
    alone = likelihood.saturated(obs)
    w, first = likelihood.curvature(obs, alone), None
    if np.any(w > np.finfo(float).eps):  # else nothing but labels and zeros, which say only which way
        first = newton(alone, alone - prior_mean, likelihood.score(obs, alone), w)
    return climb(K, obs, likelihood, prior_mean, newton, lambda f: likelihood.curvature(obs, f), first)


def climb(K, obs, likelihood, prior_mean, newton, curvature, first=None):
    """Mode of p(y | f) N(f; prior_mean, K) for f (n,) or, with C processes that share K, (n, C).

    `first` is an a = K^-1 (f - prior_mean) towards which the first step goes.
    `newton(f, f - prior_mean, score)` is where a = K^-1 (f - prior_mean) would be after a full step;
    `curvature(f)` is the slope of the score, by which its gap is judged.
    """
    f, a = prior_mean, np.zeros_like(prior_mean)
    value = likelihood.log_density(obs, f).sum()
    if first is not None:
        step, found = _line_search(value, a, f, first, K @ first, prior_mean, obs, likelihood)
        if found is not None:
            value, a, f = found, step * first, f + step * (K @ first)
    best, stalled = np.inf, 0
    for _ in range(NEWTON_STEPS):
        s = likelihood.score(obs, f)
        w = curvature(f)
        gap = np.max(np.abs(s - a) / np.maximum(w, 1.0))
        stalled = 0 if gap < STALLED_SHARE * best else stalled + 1
        best = min(gap, best)
        if gap <= SCORE_TOLERANCE or (gap <= ROUGH_TOLERANCE and stalled == STALLED_STEPS):
            return f
        a_step = newton(f, f - prior_mean, s) - a
        f_step = K @ a_step
        slack = ROUNDING * (1.0 + abs(value) + np.vdot(w, 1.0 + np.abs(f)))
        step, found = _line_search(value - slack, a, f, a_step, f_step, prior_mean, obs, likelihood)
        if found is None:
            if gap <= ROUGH_TOLERANCE:
                return f  # rounding, not divergence, keeps the step from improving
            break
        value, a, f = found, a + step * a_step, f + step * f_step
    if best <= ROUGH_TOLERANCE:
        return f
    raise LaplaceNotConverged(
        f"expected the score at the mode within {SCORE_TOLERANCE:g} of K^-1 f, got {gap:.1e} after at most "
        f"{NEWTON_STEPS} damped steps (largest |f| {np.abs(f).max():.1e}, prior variance up to "
        f"{np.diag(K).max():.1e}); lower the kernel's variance, or check the targets"
    )


def _line_search(least, a, f, a_step, f_step, prior_mean, obs, likelihood):
    """Largest step of 1, 1/2, 1/4, ... at which the log posterior is not below `least`, and its value."""
    step = 1.0
    for _ in range(NEWTON_HALVINGS):
        f_new = f + step * f_step
        new = likelihood.log_density(obs, f_new).sum() - 0.5 * np.vdot(a + step * a_step, f_new - prior_mean)
        if new >= least:
            return step, new
        step /= 2.0
    return step, None


def log_joint(obs, likelihood, f, prior_mean):
    """log p(y | f) + log N(f; prior_mean, K) - log N(prior_mean; prior_mean, K) at a mode of it.

    There K^-1 (f - prior_mean) is the score, so that K is not needed.
    """
    return float(likelihood.log_density(obs, f).sum() - 0.5 * np.vdot(likelihood.score(obs, f), f - prior_mean))


def laplace_message(V, Lam, obs, likelihood, f) -> Message:
    """Message of a likelihood linearised at f (n,): that of the site w, w f + score (SYSTEMS I.4).

    evidence = sum log p(y|f) - 1/2 (f'w f + 2 f's) + that of the site
    """
    w, s = likelihood.curvature(obs, f), likelihood.score(obs, f)
    constant = likelihood.log_density(obs, f).sum() - 0.5 * (f @ (w * f) + 2.0 * f @ s)
    return site_message(V, Lam, w, w * f + s, constant)


def site_message(V, Lam, w, g, constant) -> Message:
    """Message of rows whose likelihood is exp(constant + g'f - 1/2 f'w f), w (n,) >= 0.

    With Lam = cov(f | v) and B = I + w^1/2 Lam w^1/2 = L L',  W = L^-1 w^1/2 V:

    precision = W'W,  eta = V'(I + w Lam)^-1 g,
    evidence = constant + 1/2 g'Lam (I + w Lam)^-1 g - 1/2 log|B|
    """
    root = np.sqrt(w)
    L = linalg.cholesky(linalg.identity_plus_scaled(Lam, root), name="I + w^1/2 Lam w^1/2")
    a = g - root * linalg.cholesky_solve(L, root * (Lam @ g))
    W = linalg.solve_lower(L, np.multiply(root[:, None], V, order="F"))
    evidence = constant + 0.5 * (g @ (Lam @ a)) - 0.5 * linalg.log_determinant(L)
    return Message(V.T @ a, linalg.gram(W), float(evidence), len(g))

"""The mode of the rows of an expert by Newton steps in its Fourier weights.

With f = V v + t u, for t the residual variance, the mode of p(y | f) N(f; 0, t I + V V') is that of

    log p(y | f) - 1/2 v'v - 1/2 t u'u        (at the mode u is the score and v = V'u)

The functions V v and V dv at the rows are kept, so that a step needs two transforms, one each way, whatever the number
of trials of its line search. `experts.laplace` needs ten for each of its steps, but converges for all likelihoods.
"""

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.experts.laplace import REUSED_SHARE, ROUNDING, SCORE_TOLERANCE
from bcmdist.methods.fourier.krylov import conjugate_gradients

# Steps and halvings of a step before the search is left to `experts.laplace`.
MOST_STEPS, MOST_HALVINGS = 30, 20
# Relative residual and largest number of iterations for the change of the weights in a step.
CHANGE_RESIDUAL, MOST_ITERATIONS = 1e-8, 2000


def weight_mode(shared, likelihood, X, obs: Observations) -> np.ndarray | None:
    """Mode f of rows X (n, D), (n,), of a log-concave likelihood of one process; None where steps do not converge."""
    t, v, u, m = shared.truncated_variance, np.zeros(shared.size), np.zeros(len(X)), np.zeros(len(X))
    f, value, precondition, gap, before = m, likelihood.log_density(obs, m).sum(), None, np.inf, np.inf
    for _ in range(MOST_STEPS):
        w, s = likelihood.curvature(obs, f), likelihood.score(obs, f)
        left, g = 1.0 + w * t, w * f + s
        eta, precision = shared.message_sums(X, w / left, (g / left)[:, None])
        operator = shared.operator(precision)
        if precondition is None or gap > REUSED_SHARE * before:
            precondition = operator.preconditioner.precondition
        dv = _solved(operator, precondition, eta[0], v)
        dm = shared.design_product(X, dv[None])[0]
        du = (g - w * (m + dm)) / left - u
        slack = ROUNDING * np.sum(1.0 + np.abs(f))
        for halving in range(MOST_HALVINGS):
            share = 0.5**halving
            one, other, mean = v + share * dv, u + share * du, m + share * dm
            f = mean + t * other
            new = likelihood.log_density(obs, f).sum() - 0.5 * (one @ one + t * (other @ other))
            if new >= value - slack:
                break
        else:
            return None
        v, u, m, value = one, other, mean, new
        before, gap = gap, np.abs(likelihood.score(obs, f) - u).max()
        if gap <= SCORE_TOLERANCE:
            return f
    return None


def _solved(operator, precondition, eta, v):
    """The solution of operator (v + x) = eta for x, (S,)."""
    b = eta - operator(v)
    residual = CHANGE_RESIDUAL * max(float(np.linalg.norm(b)), np.finfo(float).tiny)
    return conjugate_gradients(operator, precondition, b, residual=residual, most=MOST_ITERATIONS).x

"""The mode of the rows of an expert by Newton steps in its Fourier weights.

With f = V v + t u, for t the residual variance, the mode of p(y | f) N(f; 0, t I + V V') is that of

    log p(y | f) - 1/2 v'v - 1/2 t u'u        (at the mode u is the score and v = V'u)

or, under a belief N(m, Lambda^-1) about the weights, with (v - m)'Lambda (v - m) in place of v'v.

The functions V v and V dv at the rows are kept, so that a step needs two transforms, one each way, whatever the number
of trials of its line search. `experts.laplace` needs ten for each of its steps, but converges for all likelihoods.

Many rows start from the mode of every `THINNED`th row, each counted that many times, found at a fraction of the cost.
Steps far from the mode are solved for roughly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.experts.laplace import ROUNDING, SCORE_TOLERANCE
from bcmdist.methods.fourier.belief import IterativeBelief
from bcmdist.methods.fourier.krylov import Solution, conjugate_gradients
from bcmdist.methods.fourier.precision import DensePrecision, FeaturePrecision, UnitPrecision
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.belief import Belief

# Steps and halvings of a step before the search is left to `experts.laplace`.
MOST_STEPS, MOST_HALVINGS = 30, 20
# Relative residual of the change of the weights in a step: the largest difference between u and the score, within
# these limits; and the largest number of iterations. A preconditioner is renewed after more than `FEW_ITERATIONS`.
RESIDUALS, MOST_ITERATIONS, FEW_ITERATIONS = (1e-8, 1e-2), 2000, 60
# The start is searched for in every `THINNED`th row, where that leaves `LEAST_ROWS` or more, until the score differs
# from u by no more than `START_TOLERANCE` times the number of times that a row counts.
THINNED, LEAST_ROWS, START_TOLERANCE = 4, 2000, 0.01


@dataclass
class Climb:
    """A search for the mode: where it is, and the preconditioner of its last step."""

    v: np.ndarray
    """weights (S,)"""
    precondition: Callable | None = None
    """approximate inverse of I + V'w V"""
    f: np.ndarray | None = None
    """functions at the rows (n,), once found"""


@dataclass(frozen=True)
class Prior:
    """N(mean, precision^-1) of the weights, (S,)."""

    mean: np.ndarray
    precision: FeaturePrecision | DensePrecision | UnitPrecision

    def half_square(self, v) -> float:
        """1/2 (v - mean)' precision (v - mean)"""
        return 0.5 * float((v - self.mean) @ self.precision(v - self.mean))


def _prior_of(belief: Belief) -> Prior:
    if isinstance(belief, IterativeBelief):
        return Prior(belief.mean, belief.precision)
    return Prior(belief.mean, DensePrecision(np.tril(belief.factor) @ np.tril(belief.factor).T))


def weight_mode(shared, likelihood, X, obs: Observations, belief: Belief | None = None) -> np.ndarray | None:
    """Mode f of rows X (n, D), (n,), of a log-concave likelihood of one process; None where steps do not converge.

    belief : what other rows say about the weights; None: nothing
    """
    t = shared.truncated_variance
    prior = _prior_of(belief) if belief else Prior(np.zeros(shared.size), UnitPrecision())
    start = Climb(prior.mean)
    if belief is None and len(X) >= THINNED * LEAST_ROWS:
        some = slice(None, None, THINNED)
        few = obs[some].repeated(THINNED)  # t / THINNED: the residuals of repeated rows are independent
        rough = THINNED * START_TOLERANCE
        start = _climbed(shared, likelihood, X[some], few, t / THINNED, rough, start, prior) or start
    found = _climbed(shared, likelihood, X, obs, t, SCORE_TOLERANCE, start, prior)
    return None if found is None else found.f


def _climbed(shared, likelihood: Likelihood, X, obs, t, tolerance, start: Climb, prior: Prior) -> Climb | None:
    """The mode for the residual variance t, to a difference of u and the score; None where steps do not converge."""
    v, precondition = start.v, start.precondition
    m = shared.design_product(X, v[None])[0] if v.any() else np.zeros(len(X))
    u = likelihood.score(obs, m) if v.any() else m
    f = m + t * u
    value, s = _value(likelihood, obs, f, v, t, u, prior), likelihood.score(obs, f)
    pull = prior.precision(prior.mean)
    for _ in range(MOST_STEPS):
        w, gap = likelihood.curvature(obs, f), np.abs(s - u).max()
        left, g = 1.0 + w * t, w * f + s
        eta, precision = shared.message_sums(X, w / left, (g / left)[:, None])
        operator = prior.precision.plus(shared.operator(precision))
        if precondition is None:
            precondition = operator.preconditioner.precondition
        change = _solved(operator, precondition, eta[0] + pull, v, np.clip(gap, *RESIDUALS))
        dv, precondition = change.x, precondition if change.steps <= FEW_ITERATIONS else None
        dm = shared.design_product(X, dv[None])[0]
        du = (g - w * (m + dm)) / left - u
        slack = ROUNDING * np.sum(1.0 + np.abs(f))
        for halving in range(MOST_HALVINGS):
            share = 0.5**halving
            one, other, mean = v + share * dv, u + share * du, m + share * dm
            f = mean + t * other
            new = _value(likelihood, obs, f, one, t, other, prior)
            if new >= value - slack:
                break
        else:
            return None
        v, u, m, value, s = one, other, mean, new, likelihood.score(obs, f)
        if np.abs(s - u).max() <= tolerance:
            return Climb(v, precondition, f)
    return None


def _value(likelihood, obs, f, v, t, u, prior):
    return likelihood.log_density(obs, f).sum() - 0.5 * t * (u @ u) - prior.half_square(v)


def _solved(operator, precondition, eta, v, share) -> Solution:
    """Solve operator (v + x) = eta for x, (S,), to a residual of that share."""
    b = eta - operator(v)
    residual = share * max(float(np.linalg.norm(b)), np.finfo(float).tiny)
    return conjugate_gradients(operator, precondition, b, residual=residual, most=MOST_ITERATIONS)

"""The Laplace approximation of one expert: the mode of its rows and the message linearised there.

The mode belongs to a Gaussian prior of the rows' latents: the expert's own prior (first pass; GBCM paper, section 5.1
and Appendix A), or the prior conditional on the committee's belief about the shared variables (later passes; SYSTEMS
I.5). Nothing is divided by a weight or multiplied by the inverse of a covariance, so saturated rows, duplicates and
noise-free directions need no special treatment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Protocol, TypeGuard, cast

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts.factor import Factor
from bcmdist.experts.low_rank import Covariance, LowRank, Solver
from bcmdist.experts.message import Message
from bcmdist.experts.residual_interface import Residual
from bcmdist.linalg.arrays import BoolArray, FloatArray
from bcmdist.model.likelihoods.interface import LARGEST_EXPONENT, Likelihood, OneProcess

NEWTON_STEPS = 100
# A factor is reused for another step where the last step reduced the gap to this share: near the mode weights hardly
# change, and a step with the old weights costs only about one product with K.
REUSED_SHARE = 0.1
# Steps are solved in single precision, in half the time, from so many rows on where the condition number of B is below
# this bound: a step is then right to about 1e-2, and the next one corrects it. The mode is as precise: its score is in
# double precision.
SINGLE_ROWS, SINGLE_CONDITION = 250, 1e5
# The line search accepts a step where the slope has fallen to this share of its initial value; and the largest number
# of halvings and doublings.
SLOPE_SHARE, SEARCH_STEPS = 0.1, 60
# Steps longer than this end the search: rounding has made K indefinite, and there is no maximum along them.
LONGEST_STEP = 2.0**10
# Weights in a step are capped at one of these over the prior variance: with larger ones rounding of K may make
# I + w K singular.
MOST_INFORMATION = (np.inf, 1e9, 1e6, 1e3)
# Rows are steep where the curvature exceeds this many times the curvature at the row's own maximum or one over the
# prior variance, whichever is larger; and bisection steps for the edge where steepness begins.
STEEP, EDGE_HALVINGS = 1e9, 30
# Convergence: the score equals K^-1 (f - prior mean) to this change of f.
SCORE_TOLERANCE = 1e-9
# Below this, steps that stop improving are limited by rounding: counts of a million have scores of that size.
ROUGH_TOLERANCE = 3e-5
STALLED_STEPS, STALLED_SHARE = 5, 0.9
# Relative change of the log posterior that rounding alone can produce: its terms are about w (1 + |f|) each, and
# cancel where counts are large.
ROUNDING = 1e-13


class RowDensity(Protocol):
    """What a search of the mode needs of a likelihood p(y | f); as of `Likelihood`."""

    def log_density(self, obs: Observations, f: FloatArray, /) -> FloatArray: ...

    def score(self, obs: Observations, f: FloatArray, /) -> FloatArray: ...


def laplace_mode(
    K: Covariance, obs: Observations, likelihood: Likelihood, prior_mean: FloatArray | None = None
) -> FloatArray:
    """Mode of p(y | f) N(f; prior_mean, K), (n,), of one process, by Newton steps with a line search.

    Iterates in a = K^-1 (f - prior_mean), which needs no inverse of K (Rasmussen & Williams 2006, alg. 3.1):

    step of a = (I + w K)^-1 (score - a)

    The right-hand side vanishes at the mode, and so does the rounding error of the step.

    Raises
    ------
    LaplaceNotConverged
        The score still differs from a after `NEWTON_STEPS` steps, or no step improves.
    """

    kept: tuple[FloatArray, Solver] | None = None
    largest = 0.0

    def newton(
        model: OneProcess | QuadraticTail, f: FloatArray, gap: FloatArray, w: FloatArray | None = None
    ) -> FloatArray:
        nonlocal kept, largest
        before, largest = largest, np.abs(gap).max()
        if kept is None or largest > REUSED_SHARE * before:
            kept = _step(K, model.step_weight(obs, f) if w is None else w)
        root, solve = kept
        # For large w K, (I + w K)^-1 = w^1/2 B^-1 w^-1/2 avoids the cancellation of I - w^1/2 B^-1 w^1/2 K.
        large = root**2 * variance > 1.0
        small = np.where(large, 0.0, gap)
        scaled = np.where(large, gap, 0.0) / np.where(large, root, 1.0)
        return small + root * solve(scaled - root * (K @ small))

    likelihood = cast(OneProcess, likelihood)
    prior_mean, variance = np.zeros(len(K)) if prior_mean is None else prior_mean, K.diagonal()
    if not variance.any():  # f has no variance
        return prior_mean
    # Start with one step from each row's own maximum, as generalised linear models do.
    saturated = likelihood.saturated(obs)
    a, w = np.zeros(len(K)), likelihood.curvature(obs, saturated)
    steepest = STEEP * np.maximum(w, 1.0 / K.diagonal().max())
    tail = QuadraticTail.up_to(steepest, obs, likelihood, saturated, prior_mean)
    if np.any(w > np.finfo(float).eps):  # otherwise all rows are class labels or zeros, whose maxima are infinite
        first = newton(likelihood, saturated, w * (saturated - prior_mean) + likelihood.score(obs, saturated), w)
        a = first * (_line_search(a, 0.0 * a, first, K, prior_mean, obs, tail, 0.0, longest=1.0) or 0.0)
    # Search the mode with quadratic tails first, where any row is steep, and then the mode of the likelihood itself.
    models: tuple[OneProcess | QuadraticTail, ...] = (tail, likelihood) if tail.side.any() else (likelihood,)
    for model in models:
        a = climb(K, obs, model, prior_mean, partial(newton, model), partial(model.curvature, obs), a)
    return prior_mean + K @ a


@dataclass(frozen=True)
class QuadraticTail:
    """A likelihood whose log is continued as a parabola beyond `edge`, (n,), where it is too steep for Newton steps.

    A Newton step lowers the exponent of a lifetime's hazard by about one. At the prior mean the exponent may be
    hundreds, and the rounding error of one such row exceeds the terms of all others. Log-concave where the likelihood
    is.
    """

    likelihood: OneProcess
    edge: FloatArray
    side: FloatArray
    """+1: the parabola is above the edge, -1: below it, 0: there is none"""

    @classmethod
    def up_to(
        cls, steepest: FloatArray, obs: Observations, likelihood: OneProcess, saturated: FloatArray, start: FloatArray
    ) -> "QuadraticTail":
        """Edges where the curvature reaches `steepest`, (n,), on the way from `alone` to +-`LARGEST_EXPONENT`.

        No row has a tail, and no search is made, where no row is steep at `start`.
        """

        def steep(f: FloatArray) -> BoolArray:
            return likelihood.curvature(obs, f) > steepest

        furthest = np.full(len(steepest), LARGEST_EXPONENT)
        if not steep(start).any():
            return cls(likelihood, saturated, np.zeros(len(saturated)))
        side = cast(FloatArray, steep(furthest) * 1.0 - steep(-furthest))
        edge, far = saturated, side * furthest
        for _ in range(EDGE_HALVINGS):
            middle = 0.5 * (edge + far)
            over = steep(middle)
            edge, far = np.where(over, edge, middle), np.where(over, middle, far)
        return cls(likelihood, edge, side)

    def _split(self, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        beyond = self.side * np.maximum(self.side * (f - self.edge), 0.0)
        return f - beyond, beyond

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        edge, beyond = self._split(f)
        slope = self.likelihood.score(obs, edge) - 0.5 * self.likelihood.curvature(obs, edge) * beyond
        return self.likelihood.log_density(obs, edge) + slope * beyond

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        edge, beyond = self._split(f)
        return self.likelihood.score(obs, edge) - self.likelihood.curvature(obs, edge) * beyond

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return self.likelihood.curvature(obs, self._split(f)[0])

    def step_weight(self, obs: Observations, f: FloatArray) -> FloatArray:
        return self.likelihood.step_weight(obs, self._split(f)[0])


@singledispatch
def step_solver(K: Covariance, root: FloatArray) -> Solver:
    """Return the function b -> B^-1 b for B = I + root K root; dispatches on the type of the prior covariance K."""
    B = linalg.identity_plus_scaled(cast(np.ndarray, K), root)  # other types have their own implementations
    L = linalg.cholesky(B, name="I + w^1/2 K w^1/2")
    return partial(linalg.cholesky_solve, L)


step_solver.register(LowRank, LowRank.solver)


def _step(K: Covariance, w: FloatArray) -> tuple[FloatArray, Solver]:
    """Return w^1/2 and the solver of I + w^1/2 K w^1/2, with w capped where rounding of K requires it."""
    if _suits_single(K, w):
        root = np.sqrt(w)
        solve = step_solver(K.astype(np.float32), root.astype(np.float32))
        return root, lambda b: solve(b.astype(np.float32)).astype(float)
    for most in MOST_INFORMATION:
        root = np.sqrt(np.minimum(w, most / K.diagonal().max()))
        try:
            return root, step_solver(K, root)
        except NotPositiveDefinite as failure:
            error = failure
    raise error


def _suits_single(K: Covariance, w: FloatArray) -> TypeGuard[np.ndarray]:
    """Whether steps may be solved in single precision; the trace of B bounds its condition number."""
    large = isinstance(K, np.ndarray) and len(K) >= SINGLE_ROWS
    return large and bool(len(K) + w @ K.diagonal() < SINGLE_CONDITION)


def climb(
    K: Covariance,
    obs: Observations,
    likelihood: RowDensity,
    prior_mean: FloatArray,
    newton: Callable[[FloatArray, FloatArray], FloatArray],
    curvature: Callable[[FloatArray], FloatArray],
    a: FloatArray,
) -> FloatArray:
    """K^-1 (f - prior_mean) at the mode of p(y | f) N(f; prior_mean, K): (n,), or (n, C) for C processes that share K.

    Parameters
    ----------
    newton : newton(f, gap) is a full step of a, where `gap` is the score minus a
    curvature : curvature(f) is the slope of the score, by which the gap is scaled for the convergence test
    a : starting point
    """
    best, stalled = np.inf, 0
    for _ in range(NEWTON_STEPS):
        move = K @ a
        f = prior_mean + move
        gap, w = likelihood.score(obs, f) - a, curvature(f)
        off = np.max(np.abs(gap) / np.maximum(w, 1.0))
        stalled = 0 if off < STALLED_SHARE * best else stalled + 1
        best = min(off, best)
        if off <= SCORE_TOLERANCE or (stalled == STALLED_STEPS and off <= _rough(K, a)):
            return a
        a_step = newton(f, gap)
        slack = ROUNDING * float(np.vdot(w, 1.0 + np.abs(f)))
        step = _line_search(a, move, a_step, K, prior_mean, obs, likelihood, slack)
        if step is None:
            break
        a = a + step * a_step
    if off <= _rough(K, a):
        return a  # steps stop improving because of rounding, not divergence
    raise LaplaceNotConverged(
        f"expected the score at the mode within {SCORE_TOLERANCE:g} of K^-1 f, got {off:.1e} after at most "
        f"{NEWTON_STEPS} damped steps (largest |f| {np.abs(f).max():.1e}, prior variance up to "
        f"{K.diagonal().max():.1e}); check the targets for outliers, give a kernel of lower variance with --no-learn "
        "and --set kernel.variance, or let experts match moments instead: --approximation ep"
    )


def _rough(K: Covariance, a: FloatArray) -> float:
    """Change of f that rounding may leave at the mode: `ROUGH_TOLERANCE` plus the rounding of the products K a."""
    return ROUGH_TOLERANCE + np.finfo(float).eps * np.max(abs(K) @ np.abs(a))


def _line_search(
    a: FloatArray,
    start: FloatArray,
    a_step: FloatArray,
    K: Covariance,
    prior_mean: FloatArray,
    obs: Observations,
    likelihood: RowDensity,
    slack: float,
    *,
    longest: float = LONGEST_STEP,
) -> float | None:
    """Step length from a, with start = K a, at which the log posterior has not fallen and its slope is small; or None.

    The slope at f = prior_mean + K a is f_step'(score - a). Bisection on the slope finds such a point for any smooth
    function with a maximum (Lewis & Overton 2013, alg. 2.6), and is hardly affected by rounding of the log posterior.
    """
    f_step = K @ a_step

    def at(t: float) -> tuple[float, float]:
        a_new, move = a + t * a_step, start + t * f_step
        f = prior_mean + move
        value = likelihood.log_density(obs, f).sum() - 0.5 * np.vdot(a_new, move)
        return value, float(np.vdot(f_step, likelihood.score(obs, f) - a_new))

    value, slope = at(0.0)
    terms = np.abs(likelihood.score(obs, prior_mean + start)) + np.abs(a)  # to tell a slope from rounding
    allowed = SLOPE_SHARE * abs(slope) + ROUNDING * np.vdot(np.abs(f_step), terms)
    least = value - slack - ROUNDING * (1.0 + abs(value))
    low, high, step = 0.0, np.inf, 1.0
    for _ in range(SEARCH_STEPS):
        new, new_slope = at(step)
        if new >= least and abs(new_slope) <= allowed:
            return step
        if new >= least and new_slope > 0:
            low = step
        else:
            high = step
        if low >= longest:
            break
        step = 2.0 * low if np.isinf(high) else 0.5 * (low + high)
    return low or None


def log_joint(obs: Observations, likelihood: RowDensity, f: FloatArray, prior_mean: FloatArray) -> float:
    """log p(y | f) + log N(f; prior_mean, K) - log N(prior_mean; prior_mean, K) at the mode f.

    At the mode K^-1 (f - prior_mean) equals the score, so K is not needed.
    """
    return float(likelihood.log_density(obs, f).sum() - 0.5 * np.vdot(likelihood.score(obs, f), f - prior_mean))


def laplace_message(V: FloatArray, Lam: Residual, obs: Observations, likelihood: Likelihood, f: FloatArray) -> Message:
    """Message of a likelihood linearised at f (n,): `site_message` with weights w and w f + score (SYSTEMS I.4).

    evidence = sum log p(y|f) - 1/2 (f'w f + 2 f's) + evidence of the site
    """
    w, s = likelihood.curvature(obs, f), likelihood.score(obs, f)
    constant = likelihood.log_density(obs, f).sum() - 0.5 * (f @ (w * f) + 2.0 * f @ s)
    return site_message(V, Lam, w, w * f + s, constant)


def step_message(V: FloatArray, Lam: Residual, obs: Observations, likelihood: OneProcess, f: FloatArray) -> Message:
    """Message for a Newton step: the site h, h f + score at f (n,), with h the Hessian of any sign.

    precision = V'(I + h Lam)^-1 h V,  eta = V'(I + h Lam)^-1 (h f + score). Where `laplace_message` uses expected
    weights, the maximum of its messages is a Fisher scoring step; the maximum of these is a Newton step (SYSTEMS I.5).
    """
    h, s = likelihood.hessian(obs, f), likelihood.score(obs, f)
    pulled = V.T @ Lam.pull(h, np.column_stack([h[:, None] * V, h * f + s]))
    precision = 0.5 * (pulled[:, :-1] + pulled[:, :-1].T)
    return Message(pulled[:, -1], np.asfortranarray(precision), 0.0, len(f))


def site_message(V: FloatArray, Lam: Residual, w: FloatArray, g: FloatArray, constant: float) -> Message:
    """Message of rows with likelihood exp(constant + g'f - 1/2 f'w f), w (n,) >= 0; does not overwrite V (n, S) or Lam.

    With Lam = cov(f | v) and B = I + w^1/2 Lam w^1/2,  T'T = B^-1,  W = T w^1/2 V,  a = (I + w Lam)^-1 g:

    precision = W'W,  eta = V'a,  evidence = constant + 1/2 g'Lam a - 1/2 log|B|     (SYSTEMS I.4)
    """
    root, factor = np.sqrt(w), Lam.site(w)
    a = regress(factor, root, Lam, g)
    evidence = constant + 0.5 * (g @ (Lam @ a)) - 0.5 * factor.log_determinant
    return Message(V.T @ a, factor.gram(root, V), float(evidence), len(g))


def regress(factor: Factor, root: FloatArray, K: Residual | FloatArray, x: FloatArray) -> FloatArray:
    """Return (I + w K)^-1 x, with root = w^1/2 and the factor of I + w^1/2 K w^1/2; K a residual or a matrix.

    One step of iterative refinement: x can be 1e7 and the result 1e2 (counts of millions), which would lose digits.
    """
    a = np.zeros_like(x)
    for _ in range(2):
        defect = x - a - root**2 * (K @ a)
        a = a + defect - root * factor.solve(root * (K @ defect))
    return a

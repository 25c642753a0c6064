"""The Laplace approximation of one expert: the mode of its rows and the message linearised there.

The mode belongs to a Gaussian prior of the rows' latents: that of the expert on its own (first pass;
GBCM paper, section 5.1 and Appendix A), or the one conditional on the committee's belief of the
shared variables (later passes; SYSTEMS I.5). Nothing is divided by a weight or multiplied by the
inverse of a covariance: saturated rows, duplicates and noise-free directions need no care.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, singledispatch

import numpy as np

from bcmdist import linalg
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts.factor import Factor
from bcmdist.experts.low_rank import LowRank
from bcmdist.experts.message import Message
from bcmdist.experts.residual import Residual
from bcmdist.model.likelihoods.interface import LARGEST_EXPONENT, OneProcess

NEWTON_STEPS = 100
# A factor serves for a further step where the last one has brought the gap down to this share: near the mode weights
# hardly change, and steps of the old ones cost as much as a product with K.
REUSED_SHARE = 0.1
# A step along a line is long enough, and not too long, where the slope has fallen to this share of its start; and
# halvings and doublings on the way to it.
SLOPE_SHARE, SEARCH_STEPS = 0.1, 60
# Steps along which there is no maximum, because rounding has left K without its sign, end here.
LONGEST_STEP = 2.0**10
# Weights count in a step up to one of these over the prior variance: rounding of K may make I + w K singular above.
MOST_INFORMATION = (np.inf, 1e9, 1e6, 1e3)
# Rows count as steep above this many times the curvature they have alone, or one over the prior variance; and halvings
# of the way to where they do.
STEEP, EDGE_HALVINGS = 1e9, 30
# The mode is where the score equals K^-1 (f - prior mean), to this change of f.
SCORE_TOLERANCE = 1e-9
# Closer than this, steps that stop improving are held up by rounding: counts of a million have scores of that size.
ROUGH_TOLERANCE = 3e-5
STALLED_STEPS, STALLED_SHARE = 5, 0.9
# Relative change of the log posterior that rounding alone can produce: its terms are about w (1 + |f|) each, and
# cancel where counts are large.
ROUNDING = 1e-13


def laplace_mode(K, obs, likelihood, prior_mean=None) -> np.ndarray:
    """Mode of p(y | f) N(f; prior_mean, K), (n,), by Newton steps with a line search; K (n, n) or `LowRank`.

    Iterates in a = K^-1 (f - prior_mean), which needs no inverse of K (Rasmussen & Williams 2006, alg. 3.1):

    step of a = (I + w K)^-1 (score - a)

    The right side vanishes at the mode, so that rounding of the step vanishes with it.

    Raises
    ------
    LaplaceNotConverged
        The score still differs from a after `NEWTON_STEPS` steps, or no step improves.
    """

    kept, largest = None, 0.0

    def newton(model, f, gap, w=None):
        nonlocal kept, largest
        before, largest = largest, np.abs(gap).max()
        if kept is None or largest > REUSED_SHARE * before:
            kept = _step(K, model.step_weight(obs, f) if w is None else w)
        root, solve = kept
        # (I + w K)^-1 = w^1/2 B^-1 w^-1/2 for the rows of large w, without the cancellation of I - w^1/2 B^-1 w^1/2 K.
        large = root > 1.0
        rest = np.where(large, 0.0, gap)
        scaled = np.where(large, gap, 0.0) / np.where(large, root, 1.0)
        return rest + root * solve(scaled - root * (K @ rest))

    prior_mean = np.zeros(len(K)) if prior_mean is None else prior_mean
    if not K.diagonal().any():  # nothing is left to search
        return prior_mean
    # Where each row on its own would have its latent: one step from there is how generalised linear models start.
    alone = likelihood.saturated(obs)
    a, w = np.zeros(len(K)), likelihood.curvature(obs, alone)
    steepest = STEEP * np.maximum(w, 1.0 / K.diagonal().max())
    tame = QuadraticTail.up_to(steepest, obs, likelihood, alone, prior_mean)
    if np.any(w > np.finfo(float).eps):  # else nothing but labels and zeros, which say only which way
        first = newton(likelihood, alone, w * (alone - prior_mean) + likelihood.score(obs, alone), w)
        a = first * (_line_search(a, first, K, prior_mean, obs, tame, 0.0, longest=1.0) or 0.0)
    # From the mode of the one to that of the other: no step, where no row is beyond.
    for model in (tame, likelihood) if tame.side.any() else (likelihood,):
        a = climb(K, obs, model, prior_mean, partial(newton, model), partial(model.curvature, obs), a)
    return prior_mean + K @ a


@dataclass(frozen=True)
class QuadraticTail:
    """A likelihood that goes on as a parabola beyond `edge`, (n,), where rows are so steep that steps get nowhere.

    A Newton step lowers the exponent of a lifetime's hazard by about one, which at the prior mean may be hundreds;
    and one such row drowns all others in rounding. Log-concave where the likelihood is.
    """

    likelihood: OneProcess
    edge: np.ndarray
    side: np.ndarray
    """+1: beyond is above, -1: beyond is below, 0: nowhere"""

    @classmethod
    def up_to(cls, steepest, obs, likelihood, alone, start) -> "QuadraticTail":
        """Edges where the curvature reaches `steepest`, (n,), on the way from `alone` to -+`LARGEST_EXPONENT`.

        None, and at no cost, where no row is steep at `start`.
        """

        def steep(f):
            return likelihood.curvature(obs, f) > steepest

        furthest = np.full(len(steepest), LARGEST_EXPONENT)
        if not steep(start).any():
            return cls(likelihood, alone, np.zeros(len(alone)))
        side = steep(furthest) * 1.0 - steep(-furthest)
        edge, far = alone, side * furthest
        for _ in range(EDGE_HALVINGS):
            middle = 0.5 * (edge + far)
            over = steep(middle)
            edge, far = np.where(over, edge, middle), np.where(over, middle, far)
        return cls(likelihood, edge, side)

    def _split(self, f):
        beyond = self.side * np.maximum(self.side * (f - self.edge), 0.0)
        return f - beyond, beyond

    def log_density(self, obs, f) -> np.ndarray:
        edge, beyond = self._split(f)
        slope = self.likelihood.score(obs, edge) - 0.5 * self.likelihood.curvature(obs, edge) * beyond
        return self.likelihood.log_density(obs, edge) + slope * beyond

    def score(self, obs, f) -> np.ndarray:
        edge, beyond = self._split(f)
        return self.likelihood.score(obs, edge) - self.likelihood.curvature(obs, edge) * beyond

    def curvature(self, obs, f) -> np.ndarray:
        return self.likelihood.curvature(obs, self._split(f)[0])

    def step_weight(self, obs, f) -> np.ndarray:
        return self.likelihood.step_weight(obs, self._split(f)[0])


@singledispatch
def step_solver(K, root) -> Callable:
    """b -> B^-1 b for B = I + root K root, of a prior covariance K of whatever form."""
    L = linalg.cholesky(linalg.identity_plus_scaled(K, root), name="I + w^1/2 K w^1/2")
    return partial(linalg.cholesky_solve, L)


step_solver.register(LowRank, LowRank.solver)


def _step(K, w):
    """w^1/2 and the solver of I + w^1/2 K w^1/2, with the largest w lowered where rounding of K asks for it."""
    for most in MOST_INFORMATION:
        root = np.sqrt(np.minimum(w, most / K.diagonal().max()))
        try:
            return root, step_solver(K, root)
        except NotPositiveDefinite as failure:
            error = failure
    raise error


def climb(K, obs, likelihood, prior_mean, newton, curvature, a) -> np.ndarray:
    """K^-1 (f - prior_mean) at the mode of p(y | f) N(f; prior_mean, K), (n,) or, of C processes that share K, (n, C).

    `a` is where the search starts.
    `newton(f, gap)` is a full step of a, where the score exceeds a by `gap`; `curvature(f)` is the slope of the score,
    by which the gap is judged.
    """
    best, stalled = np.inf, 0
    for _ in range(NEWTON_STEPS):
        f = prior_mean + K @ a
        gap, w = likelihood.score(obs, f) - a, curvature(f)
        off = np.max(np.abs(gap) / np.maximum(w, 1.0))
        stalled = 0 if off < STALLED_SHARE * best else stalled + 1
        best = min(off, best)
        if off <= SCORE_TOLERANCE or (stalled == STALLED_STEPS and off <= _rough(K, a)):
            return a
        a_step = newton(f, gap)
        step = _line_search(a, a_step, K, prior_mean, obs, likelihood, ROUNDING * np.vdot(w, 1.0 + np.abs(f)))
        if step is None:
            break
        a = a + step * a_step
    if off <= _rough(K, a):
        return a  # rounding, not divergence, keeps steps from improving
    raise LaplaceNotConverged(
        f"expected the score at the mode within {SCORE_TOLERANCE:g} of K^-1 f, got {off:.1e} after at most "
        f"{NEWTON_STEPS} damped steps (largest |f| {np.abs(f).max():.1e}, prior variance up to "
        f"{K.diagonal().max():.1e}); check the targets for outliers, give a kernel of lower variance with --no-learn "
        "and --set kernel.variance, or let experts match moments instead: --approximation ep"
    )


def _rough(K, a):
    """The change of f by which rounding may keep the score from a: that of the sums K a, and `ROUGH_TOLERANCE`."""
    return ROUGH_TOLERANCE + np.finfo(float).eps * np.max(abs(K) @ np.abs(a))


def _line_search(a, a_step, K, prior_mean, obs, likelihood, slack, *, longest=LONGEST_STEP):
    """How far to go along a step: to where the log posterior is not lower and its slope small; None: nowhere.

    The slope at f = prior_mean + K a is f_step'(score - a). Bisection on it finds such a place for any smooth
    function with a maximum (Lewis & Overton 2013, alg. 2.6), and rounding of the log posterior hardly matters.
    """
    start, f_step = K @ a, K @ a_step

    def at(t):
        a_new, move = a + t * a_step, start + t * f_step
        f = prior_mean + move
        value = likelihood.log_density(obs, f).sum() - 0.5 * np.vdot(a_new, move)
        return value, np.vdot(f_step, likelihood.score(obs, f) - a_new)

    value, slope = at(0.0)
    terms = np.abs(likelihood.score(obs, prior_mean + start)) + np.abs(a)  # a slope that is their rounding is none
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


def log_joint(obs, likelihood, f, prior_mean) -> float:
    """log p(y | f) + log N(f; prior_mean, K) - log N(prior_mean; prior_mean, K) at a mode of it.

    There K^-1 (f - prior_mean) is the score, so that K is not needed.
    """
    return float(likelihood.log_density(obs, f).sum() - 0.5 * np.vdot(likelihood.score(obs, f), f - prior_mean))


def laplace_message(V, Lam: Residual, obs, likelihood, f) -> Message:
    """Message of a likelihood linearised at f (n,): that of the site w, w f + score (SYSTEMS I.4).

    evidence = sum log p(y|f) - 1/2 (f'w f + 2 f's) + that of the site
    """
    w, s = likelihood.curvature(obs, f), likelihood.score(obs, f)
    constant = likelihood.log_density(obs, f).sum() - 0.5 * (f @ (w * f) + 2.0 * f @ s)
    return site_message(V, Lam, w, w * f + s, constant)


def step_message(V, Lam: Residual, obs, likelihood, f) -> Message:
    """The message of the site h, h f + score at f (n,) with h the Hessian, whatever its sign: it only makes steps.

    precision = V'(I + h Lam)^-1 h V,  eta = V'(I + h Lam)^-1 (h f + score). Where `laplace_message` has expected
    weights instead, its maximum is a step of Fisher scoring, and that of all of these is Newton's (SYSTEMS I.5).
    """
    h, s = likelihood.hessian(obs, f), likelihood.score(obs, f)
    pulled = V.T @ Lam.pull(h, np.column_stack([h[:, None] * V, h * f + s]))
    precision = 0.5 * (pulled[:, :-1] + pulled[:, :-1].T)
    return Message(pulled[:, -1], np.asfortranarray(precision), 0.0, len(f))


def site_message(V, Lam: Residual, w, g, constant) -> Message:
    """Message of rows whose likelihood is exp(constant + g'f - 1/2 f'w f), w (n,) >= 0; keeps V (n, S) and Lam.

    With Lam = cov(f | v) and B = I + w^1/2 Lam w^1/2,  T'T = B^-1,  W = T w^1/2 V,  a = (I + w Lam)^-1 g:

    precision = W'W,  eta = V'a,  evidence = constant + 1/2 g'Lam a - 1/2 log|B|     (SYSTEMS I.4)
    """
    root, factor = np.sqrt(w), Lam.site(w)
    a = regress(factor, root, Lam, g)
    evidence = constant + 0.5 * (g @ (Lam @ a)) - 0.5 * factor.log_determinant
    return Message(V.T @ a, factor.gram(root, V), float(evidence), len(g))


def regress(factor: Factor, root, K, x) -> np.ndarray:
    """(I + w K)^-1 x for root = w^1/2 and the factor of I + w^1/2 K w^1/2; K a residual or a matrix.

    Refined once: x can be 1e7 and the result 1e2 (counts of millions), and digits would be lost.
    """
    a = np.zeros_like(x)
    for _ in range(2):
        rest = x - a - root**2 * (K @ a)
        a = a + rest - root * factor.solve(root * (K @ rest))
    return a

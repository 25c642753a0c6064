"""Averages of a likelihood over latent beliefs N(mean, variance), by quadrature: moments, cdf, quantiles, log density.

p(y | f) may be far narrower or far wider in f than the belief (a count of a million against a prior), so the integral
is cut into panels where the integrand changes. All work on rows at once: beliefs (n,), observations (n,).
"""

from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri, roots_hermitenorm, roots_legendre

from bcmdist.model.likelihoods.tilted import tilted

# Moments by Gauss-Hermite: those of exp(f) and its square at latent standard deviations up to 2 within 1e-8.
HERMITE_NODES = 64
# Legendre nodes of a cdf, to each side of its step and beyond. Measured for latent standard deviations up to 2: cdfs
# within 3e-6.
STEP_NODES = 32
TAIL_NODES = 12
# Half-width of the panel about the step of a cdf in f, in units of the width of p(y | f): exp(-12) is left outside.
STEP_WIDTHS = 12.0
# Beyond so many standard deviations of the belief lies a probability of 1e-14.
BELIEF_SD = 7.5
# Quantiles: the normal score of the answer is that close to the one asked for, or the answer is known to that share.
SCORE_TOLERANCE = 2e-6
RULER_TOLERANCE = 1e-13
# Of which every third halves the bracket: enough for brackets of 1e15 whole numbers. About 7 are used.
QUANTILE_STEPS = 150
# Normal scores of probabilities near 0 and 1 are cut at this, and their differences.
GAP_LIMIT = 8.0

# Rows whose nodes are held in memory at a time.
BLOCK_ROWS = 2048


def in_blocks(function, likelihood, *of_rows) -> np.ndarray:
    """A function of a likelihood and of beliefs, observations and what else there is of rows, `BLOCK_ROWS` of them at a
    time; rows last."""
    starts = range(0, max(len(of_rows[0]), 1), BLOCK_ROWS)
    parts = [slice(start, start + BLOCK_ROWS) for start in starts]
    with np.errstate(over="ignore", invalid="ignore"):  # moments may be infinite, and scipy's cdfs try large exponents
        return np.concatenate([function(likelihood, *(one[rows] for one in of_rows)) for rows in parts], axis=-1)


def moments(likelihood, mean, variance, obs) -> np.ndarray:
    """Mean and variance of an observation by the laws of total expectation and variance, (2, n)."""
    nodes, weights = roots_hermitenorm(HERMITE_NODES)
    weights = weights / weights.sum()
    mixed = likelihood.distribution(obs, mean[:, None] + np.sqrt(variance)[:, None] * nodes)
    means, variances = mixed.mean(), mixed.var()
    center = means @ weights
    return np.array([center, variances @ weights + (means - center[:, None]) ** 2 @ weights])


# --- The cdf: P(Y <= y) = integral N(f; mean, variance) F(y | f) df ---


def cdf(likelihood, mean, variance, obs) -> np.ndarray:
    """P(Y <= obs.y), (n,): by Gauss-Legendre, cut where F(y | f) falls from one to zero as f grows."""
    return _average("cdf", likelihood, mean, variance, obs)


def survival(likelihood, mean, variance, obs) -> np.ndarray:
    """P(Y > obs.y), (n,), with all its digits where it is small."""
    return _average("sf", likelihood, mean, variance, obs)


def normal_score(likelihood, mean, variance, obs) -> np.ndarray:
    """The z at which P(Z <= z) = P(Y <= obs.y) for Z ~ N(0, 1), (n,): within 0.01 up to |z| = 7 (measured)."""
    z = ndtri(np.clip(cdf(likelihood, mean, variance, obs), 0.0, 1.0))
    some = z > 0.0
    z[some] = -ndtri(np.clip(survival(likelihood, mean[some], variance[some], obs[some]), 0.0, 1.0))
    return z


def _average(name, likelihood, mean, variance, obs):
    f, weights = _cut_belief(mean, np.sqrt(variance), *_step(likelihood, obs))
    return (getattr(likelihood.distribution(obs, f), name)(obs.y[:, None]) * weights).sum(axis=1)


def _step(likelihood, obs):
    """Where F(y | f) falls from 1 to 0 as f grows, and within which distance, (n,) each.

    At the f which y suggests, within some widths of p(y | f). Of a count it is y + 1: the cdf of a
    Poisson or binomial count y is that of a gamma or beta variable about y + 1 (of one more trial).
    """
    more = 1.0 if likelihood.discrete else 0.0
    seen = replace(obs, y=obs.y + more, trials=obs.trials + more, weight=np.ones(len(obs)), event=np.ones(len(obs)))
    f = likelihood.saturated(seen)
    width = 1.0 / np.sqrt(likelihood.curvature(seen, f))
    return f, STEP_WIDTHS * np.maximum(width, width**2)  # a tail of exp(-f / width^2) where y is worth less than 1


def _cut_belief(mean, sd, center, reach):
    """Latent nodes and weights (n, K) that average over N(mean, sd^2), cut at center and center +- reach.

    Between the cuts in f itself; outside, where F hardly changes, in the probability u of the belief.
    """
    low, high = (np.clip((center + side * reach - mean) / sd, -BELIEF_SD, BELIEF_SD) for side in (-1.0, 1.0))
    middle = np.clip((center - mean) / sd, low, high)
    z, within = _panels(np.column_stack([low, middle, high]), STEP_NODES)
    left, below = _panels(np.column_stack([np.zeros(len(mean)), ndtr(low)]), TAIL_NODES)
    right, above = _panels(np.column_stack([np.zeros(len(mean)), ndtr(-high)]), TAIL_NODES)
    z = np.hstack([ndtri(left), z, -ndtri(right)])
    within *= np.exp(-0.5 * z[:, TAIL_NODES:-TAIL_NODES] ** 2) / np.sqrt(2.0 * np.pi)
    return mean[:, None] + sd[:, None] * z, np.hstack([below, within, above])


def _panels(edges, count):
    """Gauss-Legendre nodes and weights (n, (E - 1) count) between sorted edges (n, E)."""
    nodes, weights = roots_legendre(count)
    half = 0.5 * np.diff(edges, axis=1)[:, :, None]
    center = 0.5 * (edges[:, 1:] + edges[:, :-1])[:, :, None]
    shape = len(edges), (edges.shape[1] - 1) * count
    return (center + half * nodes).reshape(shape), (half * weights).reshape(shape)


# --- Quantiles: regula falsi on the cdf ---


def quantile(likelihood, mean, variance, obs, z) -> np.ndarray:
    """The y of normal scores z (n,): P(Y <= y) = P(Z <= z), within `SCORE_TOLERANCE` of z; of counts, the smallest y
    with no less, exact for that cdf.

    Follows normal_score(y) - z, which is nearly straight on the ruler x: from a first guess in
    doubling strides until both sides are known, then by regula falsi (Illinois: an end that stays twice
    has its value halved) with a halving at every third step.
    """
    ruler, back = likelihood.units.place, likelihood.units.at
    guess, stride = _guess(likelihood, mean, variance, obs, z)
    low, high = np.full(len(obs), ruler(-1.0) if likelihood.discrete else -np.inf), np.full(len(obs), np.inf)
    low_gap, high_gap = np.full(len(obs), -GAP_LIMIT), np.full(len(obs), GAP_LIMIT)
    came_from_below, todo = np.zeros(len(obs), bool), np.arange(len(obs))
    for step in range(QUANTILE_STEPS):
        a, b = low[todo], high[todo]
        x = guess if step == 0 else _between(a, b, low_gap[todo], high_gap[todo], stride[todo], halve=step % 3 == 0)
        y = back(x)
        if likelihood.discrete:
            y = np.clip(np.round(y), np.round(back(a)) + 1.0, np.round(back(b)) - 1.0)
        x = ruler(y)
        gap = _gap(likelihood, mean[todo], variance[todo], replace(obs[todo], y=y), z[todo])
        below = gap < 0.0
        share = np.where(below == came_from_below[todo], 0.5, 1.0)
        low[todo], low_gap[todo] = np.where(below, x, a), np.where(below, gap, share * low_gap[todo])
        high[todo], high_gap[todo] = np.where(below, b, x), np.where(below, share * high_gap[todo], gap)
        came_from_below[todo] = below
        stride[todo] *= 2.0
        if likelihood.discrete:
            done = np.round(back(high[todo])) - np.round(back(low[todo])) <= 1.0
        else:
            done = np.abs(gap) <= SCORE_TOLERANCE
            high[todo] = np.where(done, x, high[todo])
        todo = todo[~done & (high[todo] - low[todo] > RULER_TOLERANCE)]
        if len(todo) == 0:
            break
    return np.round(back(high)) if likelihood.discrete else back(high)


def _gap(likelihood, mean, variance, obs, z):
    """By how much the normal scores of observations exceed z, (n,), each from the tail that z lies in."""
    score = np.empty(len(z))
    for some, tail, sign in ((z <= 0.0, cdf, 1.0), (z > 0.0, survival, -1.0)):
        level = tail(likelihood, mean[some], variance[some], obs[some])
        score[some] = sign * ndtri(np.clip(level, 0.0, 1.0))
    return np.clip(score - z, -GAP_LIMIT, GAP_LIMIT)


def _guess(likelihood, mean, variance, obs, z):
    """Where on the ruler the quantile may lie, and how far off that may be, (n,) each."""
    y = likelihood.typical(obs, mean)
    _, reach = _step(likelihood, replace(obs, y=np.minimum(y, obs.trials) if "trials" in likelihood.companions else y))
    stride = np.sqrt(variance + (reach / STEP_WIDTHS) ** 2)
    return likelihood.units.place(y) + z * stride, 0.5 * stride


def _between(low, high, low_gap, high_gap, stride, *, halve):
    """Next place to look: inside a bracket, or a stride beyond the end that is known."""
    share = 0.5 if halve else low_gap / (low_gap - high_gap)
    open_low, open_high = np.isinf(low), np.isinf(high)
    a, b = np.where(open_low, 0.0, low), np.where(open_high, 0.0, high)
    return np.where(open_high, a + stride, np.where(open_low, b - stride, a + share * (b - a)))


def log_density(likelihood, mean, variance, obs) -> np.ndarray:
    """log of the average of p(y | f) over N(mean, variance), (n,)."""
    return tilted(likelihood, obs, mean, variance)[0]

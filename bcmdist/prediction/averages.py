"""Averages of a likelihood over latent posteriors N(mean, variance), by quadrature.

Provides moments, cdf, quantiles and log density. As a function of f, p(y | f) may be far narrower or far wider than the
posterior (a count of a million against a prior). The integral is therefore cut into panels where the integrand changes.
All functions are vectorised over rows: mean and variance (n,), observations of n rows.
"""

from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri, roots_hermitenorm, roots_legendre

from bcmdist.model.likelihoods.tilted import tilted

# Gauss-Hermite nodes for moments. Moments of exp(f) and its square are accurate to 1e-8 for latent standard deviations
# up to 2.
HERMITE_NODES = 64
# Gauss-Legendre nodes for a cdf: on each side of its step, and in each tail. Measured for latent standard deviations up
# to 2: cdfs are accurate to 3e-6.
STEP_NODES = 32
TAIL_NODES = 12
# Half-width in f of the panel around the step of a cdf, in units of the width of p(y | f). It leaves out exp(-12).
STEP_WIDTHS = 12.0
# Standard deviations of the posterior beyond which a probability of 1e-14 remains.
BELIEF_SD = 7.5
# A quantile is accepted when its normal score is this close to the requested one, or its bracket is this narrow on the
# `likelihood.units.place` scale.
SCORE_TOLERANCE = 2e-6
RULER_TOLERANCE = 1e-13
# Upper limit. Every third step halves the bracket, enough for brackets of 1e15 integers. About 7 steps are used.
QUANTILE_STEPS = 150
# Normal scores of probabilities near 0 and 1, and their differences, are clipped to this.
GAP_LIMIT = 8.0

# Rows whose quadrature nodes are in memory at a time.
BLOCK_ROWS = 2048


def in_blocks(function, likelihood, *of_rows) -> np.ndarray:
    """Evaluate `function(likelihood, *of_rows)` on `BLOCK_ROWS` rows at a time and concatenate along the last axis."""
    starts = range(0, max(len(of_rows[0]), 1), BLOCK_ROWS)
    parts = [slice(start, start + BLOCK_ROWS) for start in starts]
    with np.errstate(over="ignore", invalid="ignore"):  # infinite moments; overflow in scipy's cdfs
        return np.concatenate([function(likelihood, *(one[rows] for one in of_rows)) for rows in parts], axis=-1)


def moments(likelihood, mean, variance, obs) -> np.ndarray:
    """Mean and variance of an observation, (2, n), by the laws of total expectation and variance."""
    nodes, weights = roots_hermitenorm(HERMITE_NODES)
    weights = weights / weights.sum()
    mixed = likelihood.distribution(obs, mean[:, None] + np.sqrt(variance)[:, None] * nodes)
    means, variances = mixed.mean(), mixed.var()
    center = means @ weights
    return np.array([center, variances @ weights + (means - center[:, None]) ** 2 @ weights])


# --- The cdf: P(Y <= y) = integral N(f; mean, variance) F(y | f) df ---


def cdf(likelihood, mean, variance, obs) -> np.ndarray:
    """P(Y <= obs.y), (n,), by Gauss-Legendre in panels cut where F(y | f) falls from one to zero as f grows."""
    return _average("cdf", likelihood, mean, variance, obs)


def survival(likelihood, mean, variance, obs) -> np.ndarray:
    """P(Y > obs.y), (n,), computed directly so that small values keep their relative accuracy."""
    return _average("sf", likelihood, mean, variance, obs)


def normal_score(likelihood, mean, variance, obs) -> np.ndarray:
    """z with P(Z <= z) = P(Y <= obs.y) for Z ~ N(0, 1), (n,). Accurate to 0.01 up to |z| = 7 (measured)."""
    z = ndtri(np.clip(cdf(likelihood, mean, variance, obs), 0.0, 1.0))
    some = z > 0.0
    z[some] = -ndtri(np.clip(survival(likelihood, mean[some], variance[some], obs[some]), 0.0, 1.0))
    return z


def _average(name, likelihood, mean, variance, obs):
    f, weights = _cut_belief(mean, np.sqrt(variance), *_step(likelihood, obs))
    return (getattr(likelihood.distribution(obs, f), name)(obs.y[:, None]) * weights).sum(axis=1)


def _step(likelihood, obs):
    """The f at which F(y | f) falls from 1 to 0 as f grows, and the half-width of that step, (n,) each.

    The step lies at the saturated f of y and is some widths of p(y | f) wide. For a count y the saturated f of y + 1 is
    used: the cdf of a Poisson or binomial count y is that of a gamma or beta variable around y + 1 (with one more
    trial).
    """
    more = 1.0 if likelihood.discrete else 0.0
    seen = replace(obs, y=obs.y + more, trials=obs.trials + more, weight=np.ones(len(obs)), event=np.ones(len(obs)))
    f = likelihood.saturated(seen)
    width = 1.0 / np.sqrt(likelihood.curvature(seen, f))
    return f, STEP_WIDTHS * np.maximum(width, width**2)  # for width > 1 the tail is exp(-f / width^2)


def _cut_belief(mean, sd, center, reach):
    """Return quadrature nodes f and weights, (n, K) each, for averages of a cdf F(y | f) over f ~ N(mean, sd^2).

    F falls from 1 to 0 around `center`, within `center` +- `reach`. The domain is cut at these three points. Between
    them, nodes are Gauss-Legendre in f; outside, where F hardly changes, they are Gauss-Legendre in the tail
    probability of N(mean, sd^2).
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
    """y with P(Y <= y) = P(Z <= z) for normal scores z (n,).

    The normal score of a continuous y is within `SCORE_TOLERANCE` of z. For counts the result is the smallest y with
    P(Y <= y) >= P(Z <= z), exact for the computed cdf.

    Root finding on normal_score(y) - z, which is nearly linear in x = `likelihood.units.place(y)`. The search starts
    from a first guess and doubles its stride until the root is bracketed. It continues by regula falsi (Illinois: the
    value at an end that stays twice is halved) and bisects at every third step.
    """
    ruler, back, whole = likelihood.units.place, likelihood.units.at, likelihood.discrete
    guess, stride = _guess(likelihood, mean, variance, obs, z)
    low, high = np.full(len(obs), ruler(-1.0) if whole else -np.inf), np.full(len(obs), np.inf)
    low_gap, high_gap = np.full(len(obs), -GAP_LIMIT), np.full(len(obs), GAP_LIMIT)
    came_from_below, todo = np.zeros(len(obs), bool), np.arange(len(obs))
    for step in range(QUANTILE_STEPS):
        a, b = low[todo], high[todo]
        x = guess if step == 0 else _between(a, b, low_gap[todo], high_gap[todo], stride[todo], halve=step % 3 == 0)
        y = back(x)
        if whole:
            y = np.clip(np.round(y), np.round(back(a)) + 1.0, np.round(back(b)) - 1.0)
        x = ruler(y)
        gap = _gap(likelihood, mean[todo], variance[todo], replace(obs[todo], y=y), z[todo])
        below = gap < 0.0
        share = np.where(below == came_from_below[todo], 0.5, 1.0)
        low[todo], low_gap[todo] = np.where(below, x, a), np.where(below, gap, share * low_gap[todo])
        high[todo], high_gap[todo] = np.where(below, b, x), np.where(below, share * high_gap[todo], gap)
        came_from_below[todo] = below
        stride[todo] *= 2.0
        if whole:
            done = np.round(back(high[todo])) - np.round(back(low[todo])) <= 1.0
        else:
            done = np.abs(gap) <= SCORE_TOLERANCE
            high[todo] = np.where(done, x, high[todo])
        todo = todo[~done & (high[todo] - low[todo] > RULER_TOLERANCE)]
        if len(todo) == 0:
            break
    return np.round(back(high)) if whole else back(high)


def _gap(likelihood, mean, variance, obs, z):
    """Normal scores of the observations minus z, (n,), clipped; computed from the tail in which z lies."""
    score = np.empty(len(z))
    for some, tail, sign in ((z <= 0.0, cdf, 1.0), (z > 0.0, survival, -1.0)):
        level = tail(likelihood, mean[some], variance[some], obs[some])
        score[some] = sign * ndtri(np.clip(level, 0.0, 1.0))
    return np.clip(score - z, -GAP_LIMIT, GAP_LIMIT)


def _guess(likelihood, mean, variance, obs, z):
    """First guess of the quantile on the `units.place` scale, and the first stride, (n,) each."""
    y = likelihood.typical(obs, mean)
    _, reach = _step(likelihood, replace(obs, y=np.minimum(y, obs.trials) if "trials" in likelihood.companions else y))
    stride = np.sqrt(variance + (reach / STEP_WIDTHS) ** 2)
    return likelihood.units.place(y) + z * stride, 0.5 * stride


def _between(low, high, low_gap, high_gap, stride, *, halve):
    """Next trial point: inside the bracket, or one stride beyond the only finite end."""
    share = 0.5 if halve else low_gap / (low_gap - high_gap)
    open_low, open_high = np.isinf(low), np.isinf(high)
    a, b = np.where(open_low, 0.0, low), np.where(open_high, 0.0, high)
    return np.where(open_high, a + stride, np.where(open_low, b - stride, a + share * (b - a)))


def log_density(likelihood, mean, variance, obs) -> np.ndarray:
    """Log of the average of p(y | f) over N(mean, variance), (n,)."""
    return tilted(likelihood, obs, mean, variance)[0]

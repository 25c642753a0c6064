"""What a latent belief N(mean, variance) says of observations: moments, cdf, quantiles, log density.

    p(y) = integral N(f; mean, variance) p(y | f) df

Gaussian rows and two classes in closed form; any other family as a mixture of its own distribution over
latent values. p(y | f) may be far narrower or far wider in f than the belief (a count of a million
against a prior), so the integral is cut into panels where the integrand changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import ndtr, ndtri, roots_hermitenorm, roots_legendre
from scoringrules import crps_normal, crps_quantile

from bcmdist.data.observations import Observations
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.likelihoods.tilted import tilted

# The interval predictions report.
LOW, HIGH = 0.025, 0.975

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
# A belief is not narrower than this share of 1 + |mean|: its nodes must differ in floating point.
LEAST_SD = 1e-9

# Quantiles: the cdf at the answer is that close to the level, or the answer is known to that share.
LEVEL_TOLERANCE = 1e-6
RULER_TOLERANCE = 1e-13
# Of which every third halves the bracket: enough for brackets of 1e15 whole numbers. About 7 are used.
QUANTILE_STEPS = 150
# ndtri of probabilities near 0 and 1 is cut at this.
GAP_LIMIT = 8.0

# Rows whose nodes are held in memory at a time.
BLOCK_ROWS = 2048


class Predictive(ABC):
    """Distributions of new observations, one for each of n rows."""

    @property
    @abstractmethod
    def mean(self):
        """(n,)."""

    @property
    @abstractmethod
    def variance(self):
        """(n,)."""

    @abstractmethod
    def cdf(self, y):
        """P(Y <= y), (n,)."""

    @abstractmethod
    def quantile(self, q):
        """Smallest y with P(Y <= y) >= q, for one level q, (n,)."""

    @abstractmethod
    def log_density(self, obs):
        """log p(y) of one observation of each row; of a censored row, the log probability of surviving it."""


def predictive(likelihood, mean, variance, obs: Observations) -> Predictive:
    """What a belief N(mean, variance), (n,) each, says of new observations with the companions of `obs`.

    `likelihood`: of one process (`OneProcess`).
    """
    if likelihood.normal:
        return _Normal(mean, variance + likelihood.noise(obs))
    if likelihood.categorical:
        return _Classes(*likelihood.class_probability(mean, variance).T)
    return _Mixture(likelihood, mean, np.maximum(variance, (LEAST_SD * (1.0 + np.abs(mean))) ** 2), obs)


def observe(likelihood, mean, variance, obs: Observations) -> dict[str, np.ndarray]:
    """What predictions contain, by name, (n,) each; `probability` of two classes (n, 2).

    Numbers: mean, variance and the 95 % interval, and what else the likelihood names among its `columns`: the
    median, or the probability of success in one trial. Classes: probability and label.
    """
    if likelihood.categorical:
        p = likelihood.class_probability(mean, variance)
        return {"probability": p, "label": p.argmax(axis=1)}
    said = predictive(likelihood, mean, variance, obs)
    once = predictive(likelihood, mean, variance, replace(obs, trials=np.ones(len(obs))))
    return {name: COLUMNS[name](said, once) for name in likelihood.columns}


COLUMNS: dict[str, Callable[[Predictive, Predictive], np.ndarray]] = {
    "observation_mean": lambda said, once: said.mean,
    "observation_variance": lambda said, once: said.variance,
    "lower95": lambda said, once: said.quantile(LOW),
    "upper95": lambda said, once: said.quantile(HIGH),
    "median": lambda said, once: said.quantile(0.5),
    "probability": lambda said, once: once.mean,
}
"""Columns of predictions of numbers, by name, from what is said of observations, and of those of one trial."""


@dataclass(frozen=True)
class _Normal(Predictive):
    """N(m, v)."""

    m: np.ndarray
    v: np.ndarray

    @property
    def mean(self):
        return self.m

    @property
    def variance(self):
        return self.v

    def cdf(self, y):
        return ndtr((y - self.m) / np.sqrt(self.v))

    def quantile(self, q):
        return self.m + ndtri(q) * np.sqrt(self.v)

    def log_density(self, obs):
        return -0.5 * ((obs.y - self.m) ** 2 / self.v + np.log(2.0 * np.pi * self.v))


@dataclass(frozen=True)
class _Classes(Predictive):
    """Class 1 with probability `yes`, class 0 with probability `no`."""

    no: np.ndarray
    yes: np.ndarray

    @property
    def mean(self):
        return self.yes

    @property
    def variance(self):
        return self.yes * self.no

    def cdf(self, y):
        return np.where(y < 0, 0.0, np.where(y < 1, self.no, 1.0))

    def quantile(self, q):
        return np.where(self.no >= q, 0.0, 1.0)

    def log_density(self, obs):
        # Finite for a class that is impossible in floating point.
        return np.log(np.clip(np.where(obs.y == 1, self.yes, self.no), np.finfo(float).tiny, 1.0))


@dataclass(frozen=True)
class _Mixture(Predictive):
    """The distributions of p(y | f), mixed over the belief about f."""

    likelihood: OneProcess
    latent_mean: np.ndarray
    latent_variance: np.ndarray
    obs: Observations

    @property
    def mean(self):
        return self._moments()[0]

    @property
    def variance(self):
        return self._moments()[1]

    def _moments(self):
        return _in_blocks(_moments_of, self.likelihood, self.latent_mean, self.latent_variance, self.obs)

    def cdf(self, y):
        obs = replace(self.obs, y=np.broadcast_to(np.asarray(y, dtype=float), len(self.obs)))
        return _in_blocks(_cdf_of, self.likelihood, self.latent_mean, self.latent_variance, obs)

    def quantile(self, q):
        return _in_blocks(partial(_quantile_of, q=q), self.likelihood, self.latent_mean, self.latent_variance, self.obs)

    def log_density(self, obs):
        once = replace(obs, weight=np.ones(len(obs)))
        return _in_blocks(_log_average, self.likelihood, self.latent_mean, self.latent_variance, once)


def _in_blocks(function, likelihood, mean, variance, obs):
    """A function of a likelihood, beliefs and observations, `BLOCK_ROWS` rows at a time; rows last."""
    starts = range(0, max(len(obs), 1), BLOCK_ROWS)
    parts = [slice(start, start + BLOCK_ROWS) for start in starts]
    with np.errstate(over="ignore", invalid="ignore"):  # moments may be infinite, and scipy's cdfs try large exponents
        return np.concatenate([function(likelihood, mean[rows], variance[rows], obs[rows]) for rows in parts], axis=-1)


def _moments_of(likelihood, mean, variance, obs):
    """Mean and variance of an observation by the laws of total expectation and variance, (2, n)."""
    nodes, weights = roots_hermitenorm(HERMITE_NODES)
    weights = weights / weights.sum()
    mixed = likelihood.distribution(obs, mean[:, None] + np.sqrt(variance)[:, None] * nodes)
    means, variances = mixed.mean(), mixed.var()
    center = means @ weights
    return np.array([center, variances @ weights + (means - center[:, None]) ** 2 @ weights])


# --- The cdf: P(Y <= y) = integral N(f; mean, variance) F(y | f) df ---


def _cdf_of(likelihood, mean, variance, obs):
    """P(Y <= obs.y), (n,): by Gauss-Legendre, cut where F(y | f) falls from one to zero as f grows."""
    f, weights = _cut_belief(mean, np.sqrt(variance), *_step(likelihood, obs))
    return (likelihood.distribution(obs, f).cdf(obs.y[:, None]) * weights).sum(axis=1)


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


def _quantile_of(likelihood, mean, variance, obs, *, q):
    """Quantiles at level q, (n,): the cdf there is within `LEVEL_TOLERANCE` of q; of counts, exact for that cdf.

    Follows ndtri(cdf(y)) - ndtri(q), which is nearly straight on the ruler x: from a first guess in
    doubling strides until both sides are known, then by regula falsi (Illinois: an end that stays twice
    has its value halved) with a halving at every third step.
    """
    ruler, back = likelihood.units.place, likelihood.units.at
    guess, stride = _guess(likelihood, mean, variance, obs, q)
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
        level = _cdf_of(likelihood, mean[todo], variance[todo], replace(obs[todo], y=y))
        gap = np.clip(ndtri(np.clip(level, 0.0, 1.0)) - ndtri(q), -GAP_LIMIT, GAP_LIMIT)
        below = level < q
        share = np.where(below == came_from_below[todo], 0.5, 1.0)
        low[todo], low_gap[todo] = np.where(below, x, a), np.where(below, gap, share * low_gap[todo])
        high[todo], high_gap[todo] = np.where(below, b, x), np.where(below, share * high_gap[todo], gap)
        came_from_below[todo] = below
        stride[todo] *= 2.0
        if likelihood.discrete:
            done = np.round(back(high[todo])) - np.round(back(low[todo])) <= 1.0
        else:
            done = np.abs(level - q) <= LEVEL_TOLERANCE
            high[todo] = np.where(done, x, high[todo])
        todo = todo[~done & (high[todo] - low[todo] > RULER_TOLERANCE)]
        if len(todo) == 0:
            break
    return np.round(back(high)) if likelihood.discrete else back(high)


def _guess(likelihood, mean, variance, obs, q):
    """Where on the ruler the quantile may lie, and how far off that may be, (n,) each."""
    y = likelihood.typical(obs, mean)
    _, reach = _step(likelihood, replace(obs, y=np.minimum(y, obs.trials) if "trials" in likelihood.companions else y))
    stride = np.sqrt(variance + (reach / STEP_WIDTHS) ** 2)
    return likelihood.units.place(y) + ndtri(q) * stride, 0.5 * stride


def _between(low, high, low_gap, high_gap, stride, *, halve):
    """Next place to look: inside a bracket, or a stride beyond the end that is known."""
    share = 0.5 if halve else low_gap / (low_gap - high_gap)
    open_low, open_high = np.isinf(low), np.isinf(high)
    a, b = np.where(open_low, 0.0, low), np.where(open_high, 0.0, high)
    return np.where(open_high, a + stride, np.where(open_low, b - stride, a + share * (b - a)))


def _log_average(likelihood, mean, variance, obs):
    """log of the average of p(y | f) over N(mean, variance), (n,)."""
    return tilted(likelihood, obs, mean, variance)[0]


# --- Scores that need more than one of the above ---

# Levels of the quantiles by which a continuous ranked probability score is averaged: 20 bring it to about 2 %.
CRPS_LEVELS = (np.arange(20) + 0.5) / 20.0


def crps(said: Predictive, y):
    """Continuous ranked probability score of y, (n,): of mixtures from their quantiles at `CRPS_LEVELS`."""
    if isinstance(said, _Normal):
        return crps_normal(y, said.m, np.sqrt(said.v), backend="numpy")
    quantiles = np.column_stack([said.quantile(level) for level in CRPS_LEVELS])
    return crps_quantile(y, quantiles, CRPS_LEVELS, backend="numpy")


def unit_deviance(likelihood: OneProcess, obs: Observations, mean):
    """Twice the log density that each row loses against a saturated model when its mean is `mean`, (n,).

    McCullagh & Nelder (1989), section 2.3; of a censored row against certain survival. Of any counts it is that of
    Poisson, since that of a negative binomial falls with its shape: models of one set of counts can be compared by it.
    """
    family, once = likelihood.compared(), replace(obs, weight=np.ones(len(obs)))
    best, f = family.saturated(once), family.link(once, mean)
    return 2.0 * (family.log_density(once, best) - family.log_density(once, f))

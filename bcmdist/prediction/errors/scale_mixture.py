"""The shape of errors: a mixture of normals with fixed components, fitted to standardised leave-one-out residuals.

A Gaussian process has a single variance for errors that are mostly small, sometimes large, and often skewed. With
z = (y - mean) / sd of left-out rows, the mixture z ~ sum_k weight_k N(mean_k, scale_k^2) describes their actual
distribution. Means and scales are a fixed grid, so only the weights are estimated: a concave maximisation by
expectation maximisation (the nonparametric maximum likelihood estimate of Kiefer & Wolfowitz 1956 on a grid), under a
Dirichlet prior whose mean is nearly N(0, 1). No number of components is chosen, and the fit moves continuously with the
residuals. Residuals are summed as a `Histogram` of z.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

# |z| is counted at geometrically spaced nodes, by sign; values beyond the outermost nodes count there.
SMALLEST, LARGEST, NODES = 1e-3, 1e3, 500
# Scales of the components: geometric, and sparser below the smallest with a skew, since a few residuals near 0 are
# chance. The smallest keeps the density finite for residuals of exactly 0.
NARROWEST, WIDEST, SCALES, SPARSER = 0.01, 100.0, 25, 4
# Means of the components other than 0, of either sign, for scales between these two.
MEANS, SKEWED = (0.4, 0.8, 1.2), (0.2, 1.6)
# Prior: residuals, in addition to the observed ones, of scale 1; of scale 4.6, so that tails which no residual has
# shown keep a small weight; and of all components together.
OF_ONE, OF_TAIL, OF_ALL = 8.0, 0.5, 0.5
# Steps of expectation maximisation; a fixed number, so that nearly equal residuals give nearly equal shapes.
STEPS = 200
QUANTILE_HALVINGS = 100
# The gain of each residual is limited to this, so that no single one decides between models.
MOST_NATS = 5.0


@dataclass(frozen=True)
class Shape:
    """Distribution of standardised errors: sum_k weights[k] N(means[k], scales[k]^2), with mean 0."""

    weights: tuple[float, ...] = (1.0,)
    scales: tuple[float, ...] = (1.0,)
    means: tuple[float, ...] = ()
    """empty: all 0"""

    @property
    def normal(self) -> bool:
        """Whether it is N(0, 1)."""
        return self.scales == (1.0,) and not any(self.means)

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        scales = np.array(self.scales)
        return np.array(self.weights), scales, np.array(self.means) if self.means else np.zeros(len(scales))

    @property
    def mirrored(self) -> "Shape":
        """The distribution of -Z."""
        return Shape(self.weights, self.scales, tuple(-mean for mean in self.means))

    def log_density(self, z) -> np.ndarray:
        """log p(z), in the shape of z."""
        z, total = np.asarray(z, dtype=float), np.array(-np.inf)
        weights, scales, means = self._arrays
        for log, scale, mean in zip(np.log(weights / scales), scales, means, strict=True):  # z may be long
            total = np.logaddexp(total, log - 0.5 * ((z - mean) / scale) ** 2)
        return total - 0.5 * math.log(2.0 * math.pi)

    def cdf(self, z) -> np.ndarray:
        """P(Z <= z), in the shape of z."""
        z, total = np.asarray(z, dtype=float), np.array(0.0)
        for weight, scale, mean in zip(*self._arrays, strict=True):
            total = total + weight * ndtr((z - mean) / scale)
        return total

    def quantile(self, q: float) -> float:
        """The z with P(Z <= z) = q."""
        return float(ndtri(q)) if self.normal else _quantile(self, q)

    def crps(self, z) -> np.ndarray:
        """Continuous ranked probability score of z, (n,): E|Z - z| - 1/2 E|Z - Z'| (Grimit et al. 2006, eq. 5)."""
        weights, scales, means = self._arrays
        pairs = _absolute(means[:, None] - means, np.hypot(scales[:, None], scales))
        z, total = np.asarray(z, dtype=float), -0.5 * (weights @ pairs @ weights)
        for weight, scale, mean in zip(weights, scales, means, strict=True):
            total = total + weight * _absolute(z - mean, scale)
        return total


NORMAL = Shape()


def _absolute(mean, sd):
    """E|N(mean, sd^2)|."""
    u = mean / sd
    return sd * (u * (2.0 * ndtr(u) - 1.0) + math.sqrt(2.0 / math.pi) * np.exp(-0.5 * u**2))


@lru_cache(maxsize=256)
def _quantile(shape, q):
    """The quantile, by bisection between the smallest and the largest quantile of a component."""
    _, scales, means = shape._arrays
    own = means + scales * ndtri(q)
    low, high = float(own.min()), float(own.max())
    for _ in range(QUANTILE_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if shape.cdf(middle) < q else (low, middle)
    return 0.5 * (low + high)


@dataclass(frozen=True)
class Histogram:
    """Counts of z at 2 `NODES` nodes, negative ones first, in two halves for cross-validation; `+` adds counts."""

    counts: np.ndarray
    """(2, 2 `NODES`)"""

    def __add__(self, other: "Histogram") -> "Histogram":
        return Histogram(self.counts + other.counts)


def histogram(z, *, weight=1.0) -> Histogram:
    """Histogram of residuals z (n,); each is divided between its two neighbouring nodes of its sign.

    Parameters
    ----------
    weight : weight of each residual, (n,) or a scalar
    """
    z = np.asarray(z, dtype=float)
    size, negative = np.abs(z).clip(SMALLEST, LARGEST), z < 0
    place = (NODES - 1) * np.log(size / SMALLEST) / math.log(LARGEST / SMALLEST)
    lower = np.minimum(place.astype(int), NODES - 2)
    counts, half = np.zeros((2, 2 * NODES)), np.arange(len(size)) % 2  # they alternate
    for node, share in ((lower, 1.0 - (place - lower)), (lower + 1, place - lower)):
        np.add.at(counts, (half, np.where(negative, NODES - 1 - node, NODES + node)), weight * share)
    return Histogram(counts)


_SIZES = np.geomspace(SMALLEST, LARGEST, NODES)
_NODES = np.concatenate([-_SIZES[::-1], _SIZES])


def _grid():
    """Scales and means (K,) of the components."""
    scales = np.geomspace(NARROWEST, WIDEST, SCALES)
    scales = scales[(scales > SKEWED[0]) | (np.arange(SCALES) % SPARSER == 0)]
    skewed = scales[(scales > SKEWED[0]) & (scales < SKEWED[1])]
    means = [sign * mean for mean in MEANS for sign in (-1.0, 1.0)]
    return np.concatenate([scales, np.tile(skewed, len(means))]), np.concatenate(
        [np.zeros(len(scales)), np.repeat(means, len(skewed))]
    )


_SCALES, _MEANS = _grid()
_SYMMETRIC = _MEANS == 0.0
_ONE = int(np.argmin(np.abs(np.log(_SCALES)) + np.abs(_MEANS)))
_DENSITY = np.exp(-0.5 * ((_NODES[:, None] - _MEANS) / _SCALES) ** 2) / _SCALES
"""(2 `NODES`, K), without the constant factor"""


def _prior(allowed):
    """Parameters (K,) of the Dirichlet prior, 0 for components that are not allowed."""
    prior = allowed * (OF_ALL / allowed.sum())
    prior[_ONE] += OF_ONE
    prior[_ONE + 4] += OF_TAIL
    return prior


# From the fewest components to the most: N(0, 1) with its tail, symmetric ones, all.
_PRIORS = [_prior(allowed) for allowed in ((_SCALES >= 1.0) & _SYMMETRIC, _SYMMETRIC, np.full(len(_SCALES), True))]


def fit_shape(residuals: Histogram | Iterable[float]) -> Shape:
    """Fit the shape of standardised leave-one-out residuals.

    It is an average of three fits: nearly N(0, 1), symmetric, and any of the grid. Each is weighted by the density of
    the residuals in either half when it is fitted to those of the other half (pseudo-Bayesian model averaging).
    """
    counted = residuals if isinstance(residuals, Histogram) else histogram(residuals)
    counts, total = counted.counts, counted.counts.sum(axis=0)
    if min(counts.sum(axis=1)) <= 0.0:
        return NORMAL
    scores = []
    for fit in _FITS:
        densities = np.array([np.log(_DENSITY @ fit(half)) for half in counts[::-1]])
        scores.append(densities)
    gains = np.array([(counts * np.clip(one - scores[0], -MOST_NATS, MOST_NATS)).sum() for one in scores])
    weights = np.exp(gains - logsumexp(gains)) @ np.array([fit(total) for fit in _FITS])
    return _centred(weights)


def _nearly_normal(counts):
    """Weights (K,) of N(0, 1) with a tail that no residual has shown."""
    weights = _PRIORS[0].copy()
    weights[_ONE] += counts.sum()
    return weights / weights.sum()


def _maximised(prior):
    """A function of counts (2 `NODES`,) that returns the weights (K,) of largest posterior density under a prior."""
    allowed = prior > 0.0

    def fit(counts):
        used = counts > 0.0
        density, count, own = _DENSITY[np.ix_(used, allowed)], counts[used], prior[allowed]
        weights = np.full(len(own), 1.0 / len(own))
        for _ in range(STEPS):
            weights = weights * ((count / (density @ weights)) @ density) + own
            weights /= weights.sum()
        out = np.zeros(len(prior))
        out[allowed] = weights
        return out

    return fit


_FITS = (_nearly_normal, *map(_maximised, _PRIORS[1:]))


def _centred(weights) -> Shape:
    """The shape with these weights (K,), moved to mean 0: the mean of predictions stays that of the model."""
    used = weights > 0.0
    means = _MEANS[used] - weights @ _MEANS
    return Shape(tuple(weights[used].tolist()), tuple(_SCALES[used].tolist()), tuple(means.tolist()))


def decided_by(gains, weights) -> tuple[float, float]:
    """Weighted mean of gains, each clipped to +-`MOST_NATS`, and its standard error."""
    bounded, total = np.clip(gains, -MOST_NATS, MOST_NATS), weights.sum()
    mean = (weights * bounded).sum() / total
    return float(mean), math.sqrt((weights * (bounded - mean) ** 2).sum() / total / total)

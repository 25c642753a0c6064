"""The shape of errors: a zero-mean scale mixture of normals, fitted to standardised leave-one-out residuals.

A Gaussian process has a single variance for errors that are mostly small and sometimes large. With z = (y - mean) / sd
of left-out rows, the mixture z ~ sum_k weight_k N(0, scale_k^2) describes their actual distribution. Residuals are
summed as a `Histogram` of |z|, to which the mixture is fitted by expectation maximisation. The number of components is
chosen by two-fold cross-validation; without a decisive gain the shape stays N(0, 1), as the model assumes.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

# |z| is counted at geometrically spaced nodes; values beyond the outermost nodes count there.
SMALLEST, LARGEST, NODES = 1e-3, 1e3, 500
# Largest number of components, least number of residuals per component, and least scale, which keeps the density
# finite for residuals of exactly 0.
MOST_COMPONENTS, LEAST_RESIDUALS, NARROWEST = 4, 100, 0.01
# Steps of expectation maximisation; a fixed number, so that nearly equal residuals give nearly equal shapes.
STEPS = 200
QUANTILE_HALVINGS = 100
# More components are chosen if the cross-validated gain exceeds `DECISIVE` standard errors. The gain of each residual
# is limited to `MOST_NATS`, so that no single one decides.
DECISIVE, MOST_NATS = 2.0, 5.0


@dataclass(frozen=True)
class Shape:
    """Distribution of standardised errors: sum_k weights[k] N(0, scales[k]^2), scales ascending."""

    weights: tuple[float, ...] = (1.0,)
    scales: tuple[float, ...] = (1.0,)

    @property
    def normal(self) -> bool:
        """Whether it is N(0, 1)."""
        return self.scales == (1.0,)

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.weights), np.array(self.scales)

    def log_density(self, z) -> np.ndarray:
        """log p(z), in the shape of z."""
        weights, scales = self._arrays
        terms = np.log(weights / scales) - 0.5 * (np.asarray(z)[..., None] / scales) ** 2
        return np.logaddexp.reduce(terms, axis=-1) - 0.5 * math.log(2.0 * math.pi)

    def cdf(self, z) -> np.ndarray:
        """P(Z <= z), in the shape of z."""
        weights, scales = self._arrays
        return ndtr(np.asarray(z)[..., None] / scales) @ weights

    def quantile(self, q: float) -> float:
        """The z with P(Z <= z) = q."""
        if self.normal:
            return float(ndtri(q))
        from_middle = _upper_quantile(self, max(q, 1.0 - q))
        return from_middle if q >= 0.5 else -from_middle

    def crps(self, z) -> np.ndarray:
        """Continuous ranked probability score of z, (n,): E|Z - z| - 1/2 E|Z - Z'| (Grimit et al. 2006, eq. 5)."""
        weights, scales = self._arrays
        pairs = np.sqrt(scales[:, None] ** 2 + scales**2)
        spread = math.sqrt(2.0 / math.pi) * (weights @ pairs @ weights)
        u = np.asarray(z)[..., None] / scales
        gap = scales * (u * (2.0 * ndtr(u) - 1.0) + math.sqrt(2.0 / math.pi) * np.exp(-0.5 * u**2))
        return gap @ weights - 0.5 * spread


NORMAL = Shape()


@lru_cache(maxsize=256)
def _upper_quantile(shape, q):
    """The quantile for q >= 1/2, by bisection between 0 and 40 times the largest scale."""
    low, high = 0.0, 40.0 * shape.scales[-1]
    for _ in range(QUANTILE_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if shape.cdf(middle) < q else (low, middle)
    return 0.5 * (low + high)


@dataclass(frozen=True)
class Histogram:
    """Counts of |z| at `NODES` nodes, (2, NODES), in two halves for cross-validation; `+` adds counts."""

    counts: np.ndarray

    def __add__(self, other: "Histogram") -> "Histogram":
        return Histogram(self.counts + other.counts)


def histogram(z, *, half=None, weight=1.0) -> Histogram:
    """Histogram of residuals z (n,); each is divided between its two neighbouring nodes.

    Parameters
    ----------
    half : half (0 or 1) in which each residual is counted, (n,); alternating by default
    weight : weight of each residual, (n,) or a scalar
    """
    size = np.abs(np.asarray(z, dtype=float)).clip(SMALLEST, LARGEST)
    place = (NODES - 1) * np.log(size / SMALLEST) / math.log(LARGEST / SMALLEST)
    node = np.minimum(place.astype(int), NODES - 2)
    counts, half = np.zeros((2, NODES)), np.arange(len(size)) % 2 if half is None else half
    np.add.at(counts, (half, node), weight * (1.0 - (place - node)))
    np.add.at(counts, (half, node + 1), weight * (place - node))
    return Histogram(counts)


_NODES = np.geomspace(SMALLEST, LARGEST, NODES)


def fit_shape(residuals: Histogram | Iterable[float]) -> Shape:
    """Fit the shape of standardised leave-one-out residuals: N(0, 1), unless a mixture predicts held-out ones better.

    Mixtures fitted to one half of the residuals are scored on the other half. More components are chosen if the gain
    exceeds `DECISIVE` standard errors.
    """
    counted = residuals if isinstance(residuals, Histogram) else histogram(residuals)
    fewest, chosen = 2.0 * counted.counts.sum(axis=1).min(), 0
    densities = [np.tile(NORMAL.log_density(_NODES), (2, 1))]
    for components in range(1, MOST_COMPONENTS + 1):
        if fewest < LEAST_RESIDUALS * components:
            break
        fitted = _mixtures(counted.counts[::-1], components)
        densities.append(np.array([shape.log_density(_NODES) for shape in fitted]))
        if _gain(counted.counts, densities[-1] - densities[chosen]) > DECISIVE:
            chosen = components
    return _mixtures(counted.counts.sum(axis=0, keepdims=True), chosen)[0] if chosen else NORMAL


def _gain(counts, gains) -> float:
    """Mean gain of counted residuals, in units of its standard error."""
    nats, error = decided_by(gains, counts)
    return nats / error if error > 0 else math.copysign(math.inf, nats)


def decided_by(gains, weights) -> tuple[float, float]:
    """Weighted mean of gains, each clipped to +-`MOST_NATS`, and its standard error."""
    bounded, total = np.clip(gains, -MOST_NATS, MOST_NATS), weights.sum()
    mean = (weights * bounded).sum() / total
    return float(mean), math.sqrt((weights * (bounded - mean) ** 2).sum() / total / total)


def _mixtures(counts, components) -> list[Shape]:
    """Fit a mixture to each of m histograms (m, NODES) by expectation maximisation.

    All m fits are vectorised, with arrays (m, components, NODES).
    """
    used = counts.any(axis=0)
    counts, squares = counts[:, used], _NODES[used] ** 2
    total = counts.sum(axis=1, keepdims=True)
    variances = np.maximum(_start(counts / total, squares, components), NARROWEST**2)
    weights = np.full(variances.shape, 1.0 / components)
    for _ in range(STEPS if components > 1 else 0):
        logs = squares / variances[..., None]
        logs += np.log(variances / weights**2)[..., None]
        logs -= logs.min(axis=1, keepdims=True)
        shares = np.exp(-0.5 * logs)
        shares *= (counts / shares.sum(axis=1))[:, None]
        absorbed = shares.sum(axis=2)
        weights = (absorbed + 1.0) / (total + components)  # prior of one residual each: no weight vanishes
        variances = np.maximum(shares @ squares / np.maximum(absorbed, np.finfo(float).tiny), NARROWEST**2)
    scales = np.sqrt(variances)
    order = np.argsort(scales, axis=1)
    fitted = zip(np.take_along_axis(weights, order, 1), np.take_along_axis(scales, order, 1), strict=True)
    return [Shape(tuple(weight.tolist()), tuple(scale.tolist())) for weight, scale in fitted]


def _start(portions, squares, components):
    """Initial variances (m, components): that of all residuals, or twice their squares at equidistant quantiles."""
    if components == 1:
        return portions @ squares[:, None]
    levels = (np.arange(components) + 0.5) / components
    at = np.array([np.searchsorted(np.cumsum(one), levels) for one in portions])
    return 2.0 * squares[at.clip(max=len(squares) - 1)]

"""The shape of errors: a zero-mean scale mixture of normals, fitted to standardised residuals of rows left out.

A Gaussian process has one variance for errors that are mostly small and sometimes large. With z = (y - mean) / sd of
rows that were left out, z ~ sum_k weight_k N(0, scale_k^2) says how large they are in truth. Residuals add as a
`Histogram` of |z|; the mixture is fitted to the sum by expectation maximisation, with as many components as residuals
of the other half ask for - none, N(0, 1) as the model says, unless these gain.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

# |z| is counted at nodes of equal ratio; what lies beyond counts at the last ones.
SMALLEST, LARGEST, NODES = 1e-3, 1e3, 500
# Components at most, residuals that one takes at least, and the narrowest one: residuals of exactly 0 have no density.
MOST_COMPONENTS, LEAST_RESIDUALS, NARROWEST = 4, 100, 0.01
# Steps of expectation maximisation, always as many, so that shapes of nearly the same residuals are nearly the same.
STEPS = 200
QUANTILE_HALVINGS = 100
# A shape of more components is taken where residuals of the other half gain so many standard errors, each of them no
# more than so many nats: no single one decides.
DECISIVE, MOST_NATS = 2.0, 5.0


@dataclass(frozen=True)
class Shape:
    """Distribution of standardised errors: sum_k weights[k] N(0, scales[k]^2), of ascending scales."""

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
        """log p(z), like z (n,)."""
        weights, scales = self._arrays
        terms = np.log(weights / scales) - 0.5 * (np.asarray(z)[..., None] / scales) ** 2
        return logsumexp(terms, axis=-1) - 0.5 * math.log(2.0 * math.pi)

    def cdf(self, z) -> np.ndarray:
        """P(Z <= z), like z (n,)."""
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
    """By bisection, between 0 and far beyond the widest component."""
    low, high = 0.0, 40.0 * shape.scales[-1]
    for _ in range(QUANTILE_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if shape.cdf(middle) < q else (low, middle)
    return 0.5 * (low + high)


@dataclass(frozen=True)
class Histogram:
    """Counts of |z| at `NODES` nodes, in two halves that judge each other, (2, NODES); `+` adds."""

    counts: np.ndarray

    def __add__(self, other: "Histogram") -> "Histogram":
        return Histogram(self.counts + other.counts)


def histogram(z, *, half=None, weight=1.0) -> Histogram:
    """Of residuals (n,); each is shared by the two nodes that it lies between.

    Parameters
    ----------
    half : (n,) 0 or 1, in which each of them is counted; every other one in the same by default
    weight : how often each counts, (n,) or one for all
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
    """The shape of standardised residuals of rows left out: N(0, 1), unless others of them are likelier by a mixture.

    Each half of the residuals judges what was fitted to the other one; a shape of more components is taken where the
    gain is `DECISIVE` standard errors.
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
    """Mean of the gains of counted residuals, in its standard errors."""
    nats, error = decided_by(gains, counts)
    return nats / error if error > 0 else math.copysign(math.inf, nats)


def decided_by(gains, weights) -> tuple[float, float]:
    """Mean of some gains, none beyond `MOST_NATS`, each counted so often, and its standard error."""
    bounded, total = np.clip(gains, -MOST_NATS, MOST_NATS), weights.sum()
    mean = (weights * bounded).sum() / total
    return float(mean), math.sqrt((weights * (bounded - mean) ** 2).sum() / total / total)


def _mixtures(counts, components) -> list[Shape]:
    """Weights and scales of highest likelihood for each of some counts (m, NODES), by expectation maximisation.

    All m take their steps together, which are of small arrays: (m, components, NODES).
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
        weights = (absorbed + 1.0) / (total + components)  # one residual each beforehand: none vanishes
        variances = np.maximum(shares @ squares / np.maximum(absorbed, np.finfo(float).tiny), NARROWEST**2)
    scales = np.sqrt(variances)
    order = np.argsort(scales, axis=1)
    fitted = zip(np.take_along_axis(weights, order, 1), np.take_along_axis(scales, order, 1), strict=True)
    return [Shape(tuple(weight.tolist()), tuple(scale.tolist())) for weight, scale in fitted]


def _start(portions, squares, components):
    """Variances (m, components): of all, or twice the squares of which equal parts are smaller."""
    if components == 1:
        return portions @ squares[:, None]
    levels = (np.arange(components) + 0.5) / components
    at = np.array([np.searchsorted(np.cumsum(one), levels) for one in portions])
    return 2.0 * squares[at.clip(max=len(squares) - 1)]

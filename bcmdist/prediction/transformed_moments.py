"""Moments and scores of observations in original units where targets are transformed.

See `bcmdist.model.target_transform`.

With T(y) = m + sd Z, Z of the shape of errors with distribution function F, moments are averages over a normal t,
E g(y) = E g(T^-1(m + sd F^-1(Phi(t)))), by the trapezoidal rule: exact up to the limit below for normal
errors and a logarithm, where E y = exp(m + sd^2 / 2).

A few gross errors give a shape rare wide components, whose exponentials would dominate all means. So errors count at
most as `LIMIT` robust standard deviations, which are estimated by the interquartile range of the shape.
"""

import functools
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri
from scoringrules import crps_quantile

from bcmdist.model.scaling import Scaling
from bcmdist.prediction.errors.scale_mixture import Shape
from bcmdist.prediction.observation import Scaled
from bcmdist.prediction.predictive import CRPS_LEVELS

NODES, FURTHEST = 129, 8.0
LIMIT = 6.0
# Rows per block, so that a block of rows at all nodes takes some 10 MB.
BLOCK_ROWS = 10_000


def transformed_moments(predicted: Scaled, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of observations in original units, (n,) each, from their distribution in model units."""
    if not len(predicted.m):
        return np.empty(0), np.empty(0)
    blocks = [slice(k, k + BLOCK_ROWS) for k in range(0, len(predicted.m), BLOCK_ROWS)]
    found = [_moments(predicted.m[rows], predicted.v[rows], predicted.shape, _block(scaling, rows)) for rows in blocks]
    mean, variance = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return mean, variance


def _block(scaling, rows):
    """The scaling of some rows, as a column where each row has its own."""
    if np.ndim(scaling.y_mean) == 0:
        return scaling
    return replace(scaling, y_mean=scaling.y_mean[rows, None], y_scale=scaling.y_scale[rows, None])


def _moments(m, v, shape, scaling):
    transform, sd = scaling.transform, np.sqrt(v)
    assert transform is not None

    def original(z):
        return np.maximum(transform.inverse(scaling.y_mean + scaling.y_scale * z), 0.0)

    nodes, weights = _nodes(shape)
    y = original(m[:, None] + sd[:, None] * nodes)
    mean = y @ weights
    return mean, (y - mean[:, None]) ** 2 @ weights


@functools.lru_cache(maxsize=64)
def _nodes(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Standardised errors at the quadrature nodes, and their weights, (k,) each."""
    t = np.linspace(-FURTHEST, FURTHEST, NODES)
    weights = np.exp(-0.5 * t**2)
    mirrored = shape.mirrored  # for the upper tail, where 1 - Phi(t) is exact and Phi(t) is not
    errors = [shape.quantile(ndtr(one)) if one < 0.0 else -mirrored.quantile(ndtr(-one)) for one in t.tolist()]
    low, middle, high = (shape.quantile(q) for q in (0.25, 0.5, 0.75))
    limit = LIMIT * (high - low) / (ndtri(0.75) - ndtri(0.25))
    return np.clip(t if shape.normal else errors, middle - limit, middle + limit), weights / weights.sum()


def transformed_crps(predicted: Scaled, y, scaling: Scaling, units) -> np.ndarray:
    """Continuous ranked probability score of targets y in original units, (n,), from quantiles at `CRPS_LEVELS`."""
    quantiles = [scaling.original("quantile", predicted.quantile(level), units) for level in CRPS_LEVELS]
    return crps_quantile(y, np.column_stack(quantiles), CRPS_LEVELS, backend="numpy")

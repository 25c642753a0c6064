"""Mixtures of normal distributions, one mixture for each of n rows.

Components are given as means and standard deviations (K, n), their weights as (K,) with the sum 1, or None where all
are equal. Quantiles, densities and scores are those of the mixture
itself, not of the normal distribution with the same moments: mixtures over hyper-parameters have heavier tails.
"""

import math

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

# Bisection steps for a quantile: from the smallest and largest component quantile, which enclose it, down to rounding.
QUANTILE_HALVINGS = 60
# Pairs of components times rows in memory at a time, few enough for a processor's cache.
PAIRS_AT_A_TIME = 2**16


def average(values, weights=None) -> np.ndarray:
    """Weighted mean along the first axis."""
    return values.mean(axis=0) if weights is None else np.tensordot(weights, values, axes=1)


def mixture_moments(means, variances, weights=None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n, ...) of the mixture: avg m and avg v + avg (m - mean)^2, components along the first axis.

    Equals avg (v + m^2) - mean^2, without its cancellation error.
    """
    mean = average(means, weights)
    return mean, average(variances, weights) + average((means - mean) ** 2, weights)


def mixture_cdf(means, sds, y, weights=None) -> np.ndarray:
    """P(Y <= y), (n,)."""
    return average(ndtr((y - means) / sds), weights)


def mixture_quantile(means, sds, q, weights=None) -> np.ndarray:
    """y with P(Y <= y) = q, (n,), by bisection between the smallest and the largest quantile of a component."""
    own = means + ndtri(q) * sds
    low, high = own.min(axis=0), own.max(axis=0)
    for _ in range(QUANTILE_HALVINGS):
        middle = 0.5 * (low + high)
        below = mixture_cdf(means, sds, middle, weights) < q
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


def mixture_log_density(means, sds, y, weights=None) -> np.ndarray:
    """log p(y), (n,): log of the average density."""
    z = (y - means) / sds
    shares = 1.0 / len(means) if weights is None else np.asarray(weights)[:, None]
    return logsumexp(-0.5 * z**2 - np.log(sds), axis=0, b=shares) - 0.5 * math.log(2.0 * math.pi)


def mixture_crps(means, sds, y, weights=None) -> np.ndarray:
    """Continuous ranked probability score of y, (n,): E|Y - y| - 1/2 E|Y - Y'| (Grimit et al. 2006, eq. 5).

    Agrees with scoringrules, whose implementation holds the pairs of all rows at once and takes 1.3 times as long when
    called in blocks.
    """
    pairs = np.empty(means.shape[1])
    step = max(1, PAIRS_AT_A_TIME // len(means) ** 2)
    for start in range(0, len(pairs), step):
        m, v = means[:, start : start + step], sds[:, start : start + step] ** 2
        gaps = _absolute(m[:, None] - m, np.sqrt(v[:, None] + v))
        pairs[start : start + step] = average(average(gaps, weights), weights)
    return average(_absolute(y - means, sds), weights) - 0.5 * pairs


def _absolute(mean, sd):
    """E|N(mean, sd^2)|."""
    z = mean / sd
    return 2.0 * sd * np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi) + mean * (2.0 * ndtr(z) - 1.0)

"""Probability integral transform (PIT): positions of observations in their predictive distributions.

A number y has the position F(y) in [0, 1], a count the range F(y - 1) to F(y), and a lifetime censored at c the range
F(c) to 1. If the predictions are right, the positions of all rows are uniform on [0, 1], and a central interval of
probability p contains a share p of them.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import BoolArray, FloatArray, FloatOrArray
from bcmdist.model.likelihoods import OneProcess
from bcmdist.prediction.predictive import Predictive

# Probabilities of the central intervals whose coverage is reported.
LEVELS = (0.50, 0.80, 0.95)
# Bins of the histogram, fine enough to resolve 5 % and 95 %; a customary number.
BINS = 20


@dataclass(frozen=True)
class Places:
    """PIT ranges of n observations."""

    low: FloatArray
    """(n,)"""
    high: FloatArray
    """(n,), not below `low`"""
    seen: BoolArray
    """(n,), False for censored lifetimes"""


def pit_ranges(likelihood: OneProcess, predicted: Predictive, obs: Observations) -> Places:
    """PIT ranges of n observations in their predictive distributions."""
    at = np.clip(predicted.cdf(obs.y), 0.0, 1.0)
    previous = likelihood.previous(obs.y)
    below = at if previous is None else np.clip(predicted.cdf(previous), 0.0, at)
    seen = np.asarray((obs.event == 1) | ("event" not in likelihood.companions))
    return Places(np.where(seen, below, at), np.where(seen, at, 1.0), seen)


def covered(where: Places, level: float) -> FloatArray:
    """Whether each observation lies in the central interval of probability `level`, limits included: 1 or 0, (n,).

    For a lifetime censored at c only T > c is known: the value is the predictive probability of the interval given T >
    c.
    """
    tail = 0.5 * (1.0 - level)
    inside = (where.high >= tail) & (where.low < 1.0 - tail)
    # The share is 0 if c lies beyond the interval.
    share = _inside(where.low, where.high, tail, 1.0 - tail) / np.maximum(where.high - where.low, tail)
    return np.where(where.seen, inside, share)


def histogram(where: Places) -> FloatArray:
    """Number of observations in each of `BINS` equal parts of [0, 1], (BINS,).

    An observation with a range is divided among bins in proportion: the nonrandomised histogram of Czado, Gneiting &
    Held (2009, Biometrics 65).
    """
    width = where.high - where.low
    points = np.bincount(np.minimum((where.low * BINS).astype(int), BINS - 1), width == 0.0, BINS)
    low, high, width = (x[width > 0.0] for x in (where.low, where.high, width))
    edges = np.arange(BINS + 1) / BINS
    inside = _inside(low[:, None], high[:, None], edges[:-1], edges[1:])
    counts: FloatArray = points + (inside / width[:, None]).sum(axis=0)
    return counts


def _inside(low: FloatArray, high: FloatArray, start: FloatOrArray, stop: FloatOrArray) -> FloatArray:
    """Length of the intersection of each range low to high with start to stop."""
    length: FloatArray = np.maximum(np.minimum(high, stop) - np.maximum(low, start), 0.0)
    return length


def distance_to_uniform(shares: FloatArray) -> float:
    """Largest distance, at bin edges, between the cumulative shares of a histogram and the uniform distribution."""
    return float(np.abs(np.cumsum(shares) - np.arange(1, len(shares) + 1) / len(shares)).max())

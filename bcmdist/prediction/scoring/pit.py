"""Where observations lie in the distributions that were predicted for them: the probability integral transform.

On the way from 0 to 1 a number y lies at the point F(y), a count somewhere from F(y - 1) to F(y), and a
lifetime of which only T > c is known somewhere from F(c) to 1. Where predictions are right, all rows
together fill [0, 1] evenly, and a central interval of probability p holds a share p of them.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.model.likelihoods import OneProcess
from bcmdist.prediction.predictive import Predictive

# Probabilities of the central intervals whose coverage is reported.
LEVELS = (0.50, 0.80, 0.95)
# Of the histogram, which then tells 5 % from 95 %; a customary number.
BINS = 20


@dataclass(frozen=True)
class Places:
    """Ranges of probability in which n observations lie, one for each."""

    low: np.ndarray
    """(n,)"""
    high: np.ndarray
    """(n,), not below `low`"""
    seen: np.ndarray
    """(n,), False for a censored lifetime"""


def pit_ranges(likelihood: OneProcess, said: Predictive, obs: Observations) -> Places:
    """Where each of n observations lies in its own distribution."""
    at = np.clip(said.cdf(obs.y), 0.0, 1.0)
    below = np.clip(said.cdf(obs.y - 1.0), 0.0, at) if likelihood.discrete else at
    seen = np.asarray((obs.event == 1) | ("event" not in likelihood.companions))
    return Places(np.where(seen, below, at), np.where(seen, at, 1.0), seen)


def covered(where: Places, level) -> np.ndarray:
    """1 where an observation lies in the central interval of probability `level`, limits included, else 0, (n,).

    Of a lifetime censored at c all that is known is T > c: the probability that the model then gives to the interval.
    """
    tail = 0.5 * (1.0 - level)
    inside = (where.high >= tail) & (where.low < 1.0 - tail)
    # Where c lies beyond the interval, the share is 0 anyway.
    share = _inside(where.low, where.high, tail, 1.0 - tail) / np.maximum(where.high - where.low, tail)
    return np.where(where.seen, inside, share)


def histogram(where: Places) -> np.ndarray:
    """How many observations lie in each of `BINS` equal parts of [0, 1], (BINS,).

    One that lies in a range is divided among the bins in proportion: the nonrandomised histogram of Czado, Gneiting
    & Held (2009, Biometrics 65).
    """
    width = where.high - where.low
    points = np.bincount(np.minimum((where.low * BINS).astype(int), BINS - 1), width == 0.0, BINS)
    low, high, width = (x[width > 0.0] for x in (where.low, where.high, width))
    edges = np.arange(BINS + 1) / BINS
    shares = [(_inside(low, high, a, b) / width).sum() for a, b in itertools.pairwise(edges)]
    return points + shares


def _inside(low, high, start, stop):
    """How much of the ranges low to high lies between start and stop."""
    return np.maximum(np.minimum(high, stop) - np.maximum(low, start), 0.0)


def distance_to_uniform(shares) -> float:
    """Largest gap between the distribution function of a histogram's shares and the diagonal, at the bins' edges."""
    return float(np.abs(np.cumsum(shares) - np.arange(1, len(shares) + 1) / len(shares)).max())

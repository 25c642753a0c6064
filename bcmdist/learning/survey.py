"""Survey: one pass that checks every row and learns what scaling and the query set need."""

from dataclasses import dataclass

import numpy as np

from bcmdist.data.checks.manifest import Chunk
from bcmdist.data.observations import Observations, joined
from bcmdist.learning.replicates import Replicates, replicates
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.scaling import Moments, column_moments
from bcmdist.model.targets import check_support
from bcmdist.storage.ledger import Entry


@dataclass(frozen=True)
class Sample:
    """A uniform sample of rows without replacement: those of smallest random priority.

    Priorities are drawn per partition, so any order and grouping of partitions gives the same sample.
    """

    size: int
    X: np.ndarray
    obs: Observations
    priority: np.ndarray
    """ascending"""
    row: np.ndarray
    """where each stands in the data set"""

    def __add__(self, other: "Sample") -> "Sample":
        priority = np.concatenate([self.priority, other.priority])
        keep = np.argsort(priority)[: self.size]
        X, obs = np.concatenate([self.X, other.X]), joined(self.obs, other.obs)
        row = np.concatenate([self.row, other.row])
        return Sample(self.size, X[keep], obs[keep], priority[keep], row[keep])


@dataclass(frozen=True)
class Zeros:
    """Lifetimes of 0: how many there are, and the first row with one."""

    count: int = 0
    first: int | None = None

    def __add__(self, other: "Zeros") -> "Zeros":
        rows = [zeros.first for zeros in (self, other) if zeros.first is not None]
        return Zeros(self.count + other.count, min(rows, default=None))


@dataclass(frozen=True)
class SurveyResult:
    """What a first pass over the data finds."""

    x: Moments
    y: Moments
    exposure: Moments
    labels: frozenset[float] | None
    """distinct targets where they can be class labels: at most `MOST_CLASSES` integers"""
    zeros: Zeros
    """of lifetimes"""
    replicates: Replicates
    """of inputs"""
    sample: Sample
    entries: dict[str, Entry]
    """partitions with their content hashes, by key"""
    chunks: dict[str, Chunk]
    """what was read of a data set without a manifest, by key"""

    def __add__(self, other: "SurveyResult") -> "SurveyResult":
        return SurveyResult(
            self.x + other.x,
            self.y + other.y,
            self.exposure + other.exposure,
            _few(self.labels | other.labels) if self.labels is not None and other.labels is not None else None,
            self.zeros + other.zeros,
            self.replicates + other.replicates,
            self.sample + other.sample,
            self.entries | other.entries,
            self.chunks | other.chunks,
        )


MOST_CLASSES = 1000


def _few(labels):
    return labels if len(labels) <= MOST_CLASSES else None


def _labels(y):
    """Distinct targets (n,) where they can be class labels, else None."""
    return _few(frozenset(np.unique(y).tolist())) if np.all(y == np.floor(y)) else None


def _zeros(part, y):
    rows = np.flatnonzero(y == 0)
    return Zeros(len(rows), part.start + int(rows[0]) if len(rows) else None)


@dataclass(frozen=True)
class Survey:
    """Check the rows of a partition; moments, sample and content hash."""

    seed: int
    sample_rows: int
    likelihood: str | None
    """checks the support of the targets where given"""

    def __call__(self, part, rows):
        likelihood = make_likelihood(self.likelihood) if self.likelihood else None
        if likelihood:
            check_support(likelihood, part, rows.obs)
        priority = np.random.default_rng([self.seed, part.start]).random(len(rows.X))
        keep = np.argsort(priority)[: self.sample_rows]
        return SurveyResult(
            column_moments(rows.X),
            column_moments(rows.obs.y[:, None]),
            column_moments(rows.obs.exposure[:, None]),
            _labels(rows.obs.y),
            _zeros(part, rows.obs.y) if likelihood and likelihood.zero_counts_as else Zeros(),
            replicates(rows.X, rows.obs.y),
            Sample(self.sample_rows, rows.X[keep], rows.obs[keep], priority[keep], part.start + keep),
            {part.key: Entry(part.key, rows.digest, part.rows)},
            dict(rows.chunks),
        )

"""Survey: one pass that checks every row and learns what scaling and the query set need.

Rows that repeat the inputs of others: how many there are, and how much their targets differ.

No kernel tells such rows apart, so the noise is what they disagree by. A uniform sample of rows would miss most of
them, since the other one of a pair is rarely in it too; so inputs are sampled by a hash of their values, of which all
rows are kept: those with the smallest hashes (Cohen 1997, bottom-k). Samples of partitions add up to that of all rows.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist.data.checks.manifest import Chunk
from bcmdist.data.observations import Observations, joined
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.scaling import Moments, column_moments
from bcmdist.model.targets import check_support
from bcmdist.storage.ledger import Entry

# Different inputs that are kept: the share of rows that repeat is known to about 1 / sqrt(4096), or 2 %, of one.
KEPT = 4096


@dataclass(frozen=True)
class Replicates:
    """Inputs of the smallest hashes, each with its rows; a commutative monoid up to rounding."""

    code: np.ndarray
    """hashes of different inputs, ascending, (k,) uint64 with k <= `KEPT`"""
    count: np.ndarray
    """rows with these inputs, (k,)"""
    mean: np.ndarray
    """of their targets"""
    squares: np.ndarray
    """sum of squares of their targets about the mean"""

    def __add__(self, other: "Replicates") -> "Replicates":
        joined = (np.concatenate(pair) for pair in zip(self._columns, other._columns, strict=True))
        return _grouped(*joined)

    @property
    def _columns(self):
        return self.code, self.count, self.mean, self.squares

    @property
    def share(self) -> float:
        """Share of rows whose inputs others have too."""
        return float(self.count[self.count > 1].sum() / self.count.sum())

    @property
    def deviation(self) -> float:
        """Standard deviation of the targets of such rows about what is behind their inputs; 0 where none repeat."""
        several = self.count > 1
        return float(np.sqrt(self.squares[several].sum() / max((self.count[several] - 1).sum(), 1)))


def replicates(X, y) -> Replicates:
    """Of the rows of a partition, X (n, D) and y (n,)."""
    return _grouped(_hashes(X), np.ones(len(y), np.int64), y, np.zeros(len(y)))


def _grouped(code, count, mean, squares):
    """One entry for each hash, of the smallest ones; means and squares by the update of `model.scaling.Moments`."""
    code, group = np.unique(code, return_inverse=True)
    total = np.bincount(group, count).astype(np.int64)
    # About any of a group's means, not 0: the digits of targets far from zero stay.
    origin = np.zeros(len(code))
    origin[group] = mean
    off = mean - origin[group]
    shift = np.bincount(group, count * off) / total
    spread = np.bincount(group, squares + count * (off - shift[group]) ** 2)
    return Replicates(code[:KEPT], total[:KEPT], (origin + shift)[:KEPT], spread[:KEPT])


def _hashes(X):
    """A hash of each row (n, D): that of its columns one after another, each mixed in as by splitmix64."""
    code = np.zeros(len(X), np.uint64)
    for column in np.ascontiguousarray(X.T, dtype=np.float64) + 0.0:  # of -0, too
        code = (code ^ column.view(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        code ^= code >> np.uint64(31)
    return code


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

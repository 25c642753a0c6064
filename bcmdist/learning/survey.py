"""Survey: one pass over the data that checks every row and computes statistics for scaling and query set.

Replicates are rows with equal inputs. No kernel can distinguish them, so the differences of their targets are noise. A
uniform sample of rows would miss most replicates, since it rarely contains both rows of a pair. So inputs are sampled
by a hash of their values: all rows with the smallest hashes are kept (Cohen 1997, bottom-k). Samples of partitions add
up to the sample of all rows.
"""

from dataclasses import dataclass, field

import numpy as np

from bcmdist.data.checks.manifest import Chunk
from bcmdist.data.dataset import Dataset, read_schema
from bcmdist.data.observations import Observations, joined
from bcmdist.data.schema import Schema, with_two_classes
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.outputs import output_numbers
from bcmdist.model.scaling import Moments, column_moments
from bcmdist.model.targets import check_support
from bcmdist.model.warping import SignedLog
from bcmdist.storage.entry import Entry

# Maximum distinct inputs that are kept: the share of replicates has a standard error of about 1 / sqrt(4096), or 2 %.
KEPT = 4096


@dataclass(frozen=True)
class Replicates:
    """Counts and targets of distinct inputs, for the smallest hashes; a commutative monoid up to rounding."""

    code: np.ndarray
    """hashes of distinct inputs, ascending, (k,) uint64 with k <= `KEPT`"""
    count: np.ndarray
    """number of rows with each input, (k,)"""
    mean: np.ndarray
    """mean of their targets, (k,)"""
    squares: np.ndarray
    """sum of squared deviations of their targets from the mean, (k,)"""

    def __add__(self, other: "Replicates") -> "Replicates":
        joined = (np.concatenate(pair) for pair in zip(self._columns, other._columns, strict=True))
        return _grouped(*joined)

    @property
    def _columns(self):
        return self.code, self.count, self.mean, self.squares

    @property
    def share(self) -> float:
        """Share of rows whose inputs occur more than once."""
        return float(self.count[self.count > 1].sum() / self.count.sum())

    @property
    def deviation(self) -> float:
        """Standard deviation of the targets of replicates about their means; 0 if there are no replicates."""
        several = self.count > 1
        return float(np.sqrt(self.squares[several].sum() / max((self.count[several] - 1).sum(), 1)))


def replicates(X, y) -> Replicates:
    """Statistics of the rows of a partition, X (n, D) and y (n,)."""
    return _grouped(_hashes(X), np.ones(len(y), np.int64), y, np.zeros(len(y)))


def _grouped(code, count, mean, squares):
    """Merge entries of equal hash, and keep the smallest hashes; updates as in `model.scaling.Moments`."""
    code, group = np.unique(code, return_inverse=True)
    total = np.bincount(group, count).astype(np.int64)
    # Deviations from one of the group's means, not from 0, keep the digits of targets far from zero.
    origin = np.zeros(len(code))
    origin[group] = mean
    off = mean - origin[group]
    shift = np.bincount(group, count * off) / total
    squared = np.bincount(group, squares + count * (off - shift[group]) ** 2)
    return Replicates(code[:KEPT], total[:KEPT], (origin + shift)[:KEPT], squared[:KEPT])


def _hashes(X):
    """Hash each row (n, D) over its columns in order, mixed in as by splitmix64."""
    code = np.zeros(len(X), np.uint64)
    for column in np.ascontiguousarray(X.T, dtype=np.float64) + 0.0:  # turns -0 into 0
        code = (code ^ column.view(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        code ^= code >> np.uint64(31)
    return code


@dataclass(frozen=True)
class Sample:
    """A uniform sample of rows without replacement: the rows of smallest random priority.

    Priorities are drawn per partition, so any order and grouping of partitions gives the same sample.
    """

    size: int
    X: np.ndarray
    obs: Observations
    priority: np.ndarray
    """random priorities, ascending"""
    row: np.ndarray
    """index of each row in the data set"""

    def __add__(self, other: "Sample") -> "Sample":
        priority = np.concatenate([self.priority, other.priority])
        keep = np.argsort(priority)[: self.size]
        X, obs = np.concatenate([self.X, other.X]), joined(self.obs, other.obs)
        row = np.concatenate([self.row, other.row])
        return Sample(self.size, X[keep], obs[keep], priority[keep], row[keep])


@dataclass(frozen=True)
class Logarithms:
    """Moments of the logarithms of inputs, by which these would be scaled."""

    log: Moments
    """of log x; NaN for inputs that are not positive throughout"""
    signed: Moments
    """of sign(x) log(1 + |x|)"""
    negative: np.ndarray
    """number of the first row with a negative value, (D,); -1 where there is none"""

    def __add__(self, other: "Logarithms") -> "Logarithms":
        rows = np.column_stack([self.negative, other.negative])
        first = np.where((rows >= 0).all(axis=1), rows.min(axis=1), rows.max(axis=1))
        with np.errstate(invalid="ignore"):
            return Logarithms(self.log + other.log, self.signed + other.signed, first)


def logarithms(X, start: int) -> Logarithms:
    """Return moments of the logarithms of inputs (n, D), n >= 1, whose first row has the number `start`."""
    positive, negative = (X > 0.0).all(axis=0), X < 0.0
    with np.errstate(invalid="ignore"):
        log = column_moments(np.log(np.where(positive, X, np.nan)))
    first = np.where(negative.any(axis=0), start + negative.argmax(axis=0), -1)
    return Logarithms(log, column_moments(SignedLog()(X)), first)


@dataclass(frozen=True)
class Zeros:
    """Number of lifetimes of 0, and the first row with one."""

    count: int = 0
    first: int | None = None

    def __add__(self, other: "Zeros") -> "Zeros":
        rows = [zeros.first for zeros in (self, other) if zeros.first is not None]
        return Zeros(self.count + other.count, min(rows, default=None))


@dataclass(frozen=True)
class SurveyResult:
    """Statistics of a first pass over the data; results of partitions add."""

    x: Moments
    logarithms: Logarithms
    y: Moments
    exposure: Moments
    labels: frozenset[float] | None
    """distinct targets if they can be class labels, at most `MOST_CLASSES` whole numbers; else None"""
    zeros: Zeros
    """lifetimes of 0"""
    replicates: Replicates
    """rows with equal inputs"""
    copies: Replicates
    """rows with equal inputs and targets"""
    sample: Sample
    entries: dict[str, Entry]
    """partitions with their content hashes, by key"""
    chunks: dict[str, Chunk]
    """chunks read from a data set without a manifest, by key"""
    of_outputs: dict[int, tuple[Moments, Moments]] = field(default_factory=dict)
    """moments of targets and exposures of each output, by its number; empty where rows observe one output only"""

    def __add__(self, other: "SurveyResult") -> "SurveyResult":
        return SurveyResult(
            self.x + other.x,
            self.logarithms + other.logarithms,
            self.y + other.y,
            self.exposure + other.exposure,
            _few(self.labels | other.labels) if self.labels is not None and other.labels is not None else None,
            self.zeros + other.zeros,
            self.replicates + other.replicates,
            self.copies + other.copies,
            self.sample + other.sample,
            self.entries | other.entries,
            self.chunks | other.chunks,
            _merged(self.of_outputs, other.of_outputs),
        )


def _merged(a, b):
    """Sums of pairs of moments by key."""
    both = {key: (a[key][0] + b[key][0], a[key][1] + b[key][1]) for key in a.keys() & b.keys()}
    return a | b | both


def _of_outputs(X, obs, columns):
    """Moments of targets and exposures of the outputs that rows of X (n, D) observe, by number."""
    if not columns:
        return {}
    number = output_numbers(X, columns)
    each = {int(k): obs[number == k] for k in np.unique(number)}
    return {k: (column_moments(o.y[:, None]), column_moments(o.exposure[:, None])) for k, o in each.items()}


MOST_CLASSES = 1000


def _few(labels):
    return labels if len(labels) <= MOST_CLASSES else None


def _labels(y):
    """Distinct targets (n,) if they can be class labels, else None."""
    return _few(frozenset(np.unique(y).tolist())) if np.all(y == np.floor(y)) else None


def _zeros(part, y):
    rows = np.flatnonzero(y == 0)
    return Zeros(len(rows), part.start + int(rows[0]) if len(rows) else None)


@dataclass(frozen=True)
class Survey:
    """Task: check the rows of a partition; compute moments, replicates, sample and content hash."""

    seed: int
    sample_rows: int
    likelihood: str | None
    """name of the likelihood whose support the targets must lie in; None: no check"""
    outputs: tuple[int, ...] = ()
    """numbers of the one-hot inputs that name a row's output, where there are several"""

    def __call__(self, part, rows):
        likelihood = make_likelihood(self.likelihood) if self.likelihood else None
        if likelihood:
            check_support(likelihood, part, rows.obs)
        priority = np.random.default_rng([self.seed, part.start]).random(len(rows.X))
        keep = np.argsort(priority)[: self.sample_rows]
        return SurveyResult(
            column_moments(rows.X),
            logarithms(rows.X, part.start),
            column_moments(rows.obs.y[:, None]),
            column_moments(rows.obs.exposure[:, None]),
            _labels(rows.obs.y),
            _zeros(part, rows.obs.y) if likelihood and likelihood.zero_counts_as else Zeros(),
            replicates(rows.X, rows.obs.y),
            replicates(np.column_stack([rows.X, rows.obs.y]), rows.obs.y),
            Sample(self.sample_rows, rows.X[keep], rows.obs[keep], priority[keep], part.start + keep),
            {part.key: Entry(part.key, rows.digest, part.rows)},
            dict(rows.chunks),
            _of_outputs(rows.X, rows.obs, self.outputs),
        )


def schema_of(data: Dataset) -> Schema:
    """Return the names of the data's inputs and classes, of at least two classes if there are any."""
    return with_two_classes(read_schema(data.url, x=data.x, y=data.y))

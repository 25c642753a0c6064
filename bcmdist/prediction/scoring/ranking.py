"""Ranking scores (concordance, area under the curve) over all pairs of rows, from additive partition results.

The two rows of a pair usually lie in different partitions, so rows must be collected. Up to `KEPT_ROWS` rows are kept
and every pair counts. For more rows, the concordance of counts and lifetimes uses a sample of `KEPT_ROWS` rows and has
a standard error; the area under the curve of classes is computed from binned counts and has an error bound. The sample
is chosen by row number in the data set, so it does not depend on the partitioning or order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcmdist.linalg.arrays import BoolArray, FloatArray, IntArray

# Rows of which every pair is compared: 0.6 MB, and one second.
KEPT_ROWS = 20_000
# Bins of the log odds, to resolve rare classes too: 0.002 wide, for odds from exp(-20) to exp(20).
BINS = 20_000
LARGEST_LOG_ODDS = 20.0


UnsignedArray = NDArray[np.uint64]


@dataclass(frozen=True)
class Comparable:
    """Rows to rank: all rows, or those of least priority. `+` joins two sets and keeps `most` rows."""

    most: int
    priority: UnsignedArray
    """(n,), uint64, ascending"""
    rows: FloatArray
    """(n, 3): y, event and predicted"""

    def __add__(self, other: "Comparable") -> "Comparable":
        return _of_least_priority(
            self.most, np.concatenate([self.priority, other.priority]), np.vstack([self.rows, other.rows])
        )

    def concordance(self, total: float) -> tuple[float, float]:
        """Share of comparable pairs in the right order and its standard error; the rows are a sample of `total` rows.

        The error is 0 if all rows were kept. Both are NaN if no pair is comparable. The ratio of two U-statistics has
        the variance sum_i (r_i - C p_i)^2 (2 / sum_i p_i)^2, where row i is in p_i pairs, r_i of them in order, times 1
        - n / total, since rows are drawn without replacement.
        """
        pairs, right = concordance_by_row(*self.rows.T)
        if not pairs.any():
            return float("nan"), float("nan")
        found = right.sum() / pairs.sum()
        standard_error = 2.0 * np.linalg.norm(right - found * pairs) / pairs.sum()
        return float(found), float(standard_error * np.sqrt(1.0 - len(self.rows) / total))


def comparable(
    y: FloatArray, event: FloatArray, predicted: FloatArray, number: IntArray, *, most: int | None = None
) -> Comparable:
    """Rows to rank, (n,) each, with their numbers in the data set; at most `most`, `KEPT_ROWS` by default."""
    return _of_least_priority(most or KEPT_ROWS, scattered(number), np.column_stack([y, event, predicted]))


def _of_least_priority(most: int, priority: UnsignedArray, rows: FloatArray) -> Comparable:
    """The `most` rows of least priority. Ties (rows of several data sets) are broken by row contents."""
    keep = np.lexsort((*rows.T, priority))[:most]
    return Comparable(most, priority[keep], rows[keep])


def scattered(number: IntArray) -> UnsignedArray:
    """Bijective hash of integers (n,) to uint64 (splitmix64; Steele, Lea & Flood 2014)."""
    z = np.asarray(number).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def concordance_by_row(y: FloatArray, event: FloatArray, predicted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Comparable pairs that contain each row, and how many of them are in the right order, (n,) each.

    Rows i and j are comparable if y_i < y_j and i is an event (not censored); ties of the prediction count half
    (Harrell 1982).
    """
    order = np.argsort(y, kind="stable")
    y, event, predicted = y[order], event[order], predicted[order]
    first = np.searchsorted(y, y, side="right")  # position of the first row with a larger y
    pairs, right = np.zeros(len(y)), np.zeros(len(y))
    for i in np.flatnonzero(event):
        later = slice(first[i], None)
        good = 0.5 * (predicted[later] > predicted[i]) + 0.5 * (predicted[later] >= predicted[i])
        pairs[i] += len(good)
        right[i] += good.sum()
        pairs[later] += 1.0
        right[later] += good
    return pairs, right


def concordance_pairs(y: FloatArray, event: FloatArray, predicted: FloatArray) -> tuple[int, float]:
    """Number of comparable pairs, and how many of them are in the right order."""
    pairs, right = concordance_by_row(y, event, predicted)
    return int(pairs.sum() / 2.0), float(right.sum() / 2.0)


@dataclass(frozen=True)
class Ranked:
    """Rows with class probabilities, for ranking each class against the rest; `+` bins more than `most` rows."""

    most: int
    p: FloatArray
    """(n, C)"""
    y: IntArray
    """(n,), class numbers"""

    def __add__(self, other: "Ranked | Binned") -> "Ranked | Binned":
        if isinstance(other, Binned) or len(self.y) + len(other.y) > self.most:
            return self.binned() + other.binned()
        return Ranked(self.most, np.vstack([self.p, other.p]), np.concatenate([self.y, other.y]))

    def binned(self) -> "Binned":
        """Counts per bin of log odds, for each class and for its complement."""
        return Binned(np.array([self._counts(c) for c in self._judged]))

    def _counts(self, c: int) -> list[IntArray]:
        with np.errstate(divide="ignore"):
            log_odds = np.log(self.p[:, c]) - np.log(np.delete(self.p, c, axis=1).sum(axis=1))
        share = (log_odds.clip(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS) / LARGEST_LOG_ODDS + 1.0) / 2.0
        bins = np.minimum((share * BINS).astype(int), BINS - 1)
        return [np.bincount(bins[mask], minlength=BINS) for mask in (self.y == c, self.y != c)]

    @property
    def _judged(self) -> range:
        """Classes to rank: the second of two classes, else all classes."""
        return range(1, 2) if self.p.shape[1] == 2 else range(self.p.shape[1])

    @property
    def classes(self) -> int:
        """Number of ranked classes; 1 for two classes."""
        return len(self._judged)

    def area_under_curve(self) -> tuple[float, float]:
        """Mean area over the classes that occur (NaN if there are none), and its error, 0."""
        return _mean([_area(self.p[:, c], self.y == c) for c in self._judged]), 0.0


@dataclass(frozen=True)
class Binned:
    """As `Ranked`, for more rows: counts of a class and of its complement in bins of the log odds."""

    counts: IntArray
    """(classes, 2, BINS)"""

    def __add__(self, other: "Ranked | Binned") -> "Binned":
        return Binned(self.counts + other.binned().counts)

    def binned(self) -> "Binned":
        """Return self."""
        return self

    @property
    def classes(self) -> int:
        """Number of ranked classes."""
        return len(self.counts)

    def area_under_curve(self) -> tuple[float, float]:
        """Mean area over the classes that occur, with pairs in the same bin counted half, and its error bound.

        The bound is half the share of pairs in the same bin.
        """
        areas, errors = zip(*(_binned_area(*counts) for counts in self.counts), strict=True)
        return _mean(areas), _mean(errors)


def ranked(p: FloatArray, y: IntArray, *, most: int | None = None) -> Ranked | Binned:
    """Class probabilities (n, C) and true class numbers y (n,) to rank; binned if there are more than `most` rows."""
    rows = Ranked(most or KEPT_ROWS, p, np.asarray(y))
    return rows if len(p) <= rows.most else rows.binned()


def _area(p: FloatArray, positive: BoolArray) -> float:
    """Share of (positive, negative) pairs in the right order, ties half; NaN if either kind is missing."""
    yes, no = p[positive], np.sort(p[~positive])
    if not len(yes) or not len(no):
        return float("nan")
    below = np.searchsorted(no, yes, side="left") + np.searchsorted(no, yes, side="right")
    return float(below.sum() / (2.0 * len(yes) * len(no)))


def _binned_area(yes: IntArray, no: IntArray) -> tuple[float, float]:
    pairs = yes.sum() * no.sum()
    if pairs == 0:
        return float("nan"), float("nan")
    below = np.cumsum(no) - no
    return (yes * (below + 0.5 * no)).sum() / pairs, 0.5 * (yes * no).sum() / pairs


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else float("nan")

"""Ranking: how well predictions order observations, over all pairs of rows, from what partitions add up.

A pair of rows lies in two partitions as a rule, so that the rows themselves must meet. Up to `KEPT_ROWS` of them do,
and every pair counts. Beyond that the concordance of counts and lifetimes is that of a sample of so many rows, with
its standard error, and the area under the curve of classes is counted in bins, with a bound of its error. Which rows
are in the sample follows from their numbers in the data set, so that any partitioning of it, and any order, gives the
same.
"""

from dataclasses import dataclass

import numpy as np

# Rows of which every pair is looked at: 0.6 MB of counts, and one second.
KEPT_ROWS = 20_000
# Bins of the log odds, so that rare classes are resolved too: 0.002 wide between odds of exp(-20) and exp(20).
BINS = 20_000
LARGEST_LOG_ODDS = 20.0


@dataclass(frozen=True)
class Comparable:
    """Rows to be ordered: all of them, or those of least priority. `+` joins, and `most` stay."""

    most: int
    priority: np.ndarray
    """(n,), uint64, ascending"""
    rows: np.ndarray
    """(n, 3): y, event and predicted"""

    def __add__(self, other: "Comparable") -> "Comparable":
        return _of_least_priority(
            self.most, np.concatenate([self.priority, other.priority]), np.vstack([self.rows, other.rows])
        )

    def concordance(self, total) -> tuple[float, float]:
        """Share of the comparable pairs among `total` rows that are ordered right, and its standard error.

        The error is 0 where all rows were kept; nan where nothing can be compared. A ratio of two U-statistics varies
        by sum_i (r_i - C p_i)^2 (2 / sum_i p_i)^2, of row i's p_i pairs with r_i in order, times 1 - n / total, since
        rows are drawn without replacement.
        """
        pairs, right = concordance_by_row(*self.rows.T)
        if not pairs.any():
            return float("nan"), float("nan")
        found = right.sum() / pairs.sum()
        spread = 2.0 * np.linalg.norm(right - found * pairs) / pairs.sum()
        return float(found), float(spread * np.sqrt(1.0 - len(self.rows) / total))


def comparable(y, event, predicted, number, *, most=None) -> Comparable:
    """Rows to be ordered, (n,) each, by their numbers in the data set; at most `most`, `KEPT_ROWS` by default."""
    return _of_least_priority(most or KEPT_ROWS, scattered(number), np.column_stack([y, event, predicted]))


def _of_least_priority(most, priority, rows):
    """Ties, of rows of several data sets, are told apart by what is in them."""
    keep = np.lexsort((*rows.T, priority))[:most]
    return Comparable(most, priority[keep], rows[keep])


def scattered(number) -> np.ndarray:
    """Whole numbers (n,) as uint64 that look drawn at random, one to one (splitmix64; Steele, Lea & Flood 2014)."""
    z = np.asarray(number).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def concordance_by_row(y, event, predicted) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the comparable pairs that it is in, and how many of them the prediction orders right, (n,) each.

    Rows i and j are comparable where y_i < y_j and i is an event (not censored); ties of the prediction count half
    (Harrell 1982).
    """
    order = np.argsort(y, kind="stable")
    y, event, predicted = y[order], event[order], predicted[order]
    first = np.searchsorted(y, y, side="right")  # of the rows that are later than each
    pairs, right = np.zeros(len(y)), np.zeros(len(y))
    for i in np.flatnonzero(event):
        later = slice(first[i], None)
        good = 0.5 * (predicted[later] > predicted[i]) + 0.5 * (predicted[later] >= predicted[i])
        pairs[i] += len(good)
        right[i] += good.sum()
        pairs[later] += 1.0
        right[later] += good
    return pairs, right


def concordance_pairs(y, event, predicted) -> tuple[int, float]:
    """Comparable pairs of rows, and how many of them the prediction puts in the right order."""
    pairs, right = concordance_by_row(y, event, predicted)
    return int(pairs.sum() / 2.0), float(right.sum() / 2.0)


@dataclass(frozen=True)
class Ranked:
    """Rows with the probabilities of classes, each to be ranked against the rest; `+` bins where they are many."""

    most: int
    p: np.ndarray
    """(n, C)"""
    y: np.ndarray
    """(n,), numbers of classes"""

    def __add__(self, other: "Ranked | Binned") -> "Ranked | Binned":
        if isinstance(other, Binned) or len(self.y) + len(other.y) > self.most:
            return self.binned() + other.binned()
        return Ranked(self.most, np.vstack([self.p, other.p]), np.concatenate([self.y, other.y]))

    def binned(self) -> "Binned":
        """How many rows of each class, and how many others, lie in each bin."""
        return Binned(np.array([self._counts(c) for c in self._judged]))

    def _counts(self, c):
        with np.errstate(divide="ignore"):
            log_odds = np.log(self.p[:, c]) - np.log(np.delete(self.p, c, axis=1).sum(axis=1))
        share = (log_odds.clip(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS) / LARGEST_LOG_ODDS + 1.0) / 2.0
        bins = np.minimum((share * BINS).astype(int), BINS - 1)
        return [np.bincount(bins[mask], minlength=BINS) for mask in (self.y == c, self.y != c)]

    @property
    def _judged(self):
        """The second of two classes; of more each."""
        return range(1, 2) if self.p.shape[1] == 2 else range(self.p.shape[1])

    @property
    def classes(self) -> int:
        """How many classes are ranked: of two, one."""
        return len(self._judged)

    def area_under_curve(self) -> tuple[float, float]:
        """The mean over the classes that occur, and 0, its error; nan where there are none."""
        return _mean([_area(self.p[:, c], self.y == c) for c in self._judged]), 0.0


@dataclass(frozen=True)
class Binned:
    """As `Ranked`, of more rows: how many of a class, and how many others, lie in bins of the log odds."""

    counts: np.ndarray
    """(classes, 2, BINS)"""

    def __add__(self, other: "Ranked | Binned") -> "Binned":
        return Binned(self.counts + other.binned().counts)

    def binned(self) -> "Binned":
        """Itself."""
        return self

    @property
    def classes(self) -> int:
        """How many classes are ranked."""
        return len(self.counts)

    def area_under_curve(self) -> tuple[float, float]:
        """The mean over the classes that occur, pairs inside a bin counted half, and the most it can be wrong by:
        half the share of these pairs."""
        areas, errors = zip(*(_binned_area(*counts) for counts in self.counts), strict=True)
        return _mean(areas), _mean(errors)


def ranked(p, y, *, most=None) -> Ranked | Binned:
    """Probabilities (n, C) of classes, of which those of the numbers y (n,) are true; as they are up to `most` rows."""
    rows = Ranked(most or KEPT_ROWS, p, np.asarray(y))
    return rows if len(p) <= rows.most else rows.binned()


def _area(p, positive):
    """Share of (positive, negative) pairs in the right order, ties half; nan where a class is missing."""
    yes, no = p[positive], np.sort(p[~positive])
    if not len(yes) or not len(no):
        return float("nan")
    below = np.searchsorted(no, yes, side="left") + np.searchsorted(no, yes, side="right")
    return below.sum() / (2.0 * len(yes) * len(no))


def _binned_area(yes, no):
    pairs = yes.sum() * no.sum()
    if pairs == 0:
        return float("nan"), float("nan")
    below = np.cumsum(no) - no
    return (yes * (below + 0.5 * no)).sum() / pairs, 0.5 * (yes * no).sum() / pairs


def _mean(values):
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else float("nan")

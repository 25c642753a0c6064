"""Rows that repeat the inputs of others: how many there are, and how much their targets differ.

No kernel tells such rows apart, so the noise is what they disagree by. A uniform sample of rows would miss most of
them, since the other one of a pair is rarely in it too; so inputs are sampled by a hash of their values, of which all
rows are kept: those with the smallest hashes (Cohen 1997, bottom-k). Samples of partitions add up to that of all rows.
"""

from dataclasses import dataclass

import numpy as np

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

"""Folds of cross-validation: which rows are left out together, which are kept, and the distances between them.

blocks        neighbouring rows: blocks of about equally many rows, cut across their direction of largest variance
rows          random rows
group:COLUMN  rows with equal values of a column
time:COLUMN   rows of a period, predicted from all earlier rows
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from scipy.spatial import cKDTree

from bcmdist.api.comparison.baselines import nearest
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.cell_tree import grow
from bcmdist.data.schema import few
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray, IntArray

BLOCKS, ROWS, GROUP, TIME = "blocks", "rows", "group", "time"
SAMPLED_ROWS = 200_000  # rows from which blocks are cut
TREE_INPUTS = 8  # with more columns, a search tree takes longer than all distances
NAMED_GROUPS = 4  # names in the description of a fold


@dataclass(frozen=True)
class Places:
    """Coordinates of all rows, in which distances are measured."""

    coordinates: np.ndarray
    """(N, d)"""
    unit: str
    """unit of distances, in words"""

    def distances(self, rows: IntArray, kept: IntArray) -> FloatArray:
        """Return the distance (n,) from each of some rows (n,) to the nearest of the rows `kept` (m,)."""
        X, Z = self.coordinates[rows], self.coordinates[kept]
        if X.shape[1] <= TREE_INPUTS:
            found: FloatArray = cKDTree(Z).query(X)[0]
            return found
        squares: FloatArray = ((X - Z[nearest(Z, X, 1)[:, 0]]) ** 2).sum(axis=1)
        return np.sqrt(squares)


@dataclass(frozen=True)
class Fold:
    """Rows that are left out together, and those they are predicted from."""

    left_out: np.ndarray
    """row numbers (n,), ascending"""
    kept: np.ndarray
    """row numbers (m,), ascending"""
    description: str = ""
    """names of the groups, or the range of times"""


def parsed(by: str) -> tuple[str, str]:
    """Return the kind of folds and the name of the column, "" if none is given.

    Raises
    ------
    InvalidOption
    """
    kind, colon, column = by.partition(":")
    plain = kind in (BLOCKS, ROWS, TIME) and not colon
    if not plain and not (kind in (GROUP, TIME) and column):
        raise InvalidOption(f"by: expected blocks, rows, group:COLUMN, time or time:COLUMN, got {by!r:.60}; correct it")
    return kind, column


def column_to_keep(snapshot: Snapshot, by: str) -> str | None:
    """Return the column that divides the rows of a table, if it is no column that the model reads; else None."""
    _, column = parsed(by)
    coding = snapshot.model.schema.coding
    return column if column and coding and column not in {*coding.columns, *coding.inputs} else None


def refuse_count(folds: int, rows: int) -> None:
    """Raise `InvalidOption` if so many rows cannot be divided into so many folds."""
    if isinstance(folds, bool) or not isinstance(folds, Integral) or folds < 2:
        raise InvalidOption(f"folds: expected a whole number of at least 2, got {folds!r}; give another")
    if folds > rows:
        raise InvalidOption(f"folds: expected at most one for each of {rows} rows, got {folds}; give fewer")


def by_rows(rows: int, folds: int, seed: int) -> list[Fold]:
    """Return folds of random rows."""
    number = np.empty(rows, dtype=np.int64)
    number[np.random.default_rng(seed).permutation(rows)] = np.arange(rows) % folds
    return _numbered(number, folds)


def by_blocks(places: Places, folds: int, seed: int) -> list[Fold]:
    """Return folds of neighbouring rows: the leaves of a tree of half-spaces (`bcmdist.data.cell_tree`).

    Raises
    ------
    InvalidOption
        There are fewer distinct places.
    """
    X = places.coordinates
    some = np.random.default_rng(seed).permutation(len(X))[:SAMPLED_ROWS]
    tree = grow(X[some], np.ones(X.shape[1]), cell_rows=len(X), partition_rows=len(some) / folds, seed=seed)
    number = tree.route(X)
    _refuse_fewer(len(np.unique(number)), folds, "groups of rows at distinct places")
    return _numbered(number, folds)


def by_groups(labels: np.ndarray, folds: int, seed: int, name: str) -> list[Fold]:
    """Return folds of whole groups, of about equally many rows: each group, largest first, joins the smallest fold.

    Parameters
    ----------
    labels : (N,)

    Raises
    ------
    InvalidOption
        There are fewer groups than folds.
    """
    names, group, counts = np.unique(labels, return_inverse=True, return_counts=True)
    _refuse_fewer(len(names), folds, f"groups in {name}")
    mixed = np.random.default_rng(seed).permutation(len(names))  # equally large groups in random order
    of, filled = np.empty(len(names), dtype=np.int64), np.zeros(folds)
    for k in mixed[np.argsort(-counts[mixed], kind="stable")]:
        of[k] = filled.argmin()
        filled[of[k]] += counts[k]
    words = [few(map(str, names[of == k].tolist()), most=NAMED_GROUPS) for k in range(folds)]
    return _numbered(of[group.reshape(-1)], folds, lambda k: words[k])


def by_time(time: FloatArray, folds: int, name: str, words: Callable[[float], str] = "{:.6g}".format) -> list[Fold]:
    """Return folds of consecutive times, of about equally many rows, each predicted from all earlier rows.

    The first period, as long as the others, is never left out. Rows of equal times stay together.

    Parameters
    ----------
    time : (N,), finite
    words : writes a time, for descriptions

    Raises
    ------
    InvalidOption
        There are too few distinct times.
    """
    values, counts = np.unique(time, return_counts=True)
    _refuse_fewer(len(values), folds + 1, f"different times in {name}")
    before = np.concatenate([[0], np.cumsum(counts)])  # rows before each time
    edges = [0]
    for k in range(1, folds + 1):  # at least one time for each period
        edge = int(np.abs(before - len(time) * k / (folds + 1)).argmin())
        edges.append(min(max(edge, edges[-1] + 1), len(values) - (folds + 1 - k)))
    starts, found = [*edges, len(values)], []
    for a, b in itertools.pairwise(starts[1:]):
        first, last = values[a], values[b - 1]
        left_out = np.flatnonzero((time >= first) & (time <= last))
        found.append(Fold(left_out, np.flatnonzero(time < first), f"{words(first)} to {words(last)}"))
    return found


def _refuse_fewer(found: int, expected: int, what: str) -> None:
    if found < expected:
        raise InvalidOption(f"folds: expected at least {expected} {what}, found {found}; give fewer folds")


def _numbered(number: IntArray, folds: int, describe: Callable[[int], str] = lambda k: "") -> list[Fold]:
    """Return folds from the number of the fold of each row, (N,)."""
    return [Fold(np.flatnonzero(number == k), np.flatnonzero(number != k), describe(k)) for k in range(folds)]

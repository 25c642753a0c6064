"""Cells: a tree of half spaces that puts near rows together, and new points where they belong.

Each node cuts its rows across their direction of largest spread, in the metric of the learned lengthscales, so
that leaves hold about equally many rows: a k-d tree whose axes turn with the data. Leaves are numbered from left
to right, so that neighbouring numbers are neighbouring cells. A leaf is the *core* that owns new points falling
into it; a run of leaves below one node is a *partition* with its expert.
"""

from dataclasses import dataclass

import numpy as np

# Rows from which a direction is computed: enough for a principal component.
DIRECTION_ROWS = 2000
# Gaps between rows below this share of the largest coordinate may be rounding: no cut goes through them.
ROUNDING = 1e-10


@dataclass(frozen=True)
class CellTree:
    """A binary tree; made by `grow`."""

    direction: np.ndarray
    """(nodes, D), of scaled inputs"""
    threshold: np.ndarray
    """(nodes,); rows with a smaller product go left; midway between two rows"""
    child: np.ndarray
    """(nodes, 2): a node, or -1 - cell"""
    first: np.ndarray
    """(partitions + 1,): the first cell of each partition, and the number of cells"""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return int(self.first[-1])

    def route(self, X) -> np.ndarray:
        """Numbers of the cells into which the rows of scaled inputs X (n, D) fall, (n,)."""
        cell = np.zeros(len(X), dtype=np.int64)
        waiting = [(0, np.arange(len(X)))] if len(self.threshold) else []
        while waiting:
            node, rows = waiting.pop()
            right = _along(X[rows], self.direction[node]) >= self.threshold[node]
            for side, own in ((0, rows[~right]), (1, rows[right])):
                child = self.child[node, side]
                if child < 0:
                    cell[own] = -1 - child
                elif len(own):
                    waiting.append((child, own))
        return cell


def _along(X, direction):
    """X d, (n,), by a sum that is the same for a row whatever other rows there are (BLAS does not promise it)."""
    return np.einsum("ij,j->i", np.ascontiguousarray(X), direction)


def grow(X, metric, *, cell_rows, partition_rows, seed=0) -> CellTree:
    """Tree with cells of about `cell_rows` and partitions of about `partition_rows` of the rows of X.

    Rows that coincide are never cut apart, so that a cell of these may hold more.

    Parameters
    ----------
    X : (n, D)
        Scaled inputs, n >= 1.
    metric : (D,)
        Lengthscales.
    """
    growing = _Growing(X / metric, np.random.default_rng(seed))
    partitions = max(1, round(len(X) / partition_rows))
    growing.partitions(np.arange(len(X)), partitions, max(1, round(len(X) / (partitions * cell_rows))))
    D = X.shape[1]
    return CellTree(
        np.array(growing.direction).reshape(-1, D) / metric,
        np.array(growing.threshold),
        np.array(growing.child, dtype=np.int64).reshape(-1, 2),
        np.array([*growing.first, growing.count]),
    )


class _Growing:
    """A tree in the making, from left to right."""

    def __init__(self, Z, rng):
        self.Z = Z
        self.rng = rng
        self.direction: list[np.ndarray] = []
        self.threshold: list[float] = []
        self.child: list[list[int]] = []
        self.first: list[int] = []
        self.count = 0

    def partitions(self, rows, partitions, cells) -> int:
        """Cut rows into partitions of a number of cells; the node, or -1 - cell where there is nothing to cut."""
        if partitions > 1:
            found = self._cut(rows, partitions, lambda side, share: self.partitions(side, share, cells))
            if found is not None:
                return found
        self.first.append(self.count)
        return self.cells(rows, cells)

    def cells(self, rows, cells) -> int:
        """Cut rows into cells; the node, or -1 - cell."""
        found = self._cut(rows, cells, self.cells) if cells > 1 else None
        if found is None:
            self.count += 1
            return -self.count
        return found

    def _cut(self, rows, parts, grow):
        """A node with half of the parts on either side; None where all rows coincide."""
        across = self._widest(rows)
        along = _along(self.Z[rows], across)
        order = np.sort(along)
        gaps = 1 + np.flatnonzero(np.diff(order) > ROUNDING * np.abs(self.Z[rows]).max())
        if len(gaps) == 0:
            return None
        cut = gaps[np.abs(gaps - len(rows) * (parts // 2) / parts).argmin()]
        threshold = 0.5 * (order[cut - 1] + order[cut])
        node = len(self.threshold)
        self.direction.append(across)
        self.threshold.append(threshold)
        self.child.append([0, 0])
        left = along < threshold
        self.child[node] = [grow(rows[left], parts // 2), grow(rows[~left], parts - parts // 2)]
        return node

    def _widest(self, rows):
        """Unit vector of the largest spread of some rows."""
        if len(rows) > DIRECTION_ROWS:
            rows = self.rng.choice(rows, DIRECTION_ROWS, replace=False)
        centred = self.Z[rows] - self.Z[rows].mean(axis=0)
        return np.linalg.eigh(centred.T @ centred)[1][:, -1]

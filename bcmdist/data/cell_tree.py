"""Cells: a tree of half-spaces that groups neighbouring rows and assigns new points to a group.

Each node splits its rows across their direction of largest variance, in the metric of the learned lengthscales, so
that leaves hold about equally many rows: a k-d tree whose axes rotate with the data. Leaves are numbered from left
to right, so that cells with adjacent numbers are neighbours. A leaf is the *core* that owns the new points falling
into it; the leaves below one node form a *partition* with its own expert.
"""

from dataclasses import dataclass

import numpy as np

# Rows from which a direction is computed: enough for a principal component.
DIRECTION_ROWS = 2000
# Gaps between rows smaller than this share of the largest coordinate may be rounding errors: no cut there.
ROUNDING = 1e-10


@dataclass(frozen=True)
class CellTree:
    """A binary tree of half-spaces, made by `grow`."""

    direction: np.ndarray
    """(nodes, D), normal vectors for scaled inputs"""
    threshold: np.ndarray
    """(nodes,), halfway between two rows; rows with a smaller product go left"""
    child: np.ndarray
    """(nodes, 2), the number of a child node, or -1 - cell for a leaf"""
    first: np.ndarray
    """(partitions + 1,), the first cell of each partition, then the number of cells"""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return int(self.first[-1])

    def route(self, X) -> np.ndarray:
        """Return the cell numbers (n,) of the rows of scaled inputs X (n, D); all rows go down one level at a time."""
        X, node = np.ascontiguousarray(X), np.zeros(len(X), dtype=np.int64)
        waiting = np.arange(len(X) if len(self.threshold) else 0)
        while len(waiting):
            here = node[waiting]
            right = _along(X[waiting], self.direction[here]) >= self.threshold[here]
            node[waiting] = self.child[here, right.astype(np.intp)]
            waiting = waiting[node[waiting] >= 0]
        return -1 - node if len(self.threshold) else node


def _along(X, direction):
    """Return the products, (n,), of rows X (n, D) and directions (n, D), or one direction (1, D).

    The sum for a row does not depend on the other rows, which BLAS does not guarantee.
    """
    return np.einsum("ij,ij->i", X, direction)


def grow(X, metric, *, cell_rows, partition_rows, seed=0) -> CellTree:
    """Build a tree over X with about `cell_rows` rows per cell and about `partition_rows` rows per partition.

    Identical rows are never separated, so a cell of duplicates may hold more rows.

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
    """A tree under construction, built from left to right."""

    def __init__(self, Z, rng):
        self.Z = Z
        self.rng = rng
        self.direction: list[np.ndarray] = []
        self.threshold: list[float] = []
        self.child: list[list[int]] = []
        self.first: list[int] = []
        self.count = 0

    def partitions(self, rows, partitions, cells) -> int:
        """Cut rows into partitions with `cells` cells each; return the node, or -1 - cell for a leaf."""
        if partitions > 1:
            found = self._cut(rows, partitions, lambda side, share: self.partitions(side, share, cells))
            if found is not None:
                return found
        self.first.append(self.count)
        return self.cells(rows, cells)

    def cells(self, rows, cells) -> int:
        """Cut rows into cells; return the node, or -1 - cell for a leaf."""
        found = self._cut(rows, cells, self.cells) if cells > 1 else None
        if found is None:
            self.count += 1
            return -self.count
        return found

    def _cut(self, rows, parts, grow):
        """Add a node with half of the parts on each side and return it; None if all rows coincide."""
        across = self._widest(rows)
        along = _along(self.Z[rows], across[None])
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
        """Return the unit vector of largest variance, estimated from at most `DIRECTION_ROWS` rows."""
        if len(rows) > DIRECTION_ROWS:
            rows = self.rng.choice(rows, DIRECTION_ROWS, replace=False)
        centred = self.Z[rows] - self.Z[rows].mean(axis=0)
        return np.linalg.eigh(centred.T @ centred)[1][:, -1]

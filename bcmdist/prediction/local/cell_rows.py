"""The rows that local experts use: those of the fit, in cell order, and those that were absorbed later.

Rows have numbers: first those of the fit in cell order, then late ones in the order of the ledger. The halos of a fit
are stored. Where late rows are near, or a cell is split, core and halo are chosen when they are needed, by the rule of
the fit: as a fit with the same cells would choose them from all rows.

A cell that has grown to `SPLIT` times its planned rows is split into *leaves* by a tree of its own rows. A cell that is
not split is one leaf.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from zict import LRU

from bcmdist.data.cell_tree import CellTree, grow
from bcmdist.data.observations import Observations, joined
from bcmdist.data.partition import Partition
from bcmdist.data.rows import read_all, read_rows, read_variances
from bcmdist.model.kernels import metric
from bcmdist.model.model import Model
from bcmdist.model.targets import model_observations
from bcmdist.prediction.local.halos import Arrangement, check_halo, core_and_halo, nearest_partitions, scattered
from bcmdist.prediction.local.late_rows import FADED, LateRows
from bcmdist.storage.cache import get_or_make, least_recently_used
from bcmdist.storage.commits import BlobReference, ModelStore, load_array

NO_ROWS = np.zeros(0, np.int64)
# Number of rows from which a cell is split, as a multiple of the planned number. Arbitrary: with more, the core takes
# most rows of the local expert, and points near a border see few rows beyond it.
SPLIT = 3
# Leaves have the numbers of their cell times this, and on.
LEAVES = 2**20
# Memory for candidates of halos, and for the inputs of partitions: those of a million rows of 8 inputs.
CANDIDATE_BYTES, INPUT_BYTES = 2**26, 2**26
_inputs: "LRU[Hashable, np.ndarray]" = least_recently_used(INPUT_BYTES, lambda X: X.nbytes)


@dataclass(frozen=True)
class Candidates:
    """Rows from which core and halo are chosen, in the order of `scattered`."""

    rows: np.ndarray
    """(n,) numbers"""
    Z: np.ndarray
    """(n, D) scaled inputs in units of the lengthscales"""
    cells: np.ndarray
    """(n,) numbers of their cells"""

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.Z.nbytes + self.cells.nbytes


@dataclass(frozen=True)
class StoredHalos:
    """Halos and centroids of a fit."""

    store: ModelStore
    blobs: list[str]
    """hashes of the blobs that `Halo` wrote, by partition"""
    centroids: np.ndarray | None = None
    """(partitions, D) in units of the lengthscales; None in a model whose cells take no further rows"""


class CellRows:
    """Core and halo of each leaf, and the values of rows.

    Parameters
    ----------
    absorbed : (pieces, 3): start, stop and weight of the ranges of rows of the fit that the committee has absorbed,
        ascending; the weight is the present one, faded if the model forgets old rows
    late : the rows that were absorbed later
    version : differs between models with different scalings or cells
    """

    def __init__(
        self, model: Model, arrangement: Arrangement, halos: StoredHalos, absorbed, late: LateRows, version: Hashable
    ):
        self.version = version
        self.model, self.arrangement, self.halos, self.absorbed, self.late = model, arrangement, halos, absorbed, late
        self.unit = metric(model.shared.kernel, model.inputs)
        self.of_fit = arrangement.data.rows
        """number of rows of the fit"""
        counts = np.diff(arrangement.edges) + np.bincount(late.cells, minlength=arrangement.tree.cells)
        self._grown = (counts > SPLIT * arrangement.sizes.core) & (halos.centroids is not None)
        self._late_in = np.unique(arrangement.partition_of(late.cells))
        self._trees: dict[int, CellTree] = {}
        self._candidates: LRU[Hashable, Candidates] = least_recently_used(CANDIDATE_BYTES, lambda found: found.nbytes)

    # --- Leaves ---

    def leaves(self, X) -> np.ndarray:
        """Numbers (n,) of the leaves into which scaled inputs X (n, D) fall."""
        cells = self.arrangement.tree.route(X)
        leaves = LEAVES * cells
        for cell in np.unique(cells[self._grown[cells]]).tolist():
            mine = cells == cell
            leaves[mine] += self._tree(cell).route(X[mine] / self.unit)
        return leaves

    def leaves_of(self, cell: int) -> np.ndarray:
        """Numbers of the leaves of a cell."""
        return LEAVES * cell + np.arange(self._tree(cell).cells if self._grown[cell] else 1)

    def owners(self, leaves) -> np.ndarray:
        """Numbers of the partitions to which leaves belong."""
        return self.arrangement.partition_of(np.asarray(leaves) // LEAVES)

    def _tree(self, cell) -> CellTree:
        """The tree that splits a cell that has grown."""
        if cell not in self._trees:
            a, b = self.arrangement.edges[cell : cell + 2].tolist()
            rows = self._alive(np.concatenate([np.arange(a, b), self.of_fit + self.late.in_cells(cell, cell + 1)]))
            Z = self._scaled(rows)
            Z = Z[scattered(Z)]
            planned = self.arrangement.sizes.core
            size = planned if len(Z) > SPLIT * planned else len(rows) + 1  # one leaf where others are forgotten
            Z = np.vstack([Z, np.zeros((int(not len(Z)), Z.shape[1]))])
            self._trees[cell] = grow(Z, np.ones(Z.shape[1]), cell_rows=size, partition_rows=len(Z))
        return self._trees[cell]

    # --- Numbers of rows ---

    def rows_of(self, leaf: int) -> np.ndarray:
        """Numbers, ascending, of the absorbed rows in the core and halo of a leaf."""
        cell, owner = leaf // LEAVES, int(self.owners(leaf))
        near = self._near(owner)
        if not self._grown[cell] and not np.isin(near, self._late_in).any():
            return self._of_fit(cell, owner)
        found = get_or_make(self._candidates, owner, lambda: self._gathered(near))
        own = found.cells == cell
        if self._grown[cell]:
            own[own] = self._tree(cell).route(found.Z[own]) == leaf % LEAVES
        return np.sort(found.rows[core_and_halo(found.Z, own, self.arrangement.sizes.with_halo)])

    def core(self, leaf: int) -> np.ndarray:
        """Numbers of the rows of `rows_of` that are in the leaf itself."""
        rows = self.rows_of(leaf)
        return rows[self.leaves(self.read(rows)[0]) == leaf] if len(rows) else rows

    def _near(self, owner):
        """Numbers of the partitions in which rows around a partition are sought."""
        if self.halos.centroids is None:
            return np.array([owner])
        return nearest_partitions(self.halos.centroids, np.diff(self.arrangement.bounds), owner)

    def _gathered(self, near) -> Candidates:
        first, edges = self.arrangement.tree.first, self.arrangement.edges
        ranges = [np.arange(*self.arrangement.bounds[p : p + 2]) for p in near]
        late = [self.of_fit + self.late.in_cells(*first[p : p + 2]) for p in near if p in self._late_in]
        rows = self._alive(np.sort(np.concatenate([*ranges, *late])))
        Z, old = self._scaled(rows), rows[rows < self.of_fit]
        cells = np.concatenate(
            [np.searchsorted(edges, old, side="right") - 1, self.late.cells[rows[len(old) :] - self.of_fit]]
        )
        order = scattered(Z)
        return Candidates(rows[order], Z[order], cells[order])

    def _of_fit(self, cell, owner):
        """Absorbed rows of the core and the stored halo of a cell, ascending."""
        first, last = self.arrangement.tree.first[owner : owner + 2]
        blob = load_array(BlobReference(self.halos.store.storage.url, self.halos.blobs[owner]))
        where = f"{self.halos.store.storage.url}: blob {self.halos.blobs[owner][:12]}"
        check_halo(blob, last - first, self.of_fit, where)
        if not len(blob):  # the partition has no rows
            return NO_ROWS
        a, b = blob[cell - first : cell - first + 2] + (last - first + 1)
        return self._alive(np.sort(np.concatenate([self.arrangement.core(cell), blob[a:b]])))

    def _alive(self, rows):
        """The rows that have not faded and are not forgotten."""
        return rows[(rows >= self.of_fit) | (self._weights(rows) > FADED)]

    def _weights(self, rows):
        """Present weights of the partitions of rows of the fit."""
        if not len(self.absorbed):
            return np.zeros(len(rows))
        piece = np.searchsorted(self.absorbed[:, 0], rows, side="right") - 1
        inside = (piece >= 0) & (rows < self.absorbed[piece, 1])
        return np.where(inside, self.absorbed[piece, 2], 0.0)

    # --- Values of rows ---

    def read(self, rows) -> tuple[np.ndarray, Observations, np.ndarray | None]:
        """Scaled inputs (n, D) and observations in the units of the model, of rows in ascending order.

        With errors of inputs, also a root R (n, D, D) of their covariance; otherwise None. All rows are of the fit
        then (`arrange.with_halos`).
        """
        data, old, late = self.arrangement.data, rows[rows < self.of_fit], rows[rows >= self.of_fit] - self.of_fit
        found, roots, errors = [(self.late.X[late], self.late.obs[late])], None, self.model.input_errors
        if len(old):
            X, obs = read_rows(data, old)
            obs = obs.repeated(self._weights(old))
            obs = model_observations(self.model, Partition(data, int(old[0]), int(old[-1]) + 1), obs, X)
            found.insert(0, (self.model.scaling.inputs(X), obs))
            if errors is not None:
                roots = errors.roots(data, X, read_variances(data, old), self.model.scaling)
        return np.concatenate([X for X, _ in found]), joined(*(obs for _, obs in found)), roots

    def _scaled(self, rows):
        """Inputs (n, D) in units of the lengthscales, of rows in ascending order."""
        old, late = rows[rows < self.of_fit], rows[rows >= self.of_fit] - self.of_fit
        owners = np.searchsorted(self.arrangement.bounds, old, side="right") - 1
        parts = [
            scaled_inputs(self.model, self.arrangement, p, self.version)[old[owners == p] - self.arrangement.bounds[p]]
            for p in np.unique(owners)
        ]
        return np.concatenate([*parts, self.late.X[late]]) / self.unit


def scaled_inputs(model: Model, arrangement: Arrangement, number, version: Hashable) -> np.ndarray:
    """Scaled inputs (n, D) of a partition as the tree cuts it, cached within `INPUT_BYTES`.

    version : differs between models with different scalings or rows
    """
    part = arrangement.inputs(number)

    def read():
        ((_, rows),) = read_all([part])
        return model.scaling.inputs(rows.X)

    return get_or_make(_inputs, (version, part), read)

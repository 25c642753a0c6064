"""Cores and halos: which rows the local expert of a cell uses.

The rows of a cell are its *core*; the cell predicts the new points that fall into it. Its *halo* consists of the
nearest neighbours of each row of the core, from any partition. Both are fixed when a model is fitted, so no prediction
depends on other points in the same request.
"""

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bcmdist.committee.cells import cells_directory
from bcmdist.committee.facts import Cells
from bcmdist.committee.loading import load_facts
from bcmdist.data.cell_tree import CellTree
from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.partition import Partition
from bcmdist.model.loading import load_model
from bcmdist.model.model import Model
from bcmdist.storage.arrays import check_array
from bcmdist.storage.commits import CELL_DATA, ModelStore, Reference, open_store
from bcmdist.storage.fields import damaged, shown


def check_edges(edges, cells, rows, where: str) -> None:
    """Raise `ModelDamaged` if `edges` is not an ascending array (cells + 1,) from 0 to `rows`."""
    check_array(edges, where, "edges", shape=(cells + 1,), dtype=np.int64)
    _check_ascending(edges, rows, where, "edges")


def check_halo(blob, cells, rows, where: str) -> None:
    """Raise `ModelDamaged` if a blob is not one that `Halo` writes: offsets (cells + 1,), then row numbers."""
    if not blob.size and blob.ndim == 1:
        return
    check_array(blob, where, "a halo", shape=(blob.size,), dtype=np.int64)
    if len(blob) <= cells:
        raise damaged(where, f"{cells + 1} offsets of a halo", f"{len(blob)}")
    _check_ascending(blob[: cells + 1], len(blob) - cells - 1, where, "offsets of a halo")
    found = blob[cells + 1 :]
    if len(found) and not 0 <= found.min() <= found.max() < rows:
        raise damaged(where, f"rows 0 to {rows - 1} in a halo", f"{found.min()} to {found.max()}")


def _check_ascending(numbers, last, where, name):
    if numbers[0] != 0 or numbers[-1] != last or np.any(np.diff(numbers) < 0):
        raise damaged(where, f"ascending numbers from 0 to {last} in {name}", shown(numbers.tolist()))


def check_halos(table, partitions, where: str) -> None:
    """Raise `ModelDamaged` if a table does not hold one hash per partition, (partitions, 32)."""
    check_array(table, where, "halos", shape=(partitions, 32), dtype=np.uint8)


# Rows, from the nearest partitions, that are searched for a halo.
CANDIDATE_ROWS = 32_000
# Sample size of core rows used in the neighbour search.
PROBES = 128


@dataclass(frozen=True)
class HaloSizes:
    """Approximate numbers of rows: of a core, and of core and halo together."""

    core: int
    with_halo: int


# Rows of a local expert. With few inputs, fewer rows surround a point. With many rows there are many experts, each at
# cubic cost. Up to `few` rows in all, the number follows from the inputs; beyond, it falls by a power of the rows.
# `few` grows with the square of the inputs, since with many inputs errors fall slowly with the number of rows.
LEAST_NEARBY, NEARBY_PER_INPUT, MOST_NEARBY = 400, 140, 1500
FEW_ROWS, FEW_PER_SQUARE, THINNING_POWER = 10_000, 40, 0.25
CORE = 80
EFFORT_FACTORS = {"quick": 0.5, "normal": 1.0, "thorough": 3.0}


def sizes_for(rows, inputs, effort) -> HaloSizes:
    """Halo sizes for data with `rows` rows and `inputs` inputs."""
    nearby = min(LEAST_NEARBY + NEARBY_PER_INPUT * inputs, MOST_NEARBY)
    few = max(FEW_ROWS, FEW_PER_SQUARE * inputs**2)
    most = MOST_NEARBY * (few / max(rows, few)) ** THINNING_POWER
    return HaloSizes(CORE, int(EFFORT_FACTORS[effort] * min(nearby, most)))


# Neighbours of each core row that are ranked, and the nearest candidates considered, as a multiple of the requested
# rows. In gaps this ranking predicts nearer to the exact process than ranking by distance to the core.
NEIGHBOURS, CONSIDERED = 128, 4


def scattered(Z, seed=0) -> np.ndarray:
    """Order (n,) of rows Z (n, D) that looks random, but does not depend on the order in which they are given.

    Only rows that coincide follow each other in an order drawn with `seed`.
    """
    mixed = np.zeros(len(Z), np.uint64)
    for bits in np.ascontiguousarray(Z.T).view(np.uint64):
        mixed = (mixed ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
    drawn = np.random.default_rng(seed).permutation(len(Z))  # no bias towards the first of coincident rows
    return drawn[np.argsort(mixed[drawn], kind="stable")]


def nearest_partitions(centroids, sizes, number) -> np.ndarray:
    """Numbers of the partitions nearest to one, starting with itself, that hold about `CANDIDATE_ROWS` rows together.

    Parameters
    ----------
    centroids : (partitions, D), NaN for empty partitions
    sizes : (partitions,) numbers of rows
    """
    order = np.argsort(((centroids - centroids[number]) ** 2).sum(axis=1), kind="stable")  # nan last
    enough = 1 + np.searchsorted(np.cumsum(sizes[order]), CANDIDATE_ROWS)
    found = order[:enough]
    return found[sizes[found] > 0]


def core_and_halo(Z, own, with_halo) -> np.ndarray:
    """Positions, ascending, of the rows that a local expert uses: its core and the nearest other rows.

    Parameters
    ----------
    Z : (n, D) candidates in units of the lengthscales, in the order of `scattered`
    own : (n,) whether a row is in the cell
    with_halo : number of rows of core and halo together
    """
    core, others = np.flatnonzero(own), np.flatnonzero(~own)
    if not len(core):
        return core
    core = core[:with_halo]
    most = with_halo - len(core)
    halo = others[nearest_rows(Z[core], Z[others], most)] if most else others[:0]
    return np.sort(np.concatenate([core, halo]))


def nearest_rows(core, candidates, count) -> np.ndarray:
    """Positions, ascending, of `count` candidates (m, D) nearest in rank to rows of a core (n, D).

    Each row of the core ranks its nearest neighbours 1, 2, .... Candidates are ordered by their best rank, then by
    distance. So a core row beside a gap gets neighbours beyond the gap before other rows get more of theirs.
    """
    if len(candidates) <= count:
        return np.arange(len(candidates))
    probes, origin = core[np.linspace(0, len(core) - 1, min(len(core), PROBES)).astype(int)], core.mean(axis=0)
    probes, Z = (probes - origin).astype(np.float32), (candidates - origin).astype(np.float32)
    reach, size = np.einsum("ij,ij->i", Z, Z), np.einsum("ij,ij->i", probes, probes)
    considered = _considered(np.sqrt(reach), np.sqrt(size.max()), CONSIDERED * count)
    gap = probes @ Z[considered].T  # squared distances, in place: the largest array here
    gap *= -2.0
    gap += reach[considered]
    gap += size[:, None]
    nearest = gap.min(axis=0)
    near = _least(nearest, CONSIDERED * count)
    gap = gap[:, near]
    first = _least(gap, NEIGHBOURS)
    order = np.argsort(np.take_along_axis(gap, first, axis=1), axis=1)
    best = np.full(len(near), order.shape[1])
    # One-dimensional on purpose: with two broadcast arguments, numpy 2 reads beyond the end.
    np.minimum.at(
        best, np.take_along_axis(first, order, axis=1).ravel(), np.tile(np.arange(order.shape[1]), len(order))
    )
    return np.sort(considered[near[np.lexsort((nearest[near], best))[:count]]])


def _considered(reach, radius, count):
    """Positions of candidates that include the `count` nearest to a core, by the triangle inequality.

    `reach` (m,) is the distance to the core's centre. The `count` candidates of least reach are within that reach plus
    the radius of any core row. Candidates nearer than this to a core row have a reach at most twice the radius larger.
    """
    if count >= len(reach):
        return np.arange(len(reach))
    return np.flatnonzero(reach <= np.partition(reach, count)[count] + 2.0 * radius)


def _least(values, count):
    """Positions of the `count` smallest values along the last axis, in any order."""
    size = values.shape[-1]
    if count >= size:
        return np.broadcast_to(np.arange(size), values.shape)
    return np.argpartition(values, count, axis=-1)[..., :count]


@dataclass(frozen=True)
class Arrangement:
    """The rows of a model in cell order."""

    data: Dataset
    """the copy in cell order; row numbers refer to it"""
    tree: CellTree
    edges: np.ndarray
    """(cells + 1,): first row of each cell"""
    sizes: HaloSizes

    @property
    def bounds(self) -> np.ndarray:
        """First row of each partition, (partitions + 1,)."""
        return self.edges[self.tree.first]

    def partition_of(self, cells) -> np.ndarray:
        """Numbers of the partitions to which cells belong."""
        return np.searchsorted(self.tree.first, cells, side="right") - 1

    def number(self, part) -> int:
        """Number of the partition that contains the first row of `part`."""
        return int(np.searchsorted(self.bounds, part.start, side="right")) - 1

    def inputs(self, number) -> Partition:
        """A partition as the tree cuts it, of which only the inputs are read."""
        data = replace(self.data, y=None, companions=())
        return Partition(data, *self.bounds[number : number + 2].tolist())

    def partitions(self, most) -> list[Partition]:
        """All non-empty partitions, split so that none exceeds `most` rows (a cell of coincident rows may be large)."""
        found = []
        for a, b in zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True):
            parts = -(-(b - a) // most)
            cuts = [a + (b - a) * k // parts for k in range(parts)] + [b] if parts else []
            found += [Partition(self.data, x, y) for x, y in itertools.pairwise(cuts)]
        return found

    def core(self, cell) -> np.ndarray:
        """Rows of a cell; an evenly spaced subset if it has more than a local expert may use."""
        a, b = self.edges[cell : cell + 2]
        return np.unique(np.linspace(a, b - 1, min(b - a, self.sizes.with_halo)).astype(np.int64))


def load_centroids(store: ModelStore, digest: str | None, shape: tuple[int, int]) -> np.ndarray | None:
    """The centroids of partitions, (partitions, D), NaN for empty partitions; None if the model has none."""
    if digest is None:
        return None
    table = store.get_array(digest)
    check_array(np.nan_to_num(table), f"{store.storage.url}: blob {digest[:12]}", "centroids", shape=shape)
    return table


@lru_cache(maxsize=4)
def load_arrangement(reference: Reference) -> Arrangement:
    """The arrangement of a commit with spatial partitions."""
    return arrangement_of(load_model(reference), load_facts(reference).cells, reference.url, reference.place)


def arrangement_of(model: Model, cells: Cells, url: str, where: str) -> Arrangement:
    """The arrangement of a model at `url` with spatial partitions; `where` names its state in error messages."""
    assert model.cells is not None, "a model of spatial partitions has cells"
    home = cells_directory(cells, url)
    edges = open_store(home).get_array(cells.edges)
    uncertain = model.input_errors is not None
    data = open_data(f"{home}/{CELL_DATA}", x=model.x_name, y=model.y_name, uncertain=uncertain)
    check_edges(edges, model.cells.cells, data.rows, where)
    return Arrangement(data, model.cells, edges, HaloSizes(cells.core or 0, cells.with_halo or 0))


def whole_cells(arrangement: Arrangement, part: Partition, count: int, generator) -> np.ndarray:
    """Indices, ascending, of the rows of a partition in `count` of its cells, chosen at random, or in all of them."""
    number = arrangement.number(part)
    cells = np.arange(*arrangement.tree.first[number : number + 2])
    found = [arrangement.core(cell) - part.start for cell in generator.permutation(cells)]
    found = [rows[(rows >= 0) & (rows < part.rows)] for rows in found]  # a large cell is in several partitions
    return np.sort(np.concatenate([rows for rows in found if len(rows)][:count]))

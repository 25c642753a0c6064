"""Surroundings: which rows the local expert of a cell sees.

The rows of a cell, its *core*, own the new points that fall into it; around them stands a *halo* of the nearest
neighbours of each row of the core, from whichever partitions. Both are settled when a model is fitted, so
that no prediction depends on the points it is asked for together with.
"""

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bcmdist.committee.loading import load_facts
from bcmdist.committee.soundness import check_fit
from bcmdist.data.cell_tree import CellTree
from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.partition import Partition
from bcmdist.model.loading import load_model
from bcmdist.prediction.local.soundness import check_edges
from bcmdist.storage.commits import CELL_DATA, Reference, open_store
from bcmdist.storage.loading import load_record

# Rows among which a halo is looked for, from the partitions that are nearest.
CANDIDATE_ROWS = 32_000
# Rows of a core that stand for all of them when its neighbours are looked for.
PROBES = 128


@dataclass(frozen=True)
class HaloSizes:
    """Rows of a core, and of core and halo together, about."""

    core: int
    around: int


# Rows that a local expert sees: with few inputs fewer rows surround a point, and with many rows there are many experts,
# each at the cost of a cube. At few rows as many as inputs ask for, then fewer by a power of the rows. How many are
# few grows with the square of the inputs, since among many inputs errors fall slowly with the rows around: with 958 of
# 50,000 rows of mnist, 40 inputs, 2.3 % of validation labels are wrong at a noise of .01, with 1500 1.8 %.
LEAST_AROUND, AROUND_PER_INPUT, MOST_AROUND = 400, 140, 1500
FEW_ROWS, FEW_PER_SQUARE, THINNING_POWER = 10_000, 40, 0.25
CORE = 80
EFFORT_FACTORS = {"quick": 0.5, "normal": 1.0, "thorough": 3.0}


def sizes_for(rows, inputs, effort) -> HaloSizes:
    """Sizes for data of so many rows and inputs."""
    around = min(LEAST_AROUND + AROUND_PER_INPUT * inputs, MOST_AROUND)
    few = max(FEW_ROWS, FEW_PER_SQUARE * inputs**2)
    affordable = MOST_AROUND * (few / max(rows, few)) ** THINNING_POWER
    return HaloSizes(CORE, int(EFFORT_FACTORS[effort] * min(around, affordable)))


# Neighbours of each row of a core that are told apart by rank, among so many times the rows wanted, the nearest ones.
# Against distance to the core, on gaps of heaton_simulated (validation rows), predictions come nearer to those of the
# exact GP (RMS .071 for .099); kin40k -.756 for -.754 (MNLP).
NEIGHBOURS, CONSIDERED = 128, 4


def nearest_rows(core, candidates, count) -> np.ndarray:
    """Positions of `count` candidates (m, D) that are among the first neighbours of a row of a core (n, D), ascending.

    Each row of the core has its own first, second, ... neighbour. Candidates are taken by their best rank, then by
    distance, so that a row beside a gap gets its neighbours beyond it before others get more of theirs.
    """
    if len(candidates) <= count:
        return np.arange(len(candidates))
    probes, origin = core[np.linspace(0, len(core) - 1, min(len(core), PROBES)).astype(int)], core.mean(axis=0)
    probes, Z = (probes - origin).astype(np.float32), (candidates - origin).astype(np.float32)
    reach, size = np.einsum("ij,ij->i", Z, Z), np.einsum("ij,ij->i", probes, probes)
    considered = _considered(np.sqrt(reach), np.sqrt(size.max()), CONSIDERED * count)
    gap = reach[considered] - 2.0 * (probes @ Z[considered].T) + size[:, None]
    nearest = gap.min(axis=0)
    near = _least(nearest, CONSIDERED * count)
    first = _least(gap[:, near], NEIGHBOURS)
    order = np.argsort(np.take_along_axis(gap[:, near], first, axis=1), axis=1)
    best = np.full(len(near), order.shape[1])
    # In one dimension: of two that are broadcast, numpy 2 reads beyond the end.
    np.minimum.at(
        best, np.take_along_axis(first, order, axis=1).ravel(), np.tile(np.arange(order.shape[1]), len(order))
    )
    return np.sort(considered[near[np.lexsort((nearest[near], best))[:count]]])


def _considered(reach, radius, count):
    """Positions of candidates among which the `count` nearest to a core are, by the triangle inequality.

    Those of least distance `reach` (m,) to the core's centre are no further than that and its radius from a row of
    the core; nearer than that to one are only candidates no further from the centre than twice the radius more.
    """
    if count >= len(reach):
        return np.arange(len(reach))
    return np.flatnonzero(reach <= np.partition(reach, count)[count] + 2.0 * radius)


def _least(values, count):
    """Positions of the least values along the last axis, at most `count` of them, in any order."""
    size = values.shape[-1]
    if count >= size:
        return np.broadcast_to(np.arange(size), values.shape)
    return np.argpartition(values, count, axis=-1)[..., :count]


@dataclass(frozen=True)
class Arrangement:
    """The rows of a model in the order of its cells."""

    data: Dataset
    """the copy in the order of cells; rows below are rows of it"""
    tree: CellTree
    edges: np.ndarray
    """(cells + 1,): where cells begin"""
    sizes: HaloSizes

    @property
    def bounds(self) -> np.ndarray:
        """Where partitions begin, (partitions + 1,)."""
        return self.edges[self.tree.first]

    def partition_of(self, cells) -> np.ndarray:
        """Numbers of the partitions to which cells belong."""
        return np.searchsorted(self.tree.first, cells, side="right") - 1

    def number(self, part) -> int:
        """Number of the partition in whose rows `part` begins."""
        return int(np.searchsorted(self.bounds, part.start, side="right")) - 1

    def partitions(self, most) -> list[Partition]:
        """All partitions that hold rows; of more than `most` rows, which may coincide, in several parts."""
        found = []
        for a, b in zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True):
            parts = -(-(b - a) // most)
            cuts = [a + (b - a) * k // parts for k in range(parts)] + [b] if parts else []
            found += [Partition(self.data, x, y) for x, y in itertools.pairwise(cuts)]
        return found

    def core(self, cell) -> np.ndarray:
        """Rows of a cell; of more than a local expert may see, some that are evenly spread."""
        a, b = self.edges[cell : cell + 2]
        return np.unique(np.linspace(a, b - 1, min(b - a, self.sizes.around)).astype(np.int64))


@lru_cache(maxsize=4)
def load_arrangement(reference: Reference) -> Arrangement:
    """The arrangement of a commit with spatial partitions."""
    check_fit(load_record(reference)["facts"]["fit"], load_model(reference), reference.place)
    cells, model = load_facts(reference).cells, load_model(reference)
    assert model.cells is not None, "a model of spatial partitions has cells"
    edges = open_store(reference.url).get_array(cells.edges)
    data = open_data(f"{reference.url}/{CELL_DATA}", x=model.x_name, y=model.y_name)
    check_edges(edges, model.cells.cells, data.rows, reference.place)
    return Arrangement(data, model.cells, edges, HaloSizes(cells.core or 0, cells.around or 0))

"""Blocks of rows for learning hyper-parameters: each holds the data of a small Gaussian process.

`SampleBlocks` split a uniform sample of all rows, so that the order of storage does not matter: if rows are sorted by
target, the first rows of partitions are a biased selection. `CellBlocks` are neighbourhoods: the rows nearest to random
centres in the metric learned so far, among all rows or among random subsets of them. A dense neighbourhood shows how
close rows differ, a sparse one how far correlation reaches. A uniform sample alone gives lengthscales that are too
long, dense neighbourhoods alone too short ones.
"""

import itertools
import os
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import numpy as np

from bcmdist.data.dataset import VARIANCE, Dataset, open_data
from bcmdist.data.groups import open_group
from bcmdist.data.observations import Observations, joined
from bcmdist.data.partition import Partition
from bcmdist.data.writing import write_dataset
from bcmdist.model.kernels import Kernel, metric, squared_distance
from bcmdist.model.loading import load_scaling
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference, ModelStore, load_array


@dataclass(frozen=True)
class Neighbourhood:
    """Rows near a centre in original units, nearest first; the sum of two keeps the nearest `size` rows.

    Rows at equal distance are ordered by random numbers: in the order of storage they may be sorted by target.
    """

    size: int
    X: np.ndarray
    obs: Observations
    distance: np.ndarray
    """distance to the centre, ascending"""
    chance: np.ndarray
    """uniform random numbers, ascending where distances are equal"""
    variance: np.ndarray | None = None
    """variances of the errors of X, (n, D) or (n, D, D); None where the data were opened without them"""

    def __add__(self, other: "Neighbourhood") -> "Neighbourhood":
        if not (len(self.X) and len(other.X)):
            return self if len(self.X) else other
        distance = np.concatenate([self.distance, other.distance])
        chance = np.concatenate([self.chance, other.chance])
        keep = np.lexsort((chance, distance))[: self.size]
        X, obs, variance = np.concatenate([self.X, other.X]), joined(self.obs, other.obs), None
        if self.variance is not None:
            variance = np.concatenate([self.variance, other.variance])[keep]
        return Neighbourhood(self.size, X[keep], obs[keep], distance[keep], chance[keep], variance)


@dataclass(frozen=True)
class Neighbourhoods:
    """One neighbourhood per centre; added element by element."""

    blocks: tuple[Neighbourhood, ...]

    def __add__(self, other: "Neighbourhoods") -> "Neighbourhoods":
        return Neighbourhoods(tuple(a + b for a, b in zip(self.blocks, other.blocks, strict=True)))


@dataclass(frozen=True)
class Nearest:
    """Task: collect the rows of a partition that are nearest to each centre, in a metric.

    Each centre considers a random share of the rows only, drawn per partition: a small share makes a neighbourhood
    wide; a share of 1 makes it dense.
    """

    scaling: BlobReference
    centres: BlobReference
    """(B, D + 2): scaled inputs divided by the metric, the share, and the largest squared distance of a row"""
    metric: BlobReference
    """(D,), divisors of the scaled inputs"""
    size: int
    seed: int

    def __call__(self, part, rows) -> Neighbourhoods:
        table, unit = load_array(self.centres), load_array(self.metric)
        Z = load_scaling(self.scaling).inputs(rows.X) / unit
        chance = np.random.default_rng([self.seed, part.start]).random((len(table), len(Z)))
        distance = squared_distance(Z, table[:, :-2], np.ones(Z.shape[1]))
        blocks = []
        for b, (share, most) in enumerate(table[:, -2:]):
            seen = np.flatnonzero((chance[b] < share) & (distance[:, b] <= most))
            keep = seen[np.lexsort((chance[b, seen], distance[seen, b]))[: self.size]]
            errors = None if rows.X_variance is None else rows.X_variance[keep]
            found = rows.X[keep], rows.obs[keep], distance[keep, b], chance[b, keep], errors
            blocks.append(Neighbourhood(self.size, *found))
        return Neighbourhoods(tuple(blocks))


def all_rows(found: Neighbourhoods) -> tuple[np.ndarray, Observations, list[int]]:
    """Rows (n, D) and observations of all neighbourhoods, concatenated, and the number of rows of each."""
    X = np.concatenate([block.X for block in found.blocks])
    return X, reduce(joined, [block.obs for block in found.blocks]), [len(block.X) for block in found.blocks]


# Rows of a block of a sample, whose cost grows with the cube; and of a block of the first round, when lengthscales may
# be far off.
LEARNING_BLOCK, FIRST_BLOCK = 1000, 500
# Rounds with only one neighbourhood per density: later rounds refine what they find.
ROUGH_ROUNDS = 2
# Rows of a sample that lie within a distance where as many of all rows as needed almost certainly do: so many times
# the expected number, and some more.
MARGIN, FEWEST = 2.0, 10
# Ratio of successive densities: each is this share of the previous one.
THINNING = 0.25


class Blocks(Protocol):
    """Makes the blocks of rows of each round of learning."""

    def __call__(self, kernel: Kernel | None) -> list[Partition]:
        """Return the blocks of the next round; the rows of each are near in the metric of `kernel`.

        kernel : the kernel learned so far; None in the first round
        """

    @property
    def largest(self) -> int:
        """Maximum rows of a block."""


class SampleBlocks:
    """Rows (n, D) of a sample, in original units and random order, in even blocks of at most `size` rows.

    Blocks are smaller in the first round, where the kernel is None.

    Parameters
    ----------
    url : directory, readable by all workers, where the rows are stored; existing rows are reused unchanged
    """

    def __init__(self, X, obs, companions, url, *, size):
        place = f"{url}/sample.zarr"
        if not os.path.exists(place):
            _write(place, X, obs, companions, rows_per_chunk=size)
        self.place, self.sample, self.size = place, open_data(place), size

    @property
    def largest(self) -> int:
        return min(self.size, self.sample.rows)

    def __call__(self, kernel):
        return self.cut(min(self.size, FIRST_BLOCK) if kernel is None else self.size)

    def cut(self, size) -> list[Partition]:
        """Split the sample into even blocks of at most `size` rows."""
        count = -(-self.sample.rows // size)
        edges = [self.sample.rows * k // count for k in range(count + 1)]
        return [_kept(Partition(self.sample, a, b), self.place) for a, b in itertools.pairwise(edges)]


class CellBlocks:
    """Neighbourhoods of `size` rows, `per_density` at each density (one in the first rounds), new ones in each round.

    Parameters
    ----------
    parts : all partitions of the data
    sample : rows of the data in scaled units, (n, D), in random order, from which centres are drawn
    url : directory on a disk that all workers share, where the blocks of each round are stored; existing blocks are
        reused unchanged
    places : scaled inputs of future predictions, (m, D); None if unknown
    """

    def __init__(
        self,
        data: Dataset,
        parts: list[Partition],
        sample: np.ndarray,
        *,
        reference: BlobReference,
        size: int,
        per_density: int,
        runtime: Runtime,
        store: ModelStore,
        url: str,
        seed: int,
        places: np.ndarray | None = None,
    ):
        self.data, self.all_parts, self.sample, self.size, self.per_density = data, parts, sample, size, per_density
        self.runtime, self.store, self.url, self.reference, self.seed = runtime, store, url, reference, seed
        self.places = places
        self.round = 0

    @property
    def largest(self) -> int:
        return self.size

    def __call__(self, kernel):
        least = min(1.0, self.size / self.data.rows)
        densities = 1 + int(np.ceil(np.log(least) / np.log(THINNING) - 1e-9))
        shares = np.geomspace(1.0, least, densities) if densities > 1 else np.ones(1)
        copies = 1 if self.round < ROUGH_ROUNDS else self.per_density
        return self.neighbourhoods(kernel, np.tile(shares, copies), self.size)

    def neighbourhoods(self, kernel, shares, size) -> list[Partition]:
        """Neighbourhoods of `size` rows around new random centres, each among a share of all rows, nearest first."""
        unit = np.ones(self.data.inputs) if kernel is None else metric(kernel, self.data.inputs)
        self.round += 1
        place = f"{self.url}/round-{self.round}.zarr"
        if not os.path.exists(place):
            rng = np.random.default_rng([self.seed, self.round])
            centres = self.sample[rng.integers(len(self.sample), size=len(shares))] / unit
            radii = self._radii(centres, shares, unit, size)
            found = self._nearest(centres, shares, unit, radii, size)
            if any(len(one.X) < size for one, radius in zip(found.blocks, radii, strict=True) if np.isfinite(radius)):
                found = self._nearest(centres, shares, unit, np.full(len(centres), np.inf), size)
            X, obs, sizes = all_rows(found)
            errors = [one.variance for one in found.blocks if one.variance is not None]
            more = {VARIANCE.format("X"): np.concatenate(errors)} if errors else {}
            _write(place, X, obs, self.data.companions, more, rows_per_chunk=size, attributes={"sizes": sizes})
        blocks = open_data(place, uncertain=bool(self.data.variance))
        edges = np.cumsum([0, *open_group(place).attrs["sizes"]]).tolist()  # type: ignore[misc]
        return [_kept(Partition(blocks, a, b), place) for a, b in itertools.pairwise(edges) if b > a]

    def _nearest(self, centres, shares, unit, radii, size) -> Neighbourhoods:
        """The rows nearest to each centre (B, D), of those within a squared distance `radii`, (B,)."""
        arrays = {"centres": np.column_stack([centres, shares, radii]), "metric": unit}
        with self.store.transient(arrays) as references:
            task = Nearest(self.reference, **references, size=size, seed=self.seed + self.round)
            return self.runtime.sum(task, self.all_parts, label="neighbourhoods")

    def _radii(self, centres, shares, unit, size) -> np.ndarray:
        """Squared distances from centres (B, D) within which there are almost certainly `size` rows of a share of all,
        (B,), by the rows of the sample: so that few rows of each partition have to be sorted."""
        distance = np.sort(squared_distance(self.sample / unit, centres, np.ones(len(unit))), axis=0)
        within = np.ceil(MARGIN * size * len(distance) / (self.data.rows * np.asarray(shares))).astype(int) + FEWEST
        return np.append(distance, np.full((1, len(centres)), np.inf), axis=0)[
            np.minimum(within, len(distance)), np.arange(len(centres))
        ]


def _write(place, X, obs, companions, more=None, *, rows_per_chunk, attributes=None):
    columns = {"X": X, "y": obs.y} | {name: getattr(obs, name) for name in companions} | (more or {})
    write_dataset(place, columns, rows_per_chunk=rows_per_chunk, attributes=attributes)


def _kept(part, content):
    """Return the partition marked so that its readers cache its rows in memory, by the name of their content."""
    return replace(part, data=replace(part.data, kept=content))

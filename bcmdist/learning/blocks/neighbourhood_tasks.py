"""Neighbourhoods: the rows nearest to some centres, at several densities of the data."""

from dataclasses import dataclass
from functools import reduce

import numpy as np

from bcmdist.data.observations import Observations, joined
from bcmdist.model.kernels import squared_distance
from bcmdist.model.loading import load_scaling
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array


@dataclass(frozen=True)
class Neighbourhood:
    """Rows near a centre in original units, the nearest first; adding two keeps the nearest `size`.

    Of rows that coincide those of smallest chance: as they are stored, they may be sorted by their targets.
    """

    size: int
    X: np.ndarray
    obs: Observations
    distance: np.ndarray
    """ascending"""
    chance: np.ndarray
    """uniform random numbers, ascending where distances are equal"""

    def __add__(self, other: "Neighbourhood") -> "Neighbourhood":
        distance = np.concatenate([self.distance, other.distance])
        chance = np.concatenate([self.chance, other.chance])
        keep = np.lexsort((chance, distance))[: self.size]
        X, obs = np.concatenate([self.X, other.X]), joined(self.obs, other.obs)
        return Neighbourhood(self.size, X[keep], obs[keep], distance[keep], chance[keep])


@dataclass(frozen=True)
class Neighbourhoods:
    """One for each centre."""

    blocks: tuple[Neighbourhood, ...]

    def __add__(self, other: "Neighbourhoods") -> "Neighbourhoods":
        return Neighbourhoods(tuple(a + b for a, b in zip(self.blocks, other.blocks, strict=True)))


@dataclass(frozen=True)
class Nearest:
    """Collect the rows of a partition that are nearest to centres, in a metric.

    Each centre sees a random share of the rows only, drawn per partition: a small share makes a neighbourhood
    wide, and one of all rows makes it dense.
    """

    scaling: BlobReference
    centres: BlobReference
    """(B, D + 1): scaled inputs divided by the metric, and the share"""
    metric: BlobReference
    """(D,)"""
    size: int
    seed: int

    def __call__(self, part, rows) -> Neighbourhoods:
        table, unit = load_array(self.centres), load_array(self.metric)
        Z = load_scaling(self.scaling).inputs(rows.X) / unit
        chance = np.random.default_rng([self.seed, part.start]).random((len(table), len(Z)))
        distance = squared_distance(Z, table[:, :-1], np.ones(Z.shape[1]))
        blocks = []
        for b, share in enumerate(table[:, -1]):
            seen = np.flatnonzero(chance[b] < share)
            keep = seen[np.lexsort((chance[b, seen], distance[seen, b]))[: self.size]]
            blocks.append(Neighbourhood(self.size, rows.X[keep], rows.obs[keep], distance[keep, b], chance[b, keep]))
        return Neighbourhoods(tuple(blocks))


def all_rows(found: Neighbourhoods) -> tuple[np.ndarray, Observations, list[int]]:
    """Rows (n, D) and observations of all blocks, one after the other, and how many each has."""
    X = np.concatenate([block.X for block in found.blocks])
    return X, reduce(joined, [block.obs for block in found.blocks]), [len(block.X) for block in found.blocks]

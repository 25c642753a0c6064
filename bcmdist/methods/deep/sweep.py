"""Tasks: sweeps of expectation propagation over the partitions of rows (SYSTEMS D3, D4, and D-expert way a).

One round per sweep. A partition receives the total of all factors and the factors of its own groups of rows, removes
each group's factor from the total, and returns the sums of the rows' new factors per group. Where groups are
partitions, this is the message of an expert, which replaces its previous message.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.errors import NotPositiveDefinite
from bcmdist.methods.deep.layer import Layer
from bcmdist.methods.deep.row_sums import Shape
from bcmdist.methods.deep.sites import normaliser, row_factors, unpacked
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array


@dataclass(frozen=True)
class Grouping:
    """Which rows share a factor."""

    per_partition: bool
    """whether each partition has its own factors"""
    single: bool
    """whether each row has its own factor"""

    def key(self, part: Partition) -> str:
        """Key of the factors of a partition's rows."""
        return part.key if self.per_partition else ""

    def count(self, rows: int) -> int:
        """Number of groups in a partition of `rows` rows."""
        return rows if self.single else 1


@dataclass(frozen=True)
class SiteShare:
    """Sums of new factors over the rows of some groups, with the terms of the energy; objects add."""

    sums: dict[str, np.ndarray]
    """sums of rows' factors, (G, K), by key of groups"""
    log_z: float
    """sum of 1/p log Z; nan where a cavity is not positive definite"""
    normaliser: float
    """sum over rows of 1/p phi of their cavity"""
    skipped: float
    """number of rows whose factors are not updated"""

    def __add__(self, other: "SiteShare") -> "SiteShare":
        sums = self.sums | other.sums
        sums |= {key: self.sums[key] + other.sums[key] for key in self.sums.keys() & other.sums.keys()}
        log_z, normaliser = self.log_z + other.log_z, self.normaliser + other.normaliser
        return SiteShare(sums, log_z, normaliser, self.skipped + other.skipped)


@dataclass(frozen=True)
class SiteSweep:
    """Task: new factors of the rows of a partition, given the cavities of their groups."""

    scaling: BlobReference
    layers: BlobReference
    """vector of the layers' parameters"""
    shapes: tuple[Shape, ...]
    total: BlobReference
    """total of all rows' factors, (K,)"""
    factors: tuple[tuple[str, BlobReference], ...]
    """factors of groups, (G, K), by key"""
    grouping: Grouping
    likelihood: Likelihood
    power: float
    """power of the rows' likelihoods (`bcmdist.methods.deep.outputs`)"""
    classes: tuple[float, ...] | None
    """class labels, where targets are classes"""

    def __call__(self, part, rows) -> SiteShare:
        key, scaling = self.grouping.key(part), load_scaling(self.scaling)
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units)
        layers, X = layers_of(load_array(self.layers), self.shapes), scaling.inputs(rows.X)
        held = load_array(self.total), load_array(dict(self.factors)[key])
        sums, figures = swept(layers, *held, X, obs, self.likelihood, self.power)
        return SiteShare({key: part.weight * sums}, *(part.weight * figures).tolist())


def swept(layers: Sequence[Layer], total, factors, X, obs, likelihood, power=1.0) -> tuple[np.ndarray, np.ndarray]:
    """Sums (G, K) and figures of the `SiteShare` of rows (n, D), split evenly into groups with the given factors."""
    sums, figures = np.zeros_like(factors), np.zeros(3)
    for group, some in enumerate(np.array_split(np.arange(len(X)), len(factors))):
        own = factors[group]
        cavity = unpacked(total - power * own, layers)
        try:
            beliefs = [one.believed() for one in cavity]
        except NotPositiveDefinite:
            sums[group] = len(some) * own
            figures += np.nan, 0.0, len(some)  # Z does not exist
            continue
        figures += 0.0, len(some) / power * normaliser(cavity, beliefs), 0.0
        for said in row_factors(layers, beliefs, X[some], obs[some], likelihood, power):
            improper = int(np.sum(~said.proper))
            sums[group] += said.factors[said.proper].sum(axis=0) + improper * own
            figures += said.log_z, 0.0, improper
    return sums, figures


def layers_of(numbers, shapes: Sequence[Shape]) -> list[Layer]:
    """Layers from a vector of their concatenated parameters."""
    found = []
    for like in (Layer.of_shape(*shape) for shape in shapes):
        size = len(like.numbers())
        found.append(like.moved(numbers[:size]))
        numbers = numbers[size:]
    return found

"""Sweeps of expectation propagation over the factors of rows about all layers (`bcmdist.methods.deep.sites`).

Layers trained by the tied energy assume that all their rows contribute the same factor. From there, groups of rows get
factors of their own: one group of all rows (stochastic expectation propagation, SYSTEMS D4), one per partition
(distributed, the D-expert of way a), or one per row (D3). All groups are matched in parallel to the total of the
previous sweep, with damping. A sweep is a sum over partitions, independent of where and in which order they are
computed; with one factor per row it is also independent of the partitioning. The step is halved until the total leaves
a positive definite precision (SYSTEMS I.7).

The final energy is that of expectation propagation (D3), by groups

    (1 - N/p) phi + sum_i n_i/p phi of the cavity of i - phi of the prior + sum_n 1/p log Z_n

With one group it is the tied energy; with one group per row and one layer it is the log evidence of FITC.

A sweep is one round over the partitions. A partition receives the total of all factors and the factors of its own
groups of rows, removes each group's factor from the total, and returns the sums of the rows' new factors per group.
Where groups are partitions, this is the message of an expert, which replaces its previous message.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.methods.deep.layer import Layer
from bcmdist.methods.deep.objective import DeepObjective, Reached, joined
from bcmdist.methods.deep.options import DeepOptions
from bcmdist.methods.deep.row_sums import Shape
from bcmdist.methods.deep.shared import Deep
from bcmdist.methods.deep.sites import (
    Factor,
    definite,
    normaliser,
    row_factors,
    site_totals,
    unpacked,
    with_site_totals,
)
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference, load_array


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
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units, rows.X)
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
        for updated in row_factors(layers, beliefs, X[some], obs[some], likelihood, power):
            improper = int(np.sum(~updated.proper))
            sums[group] += updated.factors[updated.proper].sum(axis=0) + improper * own
            figures += updated.log_z, 0.0, improper
    return sums, figures


def layers_of(numbers, shapes: Sequence[Shape]) -> list[Layer]:
    """Layers from a vector of their concatenated parameters."""
    found = []
    for like in (Layer.of_shape(*shape) for shape in shapes):
        size = len(like.numbers())
        found.append(like.moved(numbers[:size]))
        numbers = numbers[size:]
    return found


TIED = "tied"  # no sites: layers stay as trained by the tied energy
GROUPINGS = {"shared": Grouping(False, False), "partition": Grouping(True, False), "row": Grouping(True, True)}
# Largest step of a sweep (with two layers, full steps oscillate), and largest number of sweeps by effort. Sweeps end
# where a full step would change no factor by more than this share, and no mean of v by more than this share of its
# standard deviation: the total may be right from the beginning while the rows' factors are not.
STEP, SWEEPS, TOLERANCE = 0.5, {"quick": 10, "normal": 40, "thorough": 100}, 1e-3
GROUPED, SINGLE = 20.0, 200.0  # cost of a sweep in evaluations of the tied energy, for groups and for single rows
MOST_NUMBERS = 2**25  # values in the factors of all rows: 256 MiB, sent in every sweep

Factors = Mapping[str, np.ndarray]
"""factors of groups, (G, K), by key"""


@dataclass(frozen=True)
class Swept:
    """State after some sweeps."""

    factors: Factors
    sweeps: int
    energy: float
    """energy of these factors after the last sweep; nan before, and where a cavity is not positive definite"""
    moved: float
    """largest change by a full step of the last sweep: of a layer's factors as a share of their length, or of means of
    v in standard deviations"""
    skipped: float
    """number of rows whose factors the last sweep did not update"""

    def to_json(self) -> dict[str, Any]:
        """All fields but the factors."""
        energy = float(self.energy) if np.isfinite(self.energy) else None
        return {"sweeps": self.sweeps, "energy": energy, "moved": self.moved, "skipped": self.skipped}


def swept_as(settings) -> float:
    """Approximate cost of the sweeps of a process, as a number of evaluations of the tied energy."""
    if settings.of(DeepOptions).deep_sites == TIED:
        return 0.0
    return SWEEPS[settings.effort] * (SINGLE if GROUPINGS[settings.of(DeepOptions).deep_sites].single else GROUPED)


def refuse_factors(sites: str, rows: int, numbers: int) -> None:
    """Raise `InvalidOption` where the factors of `rows` rows, with `numbers` values each, would be too large.

    Parameters
    ----------
    sites : name of the grouping
    """
    if sites != TIED and GROUPINGS[sites].single and rows * numbers > MOST_NUMBERS:
        raise InvalidOption(
            f"deep_sites: expected at most {MOST_NUMBERS // numbers} rows with {sites}, of which each has a factor of "
            f"{numbers} numbers, got {rows}; give --deep-sites partition, or a lower --query"
        )


class Sweeps:
    """Sweeps over the rows of an objective, for given layers."""

    def __init__(self, objective: DeepObjective, start: Deep, grouping: Grouping):
        self.objective, self.start, self.grouping = objective, start, grouping
        self.layers, self.parts = list(start.layers), objective.parts
        self.groups: dict[str, int] = {}
        self.counted: dict[str, float] = {}
        for part in self.parts:
            key, count = grouping.key(part), grouping.count(part.rows)
            self.groups[key] = count
            self.counted[key] = self.counted.get(key, 0.0) + part.weight * part.rows / count
        self.rows = sum(part.weight * part.rows for part in self.parts)

    def begun(self) -> Swept:
        """Initial state: each row's factor is its equal share of the trained total."""
        share = site_totals(self.layers) / self.rows
        return Swept({key: np.tile(share, (count, 1)) for key, count in self.groups.items()}, 0, np.nan, np.inf, 0.0)

    def total(self, factors: Factors) -> np.ndarray:
        """Sum of the factors of all training rows, (K,): each group's factors times the rows that it stands for."""
        return np.sum([self.counted[key] * factors[key].sum(axis=0) for key in sorted(factors)], axis=0)

    def deep(self, at: Swept) -> Deep:
        """The process whose layers have the posterior given all factors."""
        return replace(self.start, layers=tuple(with_site_totals(self.layers, self.total(at.factors))))

    def after(self, at: Swept) -> Swept:
        """State after one more sweep, with the energy not yet computed."""
        share, total = self._site_share(at.factors), self.total(at.factors)
        targets = {key: share.sums[key] / self.counted[key] for key in at.factors}
        step = STEP
        while not self._believable(self.total(further := _between(at.factors, targets, step))):
            step *= 0.5
        moved = max(self._moved(total, self.total(further)) / step, self._changed(at.factors, targets))
        return Swept(further, at.sweeps + 1, np.nan, moved, share.skipped)

    def _site_share(self, factors) -> SiteShare:
        objective, context = self.objective, self.objective.context
        keys = sorted(factors)
        arrays = {"layers": joined(self.layers), "total": self.total(factors)}
        with context.transient(arrays | {f"factors{k}": factors[key] for k, key in enumerate(keys)}) as references:
            held = tuple((key, references[f"factors{k}"]) for k, key in enumerate(keys))
            shapes = tuple(layer.shape for layer in self.layers)
            what = references["layers"], shapes, references["total"], held, self.grouping
            how = objective.likelihood, objective.power, context.classes
            return context.sum(SiteSweep(context.scaling, *what, *how), self.parts)

    def energy(self, at: Swept) -> float:
        """Energy of the factors; nan where a cavity is not positive definite."""
        share, factors = self._site_share(at.factors), unpacked(self.total(at.factors), self.layers)
        phi = normaliser(factors, [one.believed() for one in factors])
        return (1.0 - self.rows / self.objective.power) * phi + share.normaliser + share.log_z

    def _believable(self, total):
        return all(definite(one.total_precision).all() for one in unpacked(total, self.layers))

    def _moved(self, before, after):
        far = 0.0
        for one, other in zip(unpacked(before, self.layers), unpacked(after, self.layers), strict=True):
            old, new = one.believed(), other.believed()
            deviation = np.sqrt(np.diagonal(old.covariance, axis1=-2, axis2=-1))
            far = max(far, float(np.max(np.abs(new.mean - old.mean) / deviation)))
        return far

    def _changed(self, factors, targets):
        """Distance from factors to targets, relative to the targets' length, for the layer where it is largest."""
        before, after = (np.concatenate([each[key] for key in sorted(factors)]) for each in (factors, targets))
        ways, whole = (unpacked(numbers, self.layers) for numbers in (after - before, after))
        lengths = zip(map(_length, ways), map(_length, whole), strict=True)
        return max(step / max(length, np.finfo(float).tiny) for step, length in lengths)


def swept_on(objective: DeepObjective, at: Reached, held: Sequence[Partition], sites: str) -> Reached:
    """Continue a trained process with sweeps, with the factors grouped as named by `sites`."""
    if sites == TIED:
        return at
    sweeps = Sweeps(objective, at.shared, GROUPINGS[sites])
    found = run_sweeps(sweeps, SWEEPS[objective.context.effort])
    shared = sweeps.deep(found)
    if objective.likelihood.normal:
        shared = objective.absorbed(shared)
    density = objective.density(shared.layers, held) if held else 0.0
    tied = at.density / sum(part.rows for part in held) if held else None
    figures = found.to_json()
    return replace(at, shared=shared, energy=figures["energy"], density=density, sites=figures | {"density_tied": tied})


def run_sweeps(sweeps: Sweeps, most: int, *, tolerance: float = TOLERANCE) -> Swept:
    """Sweep until convergence, or `most` times; return the state with its energy.

    Continues from the state that an interrupted fit has stored.
    """
    path = sweeps.objective.place(["sites", *astuple(sweeps.grouping)], sweeps.layers)
    at = _kept(path, sweeps.groups) if path.exists() else sweeps.begun()
    while at.sweeps < most and at.moved > tolerance:
        at = sweeps.after(at)
        _keep(path, at)
    return replace(at, energy=sweeps.energy(at))


def _length(factor: Factor) -> float:
    """Norm of all numbers of one or several factors."""
    return math.hypot(float(np.linalg.norm(factor.eta)), float(np.linalg.norm(factor.precision)))


def _between(factors, targets, step):
    return {key: (1.0 - step) * own + step * targets[key] for key, own in factors.items()}


def _keep(path, at: Swept) -> None:
    figures = np.array([at.sweeps, at.energy, at.moved, at.skipped])
    arrays: dict[str, Any] = {f"factors{k}": at.factors[key] for k, key in enumerate(sorted(at.factors))}
    np.savez(f"{path}.tmp.npz", figures=figures, **arrays)
    os.replace(f"{path}.tmp.npz", path)


def _kept(path, keys: Iterable[str]) -> Swept:
    with np.load(path) as kept:
        sweeps, energy, moved, skipped = kept["figures"].tolist()
        factors = {key: kept[f"factors{k}"] for k, key in enumerate(sorted(keys))}
    return Swept(factors, int(sweeps), energy, moved, skipped)

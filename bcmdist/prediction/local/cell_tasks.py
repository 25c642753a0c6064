"""Tasks of a fit with cells: find halos, collect calibration rows, and measure jumps at cell borders."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.data.rows import read_all
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.model.kernels import metric
from bcmdist.model.loading import load_model
from bcmdist.model.targets import model_observations
from bcmdist.prediction.errors.platt_scaling import HeldOutRows
from bcmdist.prediction.leave_one_out import left_out
from bcmdist.prediction.local.halos import CANDIDATE_ROWS, load_arrangement, nearest_rows
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.storage.commits import BlobReference, Reference, open_store
from bcmdist.storage.loading import load_array


@dataclass(frozen=True)
class CellRouter:
    """Cell numbers of rows, from X in original units."""

    model: Reference

    def __call__(self, X):
        model = load_model(self.model)
        assert model.cells is not None, "a model of spatial partitions has cells"
        return model.cells.route(model.scaling.inputs(X))


@dataclass(frozen=True)
class Centroids:
    """Sums of scaled inputs and row counts by partition: (partitions, D + 1)."""

    model: Reference

    def __call__(self, part, rows):
        model, arrangement = load_model(self.model), load_arrangement(self.model)
        table = np.zeros((len(arrangement.bounds) - 1, model.inputs + 1))
        table[arrangement.number(part)] = [*model.scaling.inputs(rows.X).sum(axis=0), part.rows]
        return table


@dataclass(frozen=True)
class Names:
    """Blob hashes by partition; `+` merges."""

    by_partition: dict[int, str]

    def __add__(self, other: "Names") -> "Names":
        return Names(self.by_partition | other.by_partition)


@dataclass(frozen=True)
class Halo:
    """Find the halos of the cells of a partition and store them as one blob: offsets (cells + 1,), then row numbers."""

    model: Reference
    centroids: BlobReference
    """(partitions, D), divided by the metric; NaN for empty partitions"""

    def __call__(self, part, rows) -> Names:
        model, arrangement = load_model(self.model), load_arrangement(self.model)
        unit, number = metric(model.shared.kernel, model.inputs), arrangement.number(part)
        near = self._near(arrangement, number)
        candidates = np.concatenate([_scaled_inputs(p, self.model) for p in near]) / unit
        where = np.concatenate([np.arange(p.start, p.stop) for p in near])
        mixed = np.random.default_rng(number).permutation(len(where))  # no bias towards the first of coincident rows
        candidates, where = candidates[mixed], where[mixed]
        halos = []
        for cell in range(arrangement.tree.first[number], arrangement.tree.first[number + 1]):
            own = (where >= arrangement.edges[cell]) & (where < arrangement.edges[cell + 1])
            core, others = candidates[own], np.flatnonzero(~own)
            most = max(0, arrangement.sizes.with_halo - len(core)) if len(core) else 0
            halos.append(np.sort(where[others[nearest_rows(core, candidates[others], most)]]) if most else where[:0])
        offsets = np.cumsum([0, *map(len, halos)])
        blob = np.concatenate([offsets, *halos]).astype(np.int64)
        return Names({number: open_store(self.model.url).put_arrays({"": blob})[""]})

    def _near(self, arrangement, number):
        """The partitions nearest to one, starting with itself, that together hold about `CANDIDATE_ROWS` rows."""
        table = load_array(self.centroids)
        order = np.argsort(((table - table[number]) ** 2).sum(axis=1), kind="stable")  # nan last
        sizes = np.diff(arrangement.bounds)
        enough = 1 + np.searchsorted(np.cumsum(sizes[order]), CANDIDATE_ROWS)
        inputs_only = replace(arrangement.data, y=None, companions=())
        bounds = arrangement.bounds.tolist()
        return [Partition(inputs_only, bounds[p], bounds[p + 1]) for p in order[:enough] if sizes[p]]


@lru_cache(maxsize=64)
def _scaled_inputs(part, model):
    ((_, rows),) = read_all([part])
    return load_model(model).scaling.inputs(rows.X)


@dataclass(frozen=True)
class LeftOutRows:
    """Leave-one-out latent predictions and classes at the rows of a partition, for calibration."""

    model: Reference

    def __call__(self, part, rows) -> HeldOutRows:
        near, model = load_neighbours(self.model), load_model(self.model)
        obs = model_observations(model, part, rows.obs)
        mean, variance = near.latent(model.scaling.inputs(rows.X))
        likelihood = model.likelihood
        score, curvature = likelihood.score(obs, mean), likelihood.curvature(obs, mean)
        mean, variance = left_out(mean, variance, score, curvature)
        return HeldOutRows(mean, variance, obs.y, obs.weight)


@dataclass(frozen=True)
class CloseLook:
    """Measure the jump at one cell border of a partition, and the loss with half of the query points in two cells.

    The border is that of the first two cells; the loss is taken in the first and the last cell. Returns (2, 3): count,
    sum and sum of squares of the mean squared jumps, in units of the predictive variance, and of the losses in nats per
    row. Numerical failures of the loss give a count of 0: the loss only serves advice and must not fail a fit.
    """

    model: Reference

    def __call__(self, part, rows) -> np.ndarray:
        near, arrangement = load_neighbours(self.model), load_arrangement(self.model)
        cells = np.arange(*arrangement.tree.first[arrangement.number(part) :][:2])
        X = load_model(self.model).scaling.inputs(rows.X)
        jumps = near.jumps(cells[0], X, part.start) if len(cells) > 1 else np.zeros(0)
        try:
            losses = np.concatenate([near.query_losses(cell) for cell in np.unique(cells[[0, -1]])])
        except (NotPositiveDefinite, LaplaceNotConverged):
            losses = np.zeros(0)
        return np.array([[len(x), x.sum(), (x**2).sum()] for x in (jumps, losses)])


def mean_and_error(moments) -> tuple[float, float | None]:
    """Mean and standard error from `moments`: count, sum and sum of squares.

    Without values the mean is 0. With fewer than two the standard error is None.
    """
    count, total, squares = moments.tolist()
    mean = total / max(count, 1.0)
    return mean, math.sqrt(max(squares - count * mean**2, 0.0) / (count - 1.0) / count) if count > 1.0 else None

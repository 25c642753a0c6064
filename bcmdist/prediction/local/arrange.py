"""Spatial partitions in a fit, and local prediction for a data set.

arrange       copy the rows in cell order next to the model; partitions are ranges of cells of this copy
surround      compute halos for local prediction, calibrate it, and measure jumps at cell borders
in_cells      temporary copy of new rows in cell order
"""

import contextlib
import hashlib
import math
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bcmdist.committee.cells import cells_directory, refuse_absorbed_as_stored
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.surveyed import recorded_chunks, refuse_changed
from bcmdist.data.dataset import Dataset
from bcmdist.data.partition import Partition, aligned_partitions, partitions
from bcmdist.data.predictions import LARGEST_OUTPUT_CHUNK
from bcmdist.data.reorder.reorder import reorder
from bcmdist.data.writing import ROWS_PER_CHUNK
from bcmdist.errors import DataChanged, InvalidData, LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts.leave_one_out import cavity
from bcmdist.model.kernels import metric
from bcmdist.model.loading import load_model
from bcmdist.model.targets import model_observations
from bcmdist.prediction.errors.platt_scaling import HeldOutRows, fit_calibration
from bcmdist.prediction.errors.standardised_residuals import seed_of
from bcmdist.prediction.limits import local_memory, refuse_large_prediction
from bcmdist.prediction.local.cell_rows import scaled_inputs
from bcmdist.prediction.local.halos import (
    arrangement_of,
    core_and_halo,
    load_arrangement,
    nearest_partitions,
    scattered,
    whole_cells,
)
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import CELL_DATA, SCRATCH, BlobReference, Reference, load_array, open_store


@dataclass(frozen=True)
class CellRouter:
    """Function from rows X (n, D) in original units to the numbers of their cells, (n,)."""

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
    """Task: find the halos of the cells of a partition; return the hash of the blob that stores them.

    The blob holds offsets (cells + 1,), then row numbers.
    """

    model: Reference
    centroids: BlobReference
    """(partitions, D), divided by the metric; NaN for empty partitions"""

    def __call__(self, part, rows) -> Names:
        model, arrangement = load_model(self.model), load_arrangement(self.model)
        unit, number = metric(model.shared.kernel, model.inputs), arrangement.number(part)
        near = nearest_partitions(load_array(self.centroids), np.diff(arrangement.bounds), number)
        candidates = np.concatenate([scaled_inputs(model, arrangement, p, self.model) for p in near]) / unit
        where = np.concatenate([np.arange(*arrangement.bounds[p : p + 2]) for p in near])
        order = scattered(candidates, number)
        candidates, where = candidates[order], where[order]
        halos = []
        for cell in range(arrangement.tree.first[number], arrangement.tree.first[number + 1]):
            own = (where >= arrangement.edges[cell]) & (where < arrangement.edges[cell + 1])
            rows = core_and_halo(candidates, own, arrangement.sizes.with_halo)
            halos.append(np.sort(where[rows[~own[rows]]]))
        offsets = np.cumsum([0, *map(len, halos)])
        blob = np.concatenate([offsets, *halos]).astype(np.int64)
        return Names({number: open_store(self.model.url).put_arrays({"": blob})[""]})


@dataclass(frozen=True)
class LeftOutRows:
    """Task: leave-one-out latent predictions and classes (`HeldOutRows`) at the rows of some cells of a partition."""

    model: Reference
    count: int
    """number of cells, which the errors and the comparison leave out, too"""

    def __call__(self, part, rows) -> HeldOutRows:
        model, arrangement = load_model(self.model), load_arrangement(self.model)
        some = whole_cells(arrangement, part, self.count, np.random.default_rng(seed_of(rows)))
        X, obs = model.scaling.inputs(rows.X[some]), model_observations(model, part, rows.obs, rows.X)[some]
        mean, variance = load_neighbours(self.model).latent_of_fit(part.start + some, X)
        likelihood = model.likelihood
        score, curvature = likelihood.score(obs, mean), likelihood.curvature(obs, mean)
        mean, variance = cavity(mean, variance, score, curvature)
        return HeldOutRows(mean, variance, obs.y, obs.weight)


@dataclass(frozen=True)
class CloseLook:
    """Task: measure the jump at one border of cells, and the loss with half of the query points in two cells.

    The border is that of the first two cells; the loss is taken in the first and the last cell, whose rows are far
    apart. Returns (2, 3): count, sum and sum of squares of the mean squared jumps, in units of the predictive variance,
    and of the losses in nats per row. Numerical failures of the loss give a count of 0: the loss only serves advice and
    must not fail a fit.
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


# Partitions whose rows calibrate probabilities by leave-one-out, those of so many of their cells that there are about
# this number of rows in all; and partitions in which border jumps and losses are measured.
CALIBRATED_PARTITIONS, CALIBRATED_ROWS = 8, 2500
MEASURED_PARTITIONS = 4


def arrange(snapshot: Snapshot, data: Dataset, runtime) -> Snapshot:
    """Copy the rows in cell order and return the snapshot with the copy among its facts, which remain to be committed.

    If the process dies before, the same fit finds the copy.

    Raises
    ------
    DataChanged
        Rows differ from those that were surveyed.
    InvalidData
        Some rows have already been absorbed in storage order, or the model has moved away from the path of its cells.
    DiskFull
        Partial output is removed.
    MemoryLimit
        The local experts would not fit.
    """
    refuse_absorbed_as_stored(snapshot)
    place = f"{cells_directory(snapshot.facts.cells, snapshot.url)}/{CELL_DATA}"
    if snapshot.facts.cells.edges:
        _refuse_moved(snapshot, f"{place}/{snapshot.model.x_name}")
        return snapshot
    refuse_large_prediction(local_memory(snapshot), data, runtime)
    stages = StageTimer()
    job = hashlib.sha256(
        f"{snapshot.facts.job} {snapshot.facts.survey.surveyed} {snapshot.reference.digest}".encode()
    ).hexdigest()
    with stages("cells"):
        parts = partitions(data, snapshot.facts.survey.rows_per_expert)
        router = CellRouter(snapshot.reference)
        copy, edges, read = reorder(
            data,
            router,
            _cells(snapshot),
            place,
            snapshot.store,
            runtime,
            chunk_rows=ROWS_PER_CHUNK,
            parts=parts,
            job=job,
        )
        try:
            chunks = recorded_chunks(snapshot.store, snapshot.facts)
            refuse_changed(read.values(), snapshot.store.get_segment(snapshot.facts.survey.surveyed), chunks)
        except DataChanged:
            shutil.rmtree(place)
            raise
        edges_name = snapshot.store.put_arrays({"": edges})[""]
        cells = snapshot.facts.cells.changed(edges=edges_name, array=f"{copy.url}/{copy.x}")
    return snapshot.changed(stages=stages, cells=cells)


def cell_partitions(snapshot: Snapshot) -> list[Partition]:
    """The partitions of a model whose rows have been arranged."""
    arrangement = arrangement_of(snapshot.model, snapshot.facts.cells, snapshot.url, snapshot.reference.place)
    return arrangement.partitions(2 * snapshot.facts.survey.rows_per_expert)


def surround(snapshot: Snapshot, runtime) -> Snapshot:
    """Compute halos and calibration; return the snapshot that supports local prediction, which remains to be committed.

    If this fails or is interrupted, the halos are committed.
    """
    if snapshot.facts.cells.surrounded:
        return snapshot
    snapshot = with_halos(snapshot, runtime)
    with snapshot.committed_on_error():
        return with_borders(snapshot, runtime)


def with_halos(snapshot: Snapshot, runtime) -> Snapshot:
    """The snapshot with the halos of all cells, unless there are any; they remain to be committed."""
    if snapshot.facts.cells.halos is not None:
        return snapshot
    stages = StageTimer()
    with stages("halos"), snapshot.drafted() as readable:
        found = _halos(readable, runtime)
    if snapshot.model.input_errors is not None:
        del found["centroids"]  # copies of later rows have no errors of inputs: the committee alone uses these rows
    return snapshot.changed(stages=stages, cells=snapshot.facts.cells.changed(**found))


def with_borders(snapshot: Snapshot, runtime) -> Snapshot:
    """The snapshot of a model with halos, with calibration and jumps at borders measured, which remain to be
    committed: it supports local prediction."""
    stages = StageTimer()
    with stages("halos"), snapshot.drafted() as snapshot:
        parts = _some(_whole(snapshot), CALIBRATED_PARTITIONS)
        facts: dict[str, Any] = {}
        if snapshot.model.likelihood.categorical and snapshot.model.input_errors is None:
            count = math.ceil(CALIBRATED_ROWS / len(parts) / (snapshot.facts.cells.core or 1))
            left_out = runtime.sum(LeftOutRows(snapshot.reference, count), parts, label="calibrate")
            facts["local_calibration"] = asdict(fit_calibration(left_out))
        few = _some(parts, MEASURED_PARTITIONS)
        jumps, losses = runtime.sum(CloseLook(snapshot.reference), few, label="borders")
        nats, nats_error = mean_and_error(losses)
        facts["halving_loss"] = {"nats": nats, "error": nats_error or 0.0} if losses[0] else None
        square, square_error = mean_and_error(jumps)
        jump = math.sqrt(square)
        error = square_error / (2.0 * jump) if jump and square_error is not None else None
    cells = snapshot.facts.cells.changed(border_jump=jump, border_jump_error=error)
    return snapshot.changed(stages=stages, cells=cells, method="local", **facts)


def arranged_as(snapshot: Snapshot, other: Reference) -> Snapshot:
    """Commit a model that has absorbed nothing with the cells and halos of another model of the same rows.

    Raises
    ------
    DataChanged
        Rows differ from those that the other model was prepared with.
    """
    if snapshot.facts.cells.edges is not None:
        return snapshot
    arranged = Snapshot.load(other.url, commit=other.number)
    refuse_changed(snapshot.surveyed.values(), list(arranged.surveyed.values()), arranged.chunks)
    cells = arranged.facts.cells.changed(home=os.path.relpath(arranged.url, snapshot.url))
    return replace(snapshot, model=replace(snapshot.model, cells=arranged.model.cells)).changed(cells=cells).committed()


def _refuse_moved(snapshot, array):
    """Raise `InvalidData` if the model has moved: the ledger has the old path, so cells would be absorbed twice."""
    arranged = snapshot.facts.cells.array
    if arranged != array:
        raise InvalidData(
            f"{snapshot.url}: expected the rows in the order of cells at {arranged}, where they were absorbed, got "
            f"{array}; move the model back to its first path, or fit a new --model"
        )


def _halos(snapshot, runtime) -> dict[str, str]:
    """Compute the halos of all cells; return hashes of the blobs that list them, and the centroids, by partition."""
    parts = _whole(snapshot)
    table = runtime.sum(Centroids(snapshot.reference), parts, label="centroids")
    with np.errstate(invalid="ignore"):
        centroids = table[:, :-1] / table[:, -1:] / metric(snapshot.model.shared.kernel, snapshot.model.inputs)
    stored = snapshot.store.put_arrays({"centroids": centroids})
    task = Halo(snapshot.reference, BlobReference(snapshot.url, stored["centroids"]))
    names = runtime.sum(task, parts, label="halos").by_partition
    empty = snapshot.store.put_arrays({"": np.zeros(0, np.int64)})[""]
    hashes = [names.get(number, empty) for number in range(len(table))]
    table = np.array([list(bytes.fromhex(name)) for name in hashes], dtype=np.uint8)
    return stored | snapshot.store.put_arrays({"halos": table})


def _whole(snapshot):
    """The non-empty partitions as the tree cuts them."""
    arrangement = load_arrangement(snapshot.reference)
    return arrangement.partitions(arrangement.data.rows)


def _cells(snapshot):
    """Number of cells of the model."""
    assert snapshot.model.cells is not None, "a model of spatial partitions has cells"
    return snapshot.model.cells.cells


def _some(parts, count):
    """Up to `count` evenly spaced partitions."""
    return [parts[k] for k in np.unique(np.linspace(0, len(parts) - 1, min(count, len(parts))).astype(int))]


@contextlib.contextmanager
def in_cells(snapshot: Snapshot, data: Dataset, runtime) -> Iterator[tuple[list[Partition], str]]:
    """Copy new rows in cell order; yield partitions of the copy and the temporary directory.

    Each partition lies within one partition of the model. The copy has an array `row` with the original row numbers.
    The directory is removed on exit.
    """
    scratch = f"{snapshot.url}/{SCRATCH}/{uuid.uuid4().hex}"
    os.makedirs(scratch)
    parts = aligned_partitions(data, min(data.chunk_rows, LARGEST_OUTPUT_CHUNK))
    try:
        copy, edges, _ = reorder(
            data,
            CellRouter(snapshot.reference),
            _cells(snapshot),
            f"{scratch}/rows.zarr",
            snapshot.store,
            runtime,
            chunk_rows=ROWS_PER_CHUNK,
            parts=parts,
            job=scratch,
        )
        arrangement = replace(load_arrangement(snapshot.reference), data=copy, edges=edges)
        yield arrangement.partitions(LARGEST_OUTPUT_CHUNK), scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with contextlib.suppress(OSError):  # in use by other jobs
            os.rmdir(os.path.dirname(scratch))

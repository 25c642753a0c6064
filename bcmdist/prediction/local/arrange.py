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
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from bcmdist.committee.cells import refuse_absorbed_as_stored
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.surveyed import recorded_chunks, refuse_changed
from bcmdist.data.dataset import Dataset
from bcmdist.data.partition import Partition, aligned_partitions, partitions
from bcmdist.data.predictions import LARGEST_OUTPUT_CHUNK
from bcmdist.data.reorder.reorder import reorder
from bcmdist.data.writing import ROWS_PER_CHUNK
from bcmdist.errors import DataChanged, InvalidData
from bcmdist.model.kernels import metric
from bcmdist.prediction.errors.platt_scaling import fit_calibration
from bcmdist.prediction.limits import local_memory, refuse_large_prediction
from bcmdist.prediction.local.cell_tasks import CellRouter, Centroids, CloseLook, Halo, LeftOutRows, mean_and_error
from bcmdist.prediction.local.halos import load_arrangement
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import CELL_DATA, SCRATCH

# Partitions used to calibrate probabilities by leave-one-out, and to measure border jumps and losses.
CALIBRATED_PARTITIONS = 8
MEASURED_PARTITIONS = 4


def arrange(snapshot: Snapshot, data: Dataset, runtime) -> Snapshot:
    """Copy the rows in cell order and return the snapshot of the commit that records the copy.

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
    place = f"{snapshot.url}/{CELL_DATA}"
    if snapshot.facts.cells.edges:
        _refuse_moved(snapshot, f"{place}/{snapshot.model.x_name}")
        return snapshot
    refuse_large_prediction(local_memory(snapshot), data, runtime)
    stages = StageTimer()
    job = hashlib.sha256(
        f"{snapshot.facts.job} {snapshot.facts.surveyed} {snapshot.reference.digest}".encode()
    ).hexdigest()
    with stages("cells"):
        parts = partitions(data, snapshot.facts.rows_per_expert)
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
            refuse_changed(read.values(), snapshot.store.get_segment(snapshot.facts.surveyed), chunks)
        except DataChanged:
            shutil.rmtree(place)
            raise
        edges_name = snapshot.store.put_arrays({"": edges})[""]
        cells = replace(snapshot.facts.cells, edges=edges_name, array=f"{copy.url}/{copy.x}")
    return snapshot.successor(snapshot.committee, [], stages=stages, cells=cells)


def cell_partitions(snapshot: Snapshot) -> list[Partition]:
    """The partitions of a model whose rows have been arranged."""
    return load_arrangement(snapshot.reference).partitions(2 * snapshot.facts.rows_per_expert)


def surround(snapshot: Snapshot, runtime) -> Snapshot:
    """Compute halos and calibration; return the snapshot of the commit that supports local prediction."""
    if snapshot.facts.cells.surrounded:
        return snapshot
    if snapshot.facts.cells.halos is None:
        stages = StageTimer()
        with stages("halos"):
            snapshot = _with_halos(snapshot, runtime, stages)
    stages = StageTimer()
    with stages("halos"):
        parts = _some(_whole(snapshot), CALIBRATED_PARTITIONS)
        facts: dict[str, Any] = {}
        if snapshot.model.likelihood.categorical:
            left_out = runtime.sum(LeftOutRows(snapshot.reference), parts, label="calibrate")
            facts["local_calibration"] = asdict(fit_calibration(left_out))
        few = _some(parts, MEASURED_PARTITIONS)
        jumps, losses = runtime.sum(CloseLook(snapshot.reference), few, label="borders")
        nats, nats_error = mean_and_error(losses)
        facts["halving_loss"] = {"nats": nats, "error": nats_error or 0.0} if losses[0] else None
        square, square_error = mean_and_error(jumps)
        jump = math.sqrt(square)
        error = square_error / (2.0 * jump) if jump and square_error is not None else None
    return snapshot.successor(
        snapshot.committee,
        [],
        stages=stages,
        cells=replace(snapshot.facts.cells, border_jump=jump, border_jump_error=error),
        method="local",
        **facts,
    )


def _refuse_moved(snapshot, array):
    """Raise `InvalidData` if the model has moved: the ledger has the old path, so cells would be absorbed twice."""
    known = snapshot.facts.cells.array
    if known != array:
        raise InvalidData(
            f"{snapshot.url}: expected the model where its cells were absorbed, as {known}, it is now {array}; go on "
            "under its first path, or fit a new --model"
        )


def _with_halos(snapshot, runtime, stages):
    parts = _whole(snapshot)
    table = runtime.sum(Centroids(snapshot.reference), parts, label="centroids")
    with np.errstate(invalid="ignore"):
        centroids = table[:, :-1] / table[:, -1:] / metric(snapshot.model.shared.kernel, snapshot.model.inputs)
    with snapshot.store.transient({"centroids": centroids}) as references:
        names = runtime.sum(Halo(snapshot.reference, **references), parts, label="halos").by_partition
    empty = snapshot.store.put_arrays({"": np.zeros(0, np.int64)})[""]
    hashes = [names.get(number, empty) for number in range(len(table))]
    table = np.array([list(bytes.fromhex(name)) for name in hashes], dtype=np.uint8)
    cells = replace(snapshot.facts.cells, halos=snapshot.store.put_arrays({"": table})[""])
    return snapshot.successor(snapshot.committee, [], stages=stages, cells=cells)


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

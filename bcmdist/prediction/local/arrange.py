"""Spatial partitions in a fit, and local prediction for a data set.

arrange       rows in the order of the model's cells, beside the model; partitions are cells of these
surround      halos for local prediction, its calibration, and how far neighbouring cells disagree
in_cells      new rows in the order of cells, for as long as they are needed
"""

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from bcmdist.committee.fading import weights
from bcmdist.data.dataset import Data
from bcmdist.data.partition import Partition, aligned_partitions, partitions
from bcmdist.data.reorder.reorder import reorder
from bcmdist.data.writing import LARGEST_OUTPUT_CHUNK, ROWS_PER_CHUNK
from bcmdist.errors import DataChanged, InvalidData
from bcmdist.learning import first_commit
from bcmdist.model.kernels import metric
from bcmdist.model.likelihoods import task_of
from bcmdist.prediction.calibration import fit_calibration
from bcmdist.prediction.limits import refuse_large_local
from bcmdist.prediction.local.halos import heard_pieces
from bcmdist.prediction.local.tasks import CellRouter, Centroids, Halo, Jumps, LeftOutRows
from bcmdist.runtime.timing import Stages
from bcmdist.storage.commits import CELL_DATA, SCRATCH
from bcmdist.storage.loading import load_arrangement

if TYPE_CHECKING:
    from bcmdist.api.gbcm import GBCM

# Partitions whose rows are left out to calibrate probabilities, and at whose borders jumps are measured.
CALIBRATED_PARTITIONS = 8
MEASURED_PARTITIONS = 4


def arrange(gbcm: "GBCM", data: Data, runtime) -> "GBCM":
    """The commit that knows the rows in the order of cells.

    Raises
    ------
    DataChanged
        Rows are not those that were surveyed.
    InvalidData
        Some of them have been heard as they are stored, or the model is under another path than its cells.
    DiskFull
        Nothing of it is left.
    MemoryLimit
        The local experts would not fit.
    """
    _refuse_heard(gbcm)
    place = f"{gbcm.url}/{CELL_DATA}"
    if "edges" in gbcm.facts["cells"]:
        _refuse_moved(gbcm, f"{place}/{gbcm.model.x_name}")
        return gbcm
    refuse_large_local(gbcm, data, runtime)
    stages = Stages()
    job = hashlib.sha256(f"{gbcm.facts['job']} {gbcm.facts['surveyed']} {gbcm.reference.digest}".encode()).hexdigest()
    with stages("cells"):
        parts = partitions(data, gbcm.facts["rows_per_expert"])
        router = CellRouter(gbcm.reference)
        copy, edges, read = reorder(
            data, router, _cells(gbcm), place, gbcm.store, runtime, chunk_rows=ROWS_PER_CHUNK, parts=parts, job=job
        )
        try:
            chunks = first_commit.recorded_chunks(gbcm.store, gbcm.facts)
            first_commit.refuse_changed(read.values(), gbcm.store.get_segment(gbcm.facts["surveyed"]), chunks)
        except DataChanged:
            shutil.rmtree(place)
            raise
        known = {"edges": gbcm.store.put_arrays({"": edges})[""], "array": f"{copy.url}/{copy.x}"}
    return gbcm.successor(gbcm.committee, [], stages=stages, cells=gbcm.facts["cells"] | known)


def cell_partitions(gbcm: "GBCM") -> list[Partition]:
    """The partitions of an arranged model."""
    return load_arrangement(gbcm.reference).partitions(2 * gbcm.facts["rows_per_expert"])


def surround(gbcm: "GBCM", runtime) -> "GBCM":
    """The commit from which local predictions can be made."""
    if surrounded(gbcm.facts):
        return gbcm
    if "halos" not in gbcm.facts["cells"]:
        stages = Stages()
        with stages("halos"):
            gbcm = _with_halos(gbcm, runtime, stages)
    stages = Stages()
    with stages("halos"):
        parts = _some(_whole(gbcm), CALIBRATED_PARTITIONS)
        facts = {}
        if task_of(gbcm.model.likelihood.name) == "classification":
            left_out = runtime.sum(LeftOutRows(gbcm.reference), parts, label="calibrate")
            facts["local_calibration"] = asdict(fit_calibration(left_out))
        squares, points = runtime.sum(Jumps(gbcm.reference), _some(parts, MEASURED_PARTITIONS), label="borders")
        jump = float(np.sqrt(squares / points)) if points else 0.0
    return gbcm.successor(
        gbcm.committee, [], stages=stages, cells=gbcm.facts["cells"] | {"border_jump": jump}, method="local", **facts
    )


def surrounded(facts) -> bool:
    """Whether local predictions can be made: `surround` was there to its end."""
    return "border_jump" in (facts.get("cells") or {})


def heard_in_cells(gbcm: "GBCM") -> set[str]:
    """Keys of the partitions as surveyed whose rows have been heard in the order of cells."""
    array = (gbcm.facts.get("cells") or {}).get("array")
    if array is None or not len(heard_pieces(weights(gbcm.facts, gbcm.ledger), array)):
        return set()
    return {entry.key for entry in gbcm.store.get_segment(gbcm.facts["surveyed"])}


def refuse_heard_in_cells(gbcm: "GBCM", parts):
    """Raise `InvalidData` where cells are to be heard whose rows somebody has ingested as they are stored."""
    if any(part.data.url == f"{gbcm.url}/{CELL_DATA}" for part in parts):
        _refuse_heard(gbcm)


def _refuse_heard(gbcm):
    """Rows that were ingested as they are stored would count twice."""
    surveyed = {entry.key for entry in gbcm.store.get_segment(gbcm.facts["surveyed"])}
    heard = [entry.key for entry in gbcm.ledger if entry.key in surveyed]
    if heard:
        raise InvalidData(
            f"{gbcm.url}: expected rows that were not heard yet, {heard[0]} has been ingested as it is stored (and "
            f"{len(heard) - 1} more); forget these, or fit a new --model"
        )


def _refuse_moved(gbcm, array):
    """Cells are known by the path of the model: under another one they would be heard again."""
    known = gbcm.facts["cells"]["array"]
    if known != array:
        raise InvalidData(
            f"{gbcm.url}: expected the model where its cells were heard, as {known}, it is now {array}; go on "
            "under its first path, or fit a new --model"
        )


def _with_halos(gbcm, runtime, stages):
    parts = _whole(gbcm)
    table = runtime.sum(Centroids(gbcm.reference), parts, label="centroids")
    with np.errstate(invalid="ignore"):
        centroids = table[:, :-1] / table[:, -1:] / metric(gbcm.model.query.kernel, gbcm.model.inputs)
    with gbcm.store.transient({"centroids": centroids}) as references:
        names = runtime.sum(Halo(gbcm.reference, **references), parts, label="halos").by_partition
    empty = gbcm.store.put_arrays({"": np.zeros(0, np.int64)})[""]
    hashes = [names.get(number, empty) for number in range(len(table))]
    table = np.array([list(bytes.fromhex(name)) for name in hashes], dtype=np.uint8)
    known = {"halos": gbcm.store.put_arrays({"": table})[""]}
    return gbcm.successor(gbcm.committee, [], stages=stages, cells=gbcm.facts["cells"] | known)


def _whole(gbcm):
    """Partitions as the tree cuts them, those that hold rows."""
    arrangement = load_arrangement(gbcm.reference)
    return arrangement.partitions(arrangement.data.rows)


def _cells(gbcm):
    """Number of the model's cells."""
    assert gbcm.model.cells is not None, "a model of spatial partitions has cells"
    return gbcm.model.cells.cells


def _some(parts, count):
    """Some partitions, evenly spread."""
    return [parts[k] for k in np.unique(np.linspace(0, len(parts) - 1, min(count, len(parts))).astype(int))]


@contextlib.contextmanager
def in_cells(gbcm: "GBCM", data: Data, runtime) -> Iterator[tuple[list[Partition], str]]:
    """Partitions of a copy of new rows in the order of cells, each within one partition of the model; its directory.

    The copy has an array `row` for where a row stood. The directory is removed in the end.
    """
    scratch = f"{gbcm.url}/{SCRATCH}/{uuid.uuid4().hex}"
    os.makedirs(scratch)
    parts = aligned_partitions(data, min(data.chunk_rows, LARGEST_OUTPUT_CHUNK))
    try:
        copy, edges, _ = reorder(
            data,
            CellRouter(gbcm.reference),
            _cells(gbcm),
            f"{scratch}/rows.zarr",
            gbcm.store,
            runtime,
            chunk_rows=ROWS_PER_CHUNK,
            parts=parts,
            job=scratch,
        )
        arrangement = replace(load_arrangement(gbcm.reference), data=copy, edges=edges)
        yield arrangement.partitions(LARGEST_OUTPUT_CHUNK), scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with contextlib.suppress(OSError):  # others are at work
            os.rmdir(os.path.dirname(scratch))

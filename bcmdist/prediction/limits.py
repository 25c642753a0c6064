"""Memory limits: refuse predictions that would not fit a worker thread, before any work is submitted."""

from dataclasses import dataclass

from bcmdist.experts.limits import _reading_bytes, _rechunk
from bcmdist.experts.residual import kind_of
from bcmdist.model.kernels import kernel_parts
from bcmdist.prediction.latent import BLOCK_ROWS
from bcmdist.runtime import memory

# Of a row that was absorbed after the fit: its copies in memory, and columns other than inputs.
LATE_COPIES, LATE_COLUMNS = 3, 8


@dataclass(frozen=True)
class MemoryNeed:
    """Projected memory that predictions need in a worker thread."""

    bytes: float
    """bytes, without the memory for reading the new rows"""
    what: str
    """what needs the memory, for the error message"""
    remedy: str
    """what to do if it is too much, for the error message"""


def refuse_large_prediction(need: MemoryNeed, data, runtime) -> None:
    """Raise `MemoryLimit` if predicting the rows of a data set would not fit a worker thread."""
    memory.refuse_above(
        need.bytes + _reading_bytes(data),
        runtime.allowed_bytes,
        what=need.what,
        remedy=need.remedy + _rechunk(data),
    )


def committee_memory(shared) -> MemoryNeed:
    """Memory for one block of rows predicted by the committee."""
    return MemoryNeed(
        kind_of(shared).prediction_bytes(BLOCK_ROWS, shared.size, kernels=kernel_parts(shared.kernel)),
        what=f"prediction with {shared.size} shared variables",
        remedy="lower --query when fitting, or give workers more memory",
    )


def local_memory(snapshot) -> MemoryNeed:
    """Memory for the local experts of a partition."""
    shared, with_halo, likelihood = snapshot.model.shared, snapshot.facts.cells.with_halo, snapshot.model.likelihood
    need = kind_of(shared).local_bytes(
        with_halo,
        snapshot.facts.survey.rows_per_expert,
        shared.size,
        kernels=kernel_parts(shared.kernel),
        classes=likelihood.copies,
    )
    late = sum(entry.rows for entry in snapshot.ledger if entry.copy)
    return MemoryNeed(
        need + LATE_COPIES * memory.FLOAT * late * (snapshot.model.inputs + LATE_COLUMNS),
        what=f"local experts of {with_halo} rows and {shared.size} shared variables"
        + f", and {late} rows absorbed after the fit" * bool(late),
        remedy="predict with --method committee, fit with a lower --effort or --partition chunks, or give workers more "
        "memory",
    )

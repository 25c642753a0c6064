"""Limits: refuses, before any work is submitted, what would not fit the memory of a worker thread."""

from bcmdist.experts.limits import _reading_bytes, _rechunk
from bcmdist.model.kernels import kernel_parts
from bcmdist.model.likelihoods import Softmax
from bcmdist.prediction.latent import BLOCK_ROWS
from bcmdist.runtime import memory


def refuse_large_prediction(data, shared, runtime):
    """Raise `MemoryLimit` where predicting a block of rows would not fit a worker thread."""
    memory.refuse_above(
        memory.prediction_bytes(BLOCK_ROWS, shared.size, kernels=kernel_parts(shared.kernel)) + _reading_bytes(data),
        runtime.allowed_bytes,
        what=f"prediction with {shared.size} shared variables",
        remedy="lower --query when fitting, or give workers more memory" + _rechunk(data),
    )


def refuse_large_local(snapshot, data, runtime):
    """Raise `MemoryLimit` where the local experts of a partition would not fit a worker thread."""
    query, around, likelihood = snapshot.model.query, snapshot.facts.cells.around, snapshot.model.likelihood
    need = memory.local_bytes(
        around,
        snapshot.facts.rows_per_expert,
        query.size,
        kernels=kernel_parts(query.kernel),
        classes=likelihood.processes if isinstance(likelihood, Softmax) else 1,
    )
    memory.refuse_above(
        need + _reading_bytes(data),
        runtime.allowed_bytes,
        what=f"local experts of {around} rows and {query.size} shared variables",
        remedy="predict with --method committee, fit with a lower --effort or --partition chunks, or give workers more "
        "memory" + _rechunk(data),
    )

"""Refuse experts that would not fit a worker's memory before any work; the error states both numbers."""

from collections.abc import Callable, Sequence

from bcmdist.data.dataset import Dataset
from bcmdist.data.partition import Partition
from bcmdist.data.rows import RUN_ROWS
from bcmdist.errors import MemoryLimit
from bcmdist.experts.residual import RESIDUALS
from bcmdist.model.kernels import Kernel, kernel_parts
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.interface import Shared
from bcmdist.runtime import memory
from bcmdist.runtime.interface import Runtime

# Chunks of this size or more are mentioned in the error when memory is short.
LARGE_CHUNK_BYTES = 2**26


def expert_fits(
    parts: Sequence[Partition],
    weights: int,
    kernel: Kernel,
    runtime: Runtime,
    likelihood: Likelihood,
    *,
    residual: str = "block",
) -> Callable[[int], bool]:
    """Return a function of a number of query points: whether experts with that many and `weights` mean weights fit."""

    def fits(count: int) -> bool:
        try:
            refuse_expert_of(parts, count + weights, kernel_parts(kernel), runtime, likelihood, residual=residual)
        except MemoryLimit:
            return False
        return True

    return fits


def refuse_large_expert(parts: Sequence[Partition], shared: Shared, runtime: Runtime, likelihood: Likelihood) -> None:
    """Raise `MemoryLimit` where the largest partition's expert would not fit a worker thread."""
    kernels = kernel_parts(shared.kernel)
    refuse_expert_of(parts, shared.size, kernels, runtime, likelihood, residual=shared.residual)


def refuse_expert_of(
    parts: Sequence[Partition],
    shared: int,
    kernels: int,
    runtime: Runtime,
    likelihood: Likelihood,
    *,
    residual: str = "block",
) -> None:
    """As `refuse_large_expert`, before the query set exists.

    Parameters
    ----------
    shared : number of shared variables
    kernels : number of kernels in the sum or product
    """
    rows = max(part.rows for part in parts)
    data = parts[0].data
    classes = likelihood.memory["classes"]
    need = RESIDUALS[residual].expert_bytes(rows, shared, kernels=kernels, **likelihood.memory)
    memory.refuse_above(
        need + _reading_bytes(data),
        runtime.allowed_bytes,
        what=f"expert of {rows} rows about {shared} shared variables" + f" of {classes} classes" * (classes > 1),
        remedy="lower --rows-per-expert or --query, or give workers more memory"
        + "; --likelihood softmax needs less" * likelihood.coupled
        + _rechunk(data),
    )


def _reading_bytes(data: Dataset) -> int:
    """Bytes for reading rows: a chunk is decoded whole even where only a part is needed, plus the rows kept from it."""
    return 2 * max(data.chunk_bytes, memory.FLOAT * data.chunk_rows * data.inputs) + memory.FLOAT * 2 * (
        RUN_ROWS * data.inputs
    )


def _rechunk(data: Dataset) -> str:
    """Advice to rewrite the data in smaller chunks, as text; empty where chunks are small."""
    if data.chunk_bytes < LARGE_CHUNK_BYTES:
        return ""
    return f"; write {data.url} in smaller chunks: one of {data.chunk_bytes / 1e9:.3g} GB is decoded whole"

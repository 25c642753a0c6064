"""Experts that would not fit a worker's memory are refused before any work, with both numbers."""

from collections.abc import Callable

from bcmdist.data.rows import RUN_ROWS
from bcmdist.errors import MemoryLimit
from bcmdist.experts.residual import RESIDUALS
from bcmdist.model.kernels import kernel_parts
from bcmdist.runtime import memory

# Decoded chunks from which on they are worth a word where memory lacks.
LARGE_CHUNK_BYTES = 2**26


def expert_fits(parts, weights, kernel, runtime, likelihood, *, residual="block") -> Callable[[int], bool]:
    """A function that says whether experts about so many query points and these mean weights may run."""

    def fits(count):
        try:
            refuse_expert_of(parts, count + weights, kernel_parts(kernel), runtime, likelihood, residual=residual)
        except MemoryLimit:
            return False
        return True

    return fits


def refuse_large_expert(parts, shared, runtime, likelihood) -> None:
    """Raise `MemoryLimit` where the largest partition's expert would not fit a worker thread."""
    kernels = kernel_parts(shared.kernel)
    refuse_expert_of(parts, shared.size, kernels, runtime, likelihood, residual=shared.residual)


def refuse_expert_of(parts, shared, kernels, runtime, likelihood, *, residual="block") -> None:
    """As `refuse_large_expert`, before there is a query set: about so many `shared` variables and parts of a kernel."""
    rows = max(part.rows for part in parts)
    data = parts[0].data
    coupled, classes = likelihood.coupled, likelihood.each.copies
    need = RESIDUALS[residual].expert_bytes(
        rows, shared, kernels=kernels, laplace=not likelihood.exact, classes=classes, coupled=coupled
    )
    memory.refuse_above(
        need + _reading_bytes(data),
        runtime.allowed_bytes,
        what=f"expert of {rows} rows about {shared} shared variables" + f" of {classes} classes" * (classes > 1),
        remedy="lower --rows-per-expert or --query, or give workers more memory"
        + "; --likelihood softmax needs less" * coupled
        + _rechunk(data),
    )


def _reading_bytes(data):
    """A whole chunk is decoded even where a part of it is wanted; and what is kept of it."""
    return 2 * max(data.chunk_bytes, memory.FLOAT * data.chunk_rows * data.inputs) + memory.FLOAT * 2 * (
        RUN_ROWS * data.inputs
    )


def _rechunk(data):
    """What to do where chunks take much of the memory, as text."""
    if data.chunk_bytes < LARGE_CHUNK_BYTES:
        return ""
    return f"; write {data.url} in smaller chunks: one of {data.chunk_bytes / 1e9:.3g} GB is decoded whole"

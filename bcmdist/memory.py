"""Projected memory of a task, compared with the limit before anything runs.

Counts the matrices that are alive at the same time in float64; small vectors and the interpreter
are covered by `BASE_BYTES`.
"""

from bcmdist.errors import MemoryLimit

FLOAT = 8
BASE_BYTES = 250 * 2**20  # interpreter with numpy, scipy, zarr and dask loaded; measured, rounded up


def expert_bytes(rows, shared, inputs, *, laplace, read_rows=0):
    """Peak bytes of one expert of `rows` rows about `shared` variables, partial sums included.

    K with what its evaluation needs (a Matern kernel: five temporaries) or, later, R and its
    factor (Laplace: K, the prior covariance, B); V and W; the query factor, the message, the
    partial sum and their sum; the rows that are read in one go, raw and as float64.
    """
    square = (7 if laplace else 6) * rows**2
    return FLOAT * (square + 3 * rows * shared + 4 * shared**2 + 2 * max(rows, read_rows) * inputs)


def evidence_bytes(rows, inputs, *, laplace):
    """Peak bytes of the evidence of `rows` rows and its gradient."""
    return FLOAT * ((9 if laplace else 8) * rows**2 + 6 * rows * inputs)


def prediction_bytes(rows, shared, inputs):
    """Peak bytes of predicting a block of `rows` new points: k(X, X^q) with temporaries, V, factors."""
    return FLOAT * (6 * rows * shared + 4 * shared**2 + 3 * rows * inputs)


def refuse_above(projected_bytes, allowed_bytes, *, what, remedy):
    """Raise `MemoryLimit` with both numbers where a task would not fit."""
    need = projected_bytes + BASE_BYTES
    if need > allowed_bytes:
        raise MemoryLimit(
            f"{what}: expected to need at most {allowed_bytes / 1e9:.3g} GB per worker thread, would need "
            f"{need / 1e9:.3g} GB; {remedy}"
        )

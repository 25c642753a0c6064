"""Projected peak memory of a task, compared with the limit before anything runs.

The formulas count the float64 matrices that are alive at the same time; `BASE_BYTES` covers small vectors and the
interpreter.
"""

from bcmdist.errors import MemoryLimit

FLOAT = 8
BASE_BYTES = 250 * 2**20  # interpreter with numpy, scipy, zarr and dask loaded; measured, rounded up


# Columns of k(X, X^q) whose temporaries are alive at the same time.
KERNEL_COLUMNS = 128

# Partial sums alive during an addition, including the old and the new total.
SUMS_ALIVE = 10


def expert_bytes(
    rows: int, shared: int, *, kernels: int, laplace: bool, classes: int = 1, coupled: bool = False
) -> int:
    """Peak bytes of one expert of `rows` rows and `shared` query variables (per class), including partial sums.

    Counted are K with the temporaries of its evaluation (five for a Matern kernel, two more for each further part of a
    sum or product) or, later, R and its factor (Laplace: K, the prior covariance, B); V and W; the query factor and the
    message, or the messages of one step of the summation tree. Softmax experts also keep one factor per class and, if
    `coupled`, the design of all classes. `kernels` is the number of kernel parts.
    """
    square = (8 if laplace else 7) + 2 * kernels + (classes + 2 if classes > 1 else 0)
    design = 3 + (4 * classes if classes > 1 else 0)
    message = (classes * shared) ** 2 if coupled else classes * shared**2
    return FLOAT * (square * rows**2 + design * rows * shared + SUMS_ALIVE * message)


def independent_expert_bytes(
    rows: int, shared: int, *, kernels: int, laplace: bool, classes: int = 1, coupled: bool = False
) -> int:
    """Peak bytes of an expert with conditionally independent rows (no rows x rows matrix), including partial sums.

    Counted are the design with the temporaries of its evaluation, the weighted design, and, for Laplace, the design
    and the matrix of a Newton step (one joint matrix over all classes); the query factor and the message, or the
    messages of one step of the summation tree.
    """
    message = (classes * shared) ** 2 if coupled else classes * shared**2
    own = 1 + 2 * laplace * classes**2
    return FLOAT * ((4 + 2 * kernels + laplace) * rows * shared + SUMS_ALIVE * message + own * shared**2)


def evidence_bytes(rows: int, inputs: int, *, kernels: int, laplace: bool) -> int:
    """Peak bytes of the evidence of `rows` rows and its gradient; each kernel part keeps its own matrices."""
    return FLOAT * (((7 if laplace else 6) + 3 * kernels) * rows**2 + 6 * rows * inputs)


def prediction_bytes(rows: int, shared: int, *, kernels: int) -> int:
    """Peak bytes of predicting a block of `rows` new points: k(X, X^q) in blocks of columns, V, and the factors."""
    columns = min(shared, KERNEL_COLUMNS)
    return FLOAT * (3 * rows * shared + (5 + 2 * kernels) * rows * columns + 2 * shared**2)


# Rows that the local experts of a partition read together, in multiples of the rows of one local expert; and the bytes
# of cached factors.
SHARED_READING = 8
LOCAL_BYTES = 2**28


def local_bytes(neighbours: int, rows: int, shared: int, *, kernels: int, classes: int = 1) -> int:
    """Peak bytes of predicting a partition of `rows` rows with local experts of `neighbours` rows each, with one factor
    per class."""
    square = (6 + 2 * kernels + classes + (2 if classes > 1 else 0)) * neighbours**2
    return FLOAT * (square + (2 * SHARED_READING * neighbours + 3 * rows) * shared + 4 * shared**2) + LOCAL_BYTES


def joint_bytes(rows: int, shared: int, *, kernels: int, samples: int = 0) -> int:
    """Peak bytes of a joint prediction and its samples: k(X, X) with temporaries, V, and the factors.

    A sample needs at most one random number per row.
    """
    square = (5 + 2 * kernels) * rows**2
    return prediction_bytes(rows, shared, kernels=kernels) + FLOAT * (square + 2 * rows * samples)


def reliability_bytes(rows: int, points: int, largest: int, shared: int, *, kernels: int) -> int:
    """Peak bytes of the reliability of a committee of `rows` rows at `points` points; its largest partition has
    `largest` rows. Counted are the designs, unit messages and smoother of all rows, and the covariances of one
    partition."""
    between = max(largest, points) * largest
    return FLOAT * (rows * (2 * shared + points) + 4 * points * shared + 5 * shared**2 + (5 + 2 * kernels) * between)


def refuse_above(projected_bytes: float, allowed_bytes: float, *, what: str, remedy: str) -> None:
    """Raise `MemoryLimit`, stating both numbers, if a task would not fit into `allowed_bytes`."""
    need = projected_bytes + BASE_BYTES
    if need > allowed_bytes:
        raise MemoryLimit(
            f"{what}: expected to need at most {allowed_bytes / 1e9:.3g} GB per worker thread, would need "
            f"{need / 1e9:.3g} GB; {remedy}"
        )

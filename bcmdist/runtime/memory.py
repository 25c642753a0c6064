"""Projected memory of a task, compared with the limit before anything runs.

Counts the matrices that are alive at the same time in float64; small vectors and the interpreter
are covered by `BASE_BYTES`.
"""

from bcmdist.errors import MemoryLimit

FLOAT = 8
BASE_BYTES = 250 * 2**20  # interpreter with numpy, scipy, zarr and dask loaded; measured, rounded up


# Columns of k(X, X^q) whose temporaries are alive at the same time.
KERNEL_COLUMNS = 128

# Partial sums that are added at the same time, with the total and its successor.
SUMS_ALIVE = 10


def expert_bytes(rows, shared, *, kernels, laplace, classes=1, coupled=False) -> int:
    """Peak bytes of one expert of `rows` rows about `shared` variables (of each class), partial sums included.

    K with what its evaluation needs (a Matern kernel: five temporaries; each further part of a sum
    or product: two more) or, later, R and its factor (Laplace: K, the prior covariance, B); V and W;
    the query factor and the message, or the messages of a step of the tree. Softmax experts keep a factor of
    each class and, coupled, the design of all classes.
    """
    square = (8 if laplace else 7) + 2 * kernels + (classes + 2 if classes > 1 else 0)
    design = 3 + (4 * classes if classes > 1 else 0)
    message = (classes * shared) ** 2 if coupled else classes * shared**2
    return FLOAT * (square * rows**2 + design * rows * shared + SUMS_ALIVE * message)


def independent_expert_bytes(rows, shared, *, kernels, laplace, classes=1, coupled=False) -> int:
    """Peak bytes of an expert whose rows have no matrix of their own, partial sums included.

    The columns of the design with what their evaluation needs, weighted ones, and (Laplace) those of a step with its
    matrix, which of several classes is one of all; the query factor and the message, or the messages of a step of the
    tree.
    """
    message = (classes * shared) ** 2 if coupled else classes * shared**2
    own = 1 + 2 * laplace * classes**2
    return FLOAT * ((4 + 2 * kernels + laplace) * rows * shared + SUMS_ALIVE * message + own * shared**2)


def evidence_bytes(rows, inputs, *, kernels, laplace) -> int:
    """Peak bytes of the evidence of `rows` rows and its gradient; each part of a kernel keeps its own."""
    return FLOAT * (((7 if laplace else 6) + 3 * kernels) * rows**2 + 6 * rows * inputs)


def prediction_bytes(rows, shared, *, kernels) -> int:
    """Peak bytes of predicting a block of `rows` new points: k(X, X^q) by blocks of columns, V, factors."""
    columns = min(shared, KERNEL_COLUMNS)
    return FLOAT * (3 * rows * shared + (5 + 2 * kernels) * rows * columns + 2 * shared**2)


# Rows that the local experts of a partition read together, in multiples of what one of them sees; and the factors
# that are kept.
SHARED_READING = 8
LOCAL_BYTES = 2**28


def local_bytes(around, rows, shared, *, kernels, classes=1) -> int:
    """Peak bytes of predicting a partition of `rows` rows with local experts of `around` rows each, which have a
    factor of each class."""
    square = (6 + 2 * kernels + classes + (2 if classes > 1 else 0)) * around**2
    return FLOAT * (square + (2 * SHARED_READING * around + 3 * rows) * shared + 4 * shared**2) + LOCAL_BYTES


def joint_bytes(rows, shared, *, kernels, samples=0) -> int:
    """Peak bytes of a joint prediction: k(X, X) with temporaries, V, factors; and of its samples.

    A sample takes as many random numbers as rows, at most.
    """
    square = (5 + 2 * kernels) * rows**2
    return prediction_bytes(rows, shared, kernels=kernels) + FLOAT * (square + 2 * rows * samples)


def reliability_bytes(rows, points, largest, shared, *, kernels) -> int:
    """Peak bytes of the reliability of a committee of so many rows, the largest partition with `largest`, at so
    many points: designs, unit messages and smoother of all rows, and the covariances of one partition."""
    between = max(largest, points) * largest
    return FLOAT * (rows * (2 * shared + points) + 4 * points * shared + 5 * shared**2 + (5 + 2 * kernels) * between)


def refuse_above(projected_bytes, allowed_bytes, *, what, remedy) -> None:
    """Raise `MemoryLimit` with both numbers where a task would not fit."""
    need = projected_bytes + BASE_BYTES
    if need > allowed_bytes:
        raise MemoryLimit(
            f"{what}: expected to need at most {allowed_bytes / 1e9:.3g} GB per worker thread, would need "
            f"{need / 1e9:.3g} GB; {remedy}"
        )

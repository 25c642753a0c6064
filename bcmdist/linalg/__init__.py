"""Dense linear algebra of the committee: LAPACK calls and the one jitter policy.

Matrices are float32 or float64. If arguments have different dtypes, or any other dtype, the result is float64.
Symmetric matrices are full unless a name ends in `_lower`. Cholesky factors are lower triangular with zeros above the
diagonal. Functions documented as "overwrites" may reuse the memory of an argument (they do if it is Fortran-ordered and
has the dtype of the result): use the return value, and do not use the argument again.

Jitter policy: only the prior covariance of the query points gets jitter, once, when a model is prepared. The amount is
taken from `JITTER_LADDER` times the mean diagonal; it is part of the model and is reported.
"""

import math
from collections.abc import Sequence

import numpy as np

from bcmdist.errors import NotPositiveDefinite
from bcmdist.linalg.routines import Routines, mirror

JITTER_LADDER = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)

# A query point is a duplicate if its prior variance given the other points is below this share of the mean variance. It
# adds no information, and whitening would multiply rounding by 1 / sqrt(share).
DUPLICATE_SHARE = 1e-8
# The share for noise so low that such a point does add information; equal to the first nonzero jitter.
LEAST_DUPLICATE_SHARE = 1e-12

# Share of the largest variance by which rounding may make a pivot of a covariance negative: differences of covariances
# lose digits with the condition number of the query covariance.
SEMIDEFINITE_SHARE = 1e-6

LEAST_SOLVED = 64  # least size of a triangular system solved by recursive halving


SINGLE, DOUBLE = Routines(np.float32), Routines(np.float64)


def _routines(A: np.ndarray, B: np.ndarray | None = None) -> Routines:
    """Routines for one or two arrays: single precision if all arrays are float32."""
    single = A.dtype == SINGLE.dtype and (B is None or B.dtype == SINGLE.dtype)
    return SINGLE if single else DOUBLE


def cholesky(A: np.ndarray, *, name: str) -> np.ndarray:
    """Return the lower Cholesky factor of the symmetric `A`, with zeros above the diagonal; reads the lower triangle
    only.

    Overwrites all of `A` if it is Fortran-ordered and has the dtype of the result: do not use `A` again.

    Raises
    ------
    NotPositiveDefinite
        The message names the matrix (`name`), the failed pivot and a lower bound of the condition number.
    """
    L, info = _routines(A).potrf(A)
    if info == 0:
        return L
    pivot = int(info) - 1
    d = np.diag(L)[:pivot] ** 2 if pivot else np.ones(1)
    raise NotPositiveDefinite(
        f"{name}: expected a positive definite matrix, pivot {pivot} of {len(A)} is not positive "
        f"(condition number of the leading block at least {d.max() / d.min():.0e}); likely causes: "
        "(a) duplicate points, (b) a lengthscale too long for the data, (c) a kernel that is no "
        "covariance, or noise that is zero; drop duplicates, shorten the lengthscale or raise the noise"
    )


def cholesky_with_jitter(
    K: np.ndarray, *, name: str, ladder: Sequence[float] = JITTER_LADDER
) -> tuple[np.ndarray, float]:
    """Factor of `K + jitter I` with the smallest safe jitter of the ladder (shares of the mean diagonal).

    Safe means that the factorisation succeeds and that its smallest squared pivot is above what rounding can produce,
    `n eps max(diag)`.

    Returns
    -------
    L : (Q, Q), jitter : float
        `L L' = K + jitter I`; jitter in the units of `K`.
    """
    diagonal, routines = np.diag(K), _routines(K)
    scale = diagonal.mean()
    floor = len(K) * routines.eps * diagonal.max()
    error: NotPositiveDefinite | None = None
    for step in ladder:
        jitter = step * scale
        try:
            L = cholesky(K + jitter * np.eye(len(K), dtype=routines.dtype), name=name)
        except NotPositiveDefinite as failure:
            error = failure
            continue
        if np.min(np.diag(L)) ** 2 > floor:
            return L, jitter
    raise NotPositiveDefinite(
        f"{name}: no jitter up to {ladder[-1]:g} of the mean diagonal makes it positive "
        f"definite; last attempt: {error or 'pivots at rounding level'}"
    )


def independent_rows(K: np.ndarray, share: float = DUPLICATE_SHARE) -> np.ndarray:
    """Indices, ascending, of the rows of `K` that are not determined by other rows, by pivoted Cholesky.

    A row is determined if its remaining variance is below `share` of the mean variance.
    """
    tolerance = share * np.diag(K).mean()
    _, pivots, rank = _routines(K).pstrf(K, tolerance)
    return np.sort(pivots[:rank] - 1)


def semidefinite_factor(A: np.ndarray, *, name: str) -> np.ndarray:
    """F (n, r) of `pivoted_factor`."""
    return pivoted_factor(A, name=name)[0]


def pivoted_factor(A: np.ndarray, *, name: str) -> tuple[np.ndarray, np.ndarray]:
    """F (n, r) with `F F' = A` for a positive semi-definite `A` of rank r, by pivoted Cholesky; and its pivots (r,).

    The rows of F at the pivots are a lower triangle. Stops when the largest remaining pivot is at rounding level,
    `n eps max(diag)`.

    Raises
    ------
    NotPositiveDefinite
        A remaining pivot is more negative than rounding explains.
    """
    diagonal, routines = np.diag(A), _routines(A)
    rounding = len(A) * routines.eps
    packed, pivots, rank = routines.pstrf(A, rounding * diagonal.max())
    F = np.empty((len(A), rank), dtype=packed.dtype, order="F")
    F[pivots - 1] = np.tril(packed)[:, :rank]
    remaining = diagonal - np.einsum("ij,ij->i", F, F)
    if not remaining.min() >= -max(SEMIDEFINITE_SHARE, rounding) * diagonal.max():  # also catches NaN
        raise NotPositiveDefinite(
            f"{name}: expected a positive semi-definite matrix, got one with a pivot of {remaining.min():.1e} at a "
            f"largest diagonal entry of {diagonal.max():.1e}; the kernel is no covariance"
        )
    return F, pivots[:rank] - 1


def solve_lower(L: np.ndarray, B: np.ndarray) -> np.ndarray:
    """`L^-1 B` for a lower factor; overwrites `B`, which may be a vector. Large results are C-ordered."""
    if B.ndim == 1:
        return _routines(L, B).trsv(L, B, lower=1)
    if B.shape[1] == 1:  # `trsm` takes up to ten times as long for one column
        return solve_lower(L, B[:, 0])[:, None]
    if min(B.shape) < LEAST_SOLVED:
        return _routines(L, B).trsm(L, B)
    return solve_right_transposed(L, B.T).T


def solve_lower_transposed(L: np.ndarray, B: np.ndarray) -> np.ndarray:
    """`L^-T B` for a lower factor; overwrites `B`, which may be a vector. Large results are C-ordered."""
    if B.ndim == 1:
        return _routines(L, B).trsv(L, B, lower=1, trans=1)
    if B.shape[1] == 1:
        return solve_lower_transposed(L, B[:, 0])[:, None]
    routines = _routines(L, B)
    if min(B.shape) < LEAST_SOLVED:
        return routines.trsm(L, B, trans=1)
    X = np.asfortranarray(B.T, dtype=routines.dtype)
    routines.solve_right(L, X)
    return X.T


def solve_right_transposed(L: np.ndarray, B: np.ndarray) -> np.ndarray:
    """`B L^-T` for a lower factor; overwrites `B`."""
    if len(B) == 1:
        return solve_lower(L, B[0])[None]
    routines = _routines(L, B)
    if min(B.shape) < LEAST_SOLVED:
        return routines.trsm(L, B, side=1, trans=1)
    X = np.asfortranarray(B, dtype=routines.dtype)
    routines.solve_right_transposed(L, X)
    return X


def cholesky_solve(L: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`(L L')^-1 b` for a vector or a matrix."""
    return solve_lower_transposed(L, solve_lower(L, np.array(b, order="F")))


def subtract_outer_lower(A: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Lower triangle of `A - V V'`; overwrites the lower triangle of `A`."""
    return _routines(A, V).syrk(-1.0, V, C=A)


def add_outer_lower(A: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Lower triangle of `A + V V'`; overwrites the lower triangle of `A`."""
    return _routines(A, V).syrk(1.0, V, C=A)


def identity_plus_scaled(K: np.ndarray, root: np.ndarray) -> np.ndarray:
    """`I + diag(root) K diag(root)`, a new matrix, for a symmetric K."""
    B: np.ndarray = np.multiply(root[:, None], K if K.flags.f_contiguous else K.T, order="F")  # keeps the memory order
    B *= root
    B[np.diag_indices_from(B)] += 1.0
    return B


def add_outer(A: np.ndarray, scale: float, x: np.ndarray) -> np.ndarray:
    """`A + scale x x'`; overwrites A."""
    return _routines(A, x).ger(scale, x, x, a=A, overwrite_a=1, overwrite_x=0, overwrite_y=0)


def gram(W: np.ndarray) -> np.ndarray:
    """`W' W`, full, for W (n, S) of either order."""
    return mirror(gram_lower(W))


def gram_lower(W: np.ndarray) -> np.ndarray:
    """Lower triangle of `W' W`, with zeros above it, for W (n, S) of either order."""
    by_column = W.flags.f_contiguous
    return _routines(W).syrk(1.0, W if by_column else W.T, trans=int(by_column))


def add_gram_lower(A: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Lower triangle of `A + W' W` for W (n, S); overwrites the lower triangle of `A`."""
    return _routines(A, W).syrk(1.0, W, C=A, trans=1)


def inverse(L: np.ndarray) -> np.ndarray:
    """`(L L')^-1`, full; keeps `L`."""
    routines = _routines(L)
    return mirror(routines.lauum(routines.triangle_inverse(L)))


def log_determinant(L: np.ndarray) -> float:
    """`log |L L'|`, summed over leading axes, in double precision."""
    half: float = np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(dtype=float)
    return 2.0 * half


def packed(A: np.ndarray) -> np.ndarray:
    """Lower triangles, column by column, of symmetric matrices (..., n, n): (..., n (n + 1) / 2)."""
    if A.ndim > 2:
        return np.array([packed(one) for one in A])
    return _routines(A).trttp(A if A.flags.f_contiguous else A.T, uplo="L")[0]


def unpacked(triangles: np.ndarray) -> np.ndarray:
    """Symmetric matrices (..., n, n) from lower triangles as returned by `packed`."""
    if triangles.ndim > 1:
        return np.array([unpacked(one) for one in triangles])
    n = (math.isqrt(8 * len(triangles) + 1) - 1) // 2
    return mirror(_routines(triangles).tpttr(n, triangles, uplo="L")[0])

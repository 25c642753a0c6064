"""Dense linear algebra of the committee: LAPACK calls and the one jitter policy.

Matrices are float32 or float64. If arguments have different dtypes, or any other dtype, the result is float64.
Symmetric matrices are full unless a name ends in `_lower`. Cholesky factors are lower triangular with zeros above the
diagonal. Functions documented as "overwrites" may reuse the memory of an argument (they do if it is Fortran-ordered and
has the dtype of the result): use the return value, and do not use the argument again.

Jitter policy: only the prior covariance of the query points gets jitter, once, when a model is prepared. The amount is
taken from `JITTER_LADDER` times the mean diagonal; it is part of the model and is reported.
"""

import math

import numpy as np

from bcmdist.errors import NotPositiveDefinite
from bcmdist.linalg.routines import Routines

JITTER_LADDER = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)

# A query point is a duplicate if its prior variance given the other points is below this share of the mean variance. It
# adds no information, and whitening would multiply rounding by 1 / sqrt(share).
DUPLICATE_SHARE = 1e-8
# The share for noise so low that such a point does add information; equal to the first nonzero jitter.
LEAST_DUPLICATE_SHARE = 1e-12

# Share of the largest variance by which rounding may make a pivot of a covariance negative: differences of covariances
# lose digits with the condition number of the query covariance.
SEMIDEFINITE_SHARE = 1e-6

MIRROR_BLOCK = 64  # rows per block of `mirror`: a block fits the level-1 cache
ABOVE = np.triu(np.ones((MIRROR_BLOCK, MIRROR_BLOCK), dtype=bool), 1)

LEAST_SOLVED = 64  # least size of a triangular system solved by recursive halving


SINGLE, DOUBLE = Routines(np.float32), Routines(np.float64)


def _routines(A, B=None) -> Routines:
    """Routines for one or two arrays: single precision if all arrays are float32."""
    single = A.dtype == SINGLE.dtype and (B is None or B.dtype == SINGLE.dtype)
    return SINGLE if single else DOUBLE


def cholesky(A, *, name) -> np.ndarray:
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
        return _clear_above(L)
    pivot = int(info) - 1
    d = np.diag(L)[:pivot] ** 2 if pivot else np.ones(1)
    raise NotPositiveDefinite(
        f"{name}: expected a positive definite matrix, pivot {pivot} of {len(A)} is not positive "
        f"(condition number of the leading block at least {d.max() / d.min():.0e}); likely causes: "
        "(a) duplicate points, (b) a lengthscale too long for the data, (c) a kernel that is no "
        "covariance, or noise that is zero; drop duplicates, shorten the lengthscale or raise the noise"
    )


def cholesky_with_jitter(K, *, name, ladder=JITTER_LADDER) -> tuple[np.ndarray, float]:
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


def independent_rows(K, share=DUPLICATE_SHARE) -> np.ndarray:
    """Indices, ascending, of the rows of `K` that are not determined by other rows, by pivoted Cholesky.

    A row is determined if its remaining variance is below `share` of the mean variance.
    """
    tolerance = share * np.diag(K).mean()
    _, pivots, rank = _routines(K).pstrf(K, tolerance)
    return np.sort(pivots[:rank] - 1)


def semidefinite_factor(A, *, name) -> np.ndarray:
    """F (n, r) with `F F' = A` for a positive semi-definite `A` of rank r, by pivoted Cholesky.

    Stops when the largest remaining pivot is at rounding level, `n eps max(diag)`.

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
    return F


def solve_lower(L, B) -> np.ndarray:
    """`L^-1 B` for a lower factor; overwrites `B`, which may be a vector. Large results are C-ordered."""
    if B.ndim == 1:
        return _routines(L, B).trsv(L, B, lower=1)
    if B.shape[1] == 1:  # `trsm` takes up to ten times as long for one column
        return solve_lower(L, B[:, 0])[:, None]
    if min(B.shape) < LEAST_SOLVED:
        return _routines(L, B).trsm(L, B)
    return solve_right_transposed(L, B.T).T


def solve_lower_transposed(L, B) -> np.ndarray:
    """`L^-T B` for a lower factor; overwrites `B`, which may be a vector. Large results are C-ordered."""
    if B.ndim == 1:
        return _routines(L, B).trsv(L, B, lower=1, trans=1)
    if B.shape[1] == 1:
        return solve_lower_transposed(L, B[:, 0])[:, None]
    routines = _routines(L, B)
    if min(B.shape) < LEAST_SOLVED:
        return routines.trsm(L, B, trans=1)
    X = np.asfortranarray(B.T, dtype=routines.dtype)
    _solve_right(routines, L, X)
    return X.T


def solve_right_transposed(L, B) -> np.ndarray:
    """`B L^-T` for a lower factor; overwrites `B`."""
    if len(B) == 1:
        return solve_lower(L, B[0])[None]
    routines = _routines(L, B)
    if min(B.shape) < LEAST_SOLVED:
        return routines.trsm(L, B, side=1, trans=1)
    X = np.asfortranarray(B, dtype=routines.dtype)
    _solve_right_transposed(routines, L, X)
    return X


def _solve_right_transposed(routines, L, X):
    """Overwrite X (m, n), Fortran-ordered, with X L^-T, by recursive halving: X1 L11^-T, then (X2 - X1 L21') L22^-T.

    Nearly all work is matrix products, twice as fast as `trsm` with a few hundred rows. Only small blocks are inverted,
    which are at worst as ill-conditioned as L and mostly far better (Du Croz & Higham 1992, section 4).
    """
    h = _half(len(L), routines.block)
    if h == 0:
        inverse, _ = routines.trtri(L, lower=1)
        routines.trmm(1.0, inverse, X, side=1, trans=1)
        return
    _solve_right_transposed(routines, L[:h, :h], X[:, :h])
    routines.gemm(-1.0, X[:, :h], L[h:, :h], X[:, h:], trans_b=1)
    _solve_right_transposed(routines, L[h:, h:], X[:, h:])


def _solve_right(routines, L, X):
    """Overwrite X (m, n), Fortran-ordered, with X L^-1: X2 L22^-1, then (X1 - X2 L21) L11^-1."""
    h = _half(len(L), routines.block)
    if h == 0:
        inverse, _ = routines.trtri(L, lower=1)
        routines.trmm(1.0, inverse, X, side=1)
        return
    _solve_right(routines, L[h:, h:], X[:, h:])
    routines.gemm(-1.0, X[:, h:], L[h:, :h], X[:, :h])
    _solve_right(routines, L[:h, :h], X[:, :h])


def _half(n, block):
    """Position, in whole blocks, at which a triangle of order n is cut; 0 if it is not cut."""
    return block * (math.ceil(n / block) // 2)


def cholesky_solve(L, b) -> np.ndarray:
    """`(L L')^-1 b` for a vector or a matrix."""
    return solve_lower_transposed(L, solve_lower(L, np.array(b, order="F")))


def subtract_outer_lower(A, V) -> np.ndarray:
    """Lower triangle of `A - V V'`; overwrites the lower triangle of `A`."""
    return _routines(A, V).syrk(-1.0, V, C=A)


def add_outer_lower(A, V) -> np.ndarray:
    """Lower triangle of `A + V V'`; overwrites the lower triangle of `A`."""
    return _routines(A, V).syrk(1.0, V, C=A)


def identity_plus_scaled(K, root) -> np.ndarray:
    """`I + diag(root) K diag(root)`, a new matrix, for a symmetric K."""
    B = np.multiply(root[:, None], K if K.flags.f_contiguous else K.T, order="F")  # keeps the memory order
    B *= root
    B[np.diag_indices_from(B)] += 1.0
    return B


def add_outer(A, scale, x) -> np.ndarray:
    """`A + scale x x'`; overwrites A."""
    return _routines(A, x).ger(scale, x, x, a=A, overwrite_a=1, overwrite_x=0, overwrite_y=0)


def gram(W) -> np.ndarray:
    """`W' W`, full, for W (n, S) of either order."""
    return mirror(gram_lower(W))


def gram_lower(W) -> np.ndarray:
    """Lower triangle of `W' W`, with zeros above it, for W (n, S) of either order."""
    by_column = W.flags.f_contiguous
    return _routines(W).syrk(1.0, W if by_column else W.T, trans=int(by_column))


def add_gram_lower(A, W) -> np.ndarray:
    """Lower triangle of `A + W' W` for W (n, S); overwrites the lower triangle of `A`."""
    return _routines(A, W).syrk(1.0, W, C=A, trans=1)


def inverse(L) -> np.ndarray:
    """`(L L')^-1`, full; keeps `L`."""
    routines = _routines(L)
    return mirror(routines.lauum(_triangle_inverse(routines, L)))


def _triangle_inverse(routines, L):
    """`L^-1` by recursive halving: [A 0; B C]^-1 = [A^-1 0; -C^-1 B A^-1, C^-1]. Takes half the time of `trtri`."""
    h = _half(len(L), routines.block)
    if h == 0:
        return routines.trtri(L, lower=1)[0]
    A, C = _triangle_inverse(routines, L[:h, :h]), _triangle_inverse(routines, L[h:, h:])
    B = routines.trmm(1.0, A, np.array(L[h:, :h], dtype=routines.dtype, order="F"), side=1)
    found = np.zeros(L.shape, dtype=routines.dtype, order="F")
    found[:h, :h], found[h:, h:], found[h:, :h] = A, C, routines.trmm(-1.0, C, B)
    return found


def log_determinant(L) -> float:
    """`log |L L'|`, summed over leading axes, in double precision."""
    return 2.0 * np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(dtype=float)


def mirror(A_lower) -> np.ndarray:
    """Fill the upper triangle from the lower one, in place, block by block; return the full symmetric matrix."""
    for i, j in _blocks(len(A_lower)):
        A_lower[i:j, j:] = A_lower[j:, i:j].T
        block = A_lower[i:j, i:j]
        np.copyto(block, block.T.copy(), where=ABOVE[: j - i, : j - i])
    return A_lower


def _clear_above(L) -> np.ndarray:
    """Zero the upper triangle of L in place."""
    for i, j in _blocks(len(L)):
        L[:i, i:j] = 0.0
        np.copyto(L[i:j, i:j], 0.0, where=ABOVE[: j - i, : j - i])
    return L


def _blocks(n):
    return [(i, min(i + MIRROR_BLOCK, n)) for i in range(0, n, MIRROR_BLOCK)]


def packed(A) -> np.ndarray:
    """Lower triangles, column by column, of symmetric matrices (..., n, n): (..., n (n + 1) / 2)."""
    if A.ndim > 2:
        return np.array([packed(one) for one in A])
    return _routines(A).trttp(A if A.flags.f_contiguous else A.T, uplo="L")[0]


def unpacked(triangles) -> np.ndarray:
    """Symmetric matrices (..., n, n) from lower triangles as returned by `packed`."""
    if triangles.ndim > 1:
        return np.array([unpacked(one) for one in triangles])
    n = (math.isqrt(8 * len(triangles) + 1) - 1) // 2
    return mirror(_routines(triangles).tpttr(n, triangles, uplo="L")[0])

"""BLAS and LAPACK routines by dtype; long calls release the GIL.

scipy's wrappers hold the GIL while they compute, so a service or a cluster worker would not respond while a matrix is
factored. The routines behind these wrappers have addresses (`scipy.linalg.cython_blas`), and ctypes calls them without
the GIL. The library code, and so the results, are the same, but a call takes some microseconds more; short calls
therefore go through scipy.

Triangles are lower. Arguments to overwrite are overwritten in place only if they are Fortran-ordered and have this
dtype: use the return value.
"""

import ctypes
import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import cython_blas, cython_lapack, get_blas_funcs, get_lapack_funcs

SOLVE_BYTES = 256  # per row of an inverted diagonal block; 512 is as fast
LEAST_UNLOCKED = 1e6  # multiplications from which a call releases the GIL: some hundred microseconds
LAPACK, BLAS = ("potrf", "pstrf", "lauum"), ("trsm", "trmm", "gemm", "syrk")  # called without the GIL

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))


MIRROR_BLOCK = 64  # rows per block of `mirror`: a block fits the level-1 cache
ABOVE = np.triu(np.ones((MIRROR_BLOCK, MIRROR_BLOCK), dtype=bool), 1)


class _Unlocked:
    """A routine from a Cython capsule, called without the GIL; the capsule's name is its C signature."""

    def __init__(self, capsule: object) -> None:
        types = _name(capsule)
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (types.count(b",") + 1))(_pointer(capsule, types))
        self.of_c = b" int *" in types
        """whether the routine's integers are C ints"""

    def __call__(self, *arguments: object) -> None:
        """Call with letters (bytes), integers, arrays, and results of `ctypes.byref`."""
        self._call(*map(_address, arguments))


def _address(argument: object) -> object:
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data
    return ctypes.byref(ctypes.c_int(argument)) if isinstance(argument, int) else argument


class Routines:
    """The routines of float32 or of float64."""

    # scipy's wrappers are untyped. LAPACK's return results and a status; BLAS's return an array.
    trttp: Callable[..., tuple[np.ndarray, int]]
    tpttr: Callable[..., tuple[np.ndarray, int]]
    trtri: Callable[..., tuple[np.ndarray, int]]
    trsv: Callable[..., np.ndarray]
    ger: Callable[..., np.ndarray]
    _potrf: Callable[..., tuple[np.ndarray, int]]
    _pstrf: Callable[..., tuple[np.ndarray, np.ndarray, int, int]]
    _lauum: Callable[..., tuple[np.ndarray, int]]
    _trsm: Callable[..., np.ndarray]
    _trmm: Callable[..., np.ndarray]
    _gemm: Callable[..., np.ndarray]
    _syrk: Callable[..., np.ndarray]

    def __init__(self, dtype: type[np.float32] | type[np.float64]) -> None:
        self.dtype = np.dtype(dtype)
        self.block = SOLVE_BYTES // self.dtype.itemsize
        self.eps = float(np.finfo(dtype).eps)
        self.trttp, self.tpttr, self.trtri = get_lapack_funcs(("trttp", "tpttr", "trtri"), dtype=self.dtype)
        self.trsv, self.ger = get_blas_funcs(("trsv", "ger"), dtype=self.dtype)
        self._potrf, self._pstrf, self._lauum = get_lapack_funcs(LAPACK, dtype=self.dtype)
        self._trsm, self._trmm, gemm, self._syrk = get_blas_funcs(BLAS, dtype=self.dtype)
        self._gemm, letter, self._number = gemm, gemm.typecode, np.ctypeslib.as_ctypes_type(dtype)
        capsules = cython_lapack.__pyx_capi__ | cython_blas.__pyx_capi__
        self._unlocked = {name: _Unlocked(capsules[letter + name]) for name in (*LAPACK, *BLAS)}
        # A library with 64-bit integers is called through scipy only.
        self._least = LEAST_UNLOCKED if all(one.of_c for one in self._unlocked.values()) else math.inf

    def potrf(self, A: np.ndarray) -> tuple[np.ndarray, int]:
        """Cholesky factor of A, and the failed pivot (from 1) or 0.

        Overwrites A; entries above the diagonal are zero, or undefined if it failed.
        """
        n = len(A)
        if n**3 < self._least:
            A, failed = self._potrf(A, lower=1, clean=0, overwrite_a=1)
        else:
            A, info = self._writable(A), ctypes.c_int()
            self._unlocked["potrf"](b"L", n, A, n, ctypes.byref(info))
            failed = info.value
        return A if failed else _clear_above(A), failed

    def pstrf(self, A: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray, int]:
        """Pivoted Cholesky factor of A, pivots (from 1) and rank. Entries above the diagonal are undefined."""
        n = len(A)
        if n**3 < self._least:
            return self._pstrf(A, tol=tol, lower=1)[:3]
        A, pivots, rank, info = np.array(A, self.dtype, order="F"), np.empty(n, np.intc), ctypes.c_int(), ctypes.c_int()
        work, ends = np.empty(2 * n, self.dtype), (ctypes.byref(rank), self._scalar(tol))
        self._unlocked["pstrf"](b"L", n, A, n, pivots, *ends, work, ctypes.byref(info))
        return A, pivots, rank.value

    def lauum(self, L: np.ndarray) -> np.ndarray:
        """Lower triangle of `L' L`; overwrites L."""
        n = len(L)
        if n**3 < self._least:
            return self._lauum(L, lower=1, overwrite_c=1)[0]
        L, info = self._writable(L), ctypes.c_int()
        self._unlocked["lauum"](b"L", n, L, n, ctypes.byref(info))
        return L

    def trsm(self, L: np.ndarray, B: np.ndarray, *, side: int = 0, trans: int = 0) -> np.ndarray:
        """`op(L)^-1 B`, or `B op(L)^-1` for side 1; overwrites B."""
        if B.size * len(L) < self._least:
            return self._trsm(1.0, L, B, side=side, lower=1, trans_a=trans, overwrite_b=1)
        return self._triangular("trsm", 1.0, L, B, side, trans)

    def trmm(self, alpha: float, L: np.ndarray, B: np.ndarray, *, side: int = 0, trans: int = 0) -> np.ndarray:
        """`alpha op(L) B`, or `alpha B op(L)` for side 1; overwrites B."""
        if B.size * len(L) < self._least:
            return self._trmm(alpha, L, B, side=side, lower=1, trans_a=trans, overwrite_b=1)
        return self._triangular("trmm", alpha, L, B, side, trans)

    def _triangular(self, name: str, alpha: float, L: np.ndarray, B: np.ndarray, side: int, trans: int) -> np.ndarray:
        B, (L, stride), (m, n) = self._writable(B), self._columns(L), B.shape
        assert L.shape == ((n, n) if side else (m, m)), (L.shape, B.shape)
        letters = (b"LR"[side : side + 1], b"L", b"NT"[trans : trans + 1], b"N")
        self._unlocked[name](*letters, m, n, self._scalar(alpha), L, stride, B, m)
        return B

    def gemm(self, alpha: float, A: np.ndarray, B: np.ndarray, C: np.ndarray, *, trans_b: int = 0) -> np.ndarray:
        """`C + alpha A op(B)`; overwrites C."""
        (m, n), k = C.shape, A.shape[1]
        if m * n * k < self._least:
            return self._gemm(alpha, A, B, beta=1.0, c=C, trans_b=trans_b, overwrite_c=1)
        assert (m, k, n) == (len(A), *(B.shape[::-1] if trans_b else B.shape)), (A.shape, B.shape, C.shape)
        C, (A, stride_a), (B, stride_b) = self._writable(C), self._columns(A), self._columns(B)
        arguments = (self._scalar(alpha), A, stride_a, B, stride_b, self._scalar(1.0), C, m)
        self._unlocked["gemm"](b"N", b"NT"[trans_b : trans_b + 1], m, n, k, *arguments)
        return C

    def syrk(self, alpha: float, A: np.ndarray, *, C: np.ndarray | None = None, trans: int = 0) -> np.ndarray:
        """Lower triangle of `C + alpha A A'`, or of `C + alpha A' A` for trans 1; overwrites C (zeros by default)."""
        n, k = A.shape[::-1] if trans else A.shape
        if A.size == 0:  # BLAS prints an error on standard output
            return np.zeros((n, n), self.dtype, order="F") if C is None else C
        if n * n * k < self._least:
            onto = {} if C is None else {"beta": 1.0, "c": C, "overwrite_c": 1}
            return self._syrk(alpha, A, trans=trans, lower=1, **onto)
        C = np.zeros((n, n), self.dtype, order="F") if C is None else self._writable(C)
        assert C.shape == (n, n), (A.shape, C.shape)
        A, stride = self._columns(A)
        arguments = (self._scalar(alpha), A, stride, self._scalar(1.0), C, n)
        self._unlocked["syrk"](b"L", b"NT"[trans : trans + 1], n, k, *arguments)
        return C

    def solve_right_transposed(self, L: np.ndarray, X: np.ndarray) -> None:
        """Overwrite X (m, n), Fortran-ordered, with X L^-T, by halves: X1 L11^-T, then (X2 - X1 L21') L22^-T.

        Nearly all work is matrix products, twice as fast as `trsm` with a few hundred rows. Only small blocks are
        inverted, which are at worst as ill-conditioned as L and mostly far better (Du Croz & Higham 1992, section 4).
        """
        h = _half(len(L), self.block)
        if h == 0:
            inverse, _ = self.trtri(L, lower=1)
            self.trmm(1.0, inverse, X, side=1, trans=1)
            return
        self.solve_right_transposed(L[:h, :h], X[:, :h])
        self.gemm(-1.0, X[:, :h], L[h:, :h], X[:, h:], trans_b=1)
        self.solve_right_transposed(L[h:, h:], X[:, h:])

    def solve_right(self, L: np.ndarray, X: np.ndarray) -> None:
        """Overwrite X (m, n), Fortran-ordered, with X L^-1: X2 L22^-1, then (X1 - X2 L21) L11^-1."""
        h = _half(len(L), self.block)
        if h == 0:
            inverse, _ = self.trtri(L, lower=1)
            self.trmm(1.0, inverse, X, side=1)
            return
        self.solve_right(L[h:, h:], X[:, h:])
        self.gemm(-1.0, X[:, h:], L[h:, :h], X[:, :h])
        self.solve_right(L[:h, :h], X[:, :h])

    def triangle_inverse(self, L: np.ndarray) -> np.ndarray:
        """`L^-1` by recursive halving: [A 0; B C]^-1 = [A^-1 0; -C^-1 B A^-1, C^-1]. Takes half the time of `trtri`."""
        h = _half(len(L), self.block)
        if h == 0:
            return self.trtri(L, lower=1)[0]
        A, C = self.triangle_inverse(L[:h, :h]), self.triangle_inverse(L[h:, h:])
        B = self.trmm(1.0, A, np.array(L[h:, :h], dtype=self.dtype, order="F"), side=1)
        found = np.zeros(L.shape, dtype=self.dtype, order="F")
        found[:h, :h], found[h:, h:], found[h:, :h] = A, C, self.trmm(-1.0, C, B)
        return found

    def _scalar(self, value: float) -> object:
        return ctypes.byref(self._number(value))

    def _writable(self, A: np.ndarray) -> np.ndarray:
        """A itself if it can be overwritten, else a copy."""
        return np.require(A, self.dtype, ["F", "W"])

    def _columns(self, A: np.ndarray) -> tuple[np.ndarray, int]:
        """A with contiguous columns (a copy if necessary) and its leading dimension."""
        size, rows = self.dtype.itemsize, len(A)
        whole = A.dtype == self.dtype and A.strides[0] == size and A.strides[1] >= rows * size
        if not whole or A.strides[1] % size:
            A = np.asarray(A, self.dtype, order="F")
        return A, max(A.strides[1] // size, rows)


def _half(n: int, block: int) -> int:
    """Position, in whole blocks, at which a triangle of order n is cut; 0 if it is not cut."""
    return block * (math.ceil(n / block) // 2)


def mirror(A_lower: np.ndarray) -> np.ndarray:
    """Fill the upper triangle from the lower one, in place, block by block; return the full symmetric matrix."""
    for i, j in _blocks(len(A_lower)):
        A_lower[i:j, j:] = A_lower[j:, i:j].T
        block = A_lower[i:j, i:j]
        np.copyto(block, block.T.copy(), where=ABOVE[: j - i, : j - i])
    return A_lower


def _clear_above(L: np.ndarray) -> np.ndarray:
    """Zero the upper triangle of L in place."""
    for i, j in _blocks(len(L)):
        L[:i, i:j] = 0.0
        np.copyto(L[i:j, i:j], 0.0, where=ABOVE[: j - i, : j - i])
    return L


def _blocks(n: int) -> list[tuple[int, int]]:
    return [(i, min(i + MIRROR_BLOCK, n)) for i in range(0, n, MIRROR_BLOCK)]

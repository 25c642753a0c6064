"""Routines that are called without the interpreter's lock do as scipy's do, on arrays of any order and stride."""

import sys
import threading
import time

import numpy as np
import pytest

from bcmdist import linalg
from bcmdist.linalg.routines import Routines

TYPES = [np.float32, np.float64]
# Same code, but other blocks of memory: sums are added in another order where a library's kernel minds alignment.
TIMES_EPS = 100


def pair(dtype):
    """Routines of which the first call all by their addresses, the second all of scipy."""
    ours, scipys = Routines(dtype), Routines(dtype)
    ours._least, scipys._least = 0, np.inf
    return ours, scipys


def orders(A):
    """The same matrix in memory by column, by row, and as a part of another one."""
    larger = np.full((len(A) + 3, A.shape[1] + 2), np.nan, dtype=A.dtype, order="F")
    larger[2:-1, 1:-1] = A
    yield from (A.copy(order="F"), A.copy(order="C"), larger[2:-1, 1:-1], A.astype(float))


def check(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    eps = np.finfo(expected.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=TIMES_EPS * eps * np.abs(expected).max())


def triangle(rng, n, dtype):
    return np.asfortranarray(np.tril(rng.standard_normal((n, n))) + n * np.eye(n), dtype=dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 5, 70])
def test_factorisations(rng, dtype, n):
    ours, scipys = pair(dtype)
    W = rng.standard_normal((n, n)).astype(dtype)
    A = (W @ W.T + np.eye(n)).astype(dtype)
    for given in orders(A):
        for one in (ours, scipys):
            L, info = one.potrf(given.copy(order="K"))
            assert info == 0
            check(np.tril(L), np.linalg.cholesky(A))
    (L, pivots, rank), expected = ours.pstrf(A, 1e-3), scipys.pstrf(A, 1e-3)
    check(np.tril(L)[:, :rank], np.tril(expected[0])[:, :rank])
    assert (pivots.tolist(), rank) == (expected[1].tolist(), expected[2])
    L = triangle(rng, n, dtype)
    for given in orders(L):
        check(np.tril(ours.lauum(given.copy(order="K"))), np.tril(L.T @ L))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_pivot_that_fails_is_named(dtype):
    A = np.diag([2.0, 1.0, -1.0, 3.0]).astype(dtype)
    assert [one.potrf(A.copy(order="F"))[1] for one in pair(dtype)] == [3, 3]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("trans", [0, 1])
def test_triangles(rng, dtype, side, trans):
    L, B = triangle(rng, 20, dtype), rng.standard_normal((20, 33)).astype(dtype)
    B = B.T.copy() if side else B
    op = L.T if trans else L
    for one in pair(dtype):
        for given in orders(L):
            check(one.trmm(-0.5, given, B.copy(order="F"), side=side, trans=trans), -0.5 * (B @ op if side else op @ B))
            found = one.trsm(given, B.copy(order="C"), side=side, trans=trans)
            check(found @ op if side else op @ found, B)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("trans", [0, 1])
def test_products(rng, dtype, trans):
    A, B, C = (rng.standard_normal(shape).astype(dtype) for shape in [(20, 7), (7, 12), (20, 12)])
    symmetric = np.tril(A.T @ A if trans else A @ A.T)
    for one in pair(dtype):
        for a in orders(A):
            for b in orders(B.T.copy() if trans else B):
                check(one.gemm(-2.0, a, b, C.copy(order="F"), trans_b=trans), C - 2.0 * A @ B)
            check(one.syrk(1.0, a, trans=trans), symmetric)
            onto = np.asfortranarray(np.eye(len(symmetric), dtype=dtype))
            check(np.tril(one.syrk(0.5, a, C=onto, trans=trans)), np.eye(len(symmetric), dtype=dtype) + 0.5 * symmetric)


@pytest.mark.parametrize("dtype", TYPES)
def test_parts_of_a_matrix_are_overwritten(rng, dtype):
    """As solves by halves need it."""
    for one in pair(dtype):
        X, L = np.asfortranarray(rng.standard_normal((6, 10)), dtype=dtype), triangle(rng, 10, dtype)
        expected = X[:, 4:] - X[:, :4] @ L[4:, :4].T
        one.gemm(-1.0, X[:, :4], L[4:, :4], X[:, 4:], trans_b=1)
        check(X[:, 4:], expected)
        expected = X[:, :4] @ L[:4, :4]
        one.trmm(1.0, L[:4, :4], X[:, :4], side=1)
        check(X[:, :4], expected)


@pytest.fixture
def turns(monkeypatch):
    """How often another thread had the interpreter; this one gives it away only where it waits, or calls without it."""
    had, over, interval = [0], threading.Event(), sys.getswitchinterval()

    def run():
        while not over.is_set():
            had[0] += 1
            time.sleep(0)

    sys.setswitchinterval(100.0)
    thread = threading.Thread(target=run)
    thread.start()
    yield had
    over.set()
    thread.join()
    sys.setswitchinterval(interval)


N = 400  # 20 million multiplications or more: milliseconds
LONG = {
    "potrf": lambda of, A, L, B: of.potrf(A),
    "pstrf": lambda of, A, L, B: of.pstrf(A, 1e-3),
    "lauum": lambda of, A, L, B: of.lauum(L),
    "trsm": lambda of, A, L, B: of.trsm(L, B),
    "trmm": lambda of, A, L, B: of.trmm(1.0, L, B),
    "gemm": lambda of, A, L, B: of.gemm(1.0, A, B, L),
    "syrk": lambda of, A, L, B: of.syrk(1.0, B, C=A),
}


TRIES = 100  # a machine that has other things to do may give the other thread no turn for milliseconds


@pytest.mark.parametrize("name", LONG)
def test_what_takes_long_leaves_the_interpreter_to_others(rng, turns, name):
    for _ in range(TRIES):
        L = triangle(rng, N, float)
        A, B = np.asfortranarray(L @ L.T), np.asfortranarray(rng.standard_normal((N, N)))
        before = turns[0]
        LONG[name](linalg.DOUBLE, A, L, B)
        if turns[0] > before:
            return
    pytest.fail(f"{TRIES} calls of {name} kept the interpreter to themselves")

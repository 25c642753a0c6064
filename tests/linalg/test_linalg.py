import ast
from pathlib import Path

import numpy as np
import pytest

import bcmdist
from bcmdist import linalg
from bcmdist.errors import NotPositiveDefinite


def random_covariance(rng, n):
    A = rng.standard_normal((n, n))
    return np.asfortranarray(A @ A.T + n * np.eye(n))


def test_calls_against_numpy(rng):
    n = 300  # more than two blocks of `mirror`
    A, B, b = random_covariance(rng, n), rng.standard_normal((n, 7)), rng.standard_normal(n)
    L = linalg.cholesky(A.copy(order="F"), name="A")
    np.testing.assert_allclose(L @ L.T, A, rtol=1e-12, atol=1e-10)
    close = {"rtol": 1e-9, "atol": 1e-10}  # condition number of A: about 5
    np.testing.assert_allclose(linalg.cholesky_solve(L, b), np.linalg.solve(A, b), **close)
    np.testing.assert_allclose(linalg.cholesky_solve(L, B), np.linalg.solve(A, B), **close)
    np.testing.assert_allclose(linalg.inverse(L), np.linalg.inv(A), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(linalg.log_determinant(L), np.linalg.slogdet(A)[1], rtol=1e-13)
    np.testing.assert_allclose(linalg.solve_right_transposed(L, B.T.copy(order="F")), np.linalg.solve(L, B).T, **close)
    W = np.asfortranarray(B)
    np.testing.assert_allclose(linalg.gram(W), B.T @ B, **close)
    np.testing.assert_allclose(linalg.mirror(linalg.subtract_outer_lower(A.copy(order="F"), W)), A - B @ B.T, **close)
    np.testing.assert_allclose(linalg.mirror(linalg.add_outer_lower(A.copy(order="F"), W)), A + B @ B.T, **close)
    root = rng.uniform(0, 1, n)
    np.testing.assert_allclose(linalg.identity_plus_scaled(A, root), np.eye(n) + np.diag(root) @ A @ np.diag(root))
    np.testing.assert_allclose(linalg.add_outer(A.copy(order="F"), -2.0, b), A - 2.0 * np.outer(b, b))


def test_cholesky_error_names_matrix_and_pivot():
    with pytest.raises(NotPositiveDefinite, match=r"K of expert: .* pivot 1 of 2 .* drop duplicates"):
        linalg.cholesky(np.asfortranarray([[1.0, 2.0], [2.0, 1.0]]), name="K of expert")


def test_jitter_is_zero_where_it_is_not_needed_and_the_smallest_where_it_is(rng):
    A = random_covariance(rng, 20)
    L, jitter = linalg.cholesky_with_jitter(A, name="A")
    assert jitter == 0.0
    np.testing.assert_allclose(L @ L.T, A, rtol=1e-12)
    v = rng.standard_normal((20, 1))
    L, jitter = linalg.cholesky_with_jitter(v @ v.T, name="rank one")
    scale = np.diag(v @ v.T).mean()
    assert jitter in [step * scale for step in linalg.JITTER_LADDER[1:]]
    np.testing.assert_allclose(L @ L.T, v @ v.T + jitter * np.eye(20), atol=1e-12 * scale * 20)


def test_jitter_does_not_hide_an_indefinite_matrix():
    with pytest.raises(NotPositiveDefinite, match="no jitter up to 1e-06"):
        linalg.cholesky_with_jitter(np.diag([1.0, -1e-3]), name="Kqq")


def test_independent_rows_drops_duplicates(rng):
    x = np.sort(rng.uniform(0, 5, 12))
    x[5] = x[4] + 1e-6
    K = np.exp(-np.abs(x[:, None] - x))
    kept = linalg.independent_rows(K)
    assert len(kept) == 12  # rough kernel: 1e-6 apart still says something
    smooth = np.exp(-0.5 * (x[:, None] - x) ** 2)
    kept = linalg.independent_rows(smooth)
    assert len({4, 5} & set(kept)) <= 1
    _, jitter = linalg.cholesky_with_jitter(smooth[np.ix_(kept, kept)], name="kept")
    assert jitter == 0.0


@pytest.mark.parametrize("rank", [0, 1, 7, 200])
def test_semidefinite_factor_of_any_rank(rng, rank):
    """More rows than LAPACK's block; the trace that is left out is rounding."""
    B = rng.standard_normal((200, rank))
    F = linalg.semidefinite_factor(B @ B.T, name="A")
    assert F.shape == (200, rank)
    np.testing.assert_allclose(F @ F.T, B @ B.T, atol=1e-10)  # 200 eps max diag, twice


@pytest.mark.parametrize("wrong", [-1e-3, np.nan])
def test_semidefinite_factor_refuses_what_is_no_covariance(wrong):
    with pytest.raises(NotPositiveDefinite, match="joint: expected a positive semi-definite matrix, got one with"):
        linalg.semidefinite_factor(np.diag([1.0, 2.0, wrong]), name="joint")


N, COLUMNS = 150, 7  # more than one block of `mirror`

# Name: the function of a covariance A, its factor L, B (N, COLUMNS) and b (N,), and what it is in numpy.
CALLS = {
    "cholesky": (lambda A, L, B, b: linalg.cholesky(A, name="A"), lambda A, B, b: np.linalg.cholesky(A)),
    "solve_lower": (lambda A, L, B, b: linalg.solve_lower(L, B), lambda A, B, b: _solve(A, B)),
    "solve_lower of a vector": (lambda A, L, B, b: linalg.solve_lower(L, b), lambda A, B, b: _solve(A, b)),
    "solve_lower_transposed": (
        lambda A, L, B, b: linalg.solve_lower_transposed(L, B),
        lambda A, B, b: np.linalg.solve(np.linalg.cholesky(A).T, B),
    ),
    "solve_right_transposed": (
        lambda A, L, B, b: linalg.solve_right_transposed(L, B.T),
        lambda A, B, b: _solve(A, B).T,
    ),
    "cholesky_solve": (lambda A, L, B, b: linalg.cholesky_solve(L, B), lambda A, B, b: np.linalg.solve(A, B)),
    "subtract_outer_lower": (
        lambda A, L, B, b: linalg.mirror(linalg.subtract_outer_lower(A, B)),
        lambda A, B, b: A - B @ B.T,
    ),
    "add_outer_lower": (lambda A, L, B, b: linalg.mirror(linalg.add_outer_lower(A, B)), lambda A, B, b: A + B @ B.T),
    "identity_plus_scaled": (
        lambda A, L, B, b: linalg.identity_plus_scaled(A, b),
        lambda A, B, b: np.eye(N) + np.outer(b, b) * A,
    ),
    "add_outer": (lambda A, L, B, b: linalg.add_outer(A, 0.5, b), lambda A, B, b: A + 0.5 * np.outer(b, b)),
    "gram": (lambda A, L, B, b: linalg.gram(B), lambda A, B, b: B.T @ B),
    "inverse": (lambda A, L, B, b: linalg.inverse(L), lambda A, B, b: np.linalg.inv(A)),
    "mirror": (lambda A, L, B, b: linalg.mirror(np.tril(A)), lambda A, B, b: A),
    "semidefinite_factor": (lambda A, L, B, b: _square(linalg.semidefinite_factor(A, name="A")), lambda A, B, b: A),
}
# The numbers of A and its factor, those of B and b, and those of results of both.
DTYPES = [(np.float64, np.float64, np.float64), (np.float32, np.float32, np.float32), (np.float32, np.float64, float)]


def _solve(A, B):
    return np.linalg.solve(np.linalg.cholesky(A), B)


def _square(F):
    return F @ F.T


@pytest.mark.parametrize("dtypes", DTYPES, ids=["double", "single", "mixed"])
@pytest.mark.parametrize("order", ["F", "C"])
def test_what_is_returned_is_right_for_any_numbers_and_order(rng, order, dtypes):
    first, second, result = dtypes
    B, b = rng.standard_normal((N, COLUMNS)).astype(second), rng.standard_normal(N).astype(second)
    A = (random_covariance(rng, N) / N).astype(first)
    L = np.array(np.linalg.cholesky(A.astype(float)), dtype=first, order=order)
    # Condition number of A: about 5. Mixed numbers: the factor has been rounded to single precision.
    tolerance = 1e-11 if dtypes == DTYPES[0] else 2e-4
    for name, (call, expected) in CALLS.items():
        truth = expected(*(part.astype(float) for part in (A, B, b)))
        found = call(np.array(A, order=order), L, np.array(B, order=order), b)
        only_first = name in ("cholesky", "inverse", "mirror", "semidefinite_factor")
        wanted = first if only_first else second if name == "gram" else result
        assert found.dtype == wanted, name
        close = {"rtol": tolerance, "atol": tolerance * np.abs(truth).max()}
        np.testing.assert_allclose(found, truth, **close, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["F", "C"])
def test_jitter_and_independent_rows_of_any_numbers_and_order(rng, dtype, order):
    A = np.array(random_covariance(rng, 20), dtype=dtype, order=order)
    L, jitter = linalg.cholesky_with_jitter(A, name="A")
    assert (L.dtype, jitter) == (dtype, 0.0)
    np.testing.assert_allclose(L @ L.T, A, rtol=1e-4, atol=1e-4)
    assert linalg.log_determinant(L).dtype == float
    np.testing.assert_allclose(linalg.log_determinant(L), np.linalg.slogdet(A.astype(float))[1], rtol=1e-6)
    np.testing.assert_array_equal(linalg.independent_rows(A), np.arange(20))


def test_integers_are_taken_as_double_precision():
    np.testing.assert_allclose(linalg.cholesky(np.array([[4, 2], [2, 2]]), name="A"), [[2.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(linalg.solve_lower(np.array([[2, 0], [1, 1]]), np.array([[2], [3]])), [[1.0], [2.0]])


def test_a_matrix_of_single_precision_is_judged_by_its_own_rounding(rng):
    """Its pivots at the level of rounding are no positive ones, and what rounding left is no negative variance."""
    v = rng.standard_normal((40, 3)).astype(np.float32)
    with pytest.raises(NotPositiveDefinite, match="no jitter up to 1e-06"):
        linalg.cholesky_with_jitter(v @ v.T, name="rank three")
    F = linalg.semidefinite_factor(v @ v.T, name="rank three")
    np.testing.assert_allclose(F @ F.T, v @ v.T, atol=1e-4)


@pytest.mark.slow
def test_nobody_leaves_what_a_routine_returns():
    """A routine works in place for some numbers and orders only."""
    left = []
    for path in Path(bcmdist.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                called = ast.unparse(node.value.func)
                if called.startswith("linalg.") or called.endswith(".residual_lower"):
                    left.append(f"{path.name}:{node.lineno} {called}")
    assert left == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (130, 130), (3, 4, 4), (2, 1, 5, 5)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_symmetric_matrices_are_their_lower_triangles(rng, shape, order, dtype):
    A = rng.standard_normal(shape)
    A = np.array(A + np.swapaxes(A, -1, -2), dtype, order=order)
    n, triangles = shape[-1], linalg.packed(A)
    assert triangles.shape == (*shape[:-2], n * (n + 1) // 2)
    again = linalg.unpacked(triangles)
    assert again.dtype == dtype
    np.testing.assert_array_equal(again, A)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [64, 65, 97, 200, 333])
def test_triangular_systems_of_many_columns(rng, n, order, dtype):
    """Sizes about those of blocks, and arrays in either order: halves are solved in place, or it would show."""
    L = linalg.cholesky(random_covariance(rng, n).astype(dtype, order="F"), name="A")
    B = rng.standard_normal((n, 80)).astype(dtype, order=order)
    tolerance = {"rtol": 0.0, "atol": n * np.finfo(dtype).eps}
    upper = np.full_like(L, np.nan)  # which nobody may read
    L[np.triu_indices(n, 1)] = upper[np.triu_indices(n, 1)]
    exact = np.tril(L).astype(float)
    for found, wanted in [
        (linalg.solve_lower(L, B.copy(order=order)), np.linalg.solve(exact, B)),
        (linalg.solve_lower_transposed(L, B.copy(order=order)), np.linalg.solve(exact.T, B)),
        (linalg.solve_right_transposed(L, B.T.copy(order=order)), np.linalg.solve(exact, B).T),
        (linalg.inverse(L), np.linalg.inv(exact @ exact.T)),
    ]:
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, **tolerance)


def test_triangular_systems_overwrite_what_they_are_given(rng):
    L = linalg.cholesky(random_covariance(rng, 100), name="A")
    B = np.asfortranarray(rng.standard_normal((70, 100)))
    assert linalg.solve_right_transposed(L, B) is B
    C = np.asfortranarray(rng.standard_normal((70, 100))).T  # as rows
    assert np.shares_memory(linalg.solve_lower(L, C), C)


def test_solutions_of_ill_conditioned_systems_are_as_good_as_lapacks(rng):
    """Only small blocks are inverted: condition number of L above 1e5, and yet residuals at rounding."""
    x = rng.uniform(0, 1, (300, 2))
    K = np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(axis=-1) / 0.2**2)
    L, _ = linalg.cholesky_with_jitter(K, name="K")
    assert np.linalg.cond(L) > 1e5
    new = rng.uniform(0, 1, (200, 2))
    B = np.asfortranarray(np.exp(-0.5 * ((new[:, None] - x) ** 2).sum(axis=-1) / 0.2**2))
    V = linalg.solve_right_transposed(L, B.copy(order="F"))
    np.testing.assert_allclose(V @ L.T, B, atol=1e-13)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", [float, np.float32])
def test_triangular_systems_of_one_column_are_those_of_many(rng, order, dtype):
    """Which another routine solves; to rounding, of a well-conditioned factor."""
    L = np.asfortranarray(np.tril(rng.standard_normal((40, 40))) + 10.0 * np.eye(40)).astype(dtype, order="F")
    B = rng.standard_normal((40, 7)).astype(dtype, order=order)
    for solve in (linalg.solve_lower, linalg.solve_lower_transposed):
        found = solve(L, B[:, :1].copy(order=order))
        assert (found.shape, found.dtype) == ((40, 1), dtype)
        np.testing.assert_allclose(found, solve(L, B.copy(order=order))[:, :1], rtol=0.0, atol=40 * np.finfo(dtype).eps)
    found = linalg.solve_right_transposed(L, B.T[:1].copy(order=order))
    assert (found.shape, found.dtype) == ((1, 40), dtype)
    many = linalg.solve_right_transposed(L, B.T.copy(order=order))
    np.testing.assert_allclose(found, many[:1], rtol=0.0, atol=40 * np.finfo(dtype).eps)


@pytest.mark.parametrize("shape", [(5, 0), (0, 5), (0, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_sums_of_nothing_are_zero_and_quiet(shape, order, capfd):
    """Rows that shared variables leave nothing of have a factor without columns."""
    W = np.empty(shape, order=order)
    np.testing.assert_array_equal(linalg.gram(W), np.zeros((shape[1], shape[1])))
    A = np.asfortranarray(np.eye(shape[0]))
    np.testing.assert_array_equal(linalg.subtract_outer_lower(A, np.asfortranarray(W)), np.eye(shape[0]))
    assert capfd.readouterr() == ("", "")

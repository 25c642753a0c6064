import numpy as np
import pytest

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

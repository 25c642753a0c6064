import numpy as np
import pytest

from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.kernels import Constant, parse_kernel
from bcmdist.mean import Mean
from bcmdist.query import prepare, select_points
from problems import make_kernel


@pytest.mark.parametrize("method", ["kmeans", "random"])
def test_points_are_spread_distinct_and_repeatable(rng, method):
    sample = rng.standard_normal((500, 2))
    kernel = make_kernel("matern32")
    points = select_points(sample, 40, kernel=kernel, method=method, seed=3)
    assert points.shape == (40, 2)
    np.testing.assert_array_equal(points, select_points(sample, 40, kernel=kernel, method=method, seed=3))
    assert len(np.unique(points, axis=0)) == 40


def test_points_follow_the_lengthscales(rng):
    """Inputs with a long lengthscale do not matter, so centres do not spread along them."""
    sample = rng.standard_normal((2000, 2))
    kernel = parse_kernel("se", inputs=2)
    kernel = kernel.with_parameters({"variance": np.ones(1), "lengthscale": np.array([0.3, 30.0])})
    spread = select_points(sample, 20, kernel=kernel).std(axis=0)
    assert spread[0] > 5 * spread[1]


def test_duplicates_are_dropped_and_jitter_stays_zero(rng):
    sample = rng.standard_normal((30, 2))
    near = sample + 1e-9 * rng.standard_normal((30, 2))
    points = select_points(np.vstack([sample, near, sample]), 100, kernel=make_kernel("se"))
    assert len(points) == 30
    assert prepare(points, kernel=make_kernel("se"), mean=Mean("zero")).jitter == 0.0


def test_given_duplicates_get_the_same_value():
    """Where the caller insists on duplicate query points, jitter makes them harmless."""
    points = np.array([[0.0], [0.0], [1.0]])
    query = prepare(points, kernel=make_kernel("se", inputs=1), mean=Mean("zero"))
    assert 0 < query.jitter <= 1e-6 * 1.3
    V = query.whiten(points)
    np.testing.assert_allclose(V[0], V[1])


def test_whitened_design_and_residual_are_the_prior_covariance(rng):
    X = rng.standard_normal((7, 2))
    for mean in ("zero", "constant", "linear"):
        query = prepare(rng.standard_normal((5, 2)), kernel=make_kernel("matern52"), mean=Mean(mean))
        V, K = query.whiten(X), query.kernel.cross(X, X)
        H = query.mean.design(X)
        residual = query.residual_lower(V, K.copy(order="F"))
        total = V @ V.T + np.tril(residual) + np.tril(residual, -1).T
        np.testing.assert_allclose(total, K + H @ H.T, atol=1e-12)
        np.testing.assert_allclose(query.residual_variance(V, X), np.diag(residual), atol=1e-12)
        assert V.shape == (7, query.shared)


def test_a_kernel_that_is_no_covariance_is_refused():
    class Broken(Constant):
        def cross(self, X, Z):
            K = super().cross(X, Z)
            K[np.diag_indices(min(K.shape))] = 0.999  # smallest eigenvalue -0.001
            return K

    with pytest.raises(NotPositiveDefinite, match=r"query covariance k\(X\^q, X\^q\): no jitter up to 1e-06"):
        prepare(np.zeros((5, 1)), kernel=Broken(np.ones(1)), mean=Mean("zero"))


def test_names_are_checked(rng):
    with pytest.raises(InvalidOption, match="query method: expected one of kmeans, random, got 'grid'"):
        select_points(rng.standard_normal((5, 1)), 2, kernel=make_kernel("se", inputs=1), method="grid")
    with pytest.raises(InvalidOption, match="mean: expected one of zero, constant, linear, got 'quadratic'"):
        Mean("quadratic")

import numpy as np
import pytest

from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.model.kernels import Constant
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from problems import make_kernel


def test_given_duplicates_get_the_same_value():
    """Where the caller insists on duplicate query points, jitter makes them harmless."""
    points = np.array([[0.0], [0.0], [1.0]])
    query = prepare(points, kernel=make_kernel("se", inputs=1), mean=Mean("zero"))
    assert 0 < query.jitter <= 1e-6 * 1.3
    V = query.design(points)
    np.testing.assert_allclose(V[0], V[1])


def test_whitened_design_and_residual_are_the_prior_covariance(rng):
    X = rng.standard_normal((7, 2))
    for mean in ("zero", "constant", "linear"):
        query = prepare(rng.standard_normal((5, 2)), kernel=make_kernel("matern52"), mean=Mean(mean))
        V, K = query.design(X), query.kernel.cross(X, X)
        H = query.mean.design(X)
        residual = query.residual_lower(V, K.copy(order="F"))
        total = V @ V.T + np.tril(residual) + np.tril(residual, -1).T
        np.testing.assert_allclose(total, K + H @ H.T, atol=1e-12)
        np.testing.assert_allclose(query.residual_variance(V, X), np.diag(residual), atol=1e-12)
        assert V.shape == (7, query.size)


@pytest.mark.parametrize("stored", [{"dtype": np.float32}, {"order": "C"}], ids=["single", "rows"])
def test_a_design_is_whitened_however_the_kernel_stores_covariances(rng, stored):
    """A solver works in place for Fortran-ordered double precision only."""

    class Stored(Constant):
        def cross(self, X, Z):
            return np.array(se.cross(X, Z), **stored)

    se, points, X = make_kernel("matern32"), rng.standard_normal((5, 2)), rng.standard_normal((7, 2))
    query = prepare(points, kernel=Stored(np.ones(1)), mean=Mean("constant"))
    expected = prepare(points, kernel=se, mean=Mean("constant")).design(X)
    np.testing.assert_allclose(query.design(X), expected, rtol=1e-4, atol=1e-5)


def test_a_kernel_that_is_no_covariance_is_refused():
    class Broken(Constant):
        def cross(self, X, Z):
            K = super().cross(X, Z)
            K[np.diag_indices(min(K.shape))] = 0.999  # smallest eigenvalue -0.001
            return K

    with pytest.raises(NotPositiveDefinite, match=r"query covariance k\(X\^q, X\^q\): no jitter up to 1e-06"):
        prepare(np.zeros((5, 1)), kernel=Broken(np.ones(1)), mean=Mean("zero"))


def test_names_are_checked():
    with pytest.raises(InvalidOption, match="mean: expected one of zero, constant, linear, got 'quadratic'"):
        Mean("quadratic")

"""Rows around new points with waves: what waves leave is a covariance, and local experts of it are exact where they
can be."""

import numpy as np
import pytest
from fourier_problems import make_fourier
from numpy.linalg import eigvalsh, inv, solve

from bcmdist.data.observations import Observations
from bcmdist.methods.fourier.belief import PROBES, iterative_belief
from bcmdist.methods.fourier.messages import expert_message
from bcmdist.methods.fourier.predictions import FourierAtRows
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.shared.belief import Factored, factored
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.local.committee_at_rows import Designed, committee_at_rows
from bcmdist.prediction.local.expert import local_expert, predict_local
from problems import make_kernel, regression_problem

pytest.importorskip("finufft", reason="expert fourier: pip install 'bcmdist[fourier]'")

NOISE = Gaussian(np.array([0.05]))
EPSILON = np.finfo(float).eps
TOLERANCES = pytest.mark.parametrize("tolerance", [0.9, 0.1, 0.01])


def periodic(shared, X, Z):
    """The kernel with all that comes round, by the sum over nine periods each way."""
    numbers = np.arange(-9, 10)
    grid = np.stack(np.meshgrid(*[numbers] * shared.inputs, indexing="ij"), -1).reshape(-1, shared.inputs)
    return sum(shared.kernel.cross(X, Z + one / shared.step) for one in grid)


@pytest.fixture
def rows(rng):
    """X (60, 2) in a box of half widths 2 and 1, observations that count more than once, and new points (11, 2)."""
    p = regression_problem(rng)
    X, Xs = 2.0 * p.X / [2, 4], 2.0 * p.Xs / [2.5, 5]
    return X, Observations(p.obs.y, rng.uniform(0.5, 3.0, 60)), Xs


def block_belief(shared, X, obs):
    """Of all rows as one block: the committee of PITC, dense."""
    V = shared.design(X)
    Lam = periodic(shared, X, X) - V[:, : shared.functions] @ V[:, : shared.functions].T
    T = inv(Lam + np.diag(NOISE.noise(obs)))
    return factored(V.T @ T @ obs.y, V.T @ T @ V)


def local(seen, X, obs, Xs):
    expert = local_expert(seen, NOISE, X, seen.columns(X), obs)
    return predict_local(seen, expert, Xs, seen.columns(Xs))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "inputs"), [("se", 1), ("matern12", 2), ("matern32", 2), ("matern52", 3)])
@pytest.mark.parametrize("tolerance", [0.7, 0.1])
def test_what_waves_leave_is_a_covariance(name, inputs, tolerance, rng):
    """It is what higher frequencies of the periodic kernel say: of no negative eigenvalue, to what is not felt."""
    shared = make_fourier(make_kernel(name, inputs=inputs, lengthscale=0.8), inputs, tolerance=tolerance)
    X = rng.uniform(shared.low, shared.high, (50, inputs))
    V = shared.design(X)[:, : shared.functions]
    seen = FourierAtRows(shared, factored(np.zeros(shared.size), np.zeros((shared.size, shared.size))))
    left = np.tril(seen.left_lower(None, X))
    left += np.tril(left, -1).T
    np.testing.assert_allclose(left, periodic(shared, X, X) - V @ V.T, atol=2e-8)  # of the images that are not felt
    assert eigvalsh(left).min() >= -1e-8
    np.testing.assert_allclose(seen.left_cross(None, X, None, X[:7]), left[:, :7], atol=1e-10)
    np.testing.assert_allclose(seen.left_variance(None, X), np.diag(left), atol=1e-10)


@pytest.mark.slow
@TOLERANCES
@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_all_rows_around_are_the_exact_gaussian_process(rows, tolerance, mean):
    """However few waves there are: of the periodic kernel, given the belief of these rows as one block."""
    X, obs, Xs = rows
    shared = make_fourier(make_kernel("matern32", lengthscale=0.6), 2, tolerance=tolerance, mean=mean, extent=2.2)
    found = local(committee_at_rows(shared, block_belief(shared, X, obs)), X, obs, Xs)
    H, Hs = shared.mean.design(X), shared.mean.design(Xs)
    K, Ks = periodic(shared, X, X) + H @ H.T + np.diag(NOISE.noise(obs)), periodic(shared, Xs, X) + Hs @ H.T
    prior = np.diag(periodic(shared, Xs, Xs)) + (Hs**2).sum(axis=1)
    np.testing.assert_allclose(found[0], Ks @ solve(K, obs.y), atol=1e-7)  # images that are not felt, over the noise
    np.testing.assert_allclose(found[1], prior - np.einsum("ij,ji->i", Ks, solve(K, Ks.T)), atol=1e-7)


def test_where_waves_leave_nothing_rows_around_add_nothing(rows):
    X, obs, Xs = rows
    shared = make_fourier(make_kernel("se", lengthscale=0.9), 2, tolerance=1e-8, mean="constant", extent=2.2)
    message = expert_message(shared, NOISE, X, obs)
    belief = shared.belief(message.eta, message.precision)
    found, committee = (
        local(committee_at_rows(shared, belief), X[:20], obs[:20], Xs),
        predict_latent(shared, belief, Xs),
    )
    np.testing.assert_allclose(found, committee, atol=1e-6)  # of the tolerance, over the noise


def test_few_waves_are_seen_as_by_their_design(rows):
    """Given the same covariance of the rest, local experts by means and roots are those of the whitened design."""
    X, obs, _ = rows
    shared = make_fourier(make_kernel("se", lengthscale=0.7), 2, tolerance=1e-2, extent=2.2)
    y = np.column_stack([obs.y, obs.y**2])
    belief = shared.belief(*shared.message_sums(X, 20.0 * obs.weight, 20.0 * (obs.weight * y.T).T))
    assert belief.mean.shape == (2, shared.size)
    waved, designed = committee_at_rows(shared, belief), Designed(shared, belief)
    A, B = waved.columns(X), designed.columns(X)
    np.testing.assert_allclose(waved.mean(A), designed.mean(B), atol=1e-10)
    np.testing.assert_allclose(waved.belief_variance(A.copy(), 0), designed.belief_variance(B.copy("F"), 0), atol=1e-10)
    W = y.T  # sums of rows are seen as sums of their columns
    np.testing.assert_allclose(waved.belief_variance(W @ A, 0), designed.belief_variance(W @ B, 0), rtol=1e-9)


def test_many_waves_are_seen_through_probes(rows):
    X, obs, Xs = rows
    shared = make_fourier(make_kernel("matern32", lengthscale=0.6), 2, tolerance=0.1, extent=2.2)
    message = expert_message(shared, NOISE, X, obs)
    exact = shared.belief(message.eta, message.precision)
    assert isinstance(exact, Factored)
    probes = iterative_belief(message.eta, shared.operator(message.precision))
    (mean, variance), (m, v) = (local(committee_at_rows(shared, one), X[:30], obs[:30], Xs) for one in (exact, probes))
    deviation = np.sqrt(predict_latent(shared, exact, Xs)[1]).max()
    assert np.all(np.abs(m - mean) <= 2.0 * probes.residual * deviation + 2e4 * EPSILON)  # precisions are up to 2e4
    assert np.abs(v / variance - 1.0).max() <= 4.0 * np.sqrt(2.0 / PROBES)

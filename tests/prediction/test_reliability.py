"""Errors of a committee as they are, against dense matrices written as plainly as the formula, and against draws."""

import numpy as np
import pytest
from scipy.stats import norm

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations
from bcmdist.experts.expert import expert_message, gaussian_message
from bcmdist.experts.message import Message
from bcmdist.experts.residual import Block
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.diagnosis.diagnosis import PartitionRows, Reliability, reliability, smoother
from bcmdist.prediction.latent import predict_latent
from oracles import full_gp, pitc_covariance
from problems import make_committee, make_kernel, regression_problem, split

NOISE = Gaussian(0.05)
BLOCKS = split(60, [20, 45])
means = pytest.mark.parametrize("mean", ["zero", "constant", "linear"])


def heard_blocks(p, blocks, weights=None):
    weights = weights or [1.0] * len(blocks)
    return [PartitionRows(p.X[b], p.obs[b], w) for b, w in zip(blocks, weights, strict=True)]


def dense_error(K, Ks, Kss, noise, A):
    """Diagonal of K** - A Ky* - K*y A' + A (Kyy + Psi) A'."""
    return np.diag(Kss - A @ Ks - Ks.T @ A.T + A @ (K + np.diag(noise)) @ A.T)


def dense_prior(kernel, mean, X, Xs):
    """Blocks yy, y* and ** of the full prior, with mean weights N(0, I)."""

    def cov(a, b):
        return kernel.cross(a, b) + Mean(mean).design(a) @ Mean(mean).design(b).T

    return cov(X, X), cov(X, Xs), cov(Xs, Xs)


@pytest.fixture
def problem(rng):
    """With rows that count more than once."""
    p = regression_problem(rng)
    return type(p)(p.X, Observations(p.obs.y, rng.uniform(0.5, 3.0, 60)), p.Xq, p.Xs)


@means
def test_the_smoother_is_the_mean_of_the_committee(problem, mean):
    p, kernel = problem, make_kernel("matern32")
    query, _, committee = make_committee(p, kernel, NOISE, BLOCKS, mean=mean)
    A, reported = smoother(query, NOISE, heard_blocks(p, BLOCKS), p.Xs)
    exact, variance = predict_latent(query, committee.posterior, p.Xs)
    np.testing.assert_allclose(np.hstack(A) @ p.obs.y, exact, rtol=1e-10)
    np.testing.assert_allclose(reported, variance, rtol=1e-10)


@means
def test_errors_in_the_pitc_model_are_those_reported(problem, mean):
    """The model in which a committee is exact: at query points and at new ones, jitter 0."""
    p, kernel = problem, make_kernel("matern32")
    query = prepare(p.Xq, kernel=kernel, mean=Mean(mean))
    assert query.jitter == 0.0
    X = np.vstack([p.Xq, p.Xs])
    A, reported = smoother(query, NOISE, heard_blocks(p, BLOCKS), X)
    # New points are partitions of their own: unexplained parts go with nobody's.
    blocks = [p.X[b] for b in BLOCKS] + [x[None, :] for x in X]
    C = pitc_covariance(kernel, Mean(mean).design, p.Xq, 0.0, blocks)
    exact = dense_error(C[:60, :60], C[:60, 60:], C[60:, 60:], NOISE.noise(p.obs), np.hstack(A))
    np.testing.assert_allclose(exact, reported, rtol=1e-9)


@means
@pytest.mark.parametrize("kernel", ["se", "matern32", "linear + matern12"])
def test_errors_in_the_full_model_are_those_of_the_dense_formula(problem, mean, kernel):
    p, kernel = problem, make_kernel(kernel)
    query = prepare(p.Xq, kernel=kernel, mean=Mean(mean))
    X, weights = np.vstack([p.Xq, p.Xs, p.X]), [1.0, 2.5, 0.3]
    absorbed = heard_blocks(p, BLOCKS, weights)
    A, reported = smoother(query, NOISE, absorbed, X)
    found = reliability(query, NOISE, absorbed, X)
    exact = dense_error(*dense_prior(kernel, mean, p.X, X), NOISE.noise(p.obs), np.hstack(A))
    # The dense formula subtracts prior variances of 25 for each weight of the mean.
    np.testing.assert_allclose(found.actual, exact, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(found.reported, reported)
    messages = [expert_message(query, NOISE, h.X, h.obs).weighted(h.weight) for h in absorbed]
    committee = Committee(sum(messages[1:], messages[0]))
    np.testing.assert_allclose(predict_latent(query, committee.posterior, X)[1], reported, rtol=1e-10)


@means
def test_one_partition_reports_what_is_so_at_the_query_points(problem, mean):
    """There one expert is the exact Gaussian process."""
    p, kernel = problem, make_kernel("matern32")
    query = prepare(p.Xq, kernel=kernel, mean=Mean(mean))
    found = reliability(query, NOISE, heard_blocks(p, [slice(0, 60)]), p.Xq)
    exact = full_gp(kernel, Mean(mean).design, p.X, p.obs.y, NOISE.noise(p.obs), p.Xq)[1]
    np.testing.assert_allclose(found.actual, np.diag(exact), rtol=1e-9)
    np.testing.assert_allclose(found.reported, found.actual, rtol=1e-9)
    for level in (0.5, 0.8, 0.95):
        assert found.coverage(level) == pytest.approx(level, abs=1e-9)
    assert found.variance_ratio == pytest.approx(1.0, abs=1e-9)


def test_no_error_is_below_that_of_the_full_process(problem):
    """The full Gaussian process has the least mean square error."""
    p, kernel = problem, make_kernel("matern12")
    query = prepare(p.Xq, kernel=kernel, mean=Mean("constant"))
    X = np.vstack([p.Xq, p.Xs])
    found = reliability(query, NOISE, heard_blocks(p, BLOCKS), X)
    least = np.diag(full_gp(kernel, Mean("constant").design, p.X, p.obs.y, NOISE.noise(p.obs), X)[1])
    assert np.all(found.actual > least)


def test_random_partitions_are_over_confident_at_query_points(problem):
    """What other partitions do not know of each other is counted twice."""
    p, kernel = problem, make_kernel("matern12")
    query = prepare(p.Xq, kernel=kernel, mean=Mean("zero"))
    found = reliability(query, NOISE, heard_blocks(p, split(60, range(5, 60, 5))), p.Xq)
    assert found.variance_ratio > 1.05
    assert found.coverage(0.95) < 0.94


def test_draws_from_the_full_process(problem, rng):
    p, kernel, draws = problem, make_kernel("matern12"), 4000
    query = prepare(p.Xq, kernel=kernel, mean=Mean("constant"))
    X = np.vstack([p.X, p.Xq, p.Xs])
    K = dense_prior(kernel, "constant", X, X)[0]
    f = np.linalg.cholesky(K + 1e-10 * np.eye(len(X))) @ rng.standard_normal((len(X), draws))
    noise = NOISE.noise(p.obs)
    y = f[:60] + np.sqrt(noise)[:, None] * rng.standard_normal((60, draws))
    total = Message(np.zeros((draws, query.size)), np.zeros((query.size, query.size)), 0.0, 0)
    for b in BLOCKS:
        V = query.design(p.X[b])
        R = query.residual_lower(V, kernel.cross(p.X[b], p.X[b]))
        total = total + gaussian_message(V, Block(R), y[b], noise[b])
    mean, variance = predict_latent(query, Committee(total).posterior, X[60:])
    error = f[60:] - mean
    found = reliability(query, NOISE, heard_blocks(p, BLOCKS), X[60:])
    # The mean square of 4,000 errors: five standard errors of sqrt(2 / 4000).
    np.testing.assert_allclose((error**2).mean(axis=1), found.actual, rtol=5 * np.sqrt(2 / draws))
    for level in (0.5, 0.8, 0.95):
        inside = np.abs(error) <= norm.ppf(0.5 + level / 2) * np.sqrt(variance)
        assert inside.mean() == pytest.approx(found.coverage(level), abs=0.01)


def test_coverage_of_intervals_of_half_the_width():
    found = Reliability(np.array([1.0, 1.0]), np.array([4.0, 1.0]))
    assert found.coverage(0.95) == pytest.approx(0.5 * (2 * norm.cdf(norm.ppf(0.975) / 2) - 1 + 0.95))
    assert found.variance_ratio == 2.5
    assert found[1:].coverage(0.5) == pytest.approx(0.5)

"""Leaving out: what a row's own target did to it is undone, exactly for Gaussian rows."""

import numpy as np
import pytest
from numpy.linalg import solve
from scipy.integrate import quad
from scipy.stats import norm

from bcmdist.data.observations import Observations, unweighted
from bcmdist.experts.laplace import laplace_mode
from bcmdist.experts.leave_one_out import LEAST_SHARE, cavity
from bcmdist.learning.left_out.density import (
    STEEPNESS,
    block_errors,
    left_out_densities,
    left_out_errors,
    left_out_labels,
    normal_density,
)
from bcmdist.model.likelihoods import Bernoulli, Gaussian, OneHot, Poisson
from oracles import laplace
from problems import make_kernel, regression_problem

ROWS = 25


@pytest.fixture(name="K")
def covariance(rng):
    X = regression_problem(rng, rows=ROWS).X
    return make_kernel("matern32").cross(X, X)


def without(K, noise, y, row):
    """Mean and variance of f at a row from all others, dense."""
    others = np.arange(len(K)) != row
    S, k = K[np.ix_(others, others)] + np.diag(noise[others]), K[others, row]
    return k @ solve(S, y[others]), K[row, row] - k @ solve(S, k)


def posterior(K, noise, y):
    S = K + np.diag(noise)
    return K @ solve(S, y), np.diag(K - K @ solve(S, K))


def test_gaussian_rows_are_left_out_as_if_they_had_never_been_there(K, rng):
    y, noise = rng.standard_normal(ROWS), rng.uniform(0.05, 0.5, ROWS)
    mean, variance = posterior(K, noise, y)
    found = cavity(mean, variance, (y - mean) / noise, 1 / noise)
    exact = np.array([without(K, noise, y, row) for row in range(ROWS)]).T
    np.testing.assert_allclose(found, exact, rtol=1e-9)


def test_several_processes_are_each_left_out(K, rng):
    Y, noise = rng.standard_normal((ROWS, 3)), rng.uniform(0.05, 0.5, ROWS)
    mean, variance = posterior(K, noise, Y)
    variance = np.repeat(variance[:, None], 3, axis=1)
    found = cavity(mean, variance, (Y - mean) / noise[:, None], 1 / noise[:, None])
    for c in range(3):
        exact = np.array([without(K, noise, Y[:, c], row) for row in range(ROWS)]).T
        np.testing.assert_allclose([found[0][:, c], found[1][:, c]], exact, rtol=1e-9)


def test_a_row_that_says_nothing_changes_nothing(rng):
    mean, variance = rng.standard_normal(4), rng.uniform(1, 2, 4)
    found = cavity(mean, variance, np.zeros(4), np.zeros(4))
    np.testing.assert_array_equal(found, [mean, variance])


def test_a_row_that_knows_everything_leaves_a_finite_positive_variance():
    mean, variance = cavity(np.zeros(2), np.ones(2), np.zeros(2), np.array([1.0, 1.0 + 1e-12]))
    assert np.all(variance == 1 / LEAST_SHARE)
    assert np.all(mean == 0)


@pytest.mark.parametrize("rows", [1, 10, ROWS])
def test_the_gaussian_density_is_that_of_refits(K, rng, rows):
    likelihood = Gaussian(np.array([0.2]))
    obs = Observations(rng.standard_normal(ROWS), rng.uniform(0.5, 3.0, ROWS))
    noise = likelihood.noise(obs)
    moments = [without(K, noise, obs.y, row) for row in range(rows)]
    exact = sum(norm.logpdf(obs.y[i], m, np.sqrt(v + noise[i])) for i, (m, v) in enumerate(moments))
    found = normal_density(*left_out_errors(K, likelihood, obs, rows)).sum()
    assert found == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("rows", [1, 10, ROWS])
def test_a_block_is_left_out_as_a_whole(K, rng, rows):
    """What is said of its rows depends on the rows behind them only; with none, on the prior alone."""
    likelihood = Gaussian(np.array([0.2]))
    obs = Observations(rng.standard_normal(ROWS), rng.uniform(0.5, 3.0, ROWS))
    S = K + np.diag(likelihood.noise(obs))
    pull = np.linalg.solve(S[rows:, rows:], S[rows:, :rows]).T
    error, variance = block_errors(K.copy(), likelihood, obs, rows)
    np.testing.assert_allclose(error, obs.y[:rows] - pull @ obs.y[rows:], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(variance, np.diag(S[:rows, :rows] - pull @ S[rows:, :rows]), rtol=1e-9)


def test_labels_left_out_are_as_likely_as_their_targets_among_those_possible(K, rng):
    """At steepness 1: the normal density of each possible target, over the sum of these."""
    obs, likelihood = unweighted(rng.integers(0, 3, ROWS)), OneHot(3, 0.3)
    noise, Y = likelihood.noise(obs) + np.zeros(ROWS), likelihood.targets(obs)
    possible, exact = 2.0 * np.eye(3) - 1.0, 0.0
    for row in range(12):
        moments = np.array([without(K, noise, y, row) for y in Y.T])
        densities = norm.pdf(possible, moments[:, 0], np.sqrt(moments[:, 1] + 0.3)).prod(axis=1)
        exact += np.log(densities[int(obs.y[row])] / densities.sum())
    found = left_out_labels(K, likelihood, obs, 12).sum(axis=1)
    assert found[STEEPNESS == 1.0] == pytest.approx(exact, rel=1e-9)
    # Flat probabilities say a third each.
    assert abs(found[0] - 12 * np.log(1 / 3)) < abs(found[-1] - 12 * np.log(1 / 3))


def test_the_laplace_density_is_near_that_of_refits(K, rng):
    f = np.linalg.cholesky(K + 1e-9 * np.eye(ROWS)) @ rng.standard_normal(ROWS)
    for likelihood, y in [(Bernoulli(), (f > 0) * 1.0), (Poisson(), rng.poisson(np.exp(f)) * 1.0)]:
        obs = unweighted(y)
        exact = 0.0
        for row in range(ROWS):
            others = np.arange(ROWS) != row
            inner, k = K[np.ix_(others, others)], K[others, row]
            mode, w, _ = laplace(inner, likelihood, obs[others])
            m = k @ likelihood.score(obs[others], mode)
            v = K[row, row] - k @ solve(inner + np.diag(1 / w), k)
            own = obs[np.array([row])]

            def integrand(x, own=own, likelihood=likelihood, m=m, v=v):
                return np.exp(likelihood.log_density(own, np.array([x]))[0]) * norm.pdf(x, m, np.sqrt(v))

            exact += np.log(quad(integrand, m - 9 * np.sqrt(v), m + 9 * np.sqrt(v), limit=200)[0])
        # Laplace's own error: a few hundredths of a nat per row.
        found = left_out_densities(K.copy(), likelihood, obs, ROWS).sum()
        assert found == pytest.approx(exact, abs=0.05 * ROWS)


def test_the_laplace_path_is_exact_where_rows_are_gaussian(K, rng):
    """At the mode, with the curvature as the site: nothing is approximate then."""
    likelihood, obs = Gaussian(np.array([0.2])), Observations(rng.standard_normal(ROWS), rng.uniform(0.5, 3.0, ROWS))
    f = laplace_mode(K, obs, likelihood)
    mean, variance = posterior(K, likelihood.noise(obs), obs.y)
    np.testing.assert_allclose(f, mean, rtol=1e-8)
    found = cavity(f, variance, likelihood.score(obs, f), likelihood.curvature(obs, f))
    exact = np.array([without(K, likelihood.noise(obs), obs.y, row) for row in range(ROWS)]).T
    np.testing.assert_allclose(found, exact, rtol=1e-7)

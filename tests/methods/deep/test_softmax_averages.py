"""What classes say of the last layer of a deep Gaussian process: averages of a softmax, by draws and by differences."""

import numpy as np
import pytest
from scipy.special import logsumexp, roots_hermitenorm

from bcmdist.data.observations import Observations
from bcmdist.methods.deep.classes import LARGEST_VARIANCE, log_averages
from bcmdist.methods.deep.outputs import log_expectation
from bcmdist.model.likelihoods import make_likelihood

DRAWS = 10**6


def problem(rng, C, sd, n=6):
    """Rows, some of which say what is not expected."""
    m = 2.0 * rng.standard_normal((n, C))
    m[:, 0] -= 3.0 * rng.integers(0, 3, n)
    return np.zeros(n), m, sd**2 * rng.uniform(0.5, 1.5, (n, C))


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("C", [3, 6])
@pytest.mark.slow
def test_averages_are_those_of_draws(rng, C, power):
    y, m, v = problem(rng, C, 1.0, n=4)
    found, _, _ = log_averages(y, power, m, v)
    for k in range(4):
        f = m[k] + np.sqrt(v[k]) * rng.standard_normal((DRAWS, C))
        each = np.exp(power * (f[:, 0] - logsumexp(f, axis=1)))
        # Five standard errors of the average, and what the rule leaves.
        assert abs(np.exp(found[k]) / each.mean() - 1) < 5 * each.std() / each.mean() / np.sqrt(DRAWS) + 1e-5


@pytest.mark.parametrize(("sd", "allowed"), [(0.1, 1e-5), (1.0, 1e-5), (2.0, 2e-3), (4.0, 2e-2)])
@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.slow
def test_averages_are_those_of_many_nodes_in_every_dimension(rng, sd, allowed, power):
    """Of three classes; the errors that are allowed are those that the module states."""
    y, m, v = problem(rng, 3, sd)
    z, share = roots_hermitenorm(80)
    share = np.log(share / share.sum())
    grid = np.stack(np.meshgrid(z, z, z, indexing="ij"), axis=-1).reshape(-1, 3)
    weight = (share[:, None, None] + share[:, None] + share).ravel()
    found, _, _ = log_averages(y, power, m, v)
    for k in range(len(y)):
        f = m[k] + np.sqrt(v[k]) * grid
        assert found[k] == pytest.approx(logsumexp(power * (f[:, 0] - logsumexp(f, axis=1)) + weight), abs=allowed)


def test_certain_processes_have_the_softmax_itself(rng):
    y, m, v = problem(rng, 4, 1e-7)
    found, _, _ = log_averages(y, 1.0, m, v)
    np.testing.assert_allclose(found, m[:, 0] - logsumexp(m, axis=1), atol=1e-7)


def test_probabilities_of_all_classes_sum_to_one(rng):
    _, m, v = problem(rng, 5, 1.5)
    each = [np.exp(log_averages(np.full(6, c), 1.0, m, v)[0]) for c in range(5)]
    np.testing.assert_allclose(np.sum(each, axis=0), 1.0, atol=1e-4)


def test_what_is_hardly_possible_still_has_a_slope(rng):
    """No row is so odd that it says nothing: 900 in the exponent."""
    m, v = np.array([[-900.0, 0.0, 1.0]]), np.full((1, 3), 0.1)
    value, to_m, _ = log_averages(np.zeros(1), 1.0, m, v)
    assert value[0] == pytest.approx(-901.25, abs=0.1)
    np.testing.assert_allclose(to_m, [[1.0, -0.286, -0.714]], atol=1e-2)


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("C", [3, 6])
def test_the_gradient_is_that_of_differences(rng, C, power):
    """In means and variances of all classes, of weighted rows."""
    _, m, v = problem(rng, C, 0.7)
    obs, likelihood = (
        Observations(rng.integers(0, C, 6) * 1.0, rng.uniform(0.5, 2.0, 6)),
        make_likelihood("softmax", C),
    )

    def value(m, v):
        return log_expectation(likelihood, obs, m, v, 0.0, power).value

    found, h = log_expectation(likelihood, obs, m, v, 0.0, power), 1e-4
    assert (found.mean.shape, found.variance.shape, found.noise) == ((6, C), (6, C), 0.0)
    for k in range(6):
        for c in range(C):
            step = np.zeros((6, C))
            step[k, c] = h
            # The slope of the rule is that of the average to the error of the rule, which is below 1e-7 here.
            whole = (value(m + step, v) - value(m - step, v)) / (2 * h)
            assert found.mean[k, c] == pytest.approx(whole, abs=1e-6)
            whole = (value(m, v + step) - value(m, v - step)) / (2 * h)
            assert found.variance[k, c] == pytest.approx(whole, abs=1e-6)


def test_rows_in_blocks_are_rows_at_once(rng, monkeypatch):
    y, m, v = problem(rng, 3, 1.0)
    whole = log_averages(y, 1.0, m, v)
    monkeypatch.setattr("bcmdist.methods.deep.classes.BLOCK_NUMBERS", 4000)
    for one, other in zip(log_averages(y, 1.0, m, v), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_no_average_is_a_probability_above_one(rng):
    """However far apart and uncertain processes are: a climb would live on errors that grow."""
    for C in (2, 3, 7):
        m = rng.standard_normal((400, C)) * 10 ** rng.uniform(-1, 4, (400, 1))
        v = 10 ** rng.uniform(-8, 9, (400, C))
        for power in (1.0, 0.5, 0.1):
            value, to_m, to_v = log_averages(rng.integers(0, C, 400) * 1.0, power, m, v)
            assert value.max() < 0.05  # the error that the module states for the largest variances
            assert np.isfinite(to_m).all()
            assert np.isfinite(to_v).all()
            assert not to_v[v > LARGEST_VARIANCE].any()

import numpy as np
import pytest

from bcmdist.experts.evidence import local_evidence
from bcmdist.learning.sampling.conjugate_gradients import conjugate_gradients, objective_loss, uniform_starts, with_logs
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from oracles import central_differences
from problems import make_kernel, regression_problem


def rosenbrock(x):
    value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    return value, np.array([-2 * (1 - x[0]) - 400 * x[0] * (x[1] - x[0] ** 2), 200 * (x[1] - x[0] ** 2)])


def test_all_starts_are_sorted_by_what_they_found():
    """Two valleys of different depth, at -1 and 2."""

    def loss(x):
        a, b = (x[0] + 1) ** 2, (x[0] - 2) ** 2
        value = -np.exp(-a) - 2 * np.exp(-b)
        return value, np.array([2 * (x[0] + 1) * np.exp(-a) + 4 * (x[0] - 2) * np.exp(-b)])

    found = conjugate_gradients(loss, [[-1.2], [2.3], [-0.9]])
    np.testing.assert_allclose([o.theta[0] for o in found], [2, -1, -1], atol=1e-3)
    assert [o.loss for o in found] == sorted(o.loss for o in found)


def test_a_curved_valley_is_followed_to_its_end():
    (found,) = conjugate_gradients(rosenbrock, [[-1.2, 1.0]])
    np.testing.assert_allclose(found.theta, [1, 1], atol=1e-4)


@pytest.mark.parametrize("failure", [np.inf, np.nan])
def test_failures_survive(rng, failure):
    """Beyond a wall just before the optimum nothing can be computed: runs stop there, and a start behind it stays."""

    def loss(x):
        a, b = 1 - x[0], x[1] - x[0] ** 2
        if x[0] > 0.99:
            return failure, np.zeros(2)
        return a**2 + 5 * b**2, np.array([-2 * a - 20 * x[0] * b, 10 * b])

    *found, last = conjugate_gradients(loss, [*rng.uniform(-3, 0, (10, 2)), np.array([1.0, 0.9])])
    assert np.mean([o.loss for o in found]) < 0.1  # without stepping back from the wall: above 1
    np.testing.assert_array_equal(last.theta, [1.0, 0.9])
    assert last.loss == np.inf


def test_never_worse_than_the_start():
    """Even where the gradient is a lie."""

    def loss(x):
        return float(x @ x), -2 * x

    (found,) = conjugate_gradients(loss, [[0.3, 0.4]], iterations=3)
    assert found.loss <= 0.25


def test_starts_are_those_of_the_paper():
    starts = uniform_starts(4, 1000, seed=3)
    assert starts.shape == (1000, 4)
    assert -3 <= starts.min() < -2.99
    assert -0.01 < starts.max() <= 0
    np.testing.assert_array_equal(starts, uniform_starts(4, 1000, seed=3))


def test_hyperparameters_from_random_starts(rng):
    p, kernel, likelihood = regression_problem(rng, rows=30), make_kernel("se"), Gaussian(0.1)
    loss = objective_loss(lambda k, g: local_evidence(k, Mean("zero"), g, p.X, p.obs), kernel, likelihood)
    starts = uniform_starts(4, 3)
    np.testing.assert_allclose(
        loss(starts[0])[1], central_differences(lambda t: loss(t)[0], starts[0]), rtol=1e-6, atol=1e-6
    )
    best = conjugate_gradients(loss, starts, iterations=30)[0]
    assert best.loss < min(loss(start)[0] for start in starts)
    kernel, likelihood = with_logs(kernel, likelihood, best.theta)
    assert -local_evidence(kernel, Mean("zero"), likelihood, p.X, p.obs)[0] == pytest.approx(best.loss, rel=1e-12)
    np.testing.assert_allclose(loss(best.theta)[1], 0, atol=0.05 * len(p.X))

import math

import numpy as np
import pytest

from bcmdist import learning
from bcmdist.errors import NotPositiveDefinite
from bcmdist.evidence import local_evidence
from bcmdist.kernels import parse_kernel
from bcmdist.learning import EFFORTS, learn
from bcmdist.likelihoods import Bernoulli, Gaussian, unweighted
from bcmdist.mean import Mean


def objective_of(X, y, mean="constant"):
    obs = unweighted(y)

    def objective(kernel, likelihood):
        try:
            return local_evidence(kernel, Mean(mean), likelihood, X, obs)
        except NotPositiveDefinite:
            return -math.inf, np.zeros(len(kernel.theta) + len(likelihood.parameters))

    return objective


def sample(rng, kernel, rows, noise):
    """Data from the prior itself."""
    X = rng.uniform(-2, 2, (rows, 2))
    K = kernel.cross(X, X) + noise * np.eye(rows)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(rows)


def test_hyperparameters_of_the_prior_are_found(rng):
    truth = parse_kernel("se", inputs=2).with_parameters(
        {"variance": np.array([1.0]), "lengthscale": np.array([0.5, 2.0])}
    )
    X, y = sample(rng, truth, 300, 0.05)
    found = learn(objective_of(X, y), "se", Gaussian(0.5), inputs=2, effort=EFFORTS["thorough"])
    np.testing.assert_allclose(found.kernel.lengthscale, [0.5, 2.0], rtol=0.4)  # a posterior deviation or two
    np.testing.assert_allclose(found.likelihood.noise_variance, 0.05, rtol=0.3)
    assert found.at_bounds == []


def test_auto_takes_the_rougher_kernel_for_rough_data(rng):
    truth = parse_kernel("matern12-iso", inputs=2)
    X, y = sample(rng, truth, 250, 0.001)
    found = learn(objective_of(X, y), "auto", Gaussian(0.5), inputs=2, effort=EFFORTS["normal"])
    assert found.kernel_name == "matern32"
    assert found.tried["matern32"] > found.tried["se"]


def test_many_inputs_that_do_not_matter(rng):
    """A single start with 20 lengthscales is lost here; the isotropic stage comes first."""
    X = rng.standard_normal((300, 20))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(300)
    found = learn(objective_of(X, (y - y.mean()) / y.std()), "se", Gaussian(0.1), inputs=20, effort=EFFORTS["normal"])
    lengthscale = found.kernel.lengthscale
    assert lengthscale[0] < lengthscale[1:].min() / 2


def test_the_result_is_never_worse_than_a_start(rng):
    X, y = rng.standard_normal((40, 2)), (rng.uniform(size=40) > 0.5) * 1.0
    seen = []

    def record(kernel, likelihood):
        value, gradient = objective_of(X, y)(kernel, likelihood)
        seen.append(value)
        return value, gradient

    found = learn(record, "se", Bernoulli(), inputs=2, effort=EFFORTS["quick"])
    assert found.evaluations == len(seen)
    assert found.objective >= max(seen[:1]) - 5.0  # the prior's share at the start


def test_bounds_that_are_hit_are_named(rng):
    X = rng.standard_normal((80, 2))
    found = learn(objective_of(X, X[:, 0]), "se", Gaussian(0.1), inputs=2, effort=EFFORTS["thorough"])
    assert "likelihood.noise_variance" in found.at_bounds  # the target has no noise


def test_failures_of_the_objective_are_walls_and_not_ends(rng):
    X = rng.uniform(-2, 2, (60, 2))
    inner = objective_of(X, np.sin(X[:, 0]))

    def walled(kernel, likelihood):
        if kernel.parameters["lengthscale"].max() > 3.0:
            return -math.inf, np.zeros(len(kernel.theta) + 1)
        return inner(kernel, likelihood)

    found = learn(walled, "se-iso", Gaussian(0.1), inputs=2, effort=EFFORTS["quick"])
    assert found.kernel.lengthscale.max() <= 3.0
    with pytest.raises(NotPositiveDefinite, match=r"evidence of 'se' could not be computed at any start.*--set"):
        learn(lambda k, _: (-math.inf, np.zeros(3)), "se", Gaussian(0.1), inputs=2, effort=EFFORTS["quick"])


def test_efforts_are_ordered():
    rows = [EFFORTS[name].rows for name in ("quick", "normal", "thorough")]
    assert rows == sorted(rows)
    assert learning.EFFORTS["normal"].rows == 5000


def trend_and_wave(rng, rows=120):
    """Targets with a plane through the origin, a wave in the first input, an offset and little noise."""
    X = rng.uniform(-1.5, 1.5, (rows, 2))
    return X, X @ [0.8, -0.5] + 0.4 * np.sin(6.0 * X[:, 0]) + 0.5 + 0.1 * rng.standard_normal(rows)


def test_the_kernel_of_williams_and_rasmussen_learns_a_trend_and_a_wave(rng):
    """Their eq. 3: with the linear terms predictions follow the trend beyond the data, without they return to 0."""
    X, y = trend_and_wave(rng)
    far = np.array([[4.0, -4.0], [-4.0, 4.0]])
    said = {}
    for name in ("se+linear-iso+constant", "se"):
        found = learn(objective_of(X, y, mean="zero"), name, Gaussian(0.1), inputs=2, effort=EFFORTS["normal"])
        S = found.kernel.cross(X, X) + found.likelihood.noise_variance * np.eye(len(X))
        said[name] = found.kernel.cross(far, X) @ np.linalg.solve(S, y)
        np.testing.assert_allclose(found.likelihood.noise_variance, 0.01, rtol=0.5)
    assert list(found.kernel.parameters) == ["variance", "lengthscale"]
    truth = far @ [0.8, -0.5] + 0.5
    np.testing.assert_allclose(said["se+linear-iso+constant"], truth, atol=1.0)  # 5.7, -4.7; the wave has .4
    assert np.abs(said["se"] - truth).max() > 2.0


@pytest.mark.parametrize("name", ["se+linear+constant", "se+linear-iso+constant"])
def test_parameters_bounds_and_prior_of_a_sum_go_together(rng, name):
    X, y = trend_and_wave(rng, 40)
    search = learning._Search(objective_of(X, y, mean="zero"), 2)
    full = parse_kernel(name, inputs=2)
    for kernel in (full, full.isotropic()):
        point = search.at(name, kernel, Gaussian(0.3))
        theta = learning._theta(point)
        labels = list(learning._parameters(point))
        assert labels[0] == "kernel.se.variance"
        assert {"kernel.linear.lengthscale", "kernel.constant.variance"} < set(labels)
        assert len(theta) == len(learning._bounds(point)) == len(learning._prior_center(point, 2))
        np.testing.assert_allclose(np.exp(learning._prior_center(point, 2))[:-1], np.exp(theta)[:-1])
        start, h = theta + 0.3 * rng.standard_normal(len(theta)), 1e-5

        def value(theta, point=point):
            return search._penalised(learning._moved(point, theta))

        numeric = [(value(start + h * e)[0] - value(start - h * e)[0]) / (2.0 * h) for e in np.eye(len(theta))]
        np.testing.assert_allclose(value(start)[1], numeric, rtol=1e-6, atol=1e-6)  # h^2, and rounding over h
    assert learning._expanded(point, 2).kernel.parameters.keys() == full.parameters.keys()

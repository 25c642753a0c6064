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


def objective_of(X, y):
    obs = unweighted(y)

    def objective(kernel, likelihood):
        try:
            return local_evidence(kernel, Mean("constant"), likelihood, X, obs)
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

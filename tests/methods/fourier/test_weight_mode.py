"""The mode of rows by steps in Fourier weights is that of `experts.laplace`, by fewer transforms."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.data.observations import unweighted
from bcmdist.experts.laplace import laplace_mode
from bcmdist.methods.fourier import messages, shared
from bcmdist.methods.fourier import nufft as original
from bcmdist.methods.fourier import weight_mode as modes
from bcmdist.methods.fourier.messages import FourierCovariance
from bcmdist.methods.fourier.weight_mode import weight_mode

pytest.importorskip("finufft", reason="expert fourier: pip install 'bcmdist[fourier]'")


@pytest.fixture(params=["bernoulli", "poisson"])
def problem(request, rng, tmp_path):
    """Shared variables, likelihood, scaled rows and observations."""
    X = rng.uniform(-2, 2, (200, 2))
    f = 1.0 + np.sin(2 * X[:, 0]) * np.cos(X[:, 1])
    y = rng.poisson(np.exp(f)) if request.param == "poisson" else rng.random(200) < 1.0 / (1.0 + np.exp(3.0 - 3.0 * f))
    given = {"kernel.variance": 1.5, "kernel.lengthscale": 0.7}
    options = {"kernel": "matern52", "learn": False, "set": given, "expert": "fourier", "tolerance": 0.01}
    settings = Settings(likelihood=request.param, mean="constant", **options)
    model = GBCM.prepare((X, y.astype(float)), settings, model=tmp_path / "model").model
    obs = model.scaling.observations(unweighted(y.astype(float)), model.likelihood.units)
    return model.shared, model.likelihood, model.scaling.inputs(X), obs


def test_mode_is_that_of_laplace(problem):
    variables, likelihood, X, obs = problem
    found = weight_mode(variables, likelihood, X, obs)
    # Both stop where the score differs from K^-1 f by 1e-9; f may differ by that times the prior variance of the mode.
    np.testing.assert_allclose(found, laplace_mode(FourierCovariance(variables, X), obs, likelihood), atol=1e-6)


def test_start_from_some_of_the_rows_leads_to_the_same_mode(problem, monkeypatch):
    variables, likelihood, X, obs = problem
    found, searches = weight_mode(variables, likelihood, X, obs), []
    monkeypatch.setattr(modes, "LEAST_ROWS", 20)
    climbed = modes._climbed
    monkeypatch.setattr(modes, "_climbed", lambda *args: searches.append(len(args[2])) or climbed(*args))
    # Scores within 1e-9 of each other: see above.
    np.testing.assert_allclose(weight_mode(variables, likelihood, X, obs), found, atol=1e-6)
    assert searches == [50, 200]


def test_experts_use_a_third_of_the_transforms(problem, monkeypatch):
    def transforms():
        calls = []
        for name in ("sums_over_rows", "values_at_rows"):
            function = getattr(original, name)
            monkeypatch.setattr(shared, name, lambda *args, f=function: calls.append(1) or f(*args))
        messages.expert_message(*problem)
        return len(calls)

    fast = transforms()
    monkeypatch.setattr(messages, "weight_mode", lambda *args: None)
    assert 0 < 3 * fast <= transforms()


@pytest.mark.parametrize("most", [0, 10**6], ids=["iterative", "factored"])
def test_mode_under_a_belief_is_that_of_dense_algebra(problem, most, monkeypatch):
    variables, likelihood, X, obs = problem
    monkeypatch.setattr(shared, "MAX_FACTORED", most)
    others = messages.expert_message(variables, likelihood, X[:100], obs[:100])
    belief = variables.belief(others.eta, others.precision)
    found = weight_mode(variables, likelihood, X[100:], obs[100:], belief)
    V = np.stack([variables.design_product(X[100:], unit[None])[0] for unit in np.eye(variables.size)], axis=1)
    precision = np.eye(variables.size) + variables.operator(others.precision).without_prior()
    mean, K = V @ np.linalg.solve(precision, others.eta), V @ np.linalg.solve(precision, V.T)
    K[np.diag_indices_from(K)] += variables.truncated_variance
    f = mean
    for _ in range(100):  # Newton steps for log p(y | f) + log N(f; mean, K)
        w, s = likelihood.curvature(obs[100:], f), likelihood.score(obs[100:], f)
        f = mean + K @ np.linalg.solve(np.eye(100) + w[:, None] * K, w * (f - mean) + s)
    np.testing.assert_allclose(found, f, atol=1e-5)  # the mean of an iterative belief is right to 1e-4 deviations


def test_running_message_of_no_belief_is_that_of_the_own_mode(problem):
    variables, likelihood, X, obs = problem
    nothing = messages.zero_message(variables, likelihood)
    found = messages.running_message(variables, likelihood, X, obs, variables.belief(nothing.eta, nothing.precision))
    expected = messages.expert_message(variables, likelihood, X, obs)
    np.testing.assert_allclose(found.eta, expected.eta, atol=1e-6)
    np.testing.assert_allclose(found.precision, expected.precision, atol=1e-6)

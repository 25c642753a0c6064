"""Networks at uncertain inputs: exact moments against quadrature and draws, forecasts."""

import numpy as np
import pytest
from averages import SPREAD, VARIANCE, Bare, averaged, quadrature, spread

from bcmdist import GBCM, Settings
from bcmdist.data.schema import Schema
from bcmdist.data.tables.series import Lags
from bcmdist.data.writing import write_dataset
from bcmdist.experts.expert import expert_message
from bcmdist.methods.networks.shared import Networks
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.prediction.interface import Fitted
from bcmdist.prediction.uncertain import input_uncertainty
from problems import make_kernel, regression_problem

NOISE = 0.1
WAYS = ("exact", "taylor", "montecarlo")
LAGS = 3


def networks(rng, problem, mean="constant", steepness=1.0):
    """Two networks of 9 units each, one of which takes the noise for larger."""
    inner = steepness * rng.standard_normal((2, 9, 3))
    shared = Networks(inner, np.array([0.8, 1.3]), np.array([0.7, 1.3]), make_kernel("se"), Mean(mean))
    message = expert_message(shared, Gaussian(NOISE), problem.X, problem.obs)
    return Fitted(Bare(shared), shared.belief(message.eta, message.precision))


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_exact_moments_of_networks(rng, mean):
    """Of networks side by side, whose mixture is predicted."""
    problem = regression_problem(rng)
    predictor, U = networks(rng, problem, mean), problem.Xs[:6]
    expected = quadrature(predictor, U, spread(U), nodes=200)  # erf has poles near the real line: it converges slowly
    for ours, theirs in zip(input_uncertainty.exact_moments(predictor, U, spread(U)), expected[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_exact_moments_of_networks_are_those_of_draws(rng):
    """With inputs so uncertain that units are steps: five standard errors of 10^5 draws."""
    problem = regression_problem(rng)
    predictor, u = networks(rng, problem, steepness=20.0), np.array([[0.2, -0.4]])
    mean, variance = predictor.latent(rng.multivariate_normal(u[0], SPREAD, 100_000))
    m, v = input_uncertainty.exact_moments(predictor, u, SPREAD[None])
    error = mean.std() / np.sqrt(len(mean))
    assert abs(m[0] - mean.mean()) < 5 * error
    square = (mean - mean.mean()) ** 2 + variance
    assert abs(v[0] - square.mean()) < 5 * square.std() / np.sqrt(len(mean))


@pytest.mark.slow
def test_networks_average_exactly(rng, make_data):
    X = rng.uniform(-2, 2, (120, 2))
    path, X = make_data(X=X, y=np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]), X[:4]
    asked = Settings(expert="mnnmix", networks=2, units=8, effort="quick", rows_per_expert=60)
    gbcm = GBCM.fit(path, asked)
    names = ("mean", "variance")
    said = gbcm.predict(X, X_variance=np.tile(VARIANCE, (4, 1)))
    np.testing.assert_array_equal(
        said["mean"], gbcm.predict(X, X_variance=np.tile(VARIANCE, (4, 1)), inputs="exact")["mean"]
    )
    # erf has poles near the real line: quadrature converges slowly where units are steep.
    np.testing.assert_allclose([said[name] for name in names], averaged(gbcm.predict, X, names, 200), rtol=1e-4)
    plain = gbcm.predict(X)
    for way in WAYS:
        none = gbcm.predict(X, X_variance=np.zeros((4, 2)), inputs=way)
        for name, values in plain.items():
            np.testing.assert_allclose(none[name], values, rtol=1e-7, err_msg=name)


@pytest.mark.parametrize(
    "way", [input_uncertainty.exact_moments, input_uncertainty.taylor_moments, input_uncertainty.sampled_moments]
)
@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_certain_inputs_are_predicted_as_ever(rng, way, mean):
    problem = regression_problem(rng)
    predictor = networks(rng, problem, mean)
    for ours, theirs in zip(
        way(predictor, problem.Xs, spread(problem.Xs, 0.0)), predictor.latent(problem.Xs), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


# --- Forecasts ---


def windows(y):
    """Rows of lags (n, LAGS) and what follows them, (n,)."""
    found = np.lib.stride_tricks.sliding_window_view(y, LAGS + 1)
    return found[:, -2::-1].copy(), found[:, -1].copy()


@pytest.fixture(scope="module", params=["mnn", "mnnmix"])
def network(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("network")
    y = np.sin(0.3 * np.arange(120)) + 0.05 * np.random.default_rng(5).standard_normal(120)
    X, t = windows(y)
    write_dataset(place / "lags.zarr", {"X": X, "y": t}, rows_per_chunk=60, schema=Schema(Lags("level", LAGS).columns))
    return GBCM.fit(str(place / "lags.zarr"), Settings(expert=request.param, effort="quick", units=8)), y


@pytest.mark.slow
def test_networks_forecast_by_default(network):
    """Exactly: the first step is a prediction, the second one that of many draws of the first."""
    gbcm, y = network
    state = windows(y)[0][-2:]
    found, first = gbcm.forecast(state, 2), gbcm.predict(state)
    exact = gbcm.forecast(state, 2, inputs="exact")
    np.testing.assert_array_equal(found.mean, exact.mean)
    np.testing.assert_allclose(found.mean[:, 0], first["observation_mean"], rtol=1e-6)
    np.testing.assert_allclose(found.variance[:, 0], first["observation_variance"], rtol=1e-6)
    noise, one = np.random.default_rng(1).standard_normal(20_000), state[:1]
    draws = first["observation_mean"][0] + np.sqrt(first["observation_variance"][0]) * noise
    second = gbcm.predict(np.column_stack([draws, np.repeat(one[:, :-1], len(draws), axis=0)]))
    variance = second["observation_variance"].mean() + second["observation_mean"].var()
    np.testing.assert_allclose(found.mean[0, 1], second["observation_mean"].mean(), atol=0.03 * np.sqrt(variance))
    np.testing.assert_allclose(found.variance[0, 1], variance, rtol=0.05)

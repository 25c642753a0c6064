"""The scale of errors: a second committee, of log squared residuals."""

import json

import msgspec
import numpy as np
import pytest

from bcmdist.committee.measurements import ScaleProcess
from bcmdist.prediction.errors.error_distribution import Residuals, fit_error_distribution, gain_of
from bcmdist.prediction.errors.heteroscedasticity import LOG_VARIANCE, fit_scale, log_squares, places_of, settle_process

UNITS = [np.full(2, np.sqrt(2.0)), np.array([0.5, 2.0])]


def residuals(rng, n, sd):
    """Of n rows in parts of 100, with standard deviations `sd` of X."""
    X = rng.uniform(-2, 2, (n, 2))
    places, z = places_of(X, np.full(n, 0.2)), sd(X) * rng.standard_normal(n)
    return Residuals(list(places.reshape(-1, 100, 3)), list(z.reshape(-1, 100)), [1.0] * (n // 100))


def growing(X):
    return np.exp(0.8 * X[:, 0])


def test_log_squares_of_normal_residuals_have_no_bias_and_the_known_variance(rng):
    seen = log_squares(rng.standard_normal(400_000))
    # Residuals count as .01 at least: of the mean that takes .01, of the variance a fifteenth.
    assert seen.mean() == pytest.approx(0.01, abs=0.01)
    assert seen.var() == pytest.approx(14 / 15 * LOG_VARIANCE, rel=0.02)


def test_a_scale_that_varies_is_found(rng):
    known = residuals(rng, 2000, growing)
    places, z, _ = known.arrays()
    process = settle_process(places, z, UNITS)
    assert gain_of(known, process).decisive
    spread = fit_error_distribution(known, process)
    X = rng.uniform(-1.8, 1.8, (500, 2))
    found = np.sqrt(spread.widening(X, np.full(500, 0.2)))
    np.testing.assert_allclose(np.log(found / growing(X)), np.log(found / growing(X)).mean(), atol=0.35)
    new = growing(X) * rng.standard_normal(500) / found
    assert spread.shape.quantile(0.975) == pytest.approx(np.quantile(np.abs(new), 0.95), rel=0.15)


@pytest.mark.parametrize("seed", range(6))
def test_a_constant_scale_stays_constant(seed):
    rng = np.random.default_rng(seed)
    known = residuals(rng, 1000, lambda X: 1.0)
    places, z, _ = known.arrays()
    assert not gain_of(known, settle_process(places, z, UNITS)).decisive


def test_each_row_has_no_part_in_its_own_factor(rng):
    known = residuals(rng, 300, growing)
    places, z, weight = known.arrays()
    process = settle_process(places, z, UNITS)
    _, factors = fit_scale(process, places, z, weight)
    for row in (0, 150):
        others = np.arange(300) != row
        alone, _ = fit_scale(process, places[others], z[others], weight[others])
        level = fit_scale(process, places, z, weight)[0].level
        expected = alone.factor(places[row : row + 1]) * np.exp(alone.level - level)
        np.testing.assert_allclose(factors[row], expected[0], rtol=1e-9)


def test_residuals_add_and_fade(rng):
    known = residuals(rng, 400, growing)
    places, z, _ = known.arrays()
    process = settle_process(places, z, UNITS)
    twice = Residuals(known.places * 2, known.errors * 2, [0.5] * 8)
    once, halves = fit_error_distribution(known, process), fit_error_distribution(twice, process)
    np.testing.assert_allclose(halves.scale.mean, once.scale.mean, atol=1e-10)
    np.testing.assert_allclose(halves.scale.factor(places), once.scale.factor(places), rtol=1e-10)


def test_beyond_the_residuals_the_factor_stays_as_at_their_edge(rng):
    """Above all in the predictive variance, which is larger far from rows than any row left out has shown."""
    X = rng.uniform(-2, 2, (1000, 2))
    variance = np.exp(0.5 * X[:, 1])
    places, z = places_of(X, variance), growing(X) * variance**0.4 * rng.standard_normal(1000)
    process = settle_process(places, z, UNITS)
    scale, factors = fit_scale(process, places, z, np.ones(1000))
    edge, beyond = np.array([[2.0, 0.0, 1.0]]), np.array([[9.0, 0.0, 5.0]])
    high = places.max(axis=0)
    np.testing.assert_allclose(scale.factor(beyond), scale.factor(np.minimum(beyond, high)), rtol=1e-5)
    np.testing.assert_allclose(np.log(scale.factor(beyond)), np.log(scale.factor(edge)), atol=0.1)
    assert factors.max() < 3.0 * scale.factor(edge)[0]
    again = type(process).from_json(msgspec.json.decode(json.dumps(process.to_json()), type=ScaleProcess))
    np.testing.assert_array_equal(fit_scale(again, places, z, np.ones(1000))[0].factor(beyond), scale.factor(beyond))

"""Moments and scores of transformed targets against closed forms and plain averages."""

import numpy as np
import pytest
from scipy.stats import norm

from bcmdist.model.scaling import Scaling
from bcmdist.model.target_transform import TargetTransform
from bcmdist.model.units import AFFINE
from bcmdist.prediction import transformed_moments as module
from bcmdist.prediction.errors.scale_mixture import NORMAL, Shape
from bcmdist.prediction.observation import Scaled
from bcmdist.prediction.transformed_moments import transformed_crps, transformed_moments

M, V = np.array([-0.5, 0.0, 1.2, 2.0]), np.array([0.01, 0.25, 0.6, 1.0])
WIDE = Shape((0.7, 0.25, 0.05), (0.6, 1.2, 3.0), (-0.1, 0.1, 0.9))


def scaling(power, y_mean=0.4, y_scale=0.7):
    transform = TargetTransform.of_targets(power, least=1e-6, mean=1.0)
    return Scaling(np.zeros(1), np.ones(1), y_mean, y_scale, transform=transform)


def test_moments_of_a_logarithm_are_those_of_the_log_normal_distribution():
    mean, variance = transformed_moments(Scaled(M, V, NORMAL), scaling(0.0))
    m, v = 0.4 + 0.7 * M, 0.49 * V
    expected = np.exp(m + v / 2)
    np.testing.assert_allclose(mean, expected, rtol=1e-7)  # what lies beyond six deviations counts as these
    np.testing.assert_allclose(variance, np.expm1(v) * expected**2, rtol=1e-5)


def test_moments_of_a_square_root_are_polynomials():
    mean, variance = transformed_moments(Scaled(M, 0.01 * V, NORMAL), scaling(0.5, y_mean=4.0))
    m, v = 1.0 + 0.5 * (4.0 + 0.7 * M), 0.25 * 0.49 * 0.01 * V  # of the square root itself
    np.testing.assert_allclose(mean, m**2 + v, rtol=1e-10)
    np.testing.assert_allclose(variance, 2 * v**2 + 4 * m**2 * v, rtol=1e-7)


@pytest.mark.parametrize("power", [0.0, 0.4])
def test_moments_of_any_shape_are_averages(power):
    predicted, own = Scaled(M, 0.2 * V, WIDE), scaling(power)
    mean, variance = transformed_moments(predicted, own)
    grid = np.linspace(-16.0, 16.0, 100_001)
    z = np.interp((np.arange(20_000) + 0.5) / 20_000, WIDE.cdf(grid), grid)
    limit = 6 * np.subtract(*np.quantile(z, [0.75, 0.25])) / np.subtract(*norm.ppf([0.75, 0.25]))
    z = z.clip(np.median(z) - limit, np.median(z) + limit)
    y = own.original("quantile", M + np.sqrt(0.2 * V) * z[:, None], AFFINE)
    np.testing.assert_allclose(mean, y.mean(axis=0), rtol=1e-3)  # of 129 nodes and 20,000 levels
    np.testing.assert_allclose(variance, y.var(axis=0), rtol=1e-2)


def test_gross_errors_of_a_few_targets_count_as_six_deviations():
    shape, v = Shape((0.99, 0.01), (0.5, 30.0)), np.array([0.3])
    mean, variance = transformed_moments(Scaled(np.zeros(1), v, shape), scaling(0.0))
    core = np.exp(0.4 + 0.5 * 0.25 * 0.49 * v[0])  # without them
    largest = np.exp(0.4 + 6.5 * 0.5 * 0.7 * np.sqrt(v[0]))
    assert core < mean[0] < 0.995 * core + 0.005 * largest * 1.2
    assert variance[0] < 0.02 * largest**2


def test_blocks_of_rows_and_no_rows(monkeypatch):
    predicted, own = Scaled(M, V, WIDE), scaling(0.0)
    whole = transformed_moments(predicted, own)
    monkeypatch.setattr(module, "BLOCK_ROWS", 3)
    np.testing.assert_allclose(transformed_moments(predicted, own), whole, rtol=1e-13)
    assert [len(one) for one in transformed_moments(Scaled(M[:0], V[:0], NORMAL), own)] == [0, 0]


def test_the_crps_of_a_log_normal_distribution():
    y, own = np.array([0.5, 1.0, 3.0, 9.0]), scaling(0.0)
    found = transformed_crps(Scaled(M, V, NORMAL), y, own, AFFINE)
    draws = np.exp(0.4 + 0.7 * (M + np.sqrt(V) * np.random.default_rng(0).standard_normal((20_000, 4))))
    pairs = np.abs(draws[:10_000] - draws[10_000:]).mean(axis=0)
    np.testing.assert_allclose(found, np.abs(draws - y).mean(axis=0) - 0.5 * pairs, rtol=0.05)

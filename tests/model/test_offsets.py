"""Columns far from zero are constant only where float64 holds no scatter of them."""

from fractions import Fraction

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.model.scaling import column_moments


def exact_deviation(values):
    """The population standard deviation in rational numbers."""
    exact = [Fraction(value) for value in values.tolist()]
    mean = sum(exact) / len(exact)
    return float(sum((value - mean) ** 2 for value in exact) / len(exact)) ** 0.5


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e12, 1e14, -1e12])
def test_scatter_that_float64_holds_is_the_scale(offset, rng):
    values = offset + rng.standard_normal(200)
    found = column_moments(values[:, None])
    assert not found.constant[0]
    assert found.scale[0] == pytest.approx(exact_deviation(values), rel=1e-3)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e12, 1e150])
def test_rounding_of_one_value_is_no_scatter(value):
    rounded = np.array([value, np.nextafter(value, 2 * value), value, np.nextafter(value, 0.0)])
    for values in (np.full(4, value), rounded):
        found = column_moments(values[:, None])
        assert found.constant[0]
        assert found.scale[0] == 1.0


def test_merged_moments_are_those_of_all(rng):
    values = 1e12 + np.array([np.zeros(50), np.ones(50)]).reshape(-1, 1)
    assert column_moments(values[:50]).constant[0]
    assert not (column_moments(values[:50]) + column_moments(values[50:])).constant[0]


def test_a_fit_to_targets_of_a_large_offset_is_that_without(wave):
    """No warning, which is an error here, and the same predictions but for the offset."""
    _, X, y = wave
    settings = Settings(kernel="se", learn=False, query=20, rows_per_expert=60)
    plain = GBCM.fit(X, y / 4, settings).predict(X[:20])
    far = GBCM.fit(X, y / 4 + 1e12, settings).predict(X[:20])
    np.testing.assert_allclose(far["mean"] - 1e12, plain["mean"], atol=1e-2)
    np.testing.assert_allclose(far["observation_variance"], plain["observation_variance"], rtol=1e-3)

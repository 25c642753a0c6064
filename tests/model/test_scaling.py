import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmdist.data.observations import Observations, unweighted
from bcmdist.model.scaling import column_moments, scaling_from
from bcmdist.model.units import AFFINE, COUNTED, POSITIVE, RATE, SHARE


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 10**6))
def test_moments_of_any_partitioning(sizes, seed):
    table = 1e6 + np.random.default_rng(seed).standard_normal((sum(sizes), 2))
    parts = np.split(table, np.cumsum(sizes)[:-1])
    total = column_moments(parts[0])
    for part in parts[1:]:
        total = total + column_moments(part)
    np.testing.assert_allclose(total.mean, table.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(total.squares, ((table - table.mean(axis=0)) ** 2).sum(axis=0), rtol=1e-7, atol=1e-8)
    np.testing.assert_array_equal(total.high, table.max(axis=0))
    assert total.count == len(table)


def test_constant_columns_are_left_alone():
    table = np.column_stack([np.full(9, 0.1), np.zeros(9), np.arange(9.0)])
    moments = column_moments(table[:4]) + column_moments(table[4:])
    assert moments.constant.tolist() == [True, True, False]
    np.testing.assert_allclose(moments.scale, [1.0, 1.0, table[:, 2].std()])


def test_original_units_undo_the_scaling(rng):
    y = 5.0 + 3.0 * rng.standard_normal((50, 1))
    x, ones = column_moments(rng.standard_normal((50, 2))), column_moments(np.ones((50, 1)))
    scaling = scaling_from(x, column_moments(y), ones, AFFINE)
    scaled = scaling.observations(unweighted(y[:, 0]), AFFINE).y
    assert abs(scaled.mean()) < 1e-12
    np.testing.assert_allclose(scaled.std(), 1.0)
    np.testing.assert_allclose(scaling.original("observation_mean", scaled, AFFINE), y[:, 0])
    np.testing.assert_allclose(scaling.original("variance", np.ones(1), AFFINE), y.var())
    untouched = scaling_from(x, column_moments(y), ones, COUNTED)
    assert (untouched.y_mean, untouched.y_scale) == (0.0, 1.0)


def test_rates_and_positive_targets_have_mean_one(rng):
    y, exposure = rng.poisson(30, (50, 1)) + 1.0, rng.uniform(1, 9, (50, 1))
    x = column_moments(y)
    rates = scaling_from(x, column_moments(y), column_moments(exposure), RATE)
    obs = rates.observations(Observations(y[:, 0], np.ones(50), exposure[:, 0]), RATE)
    assert obs.exposure.sum() == pytest.approx(y.sum())  # at latent 0 the expected total is the observed one
    assert rates.original("mean", np.zeros(1), RATE)[0] == pytest.approx(np.log(y.sum() / exposure.sum()))
    times = scaling_from(x, column_moments(y), column_moments(exposure), POSITIVE)
    assert times.observations(unweighted(y[:, 0]), POSITIVE).y.mean() == pytest.approx(1.0)
    assert times.original("lower95", np.ones(1), POSITIVE)[0] == pytest.approx(y.mean())
    assert times.log_jacobian(POSITIVE) == pytest.approx(-np.log(y.mean()))


POSSIBLE = {
    "affine": (AFFINE, [-7.0, 0.0, 3.5]),
    "positive": (POSITIVE, [1e-9, 0.4, 1e9]),
    "counted": (COUNTED, [0.0, 1.0, 40.0]),
    "rate": (RATE, [0.0, 1.0, 1e6]),
    "share": (SHARE, [1e-9, 0.3, 0.999]),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_units_come_back(name):
    """Targets there and back, also along the ruler; and a density counts a length of one by the slope of that."""
    units, y = POSSIBLE[name][0], np.array(POSSIBLE[name][1])
    moments = column_moments(y[:, None])
    scaling = scaling_from(moments, moments, column_moments(np.ones((3, 1))), units)
    there = scaling.observations(unweighted(y), units).y
    np.testing.assert_allclose(scaling.original("upper95", there, units), y, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(units.at(units.place(there)), there, rtol=1e-6)
    assert np.all(np.diff(units.place(there)) > 0)
    slope = np.ptp(y) / np.ptp(there)
    assert scaling.log_jacobian(units) == pytest.approx(-np.log(slope))
    np.testing.assert_allclose(scaling.original("observation_variance", np.ones(1), units), slope**2)
    assert units.dimensional or slope == 1.0
    if name in ("affine", "positive", "share"):  # scored against the mean of the training targets
        assert scaling.training_mean(units) == pytest.approx(y.mean())


@given(st.integers(2, 400), st.integers(1, 399), st.integers(1, 5), st.sampled_from([(0.0, 1.0), (1e6, 1e6 + 1.0)]))
def test_rare_values_of_two_are_no_further_than_ten(rows, rare, pieces, values):
    column = np.where(np.arange(rows) < min(rare, rows - 1), *values[::-1])[:, None]
    parts = np.array_split(column, min(pieces, rows))
    total = column_moments(parts[0])
    for part in parts[1:]:
        total = total + column_moments(part)
    assert total.two_valued[0]
    scaled = (column - total.mean) / total.input_scale
    assert np.ptp(scaled) <= 10.0 + 1e-6
    np.testing.assert_allclose(total.input_scale, max(column.std(), 0.1), rtol=1e-6)


def test_columns_of_more_than_two_values_are_divided_by_their_standard_deviation(rng):
    table = np.column_stack([rng.standard_normal(1000), np.arange(1000) % 3, np.where(np.arange(1000), 0.0, 1.0)])
    table = np.column_stack([table, np.where(np.arange(1000) == 1, 0.5, table[:, 2]), np.full(1000, 7.0)])
    moments = column_moments(table)
    assert moments.two_valued.tolist() == [False, False, True, False, False]
    same = [0, 1, 3, 4]
    np.testing.assert_array_equal(moments.input_scale[same], moments.scale[same])
    y = column_moments(table[:, 2:3])  # of targets it is their standard deviation, whatever they are
    scaling = scaling_from(moments, y, column_moments(np.ones((1000, 1))), AFFINE)
    assert scaling.y_scale == y.scale[0]
    assert scaling.x_scale[2] == 0.1

"""Transforms of targets: the map, its inverse and slope, and the likeliest power."""

import numpy as np
import pytest
from scipy import stats

from bcmdist.data.observations import unweighted
from bcmdist.model.scaling import Scaling, scaling_from_array, scaling_to_array
from bcmdist.model.target_transform import TargetTransform, likeliest_power
from bcmdist.model.units import AFFINE
from bcmdist.model.warping import Log, Warping

POWERS = [0.0, 0.3, 0.5, 1.0]


def transform(power):
    return TargetTransform.of_targets(power, least=0.2, mean=4.0)


@pytest.mark.parametrize("power", POWERS)
def test_it_rises_from_any_number_and_has_an_inverse_and_a_slope(power):
    made, h = transform(power), 1e-6
    y = np.concatenate([[-3.0, 0.0, 0.01], np.geomspace(0.03, 80.0, 40)])
    assert np.all(np.diff(made(y)) > 0.0)
    np.testing.assert_allclose(made.inverse(made(y)), y, rtol=1e-12, atol=1e-14)
    slopes = (made(y + h) - made(y - h)) / (2.0 * h)
    np.testing.assert_allclose(np.exp(made.log_slope(y)), slopes, rtol=1e-6)  # h^2 and rounding over h


@pytest.mark.parametrize("power", POWERS)
def test_above_its_floor_it_is_that_of_box_and_cox(power):
    y = np.geomspace(0.02, 100.0, 30)
    expected = np.log(y) if power == 0.0 else (y**power - 1.0) / power
    np.testing.assert_allclose(transform(power)(y), expected, rtol=1e-13, atol=1e-14)


def test_the_inverse_of_a_logarithm_does_not_overflow():
    assert np.isfinite(transform(0.0).inverse(1e6) ** 2)


def test_the_likeliest_power(rng):
    z = rng.standard_normal(4000)
    assert likeliest_power(np.exp(3.0 + z)) == pytest.approx(0.0, abs=0.05)
    assert likeliest_power((5.0 + z) ** 2) == pytest.approx(0.5, abs=0.1)
    assert likeliest_power(1e7 * (5.0 + z) ** 2) == likeliest_power((5.0 + z) ** 2)  # of any unit
    y = rng.gamma(3.0, 2.0, 500)
    assert likeliest_power(y) == pytest.approx(stats.boxcox_normmax(y, method="mle"), abs=0.0126)  # half a step


@pytest.mark.parametrize("warping", [Warping({}), Warping({1: Log(0.5)})])
@pytest.mark.parametrize("power", POWERS[:2])
def test_a_scaling_with_a_transform_is_stored_in_a_vector(rng, power, warping):
    y = np.exp(rng.standard_normal(100))
    plain = Scaling(np.zeros(2), np.ones(2), 0.0, 1.0, warping)
    scaling = plain.with_transform(transform(power), y)
    found = scaling_from_array(scaling_to_array(scaling))
    assert found.transform == scaling.transform
    assert (found.y_mean, found.y_scale, found.warping.kinds()) == (scaling.y_mean, scaling.y_scale, warping.kinds())
    assert scaling_from_array(scaling_to_array(plain)).transform is None
    obs = found.observations(unweighted(y), AFFINE)
    assert abs(obs.y.mean()) < 1e-12
    assert obs.y.std() == pytest.approx(1.0)
    np.testing.assert_allclose(found.targets(obs.y, AFFINE), y, rtol=1e-12)
    assert found.training_mean(AFFINE) == 4.0


def test_densities_of_a_transformed_target_integrate_to_one():
    scaling = Scaling(np.zeros(1), np.ones(1), 0.3, 0.8, transform=transform(0.0))
    y = np.geomspace(1e-6, 1e5, 200_001)
    z = scaling.observations(unweighted(y), AFFINE).y
    density = np.exp(stats.norm.logpdf(z) + scaling.log_jacobians(y, AFFINE))
    assert np.trapezoid(density, y) == pytest.approx(1.0, abs=1e-4)  # mass below 0, where the tangent ends, is e^-9

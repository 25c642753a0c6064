"""Shapes of errors: fitted to residuals, judged by others, and consistent in themselves."""

import numpy as np
import pytest
import scoringrules
from scipy.integrate import quad

from bcmdist.prediction.errors.scale_mixture import LARGEST, NARROWEST, NORMAL, Histogram, Shape, fit_shape, histogram

HEAVY = Shape((0.7, 0.3), (0.5, 1.7))


def draws(shape, rng, n):
    which = rng.choice(len(shape.weights), n, p=shape.weights)
    return np.array(shape.scales)[which] * rng.standard_normal(n)


@pytest.mark.parametrize("seed", range(8))
def test_residuals_as_the_model_says_leave_it_as_it_is(seed):
    assert fit_shape(np.random.default_rng(seed).standard_normal(2000)) == NORMAL


@pytest.mark.parametrize("truth", [HEAVY, Shape((1.0,), (0.6,)), Shape((0.95, 0.05), (0.9, 5.0))])
def test_a_mixture_is_found(truth, rng):
    found, new = fit_shape(draws(truth, rng, 4000)), draws(truth, rng, 20_000)
    loss = np.mean(truth.log_density(new) - found.log_density(new))
    assert loss < 0.003  # three numbers learned from 4000 cost 3 / 8000 nats; some of them are one too many
    assert np.mean(found.log_density(new) - NORMAL.log_density(new)) > 0.05
    for level in (0.5, 0.8, 0.95):
        assert np.mean(np.abs(new) < found.quantile(0.5 + level / 2)) == pytest.approx(level, abs=0.02)


def test_one_residual_alone_does_not_decide(rng):
    z = rng.standard_normal(1000)
    z[7] = 300.0
    assert fit_shape(z) == NORMAL


def test_residuals_of_zero_and_beyond_bounds_leave_a_density(rng):
    z = np.concatenate([np.zeros(500), rng.standard_normal(500), np.full(20, 10 * LARGEST)])
    found = fit_shape(z)
    assert np.all(np.isfinite(found.log_density(np.array([0.0, 1.0, 1e4]))))
    assert found.log_density(np.zeros(1))[0] > NORMAL.log_density(np.zeros(1))[0]


def test_histograms_add_and_count_by_weight(rng):
    a, b = draws(HEAVY, rng, 600), draws(HEAVY, rng, 400)
    both = histogram(a) + histogram(b)
    assert both.counts.sum() == pytest.approx(1000)
    np.testing.assert_allclose((histogram(a) + histogram(a)).counts, histogram(a, weight=2.0).counts, rtol=1e-14)
    np.testing.assert_allclose((both + histogram(b, weight=-1.0)).counts, histogram(a).counts, atol=1e-12)
    # As few rounding errors as there are steps: none of them is a decision.
    nearly, exactly = fit_shape(Histogram(both.counts * (1 + 1e-14))), fit_shape(both)
    np.testing.assert_allclose(nearly.scales, exactly.scales, rtol=1e-10)


@pytest.mark.parametrize("shape", [NORMAL, HEAVY])
def test_density_distribution_and_quantiles_belong_together(shape):
    for q in (0.025, 0.3, 0.5, 0.9, 0.999):
        at = shape.quantile(q)
        assert shape.cdf(at) == pytest.approx(q, abs=1e-14)
        mass, _ = quad(lambda z: np.exp(shape.log_density(z)), 0.0, at, epsabs=1e-12)
        assert mass == pytest.approx(q - 0.5, abs=1e-10)
    squares, _ = quad(lambda z: z**2 * np.exp(shape.log_density(z)), -40, 40, epsabs=1e-12, limit=200)
    assert squares == pytest.approx(np.dot(shape.weights, np.square(shape.scales)), rel=1e-9)


def test_crps_is_that_of_the_mixture():
    z = np.array([-3.0, 0.0, 0.4, 7.0])
    oracle = scoringrules.crps_mixnorm(
        z, np.zeros((4, 2)), np.tile(HEAVY.scales, (4, 1)), np.tile(HEAVY.weights, (4, 1)), backend="numpy"
    )
    np.testing.assert_allclose(HEAVY.crps(z), oracle, rtol=1e-12)
    np.testing.assert_allclose(NORMAL.crps(z), scoringrules.crps_normal(z, 0.0, 1.0, backend="numpy"), rtol=1e-12)


def test_no_residual_at_all_in_one_half_decides_nothing(rng):
    alone = sum((histogram(z) for z in draws(HEAVY, rng, 400)[:, None]), Histogram(np.zeros((2, 500))))
    assert alone.counts[1].sum() == 0.0
    assert fit_shape(alone) == NORMAL
    even = histogram(draws(HEAVY, rng, 4000), half=np.arange(4000) % 2)
    assert fit_shape(even) != NORMAL


def test_no_shape_is_narrower_than_can_be_said():
    assert fit_shape(np.zeros(500)).scales[0] == pytest.approx(NARROWEST)

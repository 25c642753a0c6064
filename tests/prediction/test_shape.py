"""Shapes of errors: fitted to residuals, judged by others, and consistent in themselves."""

import numpy as np
import pytest
import scoringrules
from scipy.integrate import quad
from scipy.stats import gamma, laplace, t

from bcmdist.prediction.errors.scale_mixture import (
    LARGEST,
    NARROWEST,
    NODES,
    NORMAL,
    Histogram,
    Shape,
    fit_shape,
    histogram,
)

HEAVY = Shape((0.7, 0.3), (0.5, 1.7))


SKEWED = Shape((0.8, 0.2), (0.5, 1.2), (-0.4, 1.6))


def draws(shape, rng, n):
    which = rng.choice(len(shape.weights), n, p=shape.weights)
    means = np.array(shape.means or np.zeros(len(shape.weights)))
    return means[which] + np.array(shape.scales)[which] * rng.standard_normal(n)


@pytest.mark.parametrize(("n", "most"), [(250, 0.006), (2000, 0.001)])
def test_residuals_of_the_model_leave_its_distribution_nearly_as_it_is(n, most):
    """On average over samples: k weights that are fitted without need cost k / 2n nats; here k is at most 3."""
    new, losses = np.random.default_rng(99).standard_normal(20_000), []
    for seed in range(12):
        found = fit_shape(np.random.default_rng(seed).standard_normal(n))
        losses.append(np.mean(NORMAL.log_density(new) - found.log_density(new)))
    assert np.mean(losses) < most


@pytest.mark.parametrize("name", ["t", "laplace", "gamma"])
def test_three_hundred_residuals_give_intervals_that_hold(name):
    """Half of new errors lie in the central interval of 50 %, on average over samples, within .03."""
    truth = {"t": t(4, scale=1 / np.sqrt(2)), "laplace": laplace(scale=1 / np.sqrt(2)), "gamma": gamma(3, loc=-3.0)}[
        name
    ]
    new = truth.rvs(4000, random_state=np.random.default_rng(99)) / truth.std()
    held = []
    for seed in range(20):
        found = fit_shape(truth.rvs(300, random_state=np.random.default_rng(seed)) / truth.std())
        held.append(np.mean(np.abs(found.cdf(new) - 0.5) < 0.25))
    assert np.mean(held) == pytest.approx(0.5, abs=0.03)


def test_a_tail_that_no_residual_has_shown_keeps_a_weight(rng):
    found = fit_shape(rng.standard_normal(2000))
    assert found.log_density(np.array([12.0]))[0] > -20.0  # that of N(0, 1) is -73


@pytest.mark.parametrize("truth", [HEAVY, SKEWED, Shape((1.0,), (0.6,)), Shape((0.95, 0.05), (0.9, 5.0))])
def test_a_mixture_is_found(truth, rng):
    found, new = fit_shape(draws(truth, rng, 4000)), draws(truth, rng, 20_000)
    loss = np.mean(truth.log_density(new) - found.log_density(new))
    assert loss < 0.01  # k independent weights cost k / 8000 nats; means and scales that are not on the grid the rest
    assert np.mean(found.log_density(new) - NORMAL.log_density(new)) > 0.05
    for level in (0.5, 0.8, 0.95):
        assert np.mean(np.abs(found.cdf(new) - 0.5) < level / 2) == pytest.approx(level, abs=0.025)


def test_one_residual_alone_does_not_decide(rng):
    z = rng.standard_normal(1000)
    without = fit_shape(z)
    z[7] = 300.0
    found = fit_shape(z)
    for level in (0.5, 0.8, 0.95):
        assert found.quantile(0.5 + level / 2) == pytest.approx(without.quantile(0.5 + level / 2), rel=0.02)


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
    np.testing.assert_allclose(nearly.weights, exactly.weights, rtol=1e-10)


@pytest.mark.parametrize("shape", [NORMAL, HEAVY, SKEWED])
def test_density_distribution_and_quantiles_belong_together(shape):
    for q in (0.025, 0.3, 0.5, 0.9, 0.999):
        at = shape.quantile(q)
        assert shape.cdf(at) == pytest.approx(q, abs=1e-14)
        mass, _ = quad(lambda z: np.exp(shape.log_density(z)), -40.0, at, points=[-1.0, 0.0], epsabs=1e-12, limit=200)
        assert mass == pytest.approx(q, abs=1e-9)
        assert shape.mirrored.cdf(-at) == pytest.approx(1.0 - q, abs=1e-14)


def test_crps_is_that_of_the_mixture():
    z = np.array([-3.0, 0.0, 0.4, 7.0])
    oracle = scoringrules.crps_mixnorm(
        z, np.zeros((4, 2)), np.tile(HEAVY.scales, (4, 1)), np.tile(HEAVY.weights, (4, 1)), backend="numpy"
    )
    np.testing.assert_allclose(HEAVY.crps(z), oracle, rtol=1e-12)
    means = np.tile(SKEWED.means, (4, 1))
    skewed = scoringrules.crps_mixnorm(
        z, means, np.tile(SKEWED.scales, (4, 1)), np.tile(SKEWED.weights, (4, 1)), backend="numpy"
    )
    np.testing.assert_allclose(SKEWED.crps(z), skewed, rtol=1e-12)
    np.testing.assert_allclose(NORMAL.crps(z), scoringrules.crps_normal(z, 0.0, 1.0, backend="numpy"), rtol=1e-12)


def test_no_residual_at_all_in_one_half_decides_nothing(rng):
    alone = sum((histogram(z) for z in draws(HEAVY, rng, 400)[:, None]), Histogram(np.zeros((2, 2 * NODES))))
    assert alone.counts[1].sum() == 0.0
    assert fit_shape(alone) == NORMAL
    even = histogram(draws(HEAVY, rng, 4000))
    assert fit_shape(even) != NORMAL


def test_no_shape_is_narrower_than_the_grid():
    found = fit_shape(np.zeros(500))
    assert found.weights[int(np.argmin(found.scales))] > 0.9
    assert min(found.scales) == pytest.approx(NARROWEST)

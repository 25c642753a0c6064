"""Numbers whose errors have a shape and a scale of their own: laws of their distributions, and normal scores."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp, ndtri_exp
from scipy.stats import kstest, norm

from bcmdist.data.observations import Observations, unweighted
from bcmdist.model.likelihoods import (
    Binomial,
    Exponential,
    Gamma,
    Gaussian,
    InverseGaussian,
    NegativeBinomial,
    Poisson,
    StudentT,
    Weibull,
)
from bcmdist.prediction.errors.scale_mixture import NORMAL, Shape
from bcmdist.prediction.errors.standardised_residuals import standardised_residuals
from bcmdist.prediction.observation import observe, predictive
from bcmdist.prediction.scoring.pit import pit_ranges

HEAVY = Shape((0.7, 0.3), (0.6, 1.8))
FACTOR = np.array([0.5, 1.0, 3.0])
MEAN, VARIANCE = np.array([1.0, 0.3, 2.0]), np.array([0.02, 0.3, 1.0])
NUMBERS = [Gamma(3.0), InverseGaussian(0.3), Weibull(2.0), Exponential(), StudentT(0.3, 4.0)]
COUNTS = [Poisson(), NegativeBinomial(2.0), Binomial()]
named = {"ids": lambda likelihood: likelihood.name}


def rows(y=0.0, event=1.0, n=3):
    return Observations(np.full(n, y), np.ones(n), np.full(n, 2.0), np.full(n, 12.0), np.full(n, event))


def said(likelihood, shape=HEAVY, factor=FACTOR, mean=MEAN, variance=VARIANCE, n=3):
    return predictive(likelihood, mean, variance, rows(n=n), shape=shape, widening=lambda v: factor)


def density(likelihood, y, event=1.0):
    return np.exp(said(likelihood).log_density(rows(y, event)))


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", COUNTS, **named)
def test_probabilities_of_counts_are_steps_of_their_distribution(likelihood):
    most = 12 if likelihood.name == "binomial" else 2000
    p = np.array([density(likelihood, y) for y in range(min(most, 40) + 1)])
    F = np.array([said(likelihood).cdf(float(y)) for y in range(min(most, 40) + 1)])
    np.testing.assert_allclose(np.cumsum(p, axis=0), F, atol=1e-9)
    if most == 12:
        np.testing.assert_allclose(p.sum(axis=0), 1.0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", NUMBERS, **named)
def test_densities_are_slopes_of_their_distribution(likelihood):
    for level in (0.1, 0.5, 0.9):
        y = said(likelihood).quantile(level)
        np.testing.assert_allclose(said(likelihood).cdf(y), level, atol=5e-6)
        for k, at in enumerate(y):
            area, _ = quad(lambda x, k=k: density(likelihood, x)[k], at, 1.01 * at, epsrel=1e-6)
            step = said(likelihood).cdf(1.01 * at) - said(likelihood).cdf(at)
            # the cdf of the model itself is known to 3e-6
            assert area == pytest.approx(step[k], rel=1e-3, abs=6e-6)


@pytest.mark.parametrize("likelihood", COUNTS, **named)
def test_quantiles_of_counts_are_the_smallest_that_suffice(likelihood):
    for q in (0.025, 0.3, 0.975):
        y = said(likelihood).quantile(q)
        assert np.all(said(likelihood).cdf(y) >= q - 1e-9)
        assert np.all(said(likelihood).cdf(y - 1.0) < q + 1e-9)


@pytest.mark.parametrize("likelihood", COUNTS + NUMBERS, **named)
def test_what_the_model_says_is_one_component_of_no_factor(likelihood):
    plain = predictive(likelihood, MEAN, VARIANCE, rows())
    nearly = Shape((0.5, 0.5), (1.0, 1.0))  # the same distribution, written otherwise
    got = said(likelihood, nearly, np.ones(3))
    for y in (0.0, 1.0, 3.0, 7.0) if likelihood.discrete else (0.1, 1.0, 3.0, 7.0):
        np.testing.assert_allclose(got.log_density(rows(y)), plain.log_density(rows(y)), atol=1e-5)
        np.testing.assert_allclose(got.cdf(y), plain.cdf(y), atol=1e-12)
    np.testing.assert_allclose(got.quantile(0.8), plain.quantile(0.8), rtol=1e-5)
    np.testing.assert_array_equal(got.mean, plain.mean)
    untouched = predictive(likelihood, MEAN, VARIANCE, rows(), shape=NORMAL)
    np.testing.assert_array_equal(untouched.log_density(rows(2.0)), plain.log_density(rows(2.0)))


def test_with_normal_noise_both_ways_are_one():
    """Student's t of very many degrees of freedom is normal, and says all of it by normal scores."""
    y, m, v = np.array([-1.5, 0.3, 4.0]), np.array([0.0, 0.5, 0.1]), np.array([0.2, 0.01, 0.4])
    how = {"shape": HEAVY, "widening": lambda variance: FACTOR}
    normal = predictive(Gaussian(0.3), m, v, unweighted(y), **how)
    scored = predictive(StudentT(0.3, 1e9), m, v, unweighted(y), **how)
    np.testing.assert_allclose(scored.log_density(unweighted(y)), normal.log_density(unweighted(y)), atol=2e-4)
    for q in (0.025, 0.5, 0.9):
        np.testing.assert_allclose(scored.quantile(q), normal.quantile(q), atol=1e-4)
    np.testing.assert_allclose(scored.cdf(y), normal.cdf(y), atol=1e-5)
    np.testing.assert_allclose(scored.variance, normal.variance, rtol=1e-6)
    np.testing.assert_allclose(scored.crps(y), normal.crps(y), rtol=0.03)  # of quantiles at 20 levels


@pytest.mark.parametrize("likelihood", [Weibull(2.0), Exponential()], **named)
def test_a_life_that_is_not_over_has_the_probability_of_what_is_left(likelihood):
    for y in (0.5, 3.0, 12.0):
        left = 1.0 - said(likelihood).cdf(y)
        np.testing.assert_allclose(density(likelihood, y, event=0.0), left, atol=6e-6)


@pytest.mark.parametrize("likelihood", COUNTS + NUMBERS, **named)
def test_limits_predicted_are_quantiles_and_moments_stay(likelihood):
    told = observe(likelihood, MEAN, VARIANCE, rows(), shape=HEAVY, widening=lambda v: FACTOR)
    plain = observe(likelihood, MEAN, VARIANCE, rows())
    np.testing.assert_array_equal(told["upper95"], said(likelihood).quantile(0.975))
    np.testing.assert_array_equal(told["observation_mean"], plain["observation_mean"])
    np.testing.assert_allclose(told["observation_variance"], plain["observation_variance"] * FACTOR, rtol=1e-12)
    assert np.all(told["upper95"][2] >= plain["upper95"][2])


@pytest.mark.parametrize("y", [0.0, 3.0, 40.0, 200.0, 1e4, 1e6])
@pytest.mark.parametrize("likelihood", COUNTS[:2], **named)
def test_what_lies_far_out_has_a_probability(likelihood, y):
    found = said(likelihood).log_density(rows(y))
    assert np.all(np.isfinite(found))
    assert np.all(found < 0.0)


# --- Normal scores ---

Z = np.linspace(-14.0, 14.0, 4001)
SHARES = norm.logpdf(Z) - logsumexp(norm.logpdf(Z))


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(5.0), Gamma(3.0), Weibull(2.0)], **named)
@pytest.mark.parametrize("sd", [0.03, 0.2, 1.0])
def test_normal_scores_in_the_tails(likelihood, sd):
    """Against sums over 4,001 latent values: probabilities down to 1e-11, from either end."""
    y = np.exp(2.0 + np.linspace(-3.0, 3.0, 13))
    y = np.round(y) if likelihood.discrete else y
    obs = Observations(y, np.ones(13), np.ones(13), np.ones(13), np.ones(13))
    got = predictive(likelihood, np.full(13, 2.0), np.full(13, sd**2), obs).normal_score(y)
    conditional = likelihood.distribution(obs, 2.0 + sd * Z + np.zeros((13, 1)))
    with np.errstate(divide="ignore", under="ignore"):
        below = logsumexp(conditional.logcdf(y[:, None]) + SHARES, axis=1)
        above = logsumexp(conditional.logsf(y[:, None]) + SHARES, axis=1)
        exact = np.where(below < above, ndtri_exp(np.minimum(below, 0.0)), -ndtri_exp(np.minimum(above, 0.0)))
    near = np.abs(exact) < 7.0
    assert near.sum() > 5
    np.testing.assert_allclose(got[near], exact[near], atol=0.01)
    assert np.all(np.abs(got[~near]) > 6.9)


@pytest.mark.parametrize("likelihood", COUNTS + NUMBERS, **named)
def test_errors_of_what_is_right_are_standard_normal(likelihood, rng):
    n = 4000
    mean, variance = rng.normal(1.0, 0.5, n), rng.uniform(0.01, 0.5, n)
    f = rng.normal(mean, np.sqrt(variance))
    y = likelihood.distribution(rows(n=n), f).rvs(random_state=rng)
    obs = Observations(y.astype(float), np.ones(n), np.full(n, 2.0), np.full(n, 12.0), np.ones(n))
    assert kstest(predictive(likelihood, mean, variance, obs).standardised(obs, rng), norm.cdf).pvalue > 0.01


def test_errors_of_lives_that_were_censored_are_standard_normal(rng):
    n, likelihood = 4000, Weibull(2.0)
    mean, variance = rng.normal(1.0, 0.5, n), np.full(n, 0.1)
    life = likelihood.distribution(rows(n=n), rng.normal(mean, np.sqrt(variance))).rvs(random_state=rng)
    seen = rng.exponential(4.0, n)
    obs = Observations(np.minimum(life, seen), np.ones(n), np.ones(n), np.ones(n), (life <= seen).astype(float))
    assert 0.3 < obs.event.mean() < 0.9
    assert kstest(predictive(likelihood, mean, variance, obs).standardised(obs, rng), norm.cdf).pvalue > 0.01


@pytest.mark.slow
def test_places_of_what_is_reshaped_fill_the_unit_interval(rng):
    """Counts whose normal scores have a shape: drawn by its quantiles, judged by its distribution."""
    n, likelihood = 4000, NegativeBinomial(2.0)
    mean, variance, factor = rng.normal(1.0, 0.5, n), np.full(n, 0.1), rng.uniform(0.5, 2.0, n)
    z = rng.standard_normal(n) * np.where(rng.uniform(size=n) < 0.7, 0.6, 1.8) * np.sqrt(factor)
    told = said(likelihood, HEAVY, factor, mean, variance, n)
    y = told.base.at_normal_score(np.clip(z, -7.0, 7.0))
    where = pit_ranges(likelihood, told, rows(y, n=n))
    drawn = where.low + (where.high - where.low) * rng.uniform(size=n)
    assert kstest(drawn, "uniform").pvalue > 0.01
    plain = pit_ranges(likelihood, told.base, rows(y, n=n))
    assert kstest(plain.low + (plain.high - plain.low) * rng.uniform(size=n), "uniform").pvalue < 1e-4
    gained = told.log_density(rows(y, n=n)) - told.base.log_density(rows(y, n=n))
    assert gained.mean() > 0.03


def test_the_normal_limit_of_counts():
    """A count of about a million is normal: its probability is a density over steps of 1."""
    y = np.array([1e6 + 1500.0])
    obs = unweighted(y)
    told = predictive(Poisson(), np.log([1e6]), np.array([1e-12]), obs, shape=HEAVY)
    z = (y - 1e6) / np.sqrt(1e6 + 1.0)
    assert told.log_density(obs) == pytest.approx(HEAVY.log_density(z) - 0.5 * np.log(1e6), abs=2e-3)


def test_a_life_of_no_length_counts_as_the_shortest_one():
    """As in the log density of the model: no error of 7 standard deviations, no probability at a point."""
    for likelihood in (Exponential(), Weibull(2.0)):
        least = likelihood.zero_counts_as
        np.testing.assert_array_equal(
            said(likelihood).log_density(rows(0.0)), said(likelihood).log_density(rows(least))
        )
        plain = predictive(likelihood, MEAN, VARIANCE, rows())
        drawn = [plain.standardised(rows(y), np.random.default_rng(0)) for y in (0.0, least)]
        np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("factor", [1.0, 13.0, 55.0])
@pytest.mark.parametrize("likelihood", [Gamma(3.0), Poisson()], **named)
def test_limits_hold_what_they_say_where_errors_are_far_larger_than_the_model_says(likelihood, factor):
    told = said(likelihood, Shape((0.9, 0.1), (0.8, 2.5)), np.full(3, factor))
    for q in (0.025, 0.975):
        y = told.quantile(q)
        if likelihood.discrete:
            assert np.all(told.cdf(y) >= q - 1e-6)
            assert np.all(told.cdf(y - 1.0) <= q + 1e-6)
        else:
            np.testing.assert_allclose(told.cdf(y), q, atol=1e-3)


def test_rows_that_cannot_vary_have_no_errors(rng):
    obs = Observations(np.zeros(4), np.ones(4), np.ones(4), np.array([0.0, 5.0, 0.0, 3.0]), np.ones(4))
    places, z = standardised_residuals(Binomial(), np.arange(8.0).reshape(4, 2), np.zeros(4), np.full(4, 0.3), obs, rng)
    assert len(z) == 2
    np.testing.assert_array_equal(np.reshape(places, (2, 3))[:, 0], [2.0, 6.0])

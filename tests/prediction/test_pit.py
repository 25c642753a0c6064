"""Where observations lie in their predictive distributions: coverage, and histograms that should be flat."""

import numpy as np
import pytest
from scipy.stats import poisson

from bcmdist.data.observations import Observations
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
from bcmdist.prediction.observation import observe, predictive
from bcmdist.prediction.scoring.pit import BINS, LEVELS, covered, distance_to_uniform, histogram, pit_ranges

FAMILIES = [
    Gaussian(0.2),
    StudentT(0.3, 4.0),
    Gamma(2.0),
    InverseGaussian(0.5),
    Poisson(),
    NegativeBinomial(1.5),
    Binomial(),
    Exponential(),
    Weibull(1.5),
]
families = pytest.mark.parametrize("likelihood", FAMILIES, ids=lambda x: x.name)

MEAN, VARIANCE = np.array([0.5, -1.0, 0.3, 0.0, 0.5, -0.5]), np.array([0.0, 1e-4, 0.16, 1.0, 1.0, 4.0])
EXPOSURE, TRIALS = np.array([1.0, 5.0, 1.0, 1e2, 1e6, 1.0]), np.array([1.0, 5.0, 20.0, 1e2, 1e6, 3.0])


def observations(y, event=1.0):
    return Observations(np.broadcast_to(y, 6) * 1.0, np.ones(6), EXPOSURE, TRIALS, np.full(6, event))


def drawn(likelihood, rng, rows, *, shift=0.0):
    """Places of observations that were drawn from the beliefs about them, or from others a shift away."""
    mean, variance = rng.normal(0.3, 1.0, rows), rng.uniform(0.01, 0.5, rows)
    empty = Observations(np.full(rows, np.nan), np.ones(rows), rng.uniform(1, 9, rows), rng.integers(1, 9, rows) * 1.0)
    f = rng.normal(mean + shift, np.sqrt(variance))
    y = np.asarray(likelihood.distribution(empty, f).rvs(random_state=rng), dtype=float)
    obs = Observations(y, empty.weight, empty.exposure, empty.trials)
    return pit_ranges(likelihood, predictive(likelihood, mean, variance, obs), obs)


@families
def test_observations_drawn_from_the_model_fill_the_bins_evenly(likelihood, rng):
    n = 4000
    where = drawn(likelihood, rng, n)
    shares = histogram(where) / n
    assert shares.shape == (BINS,)
    assert shares.sum() == pytest.approx(1.0, rel=1e-12)
    # Kolmogorov: 1.95 / sqrt(n) is exceeded by one sample of a thousand, and the seed is fixed.
    assert distance_to_uniform(shares) < 1.95 / np.sqrt(n)
    for level in LEVELS:
        share, error = covered(where, level).mean(), 4 * np.sqrt(level * (1 - level) / n)
        assert share > level - error  # intervals of counts hold what they promise or more
        assert likelihood.discrete or share < level + error


@families
def test_observations_drawn_from_elsewhere_do_not(likelihood, rng):
    shares = histogram(drawn(likelihood, rng, 4000, shift=-0.7)) / 4000
    assert distance_to_uniform(shares) > 0.1
    assert shares[:5].sum() > 0.3 > shares[-5:].sum()  # more lie below than was said


def test_intervals_that_are_too_narrow_leave_rows_at_both_ends(rng):
    y = rng.standard_normal(4000)
    obs = Observations(y, np.ones(4000))
    where = pit_ranges(Gaussian(0.1), predictive(Gaussian(0.1), 0 * y, 0 * y + 0.15, obs), obs)  # sd 0.5 in place of 1
    shares = histogram(where) / 4000
    assert min(shares[0], shares[-1]) > 3 / BINS
    assert covered(where, 0.95).mean() < 0.75


def test_a_count_is_divided_among_bins_by_definition():
    """Czado, Gneiting & Held (2009): the average of distribution functions that are linear from F(y-1) to F(y)."""
    y = np.arange(6.0)
    obs = Observations(y, np.ones(6))
    said = predictive(Poisson(), np.full(6, np.log(2.0)), np.full(6, 1e-12), obs)
    u = np.arange(BINS + 1)[:, None] / BINS
    below, at = poisson(2.0).cdf(y - 1), poisson(2.0).cdf(y)
    exact = np.diff(np.clip((u - below) / (at - below), 0, 1).sum(axis=1))
    np.testing.assert_allclose(histogram(pit_ranges(Poisson(), said, obs)), exact, atol=1e-4)  # that of the cdf


@families
def test_histograms_and_coverage_add(likelihood, rng):
    where = drawn(likelihood, rng, 300)
    parts = [type(where)(where.low[r], where.high[r], where.seen[r]) for r in (slice(0, 110), slice(110, 300))]
    for total in (histogram, lambda w: covered(w, 0.8).sum()):
        np.testing.assert_allclose(sum(total(part) for part in parts), total(where), rtol=1e-12)


@pytest.mark.parametrize("level", LEVELS)
@families
def test_covered_is_lying_between_the_limits(likelihood, level):
    told = predictive(likelihood, MEAN, VARIANCE, observations(np.nan))
    low, high = told.quantile(0.5 - level / 2), told.quantile(0.5 + level / 2)
    for limit, inner in ((low, 1.0), (high, -1.0)):
        scale = 1.0 if likelihood.discrete else 1e-3 * np.maximum(np.abs(limit), 1e-9)
        for step in (inner, -inner, 0.0) if likelihood.discrete else (inner, -inner):
            y = limit + step * scale
            obs = observations(y)
            where = pit_ranges(likelihood, predictive(likelihood, MEAN, VARIANCE, obs), obs)
            np.testing.assert_array_equal(covered(where, level), (y >= low) & (y <= high))


def test_limits_reported_are_those_of_the_widest_level():
    told = observe(Gaussian(0.2), MEAN, VARIANCE, observations(0.0))
    said = predictive(Gaussian(0.2), MEAN, VARIANCE, observations(0.0))
    np.testing.assert_allclose(said.cdf(told["upper95"]) - said.cdf(told["lower95"]), LEVELS[-1])


# --- Lifetimes that are not over ---


def place(likelihood, mean, variance, obs):
    return pit_ranges(likelihood, predictive(likelihood, mean, variance, obs), obs)


def test_a_censored_row_is_covered_with_the_probability_left():
    likelihood, m, v = Weibull(1.5), np.array([0.2]), np.array([0.3])
    said = predictive(likelihood, m, v, observations(np.nan)[:1])
    low, high = said.quantile(0.025)[0], said.quantile(0.975)[0]
    for c in (0.0, 0.5 * low, 0.5, 2.0, 1.1 * high):
        obs = Observations(np.array([c]), np.ones(1), event=np.zeros(1))
        at = said.cdf(np.array([c]))[0]
        exact = max(said.cdf(np.array([high]))[0] - max(said.cdf(np.array([low]))[0], at), 0.0) / (1.0 - at)
        np.testing.assert_allclose(covered(place(likelihood, m, v, obs), 0.95), exact, atol=1e-5)


def test_censored_lifetimes_drawn_from_the_model(rng):
    n, likelihood = 20_000, Weibull(1.5)
    m, v = np.full(n, 0.1), np.full(n, 0.4)
    life = np.exp(rng.normal(m, np.sqrt(v))) * rng.weibull(1.5, n)
    clock = rng.exponential(1.5, n)
    obs = Observations(np.minimum(life, clock), np.ones(n), event=(life <= clock) * 1.0)
    assert 0.3 < obs.event.mean() < 0.8
    where = place(likelihood, m, v, obs)
    for level in LEVELS:  # four standard errors of 20,000 rows
        assert abs(covered(where, level).mean() - level) < 4 * np.sqrt(level * (1 - level) / n)
    assert distance_to_uniform(histogram(where) / n) < 1.95 / np.sqrt(n)


def test_places_beyond_floating_point_and_no_rows():
    obs = Observations(np.array([1e9, 1e9, 0.0]), np.ones(3), event=np.array([0.0, 1.0, 0.0]))
    where = place(Weibull(1.5), np.zeros(3), np.full(3, 0.1), obs)
    shares = histogram(where)
    assert shares.sum() == pytest.approx(3.0)
    np.testing.assert_allclose(shares[:-1], 1 / BINS)  # of the row of which nothing is known
    np.testing.assert_array_equal(covered(where, 0.5), [0.0, 0.0, 0.5])
    none = Observations(np.zeros(0), np.zeros(0))
    assert histogram(place(Poisson(), np.zeros(0), np.zeros(0), none)).sum() == 0.0

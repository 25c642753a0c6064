"""Predictive distributions against sums over very many latent values, and against simulation."""

import time

import numpy as np
import pytest
from scipy.special import expit, log_ndtr, logsumexp, ndtr
from scipy.stats import bernoulli, invgauss, norm

from bcmdist.data.observations import Observations, unweighted
from bcmdist.model.likelihoods import (
    SVM,
    Bernoulli,
    Binomial,
    Exponential,
    Gamma,
    Gaussian,
    InverseGaussian,
    NegativeBinomial,
    Poisson,
    Probit,
    StudentT,
    Weibull,
    make_likelihood,
    tasks,
)
from bcmdist.model.likelihoods.positive import INVERSE_GAUSSIAN
from bcmdist.prediction.observation import observe, predictive
from some_likelihoods import ONE_PROCESS

MIXED = [
    StudentT(0.01, 2.5),
    StudentT(1.0, 30.0),
    Gamma(0.3),
    Gamma(50.0),
    InverseGaussian(0.05),
    InverseGaussian(3.0),
    NegativeBinomial(0.5),
    NegativeBinomial(100.0),
    Poisson(),
    Binomial(),
    Exponential(),
    Weibull(0.5),
    Weibull(8.0),
]
named = pytest.mark.parametrize(
    "likelihood", MIXED, ids=lambda x: f"{x.name}-{'-'.join(map(str, x.parameters.values()))}"
)

# Narrow, ordinary and wide beliefs; and a small and a large count, whose p(y | f) is a thousandth as wide as the last.
MEAN = np.array([0.5, -1.0, 0.3, 0.0, 0.5, -0.5])
SD = np.array([0.0, 0.01, 0.4, 1.0, 1.0, 2.0])
EXPOSURE = np.array([1.0, 5.0, 1.0, 1e2, 1e6, 1.0])
TRIALS = np.array([1.0, 5.0, 20.0, 1e2, 1e6, 3.0])
Z = np.linspace(-9.0, 9.0, 20_001)
SHARES = norm.pdf(Z) / norm.pdf(Z).sum()


def rows(y=np.nan, event=1.0):
    return Observations(np.full(6, y), np.ones(6), EXPOSURE, TRIALS, np.full(6, event))


def brute(likelihood, function):
    """Average of a function of the conditional distribution over each belief, by 20,001 latent values."""
    f = MEAN[:, None] + SD[:, None] * Z
    return function(likelihood.distribution(rows(), f)) @ SHARES


@named
def test_moments(likelihood):
    said = predictive(likelihood, MEAN, SD**2, rows())
    mean = brute(likelihood, lambda d: d.mean())
    second = brute(likelihood, lambda d: d.var() + d.mean() ** 2)
    np.testing.assert_allclose(said.mean, mean, rtol=1e-8, atol=1e-12)
    # The inverse Gaussian's third power of exp(f) at sd 2 lies 6 sd out, where 20,001 latent values end.
    np.testing.assert_allclose(said.variance[:5], (second - mean**2)[:5], rtol=1e-6)


@named
def test_cdf_and_quantiles(likelihood):
    said = predictive(likelihood, MEAN, SD**2, rows())
    for q in (0.025, 0.5, 0.975):
        y = said.quantile(q)
        assert y.shape == (6,)
        exact = brute(likelihood, lambda d, y=y: d.cdf(y[:, None]))
        np.testing.assert_allclose(said.cdf(y), exact, atol=1e-5)  # measured: 3e-6
        if likelihood.discrete:
            before = brute(likelihood, lambda d, y=y: d.cdf(y[:, None] - 1.0))
            assert np.all(exact >= q - 1e-5)
            assert np.all(before < q + 1e-5)
            np.testing.assert_array_equal(y, np.round(y))
        else:
            np.testing.assert_allclose(exact, q, atol=1e-5)


@pytest.mark.parametrize("dispersion", [1e-4, 0.03, 1.0, 10.0, 100.0])
def test_quantiles_of_an_inverse_gaussian_of_any_dispersion(dispersion):
    """Nearly a point, or with a mean beyond the 99 % quantile: variance / mean^2 from 5e-6 to 2000."""
    likelihood = InverseGaussian(dispersion)
    m, v = np.repeat([-3.0, 0.0, 3.0], 3), np.tile([1e-6, 0.1, 2.0], 3)
    said = predictive(likelihood, m, v, unweighted(np.zeros(9)))
    f = m[:, None] + np.sqrt(v)[:, None] * Z
    for q in (0.025, 0.5, 0.975):
        y = said.quantile(q)
        np.testing.assert_allclose(said.cdf(y), q, atol=1.1e-6)  # where the search ends
        np.testing.assert_allclose(likelihood.distribution(unweighted(y), f).cdf(y[:, None]) @ SHARES, q, atol=3e-6)


@pytest.mark.parametrize("relative_variance", [1e-3, 1.0, 1e4])
def test_the_inverse_gaussian_distribution_is_that_of_scipy(relative_variance):
    ours, theirs = INVERSE_GAUSSIAN(relative_variance), invgauss(relative_variance)
    y = theirs.ppf([0.001, 0.2, 0.5, 0.9, 0.999])
    for method in ("cdf", "pdf", "logpdf"):
        np.testing.assert_allclose(getattr(ours, method)(y), getattr(theirs, method)(y), rtol=1e-9)
    np.testing.assert_allclose(ours.stats("mvsk"), theirs.stats("mvsk"))
    assert INVERSE_GAUSSIAN(1e20).cdf(1.0) == pytest.approx(2.0 * ndtr(-1.0))  # Levy's, its limit
    assert INVERSE_GAUSSIAN(1e-20).cdf([0.9e-20, 1e-20, 1.1e-20]).tolist() == [0.0, pytest.approx(0.5), 1.0]


@named
def test_log_density(likelihood):
    said = predictive(likelihood, MEAN, SD**2, rows())
    z = np.linspace(-9.0, 9.0, 80_001)  # apart by less than the width of p(y | f) at a count of 1e7
    f, shares = MEAN[:, None] + SD[:, None] * z, norm.pdf(z) / norm.pdf(z).sum()
    for q in (0.01, 0.5, 0.99):
        y = said.quantile(q)
        for event in (1.0, 0.0):
            obs = Observations(y, np.full(6, 3.0), EXPOSURE, TRIALS, np.full(6, event))
            once = Observations(y, np.ones(6), EXPOSURE, TRIALS, np.full(6, event))
            exact = logsumexp(likelihood.log_density(once[:, None], f), b=shares, axis=1)
            # One observation of each row is scored, whatever its weight. Differences are those of panels: 1e-6.
            np.testing.assert_allclose(said.log_density(obs), exact, atol=1e-5)


@named
def test_simulated_observations(likelihood, rng):
    draws = 20_000
    f = rng.normal(0.2, 0.7, draws)
    obs = Observations(np.full(draws, np.nan), np.ones(draws), np.full(draws, 30.0), np.full(draws, 12.0))
    y = np.asarray(likelihood.distribution(obs, f).rvs(random_state=rng), dtype=float)
    said = predictive(likelihood, np.array([0.2]), np.array([0.49]), obs[:1])
    for q in (0.1, 0.5, 0.9):
        found = said.cdf(np.quantile(y, q, method="inverted_cdf"))[0]
        jump = found - said.cdf(np.quantile(y, q, method="inverted_cdf") - 1.0)[0] if likelihood.discrete else 0.0
        # Four standard errors of a share of 20,000: 0.014.
        assert q - 0.014 < found < q + jump + 0.014


def test_gaussian_in_closed_form():
    obs = Observations(np.array([0.3]), np.array([2.0]))
    said, total = predictive(Gaussian(0.4), np.array([1.0]), np.array([0.5]), obs), norm(1.0, np.sqrt(0.7))
    np.testing.assert_allclose([said.mean[0], said.variance[0]], [1.0, 0.7])
    np.testing.assert_allclose(said.cdf(obs.y), total.cdf(0.3))
    np.testing.assert_allclose(said.quantile(0.2), total.ppf(0.2))
    np.testing.assert_allclose(said.log_density(obs), total.logpdf(0.3))


def test_student_t_tends_to_the_gaussian():
    m, v, obs = MEAN, SD**2, rows(0.8)
    heavy, light = predictive(StudentT(0.3, 1e7), m, v, obs), predictive(Gaussian(0.3), m, v, obs)
    np.testing.assert_allclose(heavy.cdf(obs.y), light.cdf(obs.y), atol=1e-5)
    np.testing.assert_allclose(heavy.log_density(obs), light.log_density(obs), atol=1e-5)  # of order z^4 / 1e7


@pytest.mark.parametrize("likelihood", [Bernoulli(), Probit(), SVM()])
def test_classes(likelihood):
    said = predictive(likelihood, MEAN, SD**2, rows())
    yes = brute(likelihood, lambda d: d.pmf(1))
    np.testing.assert_allclose(said.mean, yes, atol=1e-9 if likelihood.name != "svm" else 1e-3)  # a kink
    two = bernoulli(said.mean)
    np.testing.assert_allclose(said.variance, two.var())
    for y in (-0.5, 0.0, 0.5, 1.0):
        np.testing.assert_allclose(said.cdf(np.full(6, y)), two.cdf(y))
    np.testing.assert_allclose(said.quantile(0.6), two.ppf(0.6))
    np.testing.assert_allclose(said.log_density(rows(0.0)), two.logpmf(0))


def test_probit_in_closed_form():
    m, v = np.array([-30.0, 0.4]), np.array([2.0, 3.0])
    told = observe(Probit(), m, v, Observations(np.zeros(2), np.ones(2)))
    np.testing.assert_allclose(told["probability"][:, 1], ndtr(m / np.sqrt(1 + v)), rtol=1e-12)
    said = predictive(Probit(), m, v, rows()[:2])
    one = Observations(np.ones(2), np.ones(2))
    np.testing.assert_allclose(said.log_density(one), log_ndtr(m / np.sqrt(1 + v)), rtol=1e-9)


def test_exponential_waiting_for_a_lognormal_mean_has_known_moments():
    m, v = np.array([0.3]), np.array([0.6])
    said = predictive(Exponential(), m, v, rows()[:1])
    np.testing.assert_allclose(said.mean, np.exp(m + v / 2))
    np.testing.assert_allclose(said.variance, 2 * np.exp(2 * m + 2 * v) - np.exp(2 * m + v))


def test_a_count_of_a_million_is_the_latent_belief():
    """Its Poisson noise is a thousandth of the belief: quantiles are those of exp(f)."""
    said = predictive(Poisson(), np.zeros(1), np.ones(1), rows()[4:5])
    for q in (0.025, 0.5, 0.975):
        np.testing.assert_allclose(said.quantile(q), 1e6 * np.exp(norm.ppf(q)), rtol=1e-5)
    seen = Observations(np.array([2e6]), np.ones(1), np.array([1e6]))
    # log p(y) = log N(log(y / exposure); 0, 1) - log y, up to a relative 1 / y.
    np.testing.assert_allclose(said.log_density(seen), norm.logpdf(np.log(2.0)) - np.log(2e6), atol=1e-5)


@pytest.mark.parametrize("far", [-60.0, 60.0])
def test_surprising_observations_have_finite_log_densities(far):
    """Sums over the belief cannot see them: the product is large where neither factor is."""
    for likelihood in (Poisson(), NegativeBinomial(50.0), Gamma(20.0), Weibull(2.0)):
        y = np.array([1e6])
        got = predictive(likelihood, np.array([far]), np.array([0.5]), rows()[:1]).log_density(
            Observations(y, np.ones(1))
        )
        f = np.linspace(-70, 70, 400_001)
        product = likelihood.log_density(Observations(y, np.ones(1))[:, None], f) + norm.logpdf(f, far, np.sqrt(0.5))
        exact = logsumexp(product + np.log(f[1] - f[0]), axis=-1)
        np.testing.assert_allclose(got, np.ravel(exact), rtol=1e-5)


def test_names_of_what_is_observed():
    wanted = {
        "classification": {"probability", "label"},
        "binomial": {"probability", "observation_mean", "observation_variance", "lower95", "upper95"},
        "lifetimes": {"median", "observation_mean", "observation_variance", "lower95", "upper95"},
        "regression": {"observation_mean", "observation_variance", "lower95", "upper95"},
        "counts": {"observation_mean", "observation_variance", "lower95", "upper95"},
    }
    for task, names in tasks().items():
        for name in ONE_PROCESS.keys() & set(names):
            told = observe(make_likelihood(name), MEAN, SD**2, rows())
            assert told.keys() == wanted[task], name
            for key, values in told.items():
                assert values.shape == ((6, 2) if (task, key) == ("classification", "probability") else (6,))
                assert np.all(np.isfinite(values)), (name, key)


def test_binomial_probability_is_the_average_one():
    told = observe(Binomial(), MEAN, SD**2, rows())
    f = MEAN[:, None] + SD[:, None] * Z
    np.testing.assert_allclose(told["probability"], expit(f) @ SHARES, rtol=1e-8)
    np.testing.assert_allclose(told["observation_mean"], TRIALS * told["probability"], rtol=1e-8)


@pytest.mark.parametrize("name", ONE_PROCESS)
@pytest.mark.parametrize("mean", [-800.0, -40.0, 40.0, 800.0])
def test_far_beliefs_stay_in_order(name, mean):
    """No warning, no nan; moments may be infinite."""
    m = np.full(3, mean)
    told = observe(make_likelihood(name), m, np.array([0.0, 1.0, 900.0]), rows()[:3])
    assert not any(np.isnan(values).any() for values in told.values())
    if "lower95" in told:
        assert np.all(told["lower95"] <= told["upper95"])
        assert np.all(np.isfinite(told["upper95"]))


def test_no_rows():
    none = Observations(np.zeros(0), np.zeros(0))
    for name in ONE_PROCESS:
        for values in observe(make_likelihood(name), np.zeros(0), np.zeros(0), none).values():
            assert len(values) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_PROCESS)
def test_three_quantiles_of_ten_thousand_rows_take_seconds(name, rng):
    n = 10_000
    obs = Observations(np.full(n, np.nan), np.ones(n), rng.choice([1.0, 1e6], n), rng.integers(1, 50, n) * 1.0)
    said = predictive(make_likelihood(name), rng.standard_normal(n), rng.uniform(0.01, 1.0, n), obs)
    start = time.thread_time()
    for q in (0.025, 0.5, 0.975):
        said.quantile(q)
    assert time.thread_time() - start < 10.0  # measured: 1 to 4 seconds of elapsed time on one busy core

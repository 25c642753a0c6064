import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr

from bcmdist.data.observations import Observations, unweighted
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.model.likelihoods.tilted import tilted, tilted_site
from some_likelihoods import Counts, HeavyTailed, Probit, by_trapezoid


def one(likelihood, y, mean, variance, function=tilted):
    return [v[0] for v in function(likelihood, unweighted([y]), np.array([float(mean)]), np.array([float(variance)]))]


def check(likelihood, y, mean, variance, tolerance=1e-9):
    """Mean in standard deviations, variance relative; log normaliser relative where it is large."""
    log_z, m, v = by_trapezoid(likelihood, y, mean, variance)
    got_z, got_m, got_v = one(likelihood, y, mean, variance)
    assert abs(got_z - log_z) <= tolerance * max(1.0, abs(log_z))
    assert abs(got_m - m) <= tolerance * np.sqrt(v)
    assert abs(got_v / v - 1) <= tolerance
    _, tau, nu = one(likelihood, y, mean, variance, tilted_site)
    if tau > 0:
        assert abs(variance / (1 + tau * variance) / v - 1) <= tolerance
    assert abs((mean + nu * variance) / (1 + tau * variance) - m) <= tolerance * np.sqrt(v)


@pytest.mark.parametrize("variance", [1e-8, 1e-4, 0.1, 1.0, 10.0, 100.0, 1e4])
def test_moments_are_those_of_brute_force(variance):
    for mean in (-40.0, -3.0, 0.0, 5.0):
        for y in (0, 1):
            check(Bernoulli(), y, mean, variance, tolerance=1e-10)
    for mean in (-5.0, 0.0, 15.0):
        for y in (0, 3, 1e6):  # to 1e-9: log p is a difference of numbers of up to 1e7
            check(Counts(), y, mean, variance)


@pytest.mark.parametrize("variance", [1e-4, 1.0, 100.0, 1e4])
def test_a_likelihood_that_is_not_log_concave_has_its_moments_too(variance):
    for y in (0.0, 0.5, 2.0):
        check(HeavyTailed(), y, 0.3, variance, tolerance=1e-8)  # in the tails the grid is coarse


def test_brute_force_is_scipy_s():
    log_z, mean, variance = by_trapezoid(Bernoulli(), 1, -3.0, 2.0)
    parts = [
        quad(lambda f, k=k: f**k * np.exp(-((f + 3) ** 2) / 4) / np.sqrt(4 * np.pi) / (1 + np.exp(-f)), -20, 15)[0]
        for k in range(3)
    ]
    np.testing.assert_allclose([log_z, mean], [np.log(parts[0]), parts[1] / parts[0]], rtol=1e-9)
    np.testing.assert_allclose(variance, parts[2] / parts[0] - mean**2, rtol=1e-7)  # quad's own tolerance


def test_probit_has_a_closed_form(rng):
    """Rasmussen & Williams 2006, eqs. 3.82, 3.85, 3.87."""
    y, m, v = (rng.uniform(size=50) < 0.5) * 1.0, 5 * rng.standard_normal(50), rng.uniform(0.01, 30, 50)
    log_z, mean, variance = tilted(Probit(), unweighted(y), m, v)
    z = (2 * y - 1) * m / np.sqrt(1 + v)
    ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    np.testing.assert_allclose(log_z, log_ndtr(z), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(mean, m + (2 * y - 1) * v * ratio / np.sqrt(1 + v), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(variance, v - v**2 * ratio / (1 + v) * (z + ratio), rtol=1e-9)


def test_gaussian_site_is_the_likelihood_itself():
    obs = Observations(np.array([1.0, -2.0, 1e3, 3.0]), np.array([1.0, 5.0, 1.0, 1e-12]))
    likelihood = Gaussian(0.1)
    log_z, tau, nu = tilted_site(likelihood, obs, np.array([0.0, 3.0, 0.0, 0.0]), np.array([1.0, 1e-8, 1e4, 2.0]))
    np.testing.assert_allclose(tau, 1 / likelihood.noise(obs), rtol=1e-10)
    np.testing.assert_allclose(nu, obs.y / likelihood.noise(obs), rtol=1e-10)
    total = likelihood.noise(obs) + np.array([1.0, 1e-8, 1e4, 2.0])
    exact = -0.5 * ((obs.y - np.array([0.0, 3.0, 0.0, 0.0])) ** 2 / total + np.log(2 * np.pi * total))
    np.testing.assert_allclose(log_z, exact, rtol=1e-11)


@pytest.mark.parametrize("variance", [0.0, 1e-300, 1e-30])
def test_no_variance_leaves_the_mean_alone(variance):
    obs, mean = unweighted([1.0, 0.0]), np.array([2.0, -30.0])
    log_z, m, v = tilted(Bernoulli(), obs, mean, np.full(2, variance))
    np.testing.assert_allclose(log_z, Bernoulli().log_density(obs, mean), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(m, mean, rtol=1e-15)
    np.testing.assert_allclose(v, variance, rtol=1e-12)
    _, tau, nu = tilted_site(Bernoulli(), obs, mean, np.full(2, variance))
    np.testing.assert_allclose(tau, Bernoulli().curvature(obs, mean), rtol=1e-12)
    np.testing.assert_allclose(nu - tau * mean, Bernoulli().score(obs, mean), rtol=1e-12)


def test_a_mean_where_the_rate_overflows():
    check(Counts(), 3, 800.0, 1e4)
    check(Counts(), 0, 30.0, 1.0)


def test_rows_do_not_see_each_other(rng):
    y, m, v = (rng.uniform(size=9) < 0.5) * 1.0, rng.standard_normal(9), np.geomspace(1e-8, 1e4, 9)
    together = tilted(Bernoulli(), unweighted(y), m, v)
    alone = [one(Bernoulli(), *row) for row in zip(y, m, v, strict=True)]
    np.testing.assert_allclose(np.column_stack(together), alone, rtol=1e-13)

import numpy as np
import pytest
from scipy import integrate
from scipy.special import expit
from scipy.stats import norm

from bcmdist.errors import InvalidOption
from bcmdist.likelihoods import Bernoulli, Gaussian, Observations, logistic_average, make_likelihood

CASES = [(Gaussian(0.3), np.array([-1.0, 0.2, 2.0])), (Bernoulli(), np.array([0.0, 1.0, 1.0]))]


@pytest.mark.parametrize(("likelihood", "y"), CASES)
def test_derivatives_are_those_of_the_log_density(likelihood, y):
    obs, f, h = Observations(y, np.array([1.0, 2.0, 0.5])), np.array([0.3, -1.2, 4.0]), 1e-5

    def slope(function):
        return (function(obs, f + h) - function(obs, f - h)) / (2 * h)

    np.testing.assert_allclose(likelihood.score(obs, f), slope(likelihood.log_density), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(-likelihood.curvature(obs, f), slope(likelihood.score), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(-likelihood.third(obs, f), slope(likelihood.curvature), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("likelihood", "y"), CASES)
def test_weight_counts_rows(likelihood, y):
    f = np.array([0.3, -1.2, 4.0])
    once, thrice = Observations(y, np.ones(3)), Observations(y, np.full(3, 3.0))
    np.testing.assert_allclose(likelihood.score(thrice, f), 3 * likelihood.score(once, f))
    np.testing.assert_allclose(likelihood.curvature(thrice, f), 3 * likelihood.curvature(once, f))


def test_gaussian_density():
    obs = Observations(np.array([1.0]), np.array([4.0]))
    np.testing.assert_allclose(Gaussian(0.3).log_density(obs, 0.2), norm.logpdf(1.0, 0.2, np.sqrt(0.3 / 4)))


@pytest.mark.parametrize("sd", [0.0, 0.1, 0.999, 1.0, 3.0, 10.0, 100.0])
def test_logistic_average_against_adaptive_quadrature(sd):
    for mean in (-40.0, -4.0, 0.0, 1.5, 200.0):
        edge = np.clip(-mean / sd, -11, 11) if sd else 0.0
        exact, _ = integrate.quad(
            lambda u, m=mean: expit(m + sd * u) * norm.pdf(u), -12, 12, epsabs=1e-14, points=[edge], limit=500
        )
        assert abs(logistic_average([mean], np.array([sd**2]))[0] - exact) < 1e-12


def test_small_probabilities_do_not_underflow():
    p = logistic_average([-100.0, -100.0], np.array([0.25, 4.0]))
    assert np.all(p >= expit(-100.0))


def test_label_flip_flips_the_probability(rng):
    m, v = rng.standard_normal(5) * 30, rng.uniform(0, 50, 5)
    one, other = Bernoulli().observe(m, v, np.ones(5)), Bernoulli().observe(-m, v, np.ones(5))
    np.testing.assert_allclose(one["probability"], other["probability"][:, ::-1], rtol=1e-12)
    np.testing.assert_allclose(one["probability"].sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(one["probability"] > 0)


def test_saturated_latent_values_stay_finite():
    obs, f = Observations(np.array([0.0, 1.0]), np.ones(2)), np.array([800.0, -800.0])
    for method in (Bernoulli().log_density, Bernoulli().score, Bernoulli().curvature, Bernoulli().third):
        assert np.all(np.isfinite(method(obs, f)))


def test_unknown_likelihood():
    with pytest.raises(InvalidOption, match="expected one of gaussian, bernoulli, got 'poison'"):
        make_likelihood("poison")

"""Chains leave the densities they are told to, however long their trajectories."""

import math

import numpy as np
import pytest
from scipy.special import gamma

from bcmdist.api.sampling import Coordinates
from bcmdist.data.observations import unweighted
from bcmdist.errors import InvalidOption
from bcmdist.experts import hmc
from bcmdist.experts.evidence import local_evidence
from bcmdist.experts.hmc import HMC, leapfrog, sample, with_normal_prior
from bcmdist.learning.sampling.chains import effective_sample_size
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from oracles import normal_prior_posterior_of_a_gp

PRECISION = np.array([[2.0, 0.9], [0.9, 0.8]])
CENTRE = np.array([1.0, -2.0])


def gaussian(theta):
    gap = theta - CENTRE
    return -0.5 * gap @ PRECISION @ gap, -PRECISION @ gap


def quartic(theta):
    return -0.25 * (theta**4).sum(), -(theta**3)


def errors(values):
    """Monte Carlo standard errors of the means of (n, P)."""
    return values.std(axis=0) / np.sqrt(effective_sample_size(values[None]))


@pytest.mark.parametrize(("persistence", "leapfrogs", "step"), [(0.95, 1, 0.3), (0.0, 10, 0.2), (0.5, 3, 0.4)])
def test_moments_of_a_gaussian(persistence, leapfrogs, step):
    settings = HMC(5000, 500, step=step, persistence=persistence, leapfrogs=leapfrogs)
    chain = sample(gaussian, np.zeros(2), settings=settings, seed=3)
    covariance = np.linalg.inv(PRECISION)
    squares = (chain.samples - CENTRE) ** 2
    product = (chain.samples - CENTRE).prod(axis=1, keepdims=True)
    for values, expected in [(chain.samples, CENTRE), (squares, np.diag(covariance)), (product, covariance[0, 1])]:
        assert np.all(np.abs(values.mean(axis=0) - expected) <= 4.0 * errors(values))
        assert np.all(errors(values) <= 0.25)  # or the line above would say nothing
    assert chain.samples.shape == (4500, 2)
    np.testing.assert_allclose(chain.log_density, [gaussian(theta)[0] for theta in chain.samples])


def test_momentum_is_turned_round_on_rejection():
    """Two rejections in seven: E x^2 = 2 Gamma(3/4) / Gamma(1/4); without the turn about 1.9 and not .676."""
    chain = sample(quartic, np.zeros(1), settings=HMC(15_000, 500, step=1.2), seed=1)
    assert 0.6 < chain.acceptance < 0.8
    squares = chain.samples**2
    assert abs(squares.mean() - 2.0 * gamma(0.75) / gamma(0.25)) <= min(0.1, 4.0 * errors(squares)[0])


def test_trajectories_can_be_walked_back():
    theta, momentum = np.array([0.3, -1.0]), np.array([1.1, 0.4])
    there = leapfrog(quartic, theta, momentum, *quartic(theta), step=0.1, count=25)
    back = leapfrog(quartic, there[0], -there[1], *there[2:], step=0.1, count=25)
    np.testing.assert_allclose(back[0], theta, atol=1e-12)  # rounding only
    np.testing.assert_allclose(back[1], -momentum, atol=1e-12)


def test_energy_error_falls_with_the_square_of_the_step():
    theta, momentum = np.array([0.3, -1.0]), np.array([1.1, 0.4])
    start = (theta, momentum, *quartic(theta))

    def error(count):
        return abs(hmc.energy(*leapfrog(quartic, *start, step=1.0 / count, count=count)) - hmc.energy(*start))

    assert math.log2(error(40) / error(80)) == pytest.approx(2.0, abs=0.05)


def test_where_there_is_no_density_nothing_is_accepted():
    """A half normal: walls are rejections, whether -inf or a gradient that is not finite."""

    def half(theta):
        return (-0.5 * theta[0] ** 2, -theta) if theta[0] > 0 else (-math.inf, np.zeros(1))

    def broken(theta):
        return (-0.5 * theta[0] ** 2, -theta) if theta[0] > 0 else (0.0, np.full(1, np.nan))

    settings = HMC(8000, 100, step=0.4)
    chain = sample(half, np.ones(1), settings=settings, seed=0)
    assert chain.samples.min() > 0
    assert abs(chain.samples.mean() - math.sqrt(2.0 / math.pi)) <= min(0.1, 4.0 * errors(chain.samples)[0])
    np.testing.assert_array_equal(sample(broken, np.ones(1), settings=settings, seed=0).samples, chain.samples)
    with pytest.raises(InvalidOption, match=r"finite log density at the start, got -inf.*start elsewhere"):
        sample(half, -np.ones(1), settings=settings, seed=0)


def test_a_seed_names_a_chain():
    settings = HMC(20, 5)
    one, same, other = (sample(gaussian, np.zeros(2), settings=settings, seed=seed).samples for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.any(one != other)


def test_the_burn_in_adapts_the_step_to_an_acceptance():
    """A density a hundred times narrower than the step is meant for."""

    def narrow(theta):
        return -0.5e4 * theta @ theta, -1e4 * theta

    fixed, adapted = HMC(400, 200), HMC(400, 200, acceptance=0.9)
    stuck, found = (sample(narrow, np.full(3, 0.01), settings=how, seed=0) for how in (fixed, adapted))
    assert stuck.acceptance < 0.1
    moved = np.any(np.diff(found.samples, axis=0) != 0.0, axis=1).mean()
    assert moved == pytest.approx(0.9, abs=0.08)
    assert found.samples.std(axis=0) == pytest.approx(np.full(3, 0.01), rel=0.6)


@pytest.mark.parametrize(
    "change", [{"acceptance": 1.0}, {"burn_in": 3000}, {"step": 0.0}, {"persistence": 1.0}, {"leapfrogs": 0}]
)
def test_settings_that_are_none(change):
    with pytest.raises(InvalidOption, match="hmc: expected"):
        HMC(**change)


@pytest.mark.slow
def test_posterior_of_a_toy_process_is_that_of_dense_quadrature(rng):
    """Three log parameters, of which the lengthscale is sampled as log w = -2 log lengthscale."""
    X = np.linspace(-3.0, 3.0, 30)[:, None]
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.standard_normal(30)
    kernel, likelihood = parse_kernel("se", inputs=1), Gaussian(np.ones(1))
    coordinates = Coordinates(kernel, likelihood)
    density = coordinates.log_density(
        lambda kernel, likelihood: local_evidence(kernel, Mean("zero"), likelihood, X, unweighted(y))
    )
    chain = sample(density, coordinates.start(0), settings=HMC(3500, 500, step=0.15), seed=5)
    mean, sd, edges = normal_prior_posterior_of_a_gp(X, y, prior=(-3.0, 3.0), low=-5.5, high=5.0, count=49)
    assert edges < 2e-3  # the grid leaves that out on all sides
    standard = (chain.samples - mean) / sd
    for values, expected in [(standard, 0.0), (standard**2, 1.0)]:
        error = errors(values)
        assert np.all(error <= 0.2)
        assert np.all(np.abs(values.mean(axis=0) - expected) <= 4.0 * error)


def test_normal_prior_and_its_gradient():
    density = with_normal_prior(gaussian, mean=-3.0, sd=3.0)
    theta, h = np.array([0.4, 1.3]), 1e-6
    value, gradient = density(theta)
    assert value == pytest.approx(gaussian(theta)[0] - 0.5 * (3.4**2 + 4.3**2) / 9.0)
    numeric = [(density(theta + h * e)[0] - density(theta - h * e)[0]) / (2.0 * h) for e in np.eye(2)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-8)

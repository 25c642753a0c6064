"""What rows of two classes say to relevance vectors: the equations of each form, and expectation propagation."""

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from bcmdist.data.observations import unweighted
from bcmdist.experts.ep import fit_sites
from bcmdist.methods.relevance.classes import FORMS, NOTHING, Marginals, Weighed, site_sums, sites
from bcmdist.methods.relevance.learners import State, posterior
from bcmdist.model.likelihoods import Bernoulli, Probit
from oracles import central_differences

LIKELIHOODS = [Bernoulli(), Probit()]
# Each pass takes up to a tenth of the distance that is left, and rows are found to 1e-7 of their deviations.
PASSES, REACHED = 60, 1e-7


@pytest.fixture
def rows(rng):
    """Functions Phi (40, 6) and classes of as many rows, and a state with a precision for each function."""
    Phi, w = rng.standard_normal((40, 6)), rng.standard_normal(6)
    y = (Phi @ w + 0.5 * rng.standard_normal(40) > 0) * 1.0
    assert Phi.shape == (40, 6)
    return Phi, unweighted(y), State(np.arange(6), rng.uniform(0.2, 2.0, 6), 1.0)


def settled(form, likelihood, rows):
    """What is believed of the weights, under precisions that stay, once it stands still."""
    Phi, obs, state = rows
    weighed = NOTHING
    for _ in range(PASSES):
        found = posterior(site_sums(Phi, *sites(form, likelihood, obs, weighed.marginals(Phi))), state)
        weighed = Weighed(state.active, found.mean, 1.0 / state.alpha, found.covariance)
    return weighed


def without_themselves(form, likelihood, rows):
    """m, V, Om and nu at the rows, and what is believed of the weights."""
    Phi, obs, _ = rows
    weighed = settled(form, likelihood, rows)
    at = weighed.marginals(Phi)
    omega, nu = sites(form, likelihood, obs, at)
    V = FORMS[form](at, omega)
    return at.mean + V * (omega * at.mean - nu), V, omega, nu, weighed


def test_without_a_variance_rows_say_what_they_say_at_the_mode(rows):
    """Whatever the form: V = 0 is Laplace's approximation."""
    Phi, obs, _ = rows
    f, nothing = Phi @ np.ones(6), np.zeros(40)
    for likelihood in LIKELIHOODS:
        h, score = likelihood.curvature(obs, f), likelihood.score(obs, f)
        for form in FORMS:
            omega, nu = sites(form, likelihood, obs, Marginals(f, nothing, nothing))
            np.testing.assert_allclose(omega, h, rtol=1e-12)
            np.testing.assert_allclose(nu, h * f + score, rtol=1e-12)
        at = Marginals(f, np.full(40, 1e-12), np.full(40, 1e-12))  # and a small one hardly differs from it
        np.testing.assert_allclose(sites("naive", likelihood, obs, at)[0], h, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: one.name)
@pytest.mark.parametrize("form", FORMS)
def test_fixed_point(rows, form, likelihood):
    """A mu = Phi'tau, m = Phi mu - V tau, Sigma = (A + Phi'Om Phi)^-1, and the V of the form (SYSTEMS T25)."""
    Phi, obs, state = rows
    _, V, omega, nu, weighed = without_themselves(form, likelihood, rows)
    f = Phi @ weighed.mean
    tau = nu - omega * f
    np.testing.assert_allclose(Phi.T @ tau, state.alpha * weighed.mean, atol=REACHED)
    Sigma = np.linalg.inv(np.diag(state.alpha) + Phi.T @ (omega[:, None] * Phi))
    np.testing.assert_allclose(weighed.covariance, Sigma, atol=REACHED)
    K, Sig = (np.einsum("ij,jk,ik->i", Phi, one, Phi) for one in (np.diag(1.0 / state.alpha), Sigma))
    expected = {"laplace": 0.0 * K, "naive": K, "cavity": Sig / (1.0 - omega * Sig)}[form]
    np.testing.assert_allclose(V, expected, rtol=1e-6)
    if form == "laplace":
        np.testing.assert_allclose(tau, likelihood.score(obs, f), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["naive", "cavity"])
def test_a_probit_row_has_the_derivatives_of_its_closed_form(rows, form):
    """Z = Phi(t m / (1 + V)^1/2): tau = dlog Z/dm and Om = -tau'/(1 + V tau') by differences of it."""
    Phi, obs, _ = rows
    m, V, omega, nu, weighed = without_themselves(form, Probit(), rows)
    t, tau = 2.0 * obs.y - 1.0, nu - omega * (Phi @ weighed.mean)

    def log_z(m):
        return log_ndtr(t * m / np.sqrt(1.0 + V)).sum()

    np.testing.assert_allclose(tau, central_differences(log_z, m), atol=1e-6)  # of differences of 1e-5
    z = t * m / np.sqrt(1.0 + V)
    ratio = norm.pdf(z) / norm.cdf(z)
    slope = -ratio * (ratio + z) / (1.0 + V)
    np.testing.assert_allclose(omega, -slope / (1.0 + V * slope), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: one.name)
def test_cavities_are_those_of_expectation_propagation(rows, likelihood):
    """Of the same rows under the prior Phi A^-1 Phi' (`experts.ep`, by another algorithm)."""
    Phi, obs, state = rows
    weighed = settled("cavity", likelihood, rows)
    K = Phi @ np.diag(1.0 / state.alpha) @ Phi.T
    found = fit_sites(K + 1e-12 * np.eye(40), obs, likelihood)
    Sigma = np.linalg.inv(np.diag(state.alpha) + Phi.T @ (found.tau[:, None] * Phi))
    np.testing.assert_allclose(weighed.covariance, Sigma, atol=REACHED)
    np.testing.assert_allclose(weighed.mean, Sigma @ Phi.T @ found.nu, atol=REACHED)


@pytest.mark.slow
def test_forms_differ(rows):
    means = [settled(form, Probit(), rows).mean for form in FORMS]
    assert np.abs(means[0] - means[1]).max() > 1e-3
    assert np.abs(means[0] - means[2]).max() > 1e-3


def test_what_tasks_carry(rng):
    weighed = Weighed(np.array([1, 4]), rng.standard_normal(2), np.array([2.0, 3.0]), np.diag([0.1, 0.2]))
    again = Weighed.from_array(weighed.to_array())
    for name in ("active", "mean", "prior", "covariance"):
        np.testing.assert_array_equal(getattr(again, name), getattr(weighed, name))
    Phi = rng.standard_normal((3, 6))
    at = again.marginals(Phi)
    np.testing.assert_allclose(at.prior, 2.0 * Phi[:, 1] ** 2 + 3.0 * Phi[:, 4] ** 2)
    np.testing.assert_array_equal(NOTHING.marginals(Phi).mean, np.zeros(3))

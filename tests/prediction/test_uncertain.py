"""Moments of f where inputs are uncertain: against quadrature, dense formulas, limits, and each other."""

from dataclasses import replace

import numpy as np
import pytest
from averages import SPREAD, Bare, quadrature, spread
from scipy.stats import multivariate_normal

from bcmdist.committee.committee import Committee
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.kernels.expected import expected_bumps, expected_units
from bcmdist.model.likelihoods import Bernoulli, Gaussian, make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.interface import Fitted
from bcmdist.prediction.latent import marginal, predict_latent
from bcmdist.prediction.uncertain import input_uncertainty
from problems import class_problem, make_committee, make_kernel, regression_problem, split

NOISE = 0.1
EDGES = [13, 20, 41]


def fitted(problem, name="se", mean="zero", likelihood=None, residual="block"):
    kernel, likelihood = make_kernel(name), likelihood or Gaussian(NOISE)
    if residual == "block":
        prior, _, committee = make_committee(problem, kernel, likelihood, split(60, EDGES), mean=mean)
    else:
        prior = prepare(problem.Xq, kernel=kernel, mean=Mean(mean), residual=residual)
        parts = [expert_message(prior, likelihood, problem.X[s], problem.obs[s]) for s in split(60, EDGES)]
        committee = Committee(sum(parts, zero(prior.size)))
    return Fitted(Bare(prior), committee.posterior)


CASES = {
    "se": {},
    "se-iso with a trend": {"name": "se-iso", "mean": "linear"},
    "constant mean": {"mean": "constant"},
    "fitc": {"residual": "diagonal", "mean": "linear"},
    "sor": {"residual": "none"},
    "linear": {"name": "linear", "residual": "none", "mean": "constant"},
}


@pytest.mark.parametrize("case", CASES)
def test_exact_moments_are_those_of_quadrature(rng, case):
    problem = regression_problem(rng, query=2 if case == "linear" else 9)  # two determine a plane
    predictor, U = fitted(problem, **CASES[case]), problem.Xs
    mean, variance, with_x = quadrature(predictor, U, spread(U))
    m, v = input_uncertainty.exact_moments(predictor, U, spread(U))
    # Rounding times the condition number of the query covariance, some 1e4; the rule converges to 1e-13 in 60 nodes.
    np.testing.assert_allclose(m, mean, atol=1e-10)
    np.testing.assert_allclose(v, variance, atol=1e-10)
    covariance = [input_uncertainty.moments_at(predictor.model.shared, predictor.belief, u, SPREAD)[2] for u in U]
    np.testing.assert_allclose(covariance, with_x, atol=1e-10)


def test_units_are_steps_of_normal_variables(rng):
    """Covariances by the bivariate normal's own distribution function, and slopes by differences in u."""
    inner, u = np.array([[0.3, 2.0, -1.0], [-0.2, 1.0, 0.5], [0.1, 8.0, 3.0]]), np.array([0.2, 0.1])
    for scale in (0.1, 1.0, 30.0):  # correlations up to .9, .98, .9995
        said = expected_units(u, scale * SPREAD, inner)
        mean, C = inner[:, 0] + inner[:, 1:] @ u, inner[:, 1:] @ (scale * SPREAD) @ inner[:, 1:].T
        for i, j in [(0, 1), (0, 2), (1, 1), (2, 2)]:  # noise of variance 1/2 on each turns erf into steps
            normal = multivariate_normal(np.zeros(2), np.eye(2) + 2.0 * C[np.ix_([i, j], [i, j])])
            expected = 4.0 * normal.cdf(np.sqrt(2.0) * mean[[i, j]]) - said.single[i] - said.single[j] - 1.0
            assert said.pairs[i, j] == pytest.approx(expected, abs=1e-9)  # as good as scipy's is
        step = 1e-5
        for d in range(2):
            up, down = (
                expected_units(u + sign * step * np.eye(2)[d], scale * SPREAD, inner).single for sign in (1, -1)
            )
            slope = (up - down) / (2 * step)  # E of the gradient, by Stein's lemma
            found = np.linalg.solve(scale * SPREAD, said.with_inputs.T)[d]
            np.testing.assert_allclose(found, slope, atol=1e-8)


def test_moments_of_a_gp_in_terms_of_its_rows(rng):
    """The thesis's own form, beta'l and a2 - tr(Om L) + beta'(L - l l')beta, where query points are all rows."""
    problem = regression_problem(rng)
    kernel = make_kernel("se")
    prior, _, committee = make_committee(problem, kernel, Gaussian(NOISE), split(60, EDGES), query=problem.X)
    predictor = Fitted(Bare(prior), committee.posterior)
    inverse = np.linalg.inv(kernel.cross(problem.X, problem.X) + NOISE * np.eye(60))
    beta = inverse @ problem.obs.y
    for u in problem.Xs:
        said = kernel.expected(u, SPREAD, problem.X)
        variance = said.prior - np.sum(inverse * said.pairs)
        variance += beta @ (said.pairs - np.outer(said.single, said.single)) @ beta
        m, v, _ = input_uncertainty.moments_at(prior, predictor.belief, u, SPREAD)
        np.testing.assert_allclose(m, beta @ said.single, atol=1e-8)
        np.testing.assert_allclose(v, variance, atol=1e-7)  # beta and Om are as large as 1 / noise times 60 rows


@pytest.mark.parametrize(
    "way", [input_uncertainty.exact_moments, input_uncertainty.taylor_moments, input_uncertainty.sampled_moments]
)
@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_certain_inputs_are_predicted_as_ever(rng, way, mean):
    problem = regression_problem(rng)
    predictor = fitted(problem, mean=mean)
    for ours, theirs in zip(
        way(predictor, problem.Xs, spread(problem.Xs, 0.0)), predictor.latent(problem.Xs), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_taylor_is_right_to_first_order_in_the_variance(rng):
    """Its variance errs by the square of S: a tenth of S, about a hundredth of the error."""
    problem = regression_problem(rng)
    predictor, U = fitted(problem), problem.Xs
    errors = []
    for scale in (1e-2, 1e-3):
        S = spread(U, scale)
        errors.append(
            np.abs(
                input_uncertainty.taylor_moments(predictor, U, S)[1]
                - input_uncertainty.exact_moments(predictor, U, S)[1]
            ).max()
        )
    assert errors[1] < errors[0] / 50


def test_taylor_is_exact_for_a_plane(rng):
    problem = regression_problem(rng, query=2)
    predictor, U = fitted(problem, "linear", "constant", residual="none"), problem.Xs
    pairs = zip(
        input_uncertainty.taylor_moments(predictor, U, spread(U)),
        input_uncertainty.exact_moments(predictor, U, spread(U)),
        strict=True,
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, atol=1e-8)  # differences of steps of a hundredth lose four digits


@pytest.mark.parametrize("name", ["se", "matern12", "rq"])
def test_draws_come_near_quadrature(rng, name):
    problem = regression_problem(rng)
    predictor, U = fitted(problem, name), problem.Xs
    mean, variance, _ = quadrature(predictor, U, spread(U), nodes=120)
    m, v = input_uncertainty.sampled_moments(predictor, U, spread(U))
    sd = np.sqrt(variance)
    assert np.abs(m - mean).max() < 0.02 * sd.max()  # 256 plain draws would err by .06
    assert np.abs(v / variance - 1.0).max() < 0.1


@pytest.mark.parametrize("likelihood", [Bernoulli(), make_likelihood("onehot", 3), make_likelihood("softmax", 3)])
@pytest.mark.parametrize("way", [input_uncertainty.taylor_moments, input_uncertainty.sampled_moments])
def test_shapes_are_those_of_latent_predictions(rng, likelihood, way):
    problem = class_problem(rng)
    if likelihood.processes > 1:
        problem = replace(problem, obs=replace(problem.obs, y=(problem.obs.y + (problem.X[:, 0] > 1)).round()))
    predictor, U = fitted(problem, likelihood=likelihood), problem.Xs
    plain = predict_latent(predictor.model.shared, predictor.belief, U)
    said = way(predictor, U, spread(U, 1e-3))
    assert [one.shape for one in said] == [one.shape for one in plain]
    assert (marginal(said[1]) > 0).all()
    some = way(predictor, U[:4], spread(U[:4], 1e-3))
    np.testing.assert_allclose(some[0], said[0][:4], atol=1e-12)


def test_inputs_that_are_uncertain_are_predicted_less_certainly(rng):
    problem = regression_problem(rng)
    predictor, U = fitted(problem), problem.Xs
    plain, wide = predictor.latent(U)[1], input_uncertainty.exact_moments(predictor, U, spread(U, 100.0))
    np.testing.assert_allclose(wide[1], predictor.model.shared.kernel.diagonal(U), rtol=0.1)  # the prior's
    assert (input_uncertainty.exact_moments(predictor, U, spread(U))[1].mean() > plain.mean()).all()


def test_small_variances_lose_no_digits(rng):
    """Covariances of bumps are k' S k' where S is small; as differences of averages they would have four digits."""
    Z, u, lengthscale, S = rng.standard_normal((6, 2)), np.array([0.3, -0.2]), np.array([0.7, 3.0]), 1e-12 * SPREAD
    said = expected_bumps(u, S, Z, 2.0, lengthscale)
    slopes = -said.single[:, None] * (u - Z) / lengthscale**2
    np.testing.assert_allclose(said.covariance, slopes @ S @ slopes.T, rtol=1e-8)
    np.testing.assert_allclose(said.with_inputs, slopes @ S, rtol=1e-8)
    assert np.all(expected_bumps(u, 0.0 * S, Z, 2.0, lengthscale).covariance == 0.0)
    inner = rng.standard_normal((6, 3))
    said = expected_units(u, S, inner)
    slopes = 2.0 / np.sqrt(np.pi) * np.exp(-((inner[:, 0] + inner[:, 1:] @ u) ** 2))[:, None] * inner[:, 1:]
    np.testing.assert_allclose(said.covariance, slopes @ S @ slopes.T, rtol=1e-8)
    np.testing.assert_allclose(said.with_inputs, slopes @ S, rtol=1e-8)

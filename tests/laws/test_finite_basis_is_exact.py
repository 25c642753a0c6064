"""A kernel of B basis functions: with B query points the committee is the full GP, whatever the partitions."""

import numpy as np
import pytest

from bcmdist.data.observations import unweighted
from bcmdist.learning.query_selection import select_points
from bcmdist.model.kernels import Linear, parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.prediction.latent import predict_latent
from oracles import full_gp
from problems import Problem, make_committee, make_kernel, regression_problem, split

# Basis functions in two inputs.
BASIS = {"linear": 2, "linear+constant": 3, "poly2": 6, "poly2+linear": 6, "poly3": 10, "linear*linear": 3}
NOISE = 0.1
# Rounding times the condition number of Kqq, up to about 1e4 here, in values of order one.
TOLERANCE = 1e-10


def answers(problem, kernel, noise, edges, *, mean="zero", count=25):
    """Mean and variance at new points and the evidence, about selected query points."""
    points = select_points(problem.X, count, kernel=kernel)
    slices = split(len(problem.X), edges)
    prior, _, committee = make_committee(problem, kernel, Gaussian(noise), slices, mean=mean, query=points)
    assert prior.jitter == 0.0
    return *predict_latent(prior, committee.posterior, problem.Xs), committee.log_evidence


@pytest.mark.parametrize("edges", [[], [20, 40], [1, 2, 30], range(1, 60)])
@pytest.mark.parametrize("name", BASIS)
def test_committee_equals_dense_gp(rng, name, edges):
    problem, kernel = regression_problem(rng), make_kernel(name)
    assert len(select_points(problem.X, 25, kernel=kernel)) == BASIS[name]
    mean, variance, evidence = answers(problem, kernel, NOISE, edges)
    exact_m, exact_cov, exact_e = full_gp(kernel, Mean("zero").design, problem.X, problem.obs.y, NOISE, problem.Xs)
    np.testing.assert_allclose(mean, exact_m, atol=TOLERANCE)
    np.testing.assert_allclose(variance, np.diag(exact_cov), atol=TOLERANCE)
    assert evidence == pytest.approx(exact_e, abs=1e-8)


def test_one_query_point_too_few_is_not_exact(rng):
    """What makes the others exact is their number."""
    problem, kernel = regression_problem(rng), make_kernel("poly2")
    mean, *_ = answers(problem, kernel, NOISE, [20, 40], count=5)
    exact, *_ = full_gp(kernel, Mean("zero").design, problem.X, problem.obs.y, NOISE, problem.Xs)
    assert np.abs(mean - exact).max() > 1e-3


def test_redundant_points_given_by_hand_cost_the_jitter_only(rng):
    """`prepare` takes points as they are: forty for six functions need a jitter of 1e-12 of the variance."""
    problem, kernel = regression_problem(rng), make_kernel("poly2")
    prior, _, committee = make_committee(problem, kernel, Gaussian(NOISE), split(60, [20]), query=problem.X[:40])
    assert 0 < prior.jitter < 2e-12 * kernel.diagonal(problem.X[:40]).mean()
    mean, variance = predict_latent(prior, committee.posterior, problem.Xs)
    exact_m, exact_cov, _ = full_gp(kernel, Mean("zero").design, problem.X, problem.obs.y, NOISE, problem.Xs)
    np.testing.assert_allclose(mean, exact_m, atol=1e-8)
    np.testing.assert_allclose(variance, np.diag(exact_cov), atol=1e-8)


def bayesian_linear_regression(Phi, weight_covariance, y, noise, Phis):
    """Posterior of the weights and of the function (Rasmussen & Williams 2006, eqs. 2.8-2.9)."""
    A = Phi.T @ Phi / noise + np.linalg.inv(weight_covariance)
    covariance = np.linalg.inv(A)
    weights = covariance @ Phi.T @ y / noise
    return Phis @ weights, np.einsum("ij,jk,ik->i", Phis, covariance, Phis)


@pytest.mark.parametrize("edges", [[], [7, 20, 41]])
def test_linear_and_constant_are_bayesian_linear_regression(rng, edges):
    problem = regression_problem(rng)
    kernel = parse_kernel("linear+constant", inputs=2)
    kernel = kernel.with_parameters({"linear.lengthscale": np.array([0.5, 3.0]), "constant.variance": np.array([4.0])})
    prior = np.diag([0.5**-2, 3.0**-2, 4.0])

    def design(X):
        return np.column_stack([X, np.ones(len(X))])

    mean, variance, _ = answers(problem, kernel, NOISE, edges)
    exact = bayesian_linear_regression(design(problem.X), prior, problem.obs.y, NOISE, design(problem.Xs))
    np.testing.assert_allclose(mean, exact[0], atol=TOLERANCE)
    np.testing.assert_allclose(variance, exact[1], atol=TOLERANCE)


def test_columns_of_any_basis_with_a_linear_kernel_are_eq_11(rng):
    """phi(x) stored as X: sines and a step here, which no other kernel of ours has."""
    problem = regression_problem(rng)

    def basis(X):
        x, z = X.T
        return np.column_stack([np.sin(x), np.sin(2 * x), np.cos(z), (x > 0) * 1.0])

    sd = np.array([1.0, 0.5, 2.0, 0.1])
    columns = Problem(basis(problem.X), problem.obs, basis(problem.Xq), basis(problem.Xs))
    mean, variance, _ = answers(columns, Linear(1 / sd), NOISE, [10, 30])
    exact = bayesian_linear_regression(columns.X, np.diag(sd**2), columns.obs.y, NOISE, columns.Xs)
    np.testing.assert_allclose(mean, exact[0], atol=TOLERANCE)
    np.testing.assert_allclose(variance, exact[1], atol=TOLERANCE)


@pytest.mark.parametrize("name", ["linear+constant", "poly2", "poly3"])
def test_units_do_not_matter(rng, name):
    """Inputs and lengthscales in other units change nothing; targets in other units change the units."""
    problem, kernel = regression_problem(rng), make_kernel(name)
    mean, variance, evidence = answers(problem, kernel, NOISE, [20])
    unit, scale = 1e3, 1e-2

    def in_units(parameter, value):
        # `linear` has no variance: its weights are 1 / lengthscale.
        if parameter.endswith("variance"):
            return value * scale**2
        return value * unit / (scale if parameter.startswith("linear") else 1.0)

    other = kernel.with_parameters({n: in_units(n, v) for n, v in kernel.parameters.items()})
    X = Problem(unit * problem.X, unweighted(scale * problem.obs.y), problem.Xq, unit * problem.Xs)
    m, v, e = answers(X, other, NOISE * scale**2, [20])
    np.testing.assert_allclose(m, scale * mean, rtol=1e-9, atol=scale * TOLERANCE)
    np.testing.assert_allclose(v, scale**2 * variance, rtol=1e-9, atol=scale**2 * TOLERANCE)
    assert e == pytest.approx(evidence - 60 * np.log(scale), abs=1e-8)

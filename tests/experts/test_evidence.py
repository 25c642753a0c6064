import numpy as np
import pytest
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from bcmdist.data.observations import Observations
from bcmdist.experts.evidence import leave_one_out, local_evidence
from bcmdist.experts.laplace import laplace_mode
from bcmdist.model.kernels import split_parameters
from bcmdist.model.likelihoods import Bernoulli, Gaussian, OneHot
from bcmdist.model.mean import Mean, prior_covariance
from oracles import central_differences, full_gp
from problems import class_problem, make_kernel, regression_problem
from some_likelihoods import NegativeBinomial, ReweightedStudentT, ScoredNegativeBinomial, StudentT


def check_gradient(kernel, mean, likelihood, X, obs, value=local_evidence):
    """Analytic gradient against central differences, relative to its largest entry."""
    theta = np.concatenate([kernel.theta, *(np.log(v) for v in likelihood.parameters.values())])
    P = len(kernel.theta)

    def at(t):
        noisy = likelihood.with_parameters(split_parameters(likelihood.parameters, np.exp(t[P:])))
        return value(kernel.with_theta(t[:P]), mean, noisy, X, obs)

    numeric = central_differences(lambda t: at(t)[0], theta)
    np.testing.assert_allclose(at(theta)[1], numeric, atol=1e-6 * np.abs(numeric).max())


@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
@pytest.mark.parametrize("name", ["se", "matern12", "matern52", "rq", "se*linear+constant"])
@pytest.mark.parametrize("likelihood", [Gaussian(0.05), Bernoulli()])
def test_gradient(rng, name, mean, likelihood):
    problem = (regression_problem if likelihood.name == "gaussian" else class_problem)(rng, rows=25)
    obs = Observations(problem.obs.y, rng.uniform(0.5, 2.0, 25), target_variance=rng.uniform(0.0, 0.1, 25))
    kernel = make_kernel(name)
    kernel = kernel.with_theta(kernel.theta + 0.3 * rng.standard_normal(len(kernel.theta)))
    check_gradient(kernel, Mean(mean), likelihood, problem.X, obs)


@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
@pytest.mark.parametrize("name", ["se", "matern12", "poly3", "se*linear+constant"])
@pytest.mark.parametrize("likelihood", [Gaussian(0.05), OneHot.default(3)], ids=["gaussian", "onehot"])
def test_gradient_of_rows_left_out(rng, name, mean, likelihood):
    problem = regression_problem(rng, rows=25)
    y = problem.obs.y if likelihood.processes == 1 else np.arange(25.0) % 3
    kernel = make_kernel(name)
    kernel = kernel.with_theta(kernel.theta + 0.3 * rng.standard_normal(len(kernel.theta)))
    obs = Observations(y, rng.uniform(0.5, 2.0, 25), target_variance=rng.uniform(0.0, 0.1, 25))
    check_gradient(kernel, Mean(mean), likelihood, problem.X, obs, leave_one_out)


def test_rows_left_out_are_predicted_by_a_dense_process_of_the_others(rng):
    problem, kernel, mean = regression_problem(rng, rows=25), make_kernel("matern32"), Mean("linear")
    X, y = problem.X, problem.obs.y
    K = prior_covariance(kernel.cross(X, X), mean, X) + 0.05 * np.eye(25)
    each = []
    for i in range(25):
        others = np.delete(np.arange(25), i)
        by = np.linalg.solve(K[np.ix_(others, others)], K[others, i])
        each.append(norm.logpdf(y[i], by @ y[others], np.sqrt(K[i, i] - by @ K[others, i])))
    value, _ = leave_one_out(kernel, mean, Gaussian(0.05), X, problem.obs)
    assert value == pytest.approx(sum(each), rel=1e-10)


@pytest.mark.parametrize("likelihood", [NegativeBinomial(1.5), ScoredNegativeBinomial(1.5)])
def test_gradient_with_a_likelihood_of_counts(rng, likelihood):
    problem = regression_problem(rng, rows=25)
    obs = Observations(rng.poisson(np.exp(problem.obs.y)).astype(float), rng.uniform(0.5, 2.0, 25))
    check_gradient(make_kernel("matern32"), Mean("constant"), likelihood, problem.X, obs)


@pytest.mark.parametrize("likelihood", [StudentT(0.5, 4.0), ReweightedStudentT(0.5, 4.0)])
def test_gradient_with_outliers_where_the_density_is_not_log_concave(rng, likelihood):
    problem = regression_problem(rng, rows=25)
    obs = Observations(problem.obs.y + 2.0 * (np.arange(25) % 9 == 0), rng.uniform(0.5, 2.0, 25))
    kernel, mean = make_kernel("matern32"), Mean("constant")
    K = prior_covariance(kernel.cross(problem.X, problem.X), mean, problem.X)
    assert likelihood.hessian(obs, laplace_mode(K, obs, likelihood)).min() < 0
    check_gradient(kernel, mean, likelihood, problem.X, obs)


def test_gaussian_evidence_is_the_dense_one(rng):
    problem, kernel, mean = regression_problem(rng), make_kernel("matern32"), Mean("linear")
    value, _ = local_evidence(kernel, mean, Gaussian(0.05), problem.X, problem.obs)
    *_, exact = full_gp(kernel, mean.design, problem.X, problem.obs.y, 0.05, problem.Xs)
    assert value == pytest.approx(exact, rel=1e-10)


def test_laplace_evidence_is_scikit_learn_s(rng):
    problem = class_problem(rng)
    peer = GaussianProcessClassifier(ConstantKernel(1.3) * RBF(0.9), optimizer=None).fit(problem.X, problem.obs.y)
    value, _ = local_evidence(make_kernel("se"), Mean("zero"), Bernoulli(), problem.X, problem.obs)
    assert value == pytest.approx(peer.log_marginal_likelihood_value_, rel=1e-6)  # the peer stops earlier

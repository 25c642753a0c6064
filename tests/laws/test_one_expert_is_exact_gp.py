"""One expert: at the query points the committee is the full GP, for any query set."""

import numpy as np
import pytest

from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.model.mean import Mean
from bcmdist.prediction.latent import predict_latent
from oracles import full_gp, laplace
from problems import class_problem, make_committee, make_kernel, regression_problem

# Kqq of nine points is well conditioned; what remains is rounding.
TOLERANCE = 1e-9


@pytest.mark.parametrize("mean", ["zero", "constant"])
def test_gaussian_expert(rng, mean):
    problem, kernel = regression_problem(rng), make_kernel("matern32")
    prior, _, committee = make_committee(problem, kernel, Gaussian(0.1), [slice(0, 60)], mean=mean)
    # The weights of the mean are known exactly beside f^q, so the sum f is exact at f^q too.
    m, v = predict_latent(prior, committee.posterior, problem.Xq)
    exact_m, exact_cov, evidence = full_gp(kernel, Mean(mean).design, problem.X, problem.obs.y, 0.1, problem.Xq)
    assert np.abs(m - exact_m).max() <= TOLERANCE
    assert np.abs(v - np.diag(exact_cov)).max() <= TOLERANCE
    assert committee.log_evidence == pytest.approx(evidence, abs=1e-8)


def test_laplace_expert(rng):
    problem, kernel = class_problem(rng), make_kernel("matern32", variance=2.0)
    prior, _, committee = make_committee(problem, kernel, Bernoulli(), [slice(0, 60)])
    m, v = predict_latent(prior, committee.posterior, problem.Xq)
    K = kernel.cross(problem.X, problem.X)
    f, w, pseudo = laplace(K, Bernoulli(), problem.obs)
    exact_m, exact_cov, _ = full_gp(kernel, Mean("zero").design, problem.X, pseudo, 1 / w, problem.Xq)
    assert np.abs(m - exact_m).max() <= TOLERANCE
    assert np.abs(v - np.diag(exact_cov)).max() <= TOLERANCE
    B = np.eye(60) + np.sqrt(w)[:, None] * K * np.sqrt(w)
    evidence = Bernoulli().log_density(problem.obs, f).sum() - 0.5 * f @ np.linalg.solve(K, f)
    assert committee.log_evidence == pytest.approx(evidence - 0.5 * np.linalg.slogdet(B)[1], abs=1e-8)

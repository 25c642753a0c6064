"""Query = all training points: the committee is the full GP, whatever the partitions."""

import numpy as np
import pytest

from bcmdist.likelihoods import Gaussian
from bcmdist.mean import Mean
from bcmdist.prediction import predict_latent
from oracles import full_gp
from problems import make_committee, make_kernel, regression_problem, split

# Rounding amplified by the condition number of Kqq, about 1e4 here (RELIABILITY 4.1 allows 1e-9).
TOLERANCE = 1e-9


@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52", "se", "rq"])
@pytest.mark.parametrize("edges", [[], [20, 40], [1, 2, 30]])
def test_committee_equals_dense_gp(rng, name, mean, edges):
    problem, kernel, noise = regression_problem(rng), make_kernel(name, lengthscale=0.5), 0.02
    prior, _, committee = make_committee(problem, kernel, Gaussian(noise), split(60, edges), mean=mean, query=problem.X)
    assert prior.jitter == 0.0
    m, v = predict_latent(prior, committee.posterior, problem.Xs)
    exact_m, exact_cov, evidence = full_gp(kernel, Mean(mean).design, problem.X, problem.obs.y, noise, problem.Xs)
    assert np.abs(m - exact_m).max() <= TOLERANCE
    assert np.abs(v - np.diag(exact_cov)).max() <= TOLERANCE
    assert committee.log_evidence == pytest.approx(evidence, abs=1e-8)


def test_weights_are_repeated_rows(rng):
    problem, kernel = regression_problem(rng, rows=12), make_kernel("se")
    weighted = type(problem)(problem.X, type(problem.obs)(problem.obs.y, np.full(12, 2.0)), problem.Xq, problem.Xs)
    twice = type(problem)(
        np.vstack([problem.X, problem.X]), problem.obs[np.tile(np.arange(12), 2)], problem.Xq, problem.Xs
    )
    answers = []
    for p in (weighted, twice):
        prior, _, committee = make_committee(p, kernel, Gaussian(0.1), [slice(0, len(p.X))])
        answers.append(predict_latent(prior, committee.posterior, p.Xs))
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-10)

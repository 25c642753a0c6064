"""Query = all training points: the committee is the full GP, whatever the partitions."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.prediction.latent import predict_latent
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


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kmeans", "pivoted"])
def test_points_are_dropped_only_where_no_row_can_tell(rng, method):
    """A smooth kernel and little noise: what a query value varies given the others is little, and yet seen."""
    X, new = rng.uniform(-2, 2, (600, 2)), rng.uniform(-2, 2, (100, 2))
    y = np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 1e-3 * rng.standard_normal(600)
    given = {"kernel.variance": 4.0, "kernel.lengthscale": 1.5, "likelihood.noise_variance": 1e-6}
    how = Settings(kernel="se", mean="zero", learn=False, set=given, query=300, rows_per_expert=100)
    gbcm = GBCM.fit((X, y), replace(how, query_method=method))
    scaling, kernel = gbcm.model.scaling, gbcm.model.query.kernel
    seen, wanted = scaling.inputs(X), scaling.inputs(new)
    cross, K = kernel.cross(wanted, seen), kernel.cross(seen, seen) + 1e-6 * np.eye(600)
    mean = cross @ np.linalg.solve(K, (y - scaling.y_mean) / scaling.y_scale)
    sd = np.sqrt(kernel.diagonal(wanted) - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T)))
    told = gbcm.predict(new)
    assert len(gbcm.model.query.points) < 150
    assert "which determine all 300, suffice for" in gbcm.info()["advice"]
    assert np.abs((told["mean"] - scaling.y_mean) / scaling.y_scale - mean).max() <= 0.02 * sd.min()

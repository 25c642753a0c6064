import numpy as np

from bcmdist.committee.committee import Committee, query_advice
from bcmdist.experts.message import zero
from bcmdist.model.likelihoods import Gaussian
from bcmdist.prediction.latent import predict_latent
from problems import make_committee, make_kernel, regression_problem, split


def test_no_messages_give_the_prior():
    committee = Committee(zero(4))
    np.testing.assert_array_equal(committee.posterior.mean, np.zeros(4))
    np.testing.assert_array_equal(committee.posterior.factor, np.eye(4))
    assert committee.log_evidence == 0.0
    assert committee.degrees_of_freedom == 0.0


def test_more_data_never_raise_the_variance(rng):
    problem, kernel = regression_problem(rng), make_kernel("matern32")
    prior, messages, _ = make_committee(problem, kernel, Gaussian(0.1), split(60, [20, 40]))
    committee = Committee(zero(prior.size))
    variance, covariance = kernel.diagonal(problem.Xs), np.eye(prior.size)
    for message in messages:
        committee = committee.absorb(message)
        _, smaller = predict_latent(prior, committee.posterior, problem.Xs)
        assert np.all(smaller <= variance + 1e-12)
        factor = np.linalg.inv(committee.posterior.factor)
        assert np.linalg.eigvalsh(covariance - factor.T @ factor).min() > -1e-12  # Loewner order
        variance, covariance = smaller, factor.T @ factor


def test_precision_is_positive_definite_whatever_the_queries(rng):
    """A dense grid, where the published difference of inverses is indefinite (RELIABILITY 0.5)."""
    grid = np.linspace(-2, 2, 200)[:, None]
    problem = regression_problem(rng, inputs=1)
    prior, _, committee = make_committee(
        problem, make_kernel("se", inputs=1), Gaussian(0.1), split(60, [30]), query=grid
    )
    assert prior.jitter > 0
    assert np.linalg.eigvalsh(np.eye(200) + committee.total.precision).min() >= 1 - 1e-9
    assert np.isfinite(predict_latent(prior, committee.posterior, problem.Xs)[1]).all()


def test_degrees_of_freedom_are_those_of_the_dense_gp(rng):
    """With the query set at all rows: tr(K (K + noise)^-1) (GBCM paper, section 6.1)."""
    problem, kernel = regression_problem(rng), make_kernel("matern32")
    _, _, committee = make_committee(problem, kernel, Gaussian(0.1), split(60, [20]), query=problem.X)
    K = kernel.cross(problem.X, problem.X)
    np.testing.assert_allclose(
        committee.degrees_of_freedom, np.trace(K @ np.linalg.inv(K + 0.1 * np.eye(60))), rtol=1e-9
    )


def test_advice():
    assert query_advice(20.2, 50, 50) == "50 query points suffice for 20 effective degrees of freedom"
    assert query_advice(190.0, 200, 200) == (
        "200 query points limit the fit, which has 190 effective degrees of freedom; set --query to 400 or more"
    )
    assert "46 query points, which determine all 100, suffice for 35" in query_advice(35.0, 46, 100)
    assert "200 query points (chosen for an estimated 93) suffice for 90" in query_advice(90.0, 200, 200, 93.4)

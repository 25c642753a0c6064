"""Half of the query points: the same as if only they had been prepared, and what the others are worth."""

import numpy as np
import pytest
from scipy.stats import norm

from bcmdist import GBCM, Settings
from bcmdist.committee.committee import MEASURABLE_NATS
from bcmdist.data.observations import unweighted
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.model.mean import Mean
from bcmdist.model.shared.belief import Factored
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.local.expert import LocalExpert, Site
from bcmdist.prediction.local.query_sufficiency import half_of, left_out_densities, marginal, query_losses
from problems import make_kernel


def test_half_is_what_the_first_query_points_alone_would_be(rng):
    points, X = rng.standard_normal((9, 2)), rng.standard_normal((30, 2))
    query = prepare(points, kernel=make_kernel("matern32"), mean=Mean("linear"))
    alone = prepare(points[:5], kernel=query.kernel, mean=query.mean)
    V = query.design(X)
    kept = half_of(9, V.shape[1])
    np.testing.assert_allclose(alone.design(X), V[:, kept], atol=1e-12)
    root = rng.standard_normal((12, 12))
    precision = np.eye(12) + root @ root.T
    belief = Factored(rng.standard_normal(12), np.linalg.cholesky(precision))
    found = marginal(belief, kept)
    covariance = np.linalg.inv(precision)[np.ix_(kept, kept)]
    np.testing.assert_allclose(np.linalg.inv(found.factor @ found.factor.T), covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.mean, belief.mean[kept])


def test_rows_are_left_out_as_if_they_had_not_been_there(rng):
    """Of a partition of the committee, exactly: against the committee that has absorbed only the other rows of it."""
    X, noise, y = rng.standard_normal((20, 2)), rng.uniform(0.1, 0.3, 20), rng.standard_normal(20)
    query = prepare(rng.standard_normal((6, 2)), kernel=make_kernel("matern32"), mean=Mean("zero"))
    V = query.design(X)
    residual = query.kernel.cross(X, X) - V @ V.T
    R, root, eta = residual + np.diag(noise), rng.standard_normal((6, 6)), rng.standard_normal(6)

    def absorbed(rows):
        W = np.linalg.solve(R[np.ix_(rows, rows)], V[rows])
        S = np.linalg.inv(np.eye(6) + root @ root.T + V[rows].T @ W)
        return S @ (eta + W.T @ y[rows]), S

    mean, S = absorbed(np.arange(20))
    belief = Factored(mean, np.linalg.cholesky(np.linalg.inv(S)))
    rows, T = np.array([3, 11]), np.linalg.inv(R)
    found = left_out_densities(T[:, rows], (T @ (y - V @ mean))[rows], V, belief, rows)
    for i, density in zip([3, 11], found, strict=True):
        others = np.delete(np.arange(20), i)
        m, S = absorbed(others)
        weights = np.linalg.solve(R[np.ix_(others, others)], residual[others, i])
        a = V[i] - V[others].T @ weights
        mean = V[i] @ m + weights @ (y[others] - V[others] @ m)
        variance = R[i, i] - weights @ residual[others, i] + a @ S @ a
        assert density == pytest.approx(norm(mean, np.sqrt(variance)).logpdf(y[i]) + 0.5 * np.log(2 * np.pi))


@pytest.mark.parametrize("linearised", [False, True])
def test_half_of_a_local_expert_is_as_if_made_of_half(rng, linearised):
    """By what changes of the factor that is there, against matrices of half of the design."""
    X, noise, y = rng.standard_normal((20, 2)), rng.uniform(0.1, 0.3, 20), rng.standard_normal(20)
    query = prepare(rng.standard_normal((9, 2)), kernel=make_kernel("matern32"), mean=Mean("linear"))
    V, rows, root = query.design(X), np.array([3, 11]), rng.standard_normal((12, 12))
    belief = Factored(rng.standard_normal(12), np.linalg.cholesky(np.eye(12) + root @ root.T))
    R = query.kernel.cross(X, X) - V[:, :9] @ V[:, :9].T + np.diag(noise)
    site = Site(noise**-0.5, np.linalg.cholesky(R / np.sqrt(np.outer(noise, noise))))
    site = site if linearised else Site(None, np.linalg.cholesky(R))
    expert = LocalExpert(X, V, (site,), np.linalg.solve(R, y - V @ belief.mean), unweighted(y))
    found = query_losses(expert, belief, 9, rows)
    kept = half_of(9, 12)
    half, T = marginal(belief, kept), np.linalg.inv(R + V[:, 5:9] @ V[:, 5:9].T)
    whole = left_out_densities(np.linalg.inv(R)[:, rows], expert.pull[rows], V, belief, rows)
    pull = (T @ (y - V[:, kept] @ half.mean))[rows]
    np.testing.assert_allclose(found, whole - left_out_densities(T[:, rows], pull, V[:, kept], half, rows), rtol=1e-8)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "onehot", "softmax", "poisson"])
def test_it_is_measured_for_every_likelihood(rng, make_data, likelihood):
    X = rng.uniform(-2, 2, (300, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    y = {"gaussian": f, "bernoulli": f > 0, "onehot": np.digitize(f, [-1, 1]), "poisson": rng.poisson(np.exp(f))}
    y["softmax"] = y["onehot"]
    path = make_data(X=X, y=y[likelihood].astype(float))
    given = {"learn": False, "kernel": "se", "query": 40, "rows_per_expert": 100, "partition": "spatial"}
    model = GBCM.fit(path, Settings(**given, likelihood=likelihood))
    loss = model.snapshot.facts.query.query_loss
    assert -0.5 < loss.nats < 1.0
    assert 0.0 < loss.error < 0.5


@pytest.mark.parametrize("error", [NotPositiveDefinite, LaplaceNotConverged])
def test_no_fit_fails_where_it_cannot_be_measured(rng, make_data, monkeypatch, error):
    def fail(*_):
        raise error("not today")

    monkeypatch.setattr("bcmdist.prediction.local.query_sufficiency.marginal", fail)
    X = rng.uniform(-2, 2, (200, 2))
    given = {"learn": False, "kernel": "se", "query": 30, "rows_per_expert": 100, "partition": "spatial"}
    model = GBCM.fit(make_data(X=X, y=X[:, 0]), Settings(**given))
    assert model.snapshot.facts.query.query_loss is None
    assert model.info()["advice"] is not None


@pytest.mark.slow
def test_half_of_many_points_is_as_good_and_half_of_few_is_not(rng, make_data, monkeypatch):
    """Where local experts see few rows, what lies beyond comes through the query points."""
    X = rng.uniform(-2, 2, (1200, 2))
    path = make_data(X=X, y=np.sin(2 * X[:, 0]) + np.cos(3 * X[:, 1]) + 0.1 * rng.standard_normal(1200))
    for name, rows in {"LEAST_NEARBY": 5, "NEARBY_PER_INPUT": 5, "CORE": 10}.items():
        monkeypatch.setattr(f"bcmdist.prediction.local.halos.{name}", rows)
    given = {"learn": False, "kernel": "se", "set": {"likelihood.noise_variance": 0.01, "kernel.lengthscale": 1.0}}
    given |= {"partition": "spatial", "rows_per_expert": 200}
    few, many = (GBCM.fit(path, Settings(**given, query=query)).snapshot.facts.query.query_loss for query in (60, 400))
    assert many.nats < MEASURABLE_NATS
    assert few.nats - 2 * few.error > MEASURABLE_NATS

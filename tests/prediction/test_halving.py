"""Half of the query points: the same as if only they had been prepared, and what the others are worth."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.committee import MEASURABLE_NATS
from bcmdist.model.mean import Mean
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.local.halving import half_of
from problems import make_kernel


@pytest.mark.parametrize("processes", [1, 3])
def test_half_is_the_query_of_its_points_with_the_marginal_belief(rng, processes):
    points, new = rng.standard_normal((9, 2)), rng.standard_normal((4, 2))
    query = prepare(points, kernel=make_kernel("matern32"), mean=Mean("linear"))
    shared = query.design(new).shape[1]
    roots = rng.standard_normal((processes, shared, shared))
    precision = np.eye(shared) + roots @ np.swapaxes(roots, 1, 2)
    mean = rng.standard_normal((processes, shared))
    factor = np.linalg.cholesky(precision)
    belief = Belief(mean[0], factor[0]) if processes == 1 else Belief(mean, factor)
    fewer, believed = half_of(query, belief)
    kept = np.r_[:5, 9:shared]
    alone = prepare(points[:5], kernel=query.kernel, mean=query.mean)
    np.testing.assert_allclose(fewer.factor, alone.factor, atol=1e-12)
    np.testing.assert_allclose(fewer.design(new), query.design(new)[:, kept], atol=1e-12)
    marginal = np.linalg.inv(precision)[:, kept][:, :, kept]
    found = believed.factor.reshape(processes, len(kept), len(kept))
    np.testing.assert_allclose(np.linalg.inv(found @ np.swapaxes(found, 1, 2)), marginal, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(believed.mean, belief.mean[..., kept])


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "onehot", "poisson"])
def test_it_is_measured_for_every_likelihood(rng, make_data, likelihood):
    X = rng.uniform(-2, 2, (300, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    y = {"gaussian": f, "bernoulli": f > 0, "onehot": np.digitize(f, [-1, 1]), "poisson": rng.poisson(np.exp(f))}
    path = make_data(X=X, y=y[likelihood].astype(float))
    given = {"learn": False, "kernel": "se", "query": 40, "rows_per_expert": 100, "partition": "spatial"}
    model = GBCM.fit(path, Settings(**given, likelihood=likelihood))
    assert 0.0 <= model.snapshot.facts.query_halved < 1.0


def test_half_of_many_points_is_as_good_and_half_of_few_is_not(rng, make_data, monkeypatch):
    """Where local experts see few rows, what lies beyond comes through the query points."""
    X = rng.uniform(-2, 2, (1200, 2))
    path = make_data(X=X, y=np.sin(2 * X[:, 0]) + np.cos(3 * X[:, 1]) + 0.1 * rng.standard_normal(1200))
    for name, rows in {"LEAST_AROUND": 5, "AROUND_PER_INPUT": 5, "CORE": 10}.items():
        monkeypatch.setattr(f"bcmdist.prediction.local.halos.{name}", rows)
    given = {"learn": False, "kernel": "se", "set": {"likelihood.noise_variance": 0.01, "kernel.lengthscale": 1.5}}
    given |= {"partition": "spatial", "rows_per_expert": 200}
    few, many = (GBCM.fit(path, Settings(**given, query=query)).snapshot.facts.query_halved for query in (20, 150))
    assert many < MEASURABLE_NATS
    assert few > 1.0

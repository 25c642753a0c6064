"""The expert `fourier` on counts and classes in the plane: other weights in each pass, and still sums of lags."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.observations import unweighted
from oracles import laplace_prediction
from problems import assert_same_committee, only

pytestmark = pytest.mark.slow

pytest.importorskip("finufft", reason="expert fourier: pip install 'bcmdist[fourier]'")

KERNEL = {"kernel.variance": 1.5, "kernel.lengthscale": 0.7}
LIKELIHOODS = ["poisson", "bernoulli"]


def settings(likelihood, passes):
    return Settings(
        likelihood=likelihood,
        kernel="matern52",
        learn=False,
        set=KERNEL,
        expert="fourier",
        rows_per_expert=50,
        tolerance=0.01,
        mean="constant",
        passes=passes,
    )


@pytest.fixture
def sorted_rows(make_data, rng):
    """A function of a likelihood: path, X (300, 2), y (300,) in ascending order."""

    def rows(likelihood):
        X = rng.uniform(-2, 2, (300, 2))
        f = 1.0 + np.sin(2 * X[:, 0]) * np.cos(X[:, 1])
        y = rng.poisson(np.exp(f)) if likelihood == "poisson" else rng.random(300) < 1.0 / (1.0 + np.exp(3.0 - 3.0 * f))
        order = np.argsort(y, kind="stable")
        return make_data(f"{likelihood}.zarr", X=X[order], y=y[order].astype(float)), X[order], y[order].astype(float)

    return rows


def dense(gbcm, X, y, new):
    """Laplace's approximation for the same waves, in units of the model."""
    shared, scaling, likelihood = gbcm.model.shared, gbcm.model.scaling, gbcm.model.likelihood
    V, Vs = shared.design(scaling.inputs(X)), shared.design(scaling.inputs(new))
    obs = scaling.observations(unweighted(y), likelihood.units)
    K, prior = V @ V.T + shared.truncated_variance * np.eye(len(y)), (Vs**2).sum(axis=1) + shared.truncated_variance
    return laplace_prediction(K, Vs @ V.T, prior, likelihood, obs)


def latent(gbcm, new):
    shift = gbcm.model.scaling.original("mean", np.zeros(1), gbcm.model.likelihood.units)
    found = gbcm.predict(new)
    return found["mean"] - shift, found["variance"]


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_rows_sorted_by_target_are_heard_in_passes(likelihood, sorted_rows, rng):
    """By default, without being asked: where one pass errs by half a standard deviation, the limit is Laplace's."""
    path, X, y = sorted_rows(likelihood)
    new = rng.uniform(-1.9, 1.9, (30, 2))
    gbcm = GBCM.fit(path, settings(likelihood, None))
    assert len(gbcm.info()["passes"]) > 1
    assert gbcm.info()["converged"]
    mean, variance = dense(gbcm, X, y, new)
    with pytest.warns(match="rows are stored in the order of"):
        once = GBCM.fit(path, settings(likelihood, "1"))
    assert np.abs((latent(once, new)[0] - mean) / np.sqrt(variance)).max() > 0.5
    assert np.abs((latent(gbcm, new)[0] - mean) / np.sqrt(variance)).max() < 0.02
    found = latent(gbcm.refine(tolerance=1e-9), new)
    np.testing.assert_allclose(found[0], mean, atol=1e-6)
    np.testing.assert_allclose(found[1], variance, atol=1e-6)


@pytest.fixture(params=LIKELIHOODS)
def shuffled(request, sorted_rows, make_data, rng, tmp_path):
    """A committee of six partitions that absorbed once, the same before it absorbed, and the path of their data."""
    _, X, y = sorted_rows(request.param)
    order = rng.permutation(300)
    path = make_data("shuffled.zarr", X=X[order], y=y[order])
    how = settings(request.param, "1")
    return GBCM.fit(path, how, model=tmp_path / "model"), GBCM.prepare(path, how, model=tmp_path / "empty"), path


def test_forgetting_is_never_having_heard(shuffled, tmp_path):
    gbcm, empty, path = shuffled
    after = gbcm.forget([gbcm.ledger[k].key for k in (1, 4)])
    assert_same_committee(after.committee, only(empty, path, [0, 2, 3, 5], tmp_path / "rest").committee, 1e-8)


def test_merging_is_hearing_both(shuffled, tmp_path):
    gbcm, empty, path = shuffled
    one, other = only(empty, path, [0, 3], tmp_path / "one"), only(empty, path, [1, 2, 4, 5], tmp_path / "other")
    assert_same_committee(one.merge(other, tmp_path / "both").committee, gbcm.committee, 1e-8)


def test_a_window_is_hearing_its_rows_only(shuffled, tmp_path):
    _, empty, path = shuffled
    late = only(empty, path, [4, 5], tmp_path / "rest")
    found, _ = empty.ingest(empty.source(path), IngestOptions(window=90))
    assert [entry.key for entry in found.ledger] == [entry.key for entry in late.ledger]
    assert_same_committee(found.committee, late.committee, 1e-8)


def test_old_rows_fade(shuffled, tmp_path):
    """A sum of the messages of each partition by its weight."""
    _, empty, path = shuffled
    alone = [only(empty, path, [k], tmp_path / str(k)).committee.total for k in range(6)]
    found, _ = empty.ingest(empty.source(path), IngestOptions(half_life=100.0))
    weights = [found.weights[entry.key] for entry in found.ledger]
    assert np.all(np.diff(weights) > 0)
    expected = sum(w * one.precision for w, one in zip(weights, alone, strict=True))
    np.testing.assert_allclose(found.committee.total.precision, expected, atol=1e-8 * np.abs(expected).max())


def test_passes_after_forgetting_are_those_of_the_others(shuffled, tmp_path):
    gbcm, empty, path = shuffled
    after = gbcm.refine(tolerance=1e-10).forget([gbcm.ledger[2].key]).refine(tolerance=1e-10)
    others = only(empty, path, [0, 1, 3, 4, 5], tmp_path / "rest").refine(tolerance=1e-10)
    assert_same_committee(after.committee, others.committee, 1e-8)


def test_a_cluster_says_the_same(sorted_rows, cluster, tmp_path):
    path, _, _ = sorted_rows("poisson")
    one = GBCM.fit(path, settings("poisson", "auto"), model=tmp_path / "serial")
    other = GBCM.fit(path, settings("poisson", "auto"), model=tmp_path / "dask", runtime=cluster)
    assert_same_committee(other.committee, one.committee, 1e-8)

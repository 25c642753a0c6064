"""Additive terms of f: their means add up to the prediction, and each agrees with a dense process."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.errors import InvalidOption
from bcmdist.prediction.terms import shares, term_effect, term_names

KERNEL = "matern32(0, 1) + linear(2) + periodic(2, period=3)"
GIVEN = {"likelihood.noise_variance": 0.02, "kernel.linear(X[2]).lengthscale": 2.0}


@pytest.fixture
def rows(rng):
    X = rng.uniform(-2, 2, (150, 3))
    return X, 30.0 + np.sin(2 * X[:, 0]) * X[:, 1] + 2.0 * X[:, 2] + 0.1 * rng.standard_normal(150)


def fitted(rows, **how):
    given = {"kernel": KERNEL, "learn": False, "set": GIVEN, "query": 40, "rows_per_expert": 50}
    return GBCM.fit(*rows, Settings(**given | how))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"partition": "spatial"},
        {"expert": "fitc"},
        {"expert": "sor"},
        {"mean": "linear"},
        {"mean": "zero"},
        {"kernel": "matern32", "set": {}},
        {"kernel": "se(0, 2)*se(1) + se(0, 2)*se(1)", "set": {}},
    ],
)
def test_means_add_up_to_the_prediction(how, rows, rng):
    """Tolerance: rounding, of terms of the size of the target."""
    gbcm, X = fitted(rows, **how), rng.uniform(-3, 3, (60, 3))
    found = gbcm.predict(X, terms=True)
    assert tuple(found["term"]) == term_names(gbcm.model)
    assert found["term"][-1] == "mean"
    assert found["term_mean"].shape == found["term_variance"].shape == (60, len(found["term"]))
    np.testing.assert_allclose(found["term_mean"].sum(axis=1), found["mean"], rtol=1e-10)
    assert np.all(found["term_variance"] >= 0.0)


def dense_terms(gbcm, X, y, Xs):
    """Mean and variance of each term, scaled, of a dense process of all rows: Rasmussen & Williams 2006, (2.25) ff."""
    model, scaling = gbcm.model, gbcm.model.scaling
    X, Xs, z = scaling.inputs(X), scaling.inputs(Xs), (y - scaling.y_mean) / scaling.y_scale
    kernel, design = model.shared.kernel, model.shared.mean.design
    K = kernel.cross(X, X) + design(X) @ design(X).T + model.likelihood.noise_variance[0] * np.eye(len(X))
    pairs = [(term.cross(X, Xs), term.diagonal(Xs)) for term in kernel.terms]
    pairs.append((design(X) @ design(Xs).T, (design(Xs) ** 2).sum(axis=1)))
    mean = np.column_stack([c.T @ np.linalg.solve(K, z) for c, _ in pairs])
    return mean, np.column_stack([prior - np.einsum("ij,ij->j", c, np.linalg.solve(K, c)) for c, prior in pairs])


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_terms_of_one_partition_are_those_of_the_exact_process(partition, rows, rng):
    """All rows are query points, or all rows are around each new point. Tolerance: rounding of 150 correlated rows."""
    how = {"query": 150 if partition == "chunks" else 40, "rows_per_expert": 200, "partition": partition}
    gbcm, Xs = fitted(rows, **how), rng.uniform(-2, 2, (40, 3))
    found, (mean, variance) = gbcm.predict(Xs, terms=True), dense_terms(gbcm, *rows, Xs)
    scaling = gbcm.model.scaling
    mean = mean * scaling.y_scale
    mean[:, -1] += scaling.y_mean
    np.testing.assert_allclose(found["term_mean"], mean, atol=1e-5)
    np.testing.assert_allclose(found["term_variance"], variance * scaling.y_scale**2, atol=1e-5)


def test_an_effect_is_a_term_less_its_mean(rows):
    """The joint distribution of the term at new and reference rows, by a dense covariance of the committee."""
    gbcm = fitted(rows)
    query, belief = gbcm.model.shared, gbcm.committee.posterior
    kernel, X, R = query.kernel.terms[0], np.array([[0.3, 0.1, 0.0], [-0.5, 1.0, 2.0]]), query.points[:7]
    both, Q = np.vstack([X, R]), len(query.points)
    B = np.zeros((9, query.size))
    B[:, :Q] = np.linalg.solve(np.tril(query.factor), kernel.cross(query.points, both)).T
    S = np.tril(belief.factor) @ np.tril(belief.factor).T
    C = kernel.cross(both, both) - B @ B.T + B @ np.linalg.solve(S, B.T)
    less = np.hstack([np.eye(2), np.full((2, 7), -1.0 / 7.0)])
    mean, variance = term_effect(query, belief, kernel, X, R)
    np.testing.assert_allclose(mean, less @ B @ belief.mean, atol=1e-10)
    np.testing.assert_allclose(variance, np.diag(less @ C @ less.T), atol=1e-9)


def test_shares_of_variance(rows):
    terms = np.column_stack([[1.0, -1.0, 1.0, -1.0], [2.0, 2.0, -2.0, -2.0], [5.0, 5.0, 5.0, 5.0]])
    np.testing.assert_allclose(shares(terms), [0.2, 0.8, 0.0])
    assert np.all(shares(np.ones((3, 2))) == 0.0)
    info = fitted(rows).info()["terms"]
    assert list(info) == ["matern32(X[0], X[1])", "linear(X[2])", "periodic(X[2], period=3)", "mean"]
    assert info["linear(X[2])"] > 0.5
    assert fitted(rows, kernel="matern32", set={}).info()["terms"] == {}


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_terms_of_a_data_set(partition, rows, make_data, tmp_path):
    gbcm, X = fitted(rows, partition=partition), rows[0][:20]
    gbcm.predict_zarr(make_data(X=X, rows_per_chunk=7), tmp_path / "out.zarr", terms=True)
    import zarr

    group, found = zarr.open_group(tmp_path / "out.zarr", mode="r"), gbcm.predict(X, terms=True)
    assert group["term"][...].tolist() == found["term"].tolist()
    for name in ("term_mean", "term_variance", "mean"):
        np.testing.assert_allclose(group[name][...], found[name], rtol=1e-12)
    assert group["term_mean"].metadata.dimension_names == ("row", "term")


def test_classes_have_terms_each(rng):
    X = rng.uniform(-2, 2, (120, 2))
    y = np.digitize(X[:, 0], [-0.7, 0.7]).astype(float)
    gbcm = GBCM.fit(X, y, Settings(task="classification", kernel="se(0) + se(1)", query=30, learn=False))
    found = gbcm.predict(X, terms=True)
    assert found["term_mean"].shape == (120, 3, 3)
    np.testing.assert_allclose(found["term_mean"].sum(axis=1), found["mean"], atol=1e-10)


def test_without_terms_the_error_says_where_they_are(rows):
    uncertain = np.full((1, 3), 0.1)
    with pytest.raises(InvalidOption, match="leave out one of them"):
        fitted(rows).predict(rows[0][:1], X_variance=uncertain, terms=True)
    dictionary = GBCM.fit(*rows, Settings(expert="mnn", units=5, effort="quick"))
    with pytest.raises(InvalidOption, match="--expert bcm or fitc"):
        dictionary.predict(rows[0][:1], terms=True)

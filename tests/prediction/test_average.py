"""Averages over groups: the quadratic form of the joint covariance, in any batches, of any likelihood."""

import numpy as np
import pytest
from scipy.stats import norm

from bcmdist import GBCM, Settings
from bcmdist.data.observations import unweighted
from bcmdist.errors import InvalidData, InvalidOption, MemoryLimit
from bcmdist.prediction import in_memory
from bcmdist.prediction.interface import Fitted
from bcmdist.prediction.joint import averages
from bcmdist.prediction.joint.averages import groups_of
from bcmdist.prediction.scored_rows import marginals

QUICK = {"kernel": "matern32", "learn": False, "query": 30, "rows_per_expert": 200, "effort": "quick"}
GIVEN = {"kernel.lengthscale": 0.4, "likelihood.noise_variance": 0.05}


def of_rows(rng, partition, **settings):
    X = rng.uniform(-2, 2, (700, 2))
    f = np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1])
    how = QUICK | {"partition": partition, "set": GIVEN} | settings
    return GBCM.fit(X, 5.0 + f + 0.2 * rng.standard_normal(700), Settings(**how))


def dense(gbcm, X, groups, weights, method=None):
    """Means and variances of the averages from the joint covariance of all points."""
    mean, covariance = gbcm.predict_joint(X, method=method)
    W = np.array([(groups == level) * weights for level in np.unique(groups)])
    W /= W.sum(axis=1, keepdims=True)
    return W, W @ mean, np.diag(W @ covariance @ W.T)


@pytest.mark.parametrize(("partition", "method"), [("spatial", None), ("spatial", "committee"), ("chunks", None)])
def test_an_average_has_the_variance_of_the_joint_covariance(rng, monkeypatch, partition, method):
    gbcm, X = of_rows(rng, partition), rng.uniform(-2.1, 2.1, (160, 2))
    groups, weights = rng.integers(0, 9, 160) * 10, rng.uniform(0, 2, 160)
    W, mean, variance = dense(gbcm, X, groups, weights, method)
    for points in (1, 512):
        monkeypatch.setattr(averages, "BATCH_POINTS", points)
        found = gbcm.predict_average(X, groups, weights=weights, method=method, above=[5.0])
        np.testing.assert_array_equal(found["group"], np.unique(groups))
        np.testing.assert_array_equal(found["points"], np.unique(groups, return_counts=True)[1])
        np.testing.assert_allclose(found["mean"], mean, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found["sd"] ** 2, variance, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found["above5"], norm.sf(5.0, mean, np.sqrt(variance)), rtol=0, atol=1e-6)
        np.testing.assert_allclose(found["upper95"] - mean, norm.ppf(0.975) * np.sqrt(variance), rtol=0, atol=1e-8)
    noisy = gbcm.predict_average(X, groups, weights=weights, method=method, of="observations")
    marginal = gbcm.predict(X, method=method)
    noise = W**2 @ (marginal["observation_variance"] - marginal["variance"])
    np.testing.assert_allclose(noisy["sd"] ** 2, variance + noise, rtol=0, atol=1e-10)


@pytest.mark.parametrize("expert", ["fitc", "sor"])
def test_other_residuals(rng, expert):
    gbcm, X = of_rows(rng, "chunks", expert=expert), rng.uniform(-1.9, 1.9, (60, 2))
    groups = rng.integers(0, 4, 60)
    _, mean, variance = dense(gbcm, X, groups, np.ones(60))
    found = gbcm.predict_average(X, groups)
    np.testing.assert_allclose(found["mean"], mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["sd"] ** 2, variance, rtol=0, atol=1e-9)


def test_one_point_is_the_prediction(rng):
    gbcm, X = of_rows(rng, "spatial"), rng.uniform(-2, 2, (12, 2))
    found, points = gbcm.predict_average(X, np.arange(12)), gbcm.predict(X)
    np.testing.assert_allclose(found["mean"], points["mean"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["sd"] ** 2, points["variance"], rtol=0, atol=1e-10)
    noisy = gbcm.predict_average(X, np.arange(12), of="observations")
    np.testing.assert_allclose(noisy["sd"] ** 2, points["observation_variance"], rtol=0, atol=1e-10)


def test_averages_of_counts_are_of_their_means(rng):
    """By samples: against samples of f, and of counts, by `sample`."""
    X = rng.uniform(-2, 2, (400, 2))
    f = 1.0 + np.sin(2 * X[:, 0])
    settings = Settings(task="counts", likelihood="poisson", **QUICK | {"kernel": "se", "partition": "spatial"})
    gbcm = GBCM.fit(X, rng.poisson(np.exp(f)) * 1.0, settings)
    new, groups = rng.uniform(-2, 2, (40, 2)), np.repeat(["a", "b"], 20)
    exposure = rng.uniform(1, 2, 40)
    found = gbcm.predict_average(new, groups, exposure=exposure, above=[4.0], draws=4000)
    means = exposure * np.exp(gbcm.sample(new, size=4000, seed=9))
    for g, level in enumerate("ab"):
        sampled = means[:, groups == level].mean(axis=1)
        sd = sampled.std()
        assert abs(found["mean"][g] - sampled.mean()) < 5 * sd * np.sqrt(2 / 4000)
        assert abs(found["sd"][g] / sd - 1.0) < 0.1
        assert abs(found["above4"][g] - (sampled > 4.0).mean()) < 5 * np.sqrt(0.5 / 4000)
    noisy = gbcm.predict_average(new, groups, exposure=exposure, of="observations", draws=4000)
    poisson = np.array([found["mean"][g] / 20 for g in range(2)])
    np.testing.assert_allclose(noisy["sd"] ** 2, found["sd"] ** 2 + poisson, rtol=0.15)
    with pytest.raises(MemoryLimit, match="samples"):
        in_memory.predict_average(gbcm.snapshot, new, groups, draws=10**6, allowed_bytes=3e8)


def test_averages_of_transformed_targets_are_of_observations(rng):
    X = rng.uniform(-2, 2, (300, 1))
    y = np.exp(np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(300))
    settings = Settings(target_transform="log", **QUICK | {"kernel": "se", "query": 10, "partition": "chunks"})
    gbcm = GBCM.fit(X, y, settings)
    with pytest.raises(InvalidOption, match=r"averages: expected observations of transformed targets"):
        gbcm.predict_average(X[:10], np.zeros(10))
    found = gbcm.predict_average(X, np.zeros(300), of="observations", draws=2000)
    points, scaling = gbcm.predict(X), gbcm.model.scaling
    marginal = marginals(Fitted.of_snapshot(gbcm.snapshot), scaling.inputs(X), unweighted(np.zeros(300)))
    mean = np.exp(points["mean"] + 0.5 * scaling.y_scale**2 * (marginal.variance + marginal.noise)).mean()  # log-normal
    assert abs(found["mean"][0] - mean) < 5 * found["sd"][0] / np.sqrt(2000)


@pytest.mark.parametrize(
    ("groups", "weights", "message"),
    [
        (np.zeros(3), None, r"groups: expected one value for each of 4 points, got shape \(3,\)"),
        (
            [1.0, np.nan, 2.0, np.nan],
            None,
            r"groups: expected a group for each point, got none at row 1 \(2 such rows\)",
        ),
        (np.array(["a", None, "b", "b"], dtype=object), None, "got none at row 1"),
        (["a", "", "b", "b"], None, "got none at row 1"),
        (np.array(["2001-01-01", "NaT"] * 2, dtype="datetime64[D]"), None, "got none at row 1"),
        (np.array(["a", 1, "b", "b"], dtype=object), None, "several kinds"),
        ([0, 0, 1, 1], [1, 1, 0, 0], "weights: expected a positive sum in each group, got 0 in 1"),
        ([0, 0, 1, 1], [1, 1, -1, 2], "weights: expected finite numbers, at least 0, got -1.0 at row 2"),
        ([0, 0, 1, 1], [1, 1, 2], "weights: expected 4 numbers"),
    ],
)
def test_groups_are_checked(groups, weights, message):
    with pytest.raises(InvalidData, match=message):
        groups_of(groups, 4, weights)


def test_groups_are_numbers_texts_or_dates():
    days = np.array(["2001-01-02", "2001-01-01", "2001-01-02"], dtype="datetime64[D]")
    found = groups_of(days, 3, [1.0, 5.0, 3.0])
    np.testing.assert_array_equal(found.levels, np.unique(days))
    np.testing.assert_allclose(found.weight, [0.25, 1.0, 0.75])
    np.testing.assert_array_equal(found.points, [1, 2])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"of": "noise"}, "of: expected 'function'"),
        ({"draws": 1}, "draws: expected at least 2"),
        ({"above": [np.inf]}, "finite"),
    ],
)
def test_options_are_checked(rng, how, message):
    X = rng.uniform(-1, 1, (50, 1))
    gbcm = GBCM.fit(X, X[:, 0], Settings(**QUICK | {"kernel": "se", "query": 5}))
    with pytest.raises(InvalidOption, match=message):
        gbcm.predict_average(X, np.zeros(50), **how)


def test_classes_have_no_averages(rng):
    X = rng.uniform(-1, 1, (80, 1))
    settings = Settings(task="classification", **QUICK | {"kernel": "se", "query": 5, "partition": "chunks"})
    gbcm = GBCM.fit(X, (X[:, 0] > 0) * 1.0, settings)
    with pytest.raises(InvalidOption, match="averages: expected a model of numbers"):
        gbcm.predict_average(X, np.zeros(80))

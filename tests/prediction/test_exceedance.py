"""Probabilities that the mean of an observation is above a threshold, of points."""

import numpy as np
import pytest
from scipy.stats import norm

from bcmdist import GBCM, Settings
from bcmdist.errors import InvalidOption
from bcmdist.prediction.exceedance import upper_tail

QUICK = {"kernel": "se", "learn": False, "query": 15, "rows_per_expert": 60, "partition": "chunks"}


@pytest.fixture
def rows(rng):
    X = rng.uniform(-2, 2, (150, 1))
    return X, np.sin(2 * X[:, 0])


def test_of_measurements(rows, rng):
    X, f = rows
    gbcm = GBCM.fit(X, 30.0 + 5.0 * f + rng.standard_normal(150), Settings(**QUICK))
    found = gbcm.predict(X[:20], above=[30.0, 33.5])
    expected = norm.sf(33.5, found["mean"], np.sqrt(found["variance"]))
    np.testing.assert_allclose(found["above33.5"], expected, rtol=1e-10)
    assert np.all(found["above33.5"] <= found["above30"])


def test_of_counts_it_is_their_mean(rows, rng):
    """P(exposure exp(f) > t), with the exposure of each observation."""
    X, f = rows
    exposure = rng.uniform(1, 3, 150)
    y = rng.poisson(exposure * np.exp(1 + f)) * 1.0
    settings = Settings(task="counts", likelihood="poisson", **QUICK)
    gbcm = GBCM.fit(X, y, settings, companions={"exposure": exposure})
    found = gbcm.predict(X[:20], exposure=exposure[:20], above=[4.0, -1.0])
    expected = norm.sf(np.log(4.0 / exposure[:20]), found["mean"], np.sqrt(found["variance"]))
    np.testing.assert_allclose(found["above4"], expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["above-1"], 1.0, atol=1e-12)


def test_of_transformed_targets_it_is_their_median(rows, rng):
    X, f = rows
    y = np.exp(2.0 * f + 0.3 * rng.standard_normal(150))
    gbcm = GBCM.fit(X, y, Settings(target_transform="log", **QUICK))
    found = gbcm.predict(X[:20], above=[1.5])
    expected = norm.sf(np.log(1.5), found["mean"], np.sqrt(found["variance"]))
    np.testing.assert_allclose(found["above1.5"], expected, rtol=1e-8)


def test_without_variance_it_is_certain():
    np.testing.assert_array_equal(upper_tail(np.array([1.0, 3.0]), np.zeros(2), 2.0), [0.0, 1.0])


@pytest.mark.parametrize("threshold", [np.nan, np.inf, True, "2"])
def test_thresholds_are_finite_numbers(rows, threshold):
    X, f = rows
    gbcm = GBCM.fit(X, f, Settings(**QUICK))
    with pytest.raises(InvalidOption, match="above: expected finite numbers"):
        gbcm.predict(X[:2], above=[threshold])


def test_classes_have_probabilities_of_their_own(rows):
    X, f = rows
    gbcm = GBCM.fit(X, (f > 0) * 1.0, Settings(task="classification", **QUICK))
    with pytest.raises(InvalidOption, match="above: expected a model of numbers, got bernoulli"):
        gbcm.predict(X[:2], above=[0.5])

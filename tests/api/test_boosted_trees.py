"""Boosted trees beside a model: what they learn, and the limits of their work."""

import numpy as np
import pytest

from bcmdist.api.comparison import boosted_trees
from bcmdist.api.comparison.boosted_trees import boosted_classes, boosted_numbers, boosted_rates


def test_a_step_is_what_trees_see_and_a_line_does_not(rng):
    X, new = rng.uniform(-1, 1, (500, 2)), rng.uniform(-1, 1, (300, 2))
    y, wanted = (np.where(A[:, 0] > 0.3, 5.0, 1.0) for A in (X, new))
    y = y + 0.1 * rng.standard_normal(500)
    found, left_out, which = boosted_numbers(X, y, new)
    assert found.shape == (300,)
    design = np.column_stack([np.ones(500), X])
    line = np.column_stack([np.ones(300), new]) @ np.linalg.lstsq(design, y, rcond=None)[0]
    assert np.mean((found - wanted) ** 2) < 0.1 * np.mean((line - wanted) ** 2)
    assert len(which) == len(np.unique(which)) == 500 // boosted_trees.LEFT_OUT
    assert 0.005 < np.mean((left_out - y[which]) ** 2) < 0.2  # errors of rows that were not learned from


def test_rates_are_events_per_exposure(rng):
    """Rows of a long exposure say more: with equal weights the rate of the many short ones would be found."""
    X = rng.uniform(-1, 1, (1000, 1))
    exposure = np.where(rng.random(1000) < 0.5, 100.0, 0.1)
    rate = np.where(exposure > 1.0, 2.0, 6.0) * np.where(X[:, 0] > 0, 3.0, 1.0)
    events = rng.poisson(rate * exposure).astype(float)
    found, *_ = boosted_rates(X, events, exposure, np.array([[-0.5], [0.5]]))
    np.testing.assert_allclose(found, [2.0, 6.0], rtol=0.1)


def test_bins_of_weighted_rows_are_those_of_repeated_rows(rng):
    X, times, new = rng.standard_normal((600, 2)), rng.integers(1, 5, 600), rng.standard_normal((50, 2))
    seen, found = boosted_trees._binned(X, times, new)
    _, wanted = boosted_trees._binned(np.repeat(X, times, axis=0), np.ones(times.sum()), new)
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(seen[:, 0])) > 200
    assert len(np.unique(seen[:, 0])) <= boosted_trees.BINS


def test_rows_without_exposure_or_events(rng):
    X = rng.uniform(-1, 1, (100, 1))
    exposure = np.where(np.arange(100) < 20, 0.0, 1.0)
    _, left_out, which = boosted_rates(X, rng.poisson(3.0, 100) * exposure, exposure, X)
    assert which.min() >= 20
    assert len(left_out) == len(which)
    assert boosted_rates(X, np.zeros(100), exposure, X) is None


def test_classes_that_are_missing_have_no_probability(rng):
    X = rng.uniform(-1, 1, (300, 2))
    labels = np.where(X[:, 0] > 0, 3.0, 1.0)
    labels[5] = 2.0  # a class of one row
    found, left_out, which = boosted_classes(X, labels, 5, X)
    assert found.shape == (300, 5)
    assert left_out.shape == (len(which), 5)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert np.all(found[:, [0, 4]] == 0.0)
    assert np.mean(found.argmax(axis=1) == labels) > 0.95
    assert boosted_classes(X, np.ones(300), 5, X) is None


@pytest.mark.parametrize(
    ("rows", "inputs", "wanted"),
    [
        (300, 8, (300, boosted_trees.MOST_TREES)),
        (10_000, 100, (10_000, 40)),
        (10_000, 250, (3000, boosted_trees.LEAST_TREES)),
        (10_000, 1000, None),
        (boosted_trees.LEAST_ROWS - 1, 2, None),
    ],
)
def test_work_is_limited(rows, inputs, wanted):
    """Of wide tables fewer trees, then fewer rows."""
    assert boosted_trees._size(rows, inputs) == wanted

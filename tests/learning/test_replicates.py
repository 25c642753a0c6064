"""Rows that repeat inputs: exact where few inputs differ, near it where many do, the same however they are split."""

import functools
import operator

import numpy as np
import pytest

from bcmdist.learning.survey import KEPT, replicates


def repeated(rng, different, rows, inputs=3):
    """Rows of `different` inputs, some of them once."""
    X = rng.standard_normal((different, inputs))[rng.integers(0, different, rows)]
    return X, 1e6 + X[:, 0] + 0.1 * rng.standard_normal(rows)


def plainly(X, y):
    """Share of rows whose inputs others have, and the pooled deviation of their targets."""
    _, group, count = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    several = np.flatnonzero(count > 1)
    squares = sum(((y[group == k] - y[group == k].mean()) ** 2).sum() for k in several)
    return count[several].sum() / len(y), np.sqrt(squares / (count[several] - 1).sum())


def test_few_different_inputs_are_counted_exactly(rng):
    X, y = repeated(rng, 400, 500)
    found = replicates(X, y)
    share, deviation = plainly(X, y)
    assert 0.3 < share < 0.95
    assert found.share == pytest.approx(share, rel=1e-12)
    assert found.deviation == pytest.approx(deviation, rel=1e-6)


def test_partitions_add_up_in_any_order(rng):
    X, y = repeated(rng, 8000, 12_000)
    whole = replicates(X, y)
    parts = [replicates(X[k], y[k]) for k in np.array_split(rng.permutation(len(y)), 7)]
    for order in (parts, parts[::-1]):
        found = functools.reduce(operator.add, order)
        np.testing.assert_array_equal(found.code, whole.code)
        np.testing.assert_array_equal(found.count, whole.count)
        np.testing.assert_allclose(found.squares, whole.squares, atol=1e-6)
        assert found.deviation == pytest.approx(whole.deviation, rel=1e-6)


def test_of_many_inputs_the_share_is_near(rng):
    """One row in five is one of a pair: a sample of so many rows would hold hardly any pair."""
    X = rng.standard_normal((90_000, 2))
    X = np.vstack([X, X[:10_000]])
    y = np.zeros(len(X))
    found = replicates(X, y)
    assert len(found.code) == KEPT
    assert found.share == pytest.approx(0.2, abs=0.03)
    assert found.deviation == 0.0


def test_inputs_differ_by_any_column_and_zeros_have_no_sign():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [0.0, 2.0]])
    assert replicates(X, np.array([1.0, 3.0, 5.0, 7.0])).count.sum() == 4
    assert replicates(X, np.array([1.0, 3.0, 5.0, 7.0])).share == 0.5
    assert replicates(X, np.array([1.0, 3.0, 5.0, 7.0])).deviation == pytest.approx(np.sqrt(2.0))


def test_none_repeat(rng):
    found = replicates(rng.standard_normal((300, 1)), rng.standard_normal(300))
    assert (found.share, found.deviation) == (0.0, 0.0)
    assert replicates(np.ones((1, 2)), np.ones(1)).share == 0.0

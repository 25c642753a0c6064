"""Cells: where the tree cuts, and that every row has one place whatever it is asked together with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bcmdist.data.cell_tree import grow

UNIT = np.ones(2)


@pytest.fixture(name="X")
def square(rng):
    X = rng.uniform(-2, 2, (1000, 2))
    assert X.shape == (1000, 2)
    return X


def assert_tree(tree):
    """Cells are numbered from left to right, and partitions are runs of them that hold all."""
    leaves = -1 - tree.child[tree.child < 0]
    assert sorted(leaves) == list(range(tree.cells)) if len(tree.threshold) else tree.cells == 1
    assert tree.first[0] == 0
    assert np.all(np.diff(tree.first) > 0)
    assert len(tree.direction) == len(tree.threshold) == len(tree.child) == tree.cells - 1


def test_cells_and_partitions_hold_about_as_many_rows_as_wanted(X):
    tree = grow(X, UNIT, cell_rows=50, partition_rows=200)
    assert_tree(tree)
    cells = np.bincount(tree.route(X), minlength=tree.cells)
    assert tree.cells == 20
    assert cells.min() >= 48  # rounding of halves
    assert cells.max() <= 52
    assert list(tree.first) == [0, 4, 8, 12, 16, 20]
    partitions = np.add.reduceat(cells, tree.first[:-1])
    assert np.abs(partitions - 200).max() <= 2


def test_parts_that_are_no_powers_of_two_are_as_large_as_each_other(X):
    tree = grow(X, UNIT, cell_rows=1000 / 7, partition_rows=1000)
    assert tree.cells == 7
    assert np.abs(np.bincount(tree.route(X)) - 1000 / 7).max() <= 2


def test_fewer_rows_than_a_partition_have_fewer_cells_not_smaller_ones(X):
    tree = grow(X[:160], UNIT, cell_rows=80, partition_rows=1000)
    assert np.bincount(tree.route(X[:160])).tolist() == [80, 80]
    assert grow(X[:30], UNIT, cell_rows=80, partition_rows=1000).cells == 1


def test_near_rows_share_a_cell(X):
    """Cells are halves of halves: each is convex, and compact in the metric."""
    tree = grow(X, UNIT, cell_rows=50, partition_rows=200)
    cells = tree.route(X)
    spread = np.mean([X[cells == c].var(axis=0).sum() for c in range(tree.cells)])
    assert spread < 0.15 * X.var(axis=0).sum()  # 1/20 for squares


def test_cuts_follow_the_metric(rng):
    X = rng.uniform(-1, 1, (400, 2))
    tree = grow(X, np.array([100.0, 0.1]), cell_rows=100, partition_rows=400)  # the first column hardly matters
    assert np.all(np.abs(tree.direction[:, 0] * 100) < 0.1 * np.abs(tree.direction[:, 1] * 0.1))
    order = np.argsort(X[:, 1])
    assert np.all(np.diff(tree.route(X)[order]) >= 0) or np.all(np.diff(tree.route(X)[order]) <= 0)


@pytest.mark.parametrize("factor", [2.0**5, 3.7])
def test_scaling_inputs_and_lengthscales_together_changes_nothing(X, factor):
    scale = np.array([factor, 1.0])
    one = grow(X, UNIT, cell_rows=50, partition_rows=200)
    other = grow(X * scale, UNIT * scale, cell_rows=50, partition_rows=200)
    np.testing.assert_array_equal(one.route(X), other.route(X * scale))


def test_the_seed_alone_decides_and_only_of_large_samples(rng):
    X = rng.standard_normal((5000, 3))
    trees = [grow(X, np.ones(3), cell_rows=500, partition_rows=1000, seed=seed) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(trees[0].threshold, trees[1].threshold)
    assert not np.array_equal(trees[0].threshold, trees[2].threshold)
    small = [grow(X[:900], np.ones(3), cell_rows=50, partition_rows=300, seed=seed) for seed in (1, 2)]
    np.testing.assert_array_equal(small[0].threshold, small[1].threshold)


def test_a_row_goes_where_it_goes_alone(rng):
    """No answer may depend on the rows beside it, not even at a cut or for the rows the tree was grown from."""
    X = rng.standard_normal((700, 7))
    tree = grow(X, np.ones(7), cell_rows=10, partition_rows=100)
    midway = np.repeat(tree.threshold[:, None], 7, axis=1) * tree.direction / (tree.direction**2).sum(axis=1)[:, None]
    X = np.vstack([X, midway])  # the last ones stand on a cut, up to rounding
    whole = tree.route(X)
    np.testing.assert_array_equal(whole, [tree.route(x[None, :])[0] for x in X])
    np.testing.assert_array_equal(whole[::-1], tree.route(X[::-1]))
    np.testing.assert_array_equal(whole, tree.route(np.asfortranarray(X)))


def test_no_training_row_stands_on_a_cut(rng):
    X = rng.integers(0, 9, (800, 2)).astype(float)  # a grid, many rows on each point
    tree = grow(X, UNIT, cell_rows=40, partition_rows=200)
    for direction, threshold in zip(tree.direction, tree.threshold, strict=True):
        assert np.abs(X @ direction - threshold).min() > 1e-12


def test_rows_that_coincide_stay_together(rng):
    few = rng.standard_normal((5, 3))
    X = few[rng.integers(0, 5, 300)]
    tree = grow(X, np.ones(3), cell_rows=10, partition_rows=100)
    cells = tree.route(X)
    assert tree.cells == 5
    for x in few:
        assert len(set(cells[np.all(x == X, axis=1)])) == 1


@pytest.mark.parametrize("X", [np.full((1, 2), 3.0), np.full((50, 2), 0.1), np.zeros((50, 2))])
def test_what_cannot_be_cut_is_one_cell(X, rng):
    tree = grow(X, np.array([0.3, 7.0]), cell_rows=1, partition_rows=10)
    assert_tree(tree)
    assert tree.cells == 1
    assert tree.route(rng.standard_normal((9, 2))).tolist() == [0] * 9


def test_more_cells_than_rows(rng):
    X = rng.standard_normal((5, 2))
    tree = grow(X, UNIT, cell_rows=0.1, partition_rows=2)
    assert_tree(tree)
    assert sorted(tree.route(X)) == list(range(5))


def test_no_rows_have_no_cells(X):
    tree = grow(X, UNIT, cell_rows=50, partition_rows=200)
    assert tree.route(np.zeros((0, 2))).shape == (0,)


@settings(max_examples=60, deadline=None)
@given(
    X=hnp.arrays(
        float,
        st.tuples(st.integers(1, 40), st.integers(1, 3)),
        elements=st.sampled_from([-1e6, -1, 0, 0.1, 1, 1e-8, 3]),
    ),
    cell_rows=st.floats(0.5, 50),
    partition_rows=st.floats(0.5, 50),
    seed=st.integers(0, 3),
)
def test_laws_of_cells(X, cell_rows, partition_rows, seed):
    tree = grow(X, np.ones(X.shape[1]), cell_rows=cell_rows, partition_rows=partition_rows, seed=seed)
    assert_tree(tree)
    cells = tree.route(X)
    assert np.all((cells >= 0) & (cells < tree.cells))
    assert set(cells) == set(range(tree.cells))  # the rows it was grown from leave no cell empty
    for x in np.unique(X, axis=0):
        assert len(set(cells[np.all(x == X, axis=1)])) == 1

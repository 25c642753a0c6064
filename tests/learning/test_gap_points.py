"""Places in gaps: where they are drawn, where not, and what query points in them are worth."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from bcmdist import GBCM, Settings
from bcmdist.learning.gap_points import FEW_INPUTS, LEVELS, REACH, gap_places
from bcmdist.learning.query_selection import MOST_IN_GAPS, select_points
from bcmdist.model.kernels import parse_kernel
from problems import make_kernel

CENTRE, RADIUS = np.array([0.1, -0.2]), 0.5


def with_hole(rng, count=3000):
    """Rows all over a square but for a disc."""
    X = rng.uniform(-1, 1, (2 * count, 2))
    return X[~in_hole(X)][:count]


def in_hole(X):
    return np.linalg.norm(X - CENTRE, axis=1) < RADIUS


def places(rows, seed=0):
    """Places in gaps around the centres of k-means of rows."""
    centres = KMeans(100, n_init=1, init="random", random_state=seed).fit(rows).cluster_centers_
    return gap_places(rows, centres, seed)


# --- Where places are drawn ---


def test_places_fill_a_hole_as_densely_as_rows_the_rest(rng):
    rows = with_hole(rng)
    found = places(rows)
    density = len(rows) / (4.0 - np.pi * RADIUS**2)
    assert np.mean(in_hole(found)) > 0.85
    inner = np.linalg.norm(found - CENTRE, axis=1) < RADIUS / 2
    assert inner.sum() / (np.pi * RADIUS**2 / 4) == pytest.approx(density, rel=0.3)
    np.testing.assert_array_equal(found, places(rows))


@pytest.mark.parametrize("inputs", range(1, FEW_INPUTS + 1))
def test_there_are_none_without_gaps(rng, inputs):
    """Also where rows thin out to the sides, which is no gap."""
    assert places(rng.uniform(-1, 1, (3000, inputs))).shape == (0, inputs)
    assert len(places(rng.standard_normal((3000, inputs)))) < 0.05 * 3000


def test_a_corner_of_a_map_is_a_gap_and_the_corners_around_a_disc_are_none(rng):
    square = rng.uniform(-1, 1, (3000, 2))
    found = places(square[np.any(square < 0.4, axis=1)])
    assert np.mean(np.all(found > 0.4, axis=1)) > 0.9
    assert np.mean(np.all(found > 0.75, axis=1)) > 0.1
    disc = square[np.linalg.norm(square, axis=1) < 1]
    assert len(places(disc)) == 0


def test_there_are_none_in_a_plane_of_rows_on_a_line(rng):
    t = rng.uniform(-1, 1, 2000)
    assert places(np.column_stack([t, 2.0 * t])).shape == (0, 2)


def test_there_are_none_among_many_inputs(rng):
    rows = rng.standard_normal((1000, FEW_INPUTS + 1))
    assert places(rows).shape == (0, FEW_INPUTS + 1)


@pytest.mark.parametrize("far", [30.0, 1e4])
def test_stray_rows_send_no_places_into_the_void(rng, far):
    """And the hole is seen beside them."""
    rows = np.vstack([with_hole(rng), [[far, 0.0], [0.0, -far]]])
    found = places(rows)
    assert np.abs(found).max() < 2.0
    assert np.mean(in_hole(found)) > 0.8


def test_places_are_within_reach_of_rows(rng):
    """Two clusters many lengthscales apart: nothing is learned about what lies between them."""
    rows = np.concatenate([rng.uniform(0, 5, 2000), rng.uniform(100, 105, 2000)])[:, None]
    distance = np.abs(places(rows) - rows.T).min(axis=1)
    assert np.all(distance <= REACH)


def test_levels_are_not_left(rng):
    """Between categories there is nothing; a constant input stays what it is."""
    hour = rng.uniform(0, 10, 4000)
    kind = rng.choice([0.0, 1.0, 5.0], 4000)
    rows = np.column_stack([hour, kind, np.full(4000, 2.0)])[(hour < 4) | (hour > 7)]
    found = places(rows)
    assert len(found)
    assert set(np.unique(found[:, 1])) <= {0.0, 1.0, 5.0}
    assert np.all(found[:, 2] == 2.0)
    assert np.mean((found[:, 0] > 4) & (found[:, 0] < 7)) > 0.8
    assert len({0.0, 1.0, 5.0}) <= LEVELS


def test_places_among_levels_alone_do_not_repeat():
    """A lattice without its middle: k-means for more points than there are distinct places would warn."""
    lattice = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), axis=-1).reshape(-1, 2)
    outer = np.abs(lattice - 7.5).max(axis=1) > 4.0
    rows = lattice[outer] / 2.0
    found = places(rows)
    assert len(found) == len(np.unique(found, axis=0)) > 0
    kernel = parse_kernel("matern32", inputs=2).with_parameters({"variance": np.ones(1), "lengthscale": np.ones(2)})
    points = select_points(rows, 150, kernel=kernel)
    assert np.sum(np.abs(2.0 * points - 7.5).max(axis=1) < 4.0) > 20


# --- Query points ---


def test_query_points_stand_in_a_hole_too(rng):
    """As densely as elsewhere; of rows without a hole, and of many inputs, they are what k-means of rows gives."""
    points = select_points(with_hole(rng), 100, kernel=make_kernel("matern32"))
    share = np.pi * RADIUS**2 / 4
    assert len(points) == 100
    assert np.mean(in_hole(points)) == pytest.approx(share, abs=0.07)


def test_gaps_take_a_quarter_of_the_points_at_most(rng):
    clumps = rng.uniform(-1, 1, (12, 2))
    rows = clumps[rng.integers(0, 12, 4000)] + 0.02 * rng.standard_normal((4000, 2))
    points = select_points(rows, 200, kernel=make_kernel("matern32"))
    distance = np.linalg.norm(points[:, None] - clumps, axis=2).min(axis=1)
    assert 0.1 < np.mean(distance > 0.1) <= MOST_IN_GAPS


def test_few_rows_are_all_taken_whatever_their_gaps(rng):
    rows = with_hole(rng, 60)
    points = select_points(rows, 100, kernel=make_kernel("matern32"))
    assert {tuple(p) for p in points} == {tuple(p) for p in rows}


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_predictions_in_a_gap_come_nearer_to_those_of_the_exact_gp(rng, monkeypatch, partition):
    """Noisy values of a smooth field beside a hole, at given hyper-parameters: RMS distance in the hole."""
    X, kernel = with_hole(rng, 1500), parse_kernel("matern32", inputs=2)
    y = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.1 * rng.standard_normal(len(X))
    new = rng.uniform(-1, 1, (600, 2))
    new = new[in_hole(new)]
    given = {"kernel": "matern32", "query": 60, "learn": False, "rows_per_expert": 150, "partition": partition}
    given["set"] = {"likelihood.noise_variance": 0.02, "kernel.lengthscale": 1.0}
    mean, sd = X.mean(axis=0), X.std(axis=0)
    A, B, targets = (X - mean) / sd, (new - mean) / sd, (y - y.mean()) / y.std()
    K = kernel.with_parameters({"variance": np.ones(1), "lengthscale": np.ones(2)}).cross
    exact = y.mean() + y.std() * K(B, A) @ np.linalg.solve(K(A, A) + 0.02 * np.eye(len(A)), targets)

    def distance():
        found = GBCM.fit((X, y), Settings(**given)).predict(new, method="committee")["mean"]
        return np.sqrt(np.mean((found - exact) ** 2))

    covered = distance()
    monkeypatch.setattr("bcmdist.learning.query_selection.gap_places", lambda rows, *_: rows[:0])
    assert covered < 0.6 * distance()

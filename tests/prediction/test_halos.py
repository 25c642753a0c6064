"""Surroundings: which rows a local expert sees, against brute force."""

import numpy as np
import pytest

from bcmdist.data.cell_tree import CellTree
from bcmdist.data.dataset import Dataset
from bcmdist.data.partition import Partition
from bcmdist.prediction.local import halos
from bcmdist.prediction.local.halos import (
    CONSIDERED,
    EFFORT_FACTORS,
    NEIGHBOURS,
    PROBES,
    Arrangement,
    HaloSizes,
    nearest_rows,
    sizes_for,
    whole_cells,
)
from bcmdist.storage.entry import Entry, absorbed_pieces


def arrangement(edges, first, around=10):
    tree = CellTree(np.zeros((0, 1)), np.zeros(0), np.zeros((0, 2), int), np.array(first))
    data = Dataset("cells.zarr", "X", "y", edges[-1], 1, 4, ())
    return Arrangement(data, tree, np.array(edges), HaloSizes(4, around))


def distances(core, candidates):
    return np.sqrt(((candidates[:, None] - core) ** 2).sum(axis=2)).min(axis=1)


def first_neighbours(core, candidates, count):
    """By best rank among the neighbours of a row of the core, then by distance, as `nearest_rows` says it."""
    near = np.argsort(distances(core, candidates))[: CONSIDERED * count]
    each = ((candidates[near, None] - core) ** 2).sum(axis=2)
    best = np.minimum(each.argsort(axis=0).argsort(axis=0).min(axis=1), NEIGHBOURS)
    return np.sort(near[np.lexsort((distances(core, candidates[near]), best))[:count]])


@pytest.mark.parametrize("inputs", [1, 3, 20])
@pytest.mark.parametrize("count", [1, 40, 150, 399])
def test_nearest_rows(rng, inputs, count):
    core, candidates = rng.standard_normal((PROBES // 4, inputs)), 2 * rng.standard_normal((400, inputs))
    found = nearest_rows(core, candidates, count)
    assert len(np.unique(found)) == count
    assert np.all(np.diff(found) > 0)
    # Single precision: rows may change places where squared distances differ by 1e-6.
    assert len(np.intersect1d(found, first_neighbours(core, candidates, count))) >= count - 2


@pytest.mark.parametrize("inputs", [1, 2, 8])
def test_rows_left_out_early_would_not_have_been_found(rng, inputs, monkeypatch):
    """A small core among many rows: most are too far from its centre to be asked."""
    core, candidates = 0.1 * rng.standard_normal((40, inputs)), rng.standard_normal((5000, inputs))
    found = nearest_rows(core, candidates, 50)
    reach = np.sqrt((candidates**2).sum(axis=1))
    asked = len(halos._considered(reach, 0.2, CONSIDERED * 50))
    assert asked < (2500 if inputs < 8 else 5001)
    monkeypatch.setattr(halos, "_considered", lambda reach, radius, count: np.arange(len(reach)))
    np.testing.assert_array_equal(found, nearest_rows(core, candidates, 50))


def test_rows_beyond_a_gap_are_among_the_nearest():
    """100 rows on this side are nearer to the core, but only some of these are nearer to its last row."""
    line, beyond = np.linspace(-3, 0, 301)[:, None], np.linspace(1, 4, 301)[:, None]
    core, candidates = line[-40:], np.concatenate([line[:-40], beyond])
    assert np.sum(candidates[np.argsort(distances(core, candidates))[:100]] > 0) == 0
    assert np.sum(candidates[nearest_rows(core, candidates, 100)] > 0) >= 10


def test_nearest_rows_of_a_large_core_are_about_right(rng):
    """Not all its rows are asked, but they are spread over it: by chance a third of them would be right."""
    core, candidates = rng.standard_normal((5 * PROBES, 2)), 2 * rng.standard_normal((600, 2))
    found = nearest_rows(core, candidates, 200)
    assert len(np.intersect1d(found, first_neighbours(core, candidates, 200))) > 130


def test_far_from_the_origin_nearest_rows_are_still_nearest(rng):
    """Single precision has 7 digits: they must not go into where the origin lies."""
    core, candidates = rng.standard_normal((50, 2)), 2 * rng.standard_normal((400, 2))
    found = nearest_rows(core + 3000.0, candidates + 3000.0, 100)
    assert len(np.intersect1d(found, first_neighbours(core, candidates, 100))) >= 99


def test_fewer_candidates_than_wanted_are_all_taken(rng):
    core, candidates = rng.standard_normal((4, 2)), rng.standard_normal((7, 2))
    for count in (7, 8, 100):
        assert nearest_rows(core, candidates, count).tolist() == list(range(7))
    assert nearest_rows(core, candidates[:0], 3).tolist() == []
    assert nearest_rows(core[:1], candidates, 1).tolist() == [int(((candidates - core[0]) ** 2).sum(axis=1).argmin())]


def test_partitions_are_runs_of_cells_without_the_empty_ones():
    a = arrangement([0, 0, 5, 9, 9, 9, 12, 12], [0, 2, 3, 5, 7])
    assert a.bounds.tolist() == [0, 5, 9, 9, 12]
    assert [(p.start, p.stop) for p in a.partitions(100)] == [(0, 5), (5, 9), (9, 12)]
    assert [a.number(p) for p in a.partitions(100)] == [0, 1, 3]
    assert a.partition_of(np.arange(7)).tolist() == [0, 0, 1, 2, 2, 3, 3]


def test_partitions_that_are_too_large_are_cut_and_keep_their_number():
    a = arrangement([0, 0, 25, 30], [0, 1, 2, 3])
    parts = a.partitions(10)
    assert [(p.start, p.stop) for p in parts] == [(0, 8), (8, 16), (16, 25), (25, 30)]
    assert [a.number(p) for p in parts] == [1, 1, 1, 2]
    assert max(p.rows for p in a.partitions(7)) <= 7
    assert sum(p.rows for p in a.partitions(1)) == 30


def test_a_first_partition_without_rows_is_passed_over():
    a = arrangement([0, 0, 3], [0, 1, 2])
    assert a.number(Partition(a.data, 0, 3)) == 1
    assert a.core(0).tolist() == []


def test_a_core_is_capped_and_evenly_spread():
    a = arrangement([0, 4, 104], [0, 2], around=10)
    assert a.core(0).tolist() == [0, 1, 2, 3]
    core = a.core(1)
    assert len(core) == 10
    assert (core[0], core[-1]) == (4, 103)
    assert np.abs(np.diff(core) - 11).max() <= 1
    assert a.core(1).dtype == np.int64


def test_heard_pieces_are_those_of_the_array_in_order():
    ledger = [
        Entry("/m/cells.zarr/X[50:90]", "a", 40, 0.5),
        Entry("/m/cells.zarr/X[0:50]", "b", 50),
        Entry("/other.zarr/X[0:10]", "c", 10),
        Entry("/m/cells.zarr/X2[0:10]", "d", 10),
    ]
    weights = {entry.key: entry.weight for entry in ledger}
    assert absorbed_pieces(weights, "/m/cells.zarr/X").tolist() == [[0, 50, 1.0], [50, 90, 0.5]]
    assert absorbed_pieces({}, "/m/cells.zarr/X").shape == (0, 3)


def test_sizes_grow_with_inputs_and_effort():
    assert list(EFFORT_FACTORS) == ["quick", "normal", "thorough"]
    sizes = [sizes_for(1000, inputs, "normal").with_halo for inputs in (1, 4, 100)]
    assert sizes == sorted(sizes)
    efforts = [sizes_for(1000, 3, effort) for effort in EFFORT_FACTORS]
    assert [s.with_halo for s in efforts] == sorted(s.with_halo for s in efforts)
    assert all(s.core < s.with_halo for s in efforts)


def test_many_rows_thin_what_surrounds_a_point_later_where_inputs_are_many():
    few, many = (
        [sizes_for(rows, inputs, "normal").with_halo for rows in (10_000, 60_000, 240_000)] for inputs in (8, 40)
    )
    assert few[0] > few[1] > few[2]
    assert many[0] == many[1] > many[2] > few[2]


@pytest.mark.parametrize("count", [1, 2, 9])
def test_cells_are_chosen_among_those_with_rows_of_the_partition(rng, count):
    """A cell of 100 coincident rows is in several partitions, which other cells of its leaf have no rows of."""
    cells = arrangement([0, 4, 104, 108], [0, 3])
    for part in cells.partitions(30):
        rows = part.start + whole_cells(cells, part, count, rng)
        there = np.unique(np.searchsorted(cells.edges, np.arange(part.start, part.stop), side="right"))
        assert ((rows >= part.start) & (rows < part.stop)).all()
        assert len(np.unique(np.searchsorted(cells.edges, rows, side="right"))) == min(count, len(there))

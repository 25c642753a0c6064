import functools
import itertools
import operator
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from bcmdist import SerialRuntime
from bcmdist.data.dataset import COMPANIONS, open_data
from bcmdist.data.observations import Observations
from bcmdist.data.partition import partitions
from bcmdist.data.rows import Rows, read_all
from bcmdist.learning.blocks import blocks as of_blocks
from bcmdist.learning.blocks.blocks import (
    ROUGH_ROUNDS,
    THINNING,
    CellBlocks,
    Nearest,
    Neighbourhood,
    Neighbourhoods,
    SampleBlocks,
    all_rows,
)
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.scaling import Scaling, scaling_to_array
from bcmdist.storage.commits import BlobReference, open_store

SCALING = Scaling(np.array([3.0, -200.0]), np.array([2.0, 50.0]), 0.0, 1.0)
ROWS = 120


def observations(y):
    y = np.asarray(y, dtype=float)
    return Observations(y, y + 0.1, y + 0.2, y + 0.3, y + 0.4)


def some(size, distances, first=0):
    """A neighbourhood of rows that are numbered, all different."""
    order = np.argsort(distances, kind="stable")
    numbers = (first + np.arange(len(distances), dtype=float))[order]
    distance, chance = np.array(distances, dtype=float)[order], (0.1 * numbers) % 1.0
    return Neighbourhood(size, numbers[:, None], observations(numbers), distance, chance)


def assert_same(a, b):
    np.testing.assert_array_equal(a.X, b.X)
    # Products of other shapes round otherwise.
    np.testing.assert_allclose(a.distance, b.distance, rtol=1e-9, atol=1e-12)
    for field in fields(Observations):
        np.testing.assert_array_equal(getattr(a.obs, field.name), getattr(b.obs, field.name))


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(20)), st.integers(1, 8), st.lists(st.integers(0, 20), min_size=2, max_size=2))
def test_neighbourhoods_add_in_any_order_and_grouping(ranks, size, edges):
    """Those of rows in three parts; one part may be empty, as may all of them be smaller than `size`."""
    i, j = sorted(edges)
    a, b, c = (some(20, ranks[s], s.start) for s in (slice(0, i), slice(i, j), slice(j, 20)))
    a, b, c = (
        Neighbourhoods((Neighbourhood(size, p.X[:size], p.obs[slice(size)], p.distance[:size], p.chance[:size]),))
        for p in (a, b, c)
    )
    (whole,) = ((a + b) + c).blocks
    assert_same(whole, (a + (b + c)).blocks[0])
    assert_same(whole, (c + (b + a)).blocks[0])
    np.testing.assert_array_equal(whole.X[:, 0], np.argsort(ranks)[:size])
    np.testing.assert_array_equal(whole.obs.y, whole.X[:, 0])
    np.testing.assert_array_equal(whole.obs.event, whole.X[:, 0] + 0.4)


def test_of_rows_that_coincide_any_are_near(make_data, tmp_path, rng):
    """However they are stored: of 600 rows in one place a neighbourhood of 200 has their targets (two samples)."""
    y = np.sort(rng.standard_normal(600))
    store = open_store(tmp_path / "model")
    scaling = Scaling(np.zeros(2), np.ones(2), 0.0, 1.0)
    arrays = {"s": scaling_to_array(scaling), "centres": np.array([[1.0, 1.0, 1.0, np.inf]]), "metric": np.ones(2)}
    made = {name: BlobReference(store.storage.url, digest) for name, digest in store.put_arrays(arrays).items()}
    parts = partitions(open_data(make_data(X=np.ones((600, 2)), y=y)), 100)
    task = Nearest(made["s"], made["centres"], made["metric"], size=200, seed=0)
    blocks = [SerialRuntime().sum(task, some, label="test").blocks[0] for some in (parts, parts[::-1])]
    assert ks_2samp(blocks[0].obs.y, y).pvalue > 1e-3
    assert_same(*blocks)


@pytest.fixture
def setting(make_data, tmp_path, rng):
    """Rows with all companions: data, a store, and the reference of their scaling."""
    y = np.arange(ROWS, dtype=float)
    obs = observations(y)
    columns = {"X": SCALING.x_mean + SCALING.x_scale * rng.standard_normal((ROWS, 2)), "y": y}
    columns |= {name: getattr(obs, name) for name in COMPANIONS}
    columns |= {"weight": y + 1.0, "exposure": y + 2.0, "trials": y + 3.0, "event": y % 2}
    store = open_store(tmp_path / "model")
    reference = BlobReference(store.storage.url, store.put_arrays({"s": scaling_to_array(SCALING)})["s"])
    return open_data(make_data("rows.zarr", rows_per_chunk=10, **columns)), columns, store, reference


def nearest(setting, shares, metric, size=9, seed=3, most=np.inf):
    """The task, its centres in units of the metric, and what keeps its references alive; `most`: squared distance."""
    _, _, store, reference = setting
    centres = np.random.default_rng(1).standard_normal((len(shares), 2)) / metric
    references = store.put_arrays(
        {"centres": np.column_stack([centres, shares, np.full(len(shares), most)]), "metric": metric}
    )
    made = {name: BlobReference(store.storage.url, digest) for name, digest in references.items()}
    return Nearest(reference, **made, size=size, seed=seed), centres


METRIC = np.array([0.5, 3.0])


@pytest.mark.parametrize("rows", [10, 20, 60, 120])
def test_neighbourhoods_are_the_nearest_rows(setting, rows):
    """By brute force, however the rows are cut: all of them at a share of one, else those whose number is drawn."""
    data, columns, *_ = setting
    task, centres = nearest(setting, [1.0, 0.3, 1.0], METRIC)
    parts = partitions(data, rows)
    found = SerialRuntime().sum(task, parts, label="test")
    Z = SCALING.inputs(columns["X"]) / METRIC
    drawn = np.hstack([np.random.default_rng([3, part.start]).random((3, part.rows)) for part in parts])
    for centre, share, numbers, block in zip(centres, [1.0, 0.3, 1.0], drawn, found.blocks, strict=True):
        seen = np.flatnonzero(numbers < share)
        expected = seen[np.argsort(((Z[seen] - centre) ** 2).sum(axis=1))[:9]]
        np.testing.assert_array_equal(block.obs.y, columns["y"][expected])
        np.testing.assert_array_equal(block.X, columns["X"][expected])
        np.testing.assert_array_equal(block.obs.trials, columns["trials"][expected])
        np.testing.assert_allclose(block.distance, ((Z[expected] - centre) ** 2).sum(axis=1), atol=1e-9)


def test_rows_within_a_distance_are_those_of_all(setting):
    """As far as there are any within it."""
    data, *_ = setting
    free, near = (
        SerialRuntime().sum(nearest(setting, [1.0, 0.3], METRIC, most=most)[0], partitions(data, 20), label="test")
        for most in (np.inf, 0.2)
    )
    for whole, part in zip(free.blocks, near.blocks, strict=True):
        within = whole.distance <= 0.2
        np.testing.assert_array_equal(part.X, whole.X[within])
    assert 0 < sum(len(part.X) for part in near.blocks) < sum(len(whole.X) for whole in free.blocks)


@pytest.mark.parametrize("margin", [2.0, 0.01])
def test_neighbourhoods_of_many_rows_hold_as_many_as_asked(make_data, tmp_path, rng, monkeypatch, margin):
    """The nearest of all rows, also where too few lie within the distance that was expected to hold them."""
    monkeypatch.setattr(of_blocks, "MARGIN", margin)
    monkeypatch.setattr(of_blocks, "FEWEST", 2)
    X = rng.standard_normal((3000, 2)) ** 3
    data = open_data(make_data(X=X, y=np.arange(3000.0)))
    store = open_store(tmp_path / "model")
    scaling = Scaling(np.zeros(2), np.ones(2), 0.0, 1.0)
    reference = BlobReference(store.storage.url, store.put_arrays({"s": scaling_to_array(scaling)})["s"])
    passes = []

    class Counted(SerialRuntime):
        def sum(self, task, parts, *, label):
            passes.append(label)
            return super().sum(task, parts, label=label)

    about = {"reference": reference, "size": 50, "per_density": 1, "store": store, "url": str(tmp_path), "seed": 0}
    near = CellBlocks(data, partitions(data, 100), X[rng.permutation(3000)[:500]], runtime=Counted(), **about)
    found = near.neighbourhoods(None, np.array([1.0, 1.0]), 50)
    assert len(passes) == (1 if margin > 1.0 else 2)
    near.neighbourhoods(None, np.array([1.0, 0.01]), 50)  # of 1 % of all rows there are fewer
    assert len(passes) == (2 if margin > 1.0 else 4)
    for part, rows in read_all(found):
        distance = ((X - rows.X[0]) ** 2).sum(axis=1)
        np.testing.assert_array_equal(np.sort(rows.obs.y), np.sort(np.argsort(distance)[: part.rows]))
        assert part.rows == 50


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(1, ROWS - 1), max_size=6), st.randoms(use_true_random=False))
def test_any_cutting_gives_the_same_rows(cuts, random):
    """Where each centre sees all rows; partitions may be smaller than a block."""
    rng = np.random.default_rng(5)
    X, obs = rng.standard_normal((ROWS, 2)), observations(np.arange(ROWS))
    tables = {
        "s": scaling_to_array(SCALING),
        "c": np.array([[0.2, -4.0, 1.0, np.inf], [0.0, -4.0, 1.0, np.inf]]),
        "m": METRIC,
    }
    task = _Loaded(tables)

    def of(edges):
        pieces = [Rows(X[a:b], obs[np.arange(a, b)], "") for a, b in itertools.pairwise(edges)]
        random.shuffle(pieces)
        return functools.reduce(operator.add, [task(piece) for piece in pieces])

    whole, cut = of([0, ROWS]), of([0, *sorted(cuts), ROWS])
    for a, b in zip(whole.blocks, cut.blocks, strict=True):
        assert_same(a, b)


class _Loaded:
    """The task without files behind its references."""

    def __init__(self, tables):
        self.tables = tables

    def __call__(self, rows):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bcmdist.learning.blocks.blocks.load_array", self.tables.get)
            patch.setattr("bcmdist.learning.blocks.blocks.load_scaling", lambda _: SCALING)
            return Nearest("s", "c", "m", size=17, seed=3)(type("Part", (), {"start": 0}), rows)


def test_serial_is_dask(setting, cluster):
    data, *_ = setting
    task, _ = nearest(setting, [1.0, 0.4], METRIC)
    parts = partitions(data, 20)
    one, two = (runtime.sum(task, parts, label="test") for runtime in (SerialRuntime(), cluster))
    for a, b in zip(one.blocks, two.blocks, strict=True):
        assert_same(a, b)


def test_all_rows_follow_each_other(setting):
    task, _ = nearest(setting, [1.0, 0.1], METRIC)
    found = SerialRuntime().sum(task, partitions(setting[0], 20), label="test")
    X, obs, sizes = all_rows(found)
    assert sizes == [len(block.X) for block in found.blocks]
    assert len(X) == len(obs) == sum(sizes)
    np.testing.assert_array_equal(X[: sizes[0]], found.blocks[0].X)
    np.testing.assert_array_equal(obs.y[sizes[0] :], found.blocks[1].obs.y)


@pytest.fixture
def cells(setting, tmp_path):
    """Makes `CellBlocks`, and counts passes over the data."""
    data, columns, store, reference = setting

    def make(place="scratch", runtime=None, **changes):
        sizes = {"size": 7, "per_density": 2, "seed": 5} | changes
        (tmp_path / place).mkdir(exist_ok=True)
        return CellBlocks(
            data,
            partitions(data, 20),
            SCALING.inputs(columns["X"])[np.random.default_rng(0).permutation(ROWS)],
            reference=reference,
            runtime=runtime or SerialRuntime(),
            store=store,
            url=str(tmp_path / place),
            **sizes,
        )

    return make


KERNEL = parse_kernel("se", inputs=2).with_parameters({"variance": np.ones(1), "lengthscale": np.array([0.2, 5.0])})


def targets(blocks):
    return [rows.obs.y.tolist() for _, rows in read_all(blocks)]


def test_blocks_hold_original_rows_with_their_companions(setting, cells):
    _, columns, *_ = setting
    for block, rows in read_all([*cells()(None), *cells("again")(KERNEL)]):
        number = rows.obs.y.astype(int)
        assert block.rows == len(set(number))
        np.testing.assert_array_equal(rows.X, columns["X"][number])
        for name in COMPANIONS:
            np.testing.assert_array_equal(getattr(rows.obs, name), columns[name][number])


@pytest.mark.slow
def test_rounds_differ_and_seeds_repeat(cells):
    blocks = cells()
    rounds = [targets(blocks(None)), targets(blocks(KERNEL)), targets(blocks(KERNEL))]
    assert len({str(one) for one in rounds}) == 3
    assert targets(blocks.neighbourhoods(KERNEL, np.ones(3), 9)) != targets(
        blocks.neighbourhoods(KERNEL, np.ones(3), 9)
    )  # other centres
    again = cells("again")
    assert [targets(again(k)) for k in (None, KERNEL, KERNEL)] == rounds
    other = cells("other", seed=6)
    assert targets(other(None)) != rounds[0]


class NoPasses(SerialRuntime):
    def sum(self, task, parts, *, label):
        pytest.fail("looked at the data again")


def test_blocks_that_are_there_are_taken_as_they_are(cells):
    blocks = cells()
    rounds = [targets(blocks(None)), targets(blocks(KERNEL))]
    resumed = cells(runtime=NoPasses())
    assert [targets(resumed(None)), targets(resumed(KERNEL))] == rounds
    with pytest.raises(pytest.fail.Exception, match="looked at the data again"):
        resumed(KERNEL)  # the third round is new


def test_nothing_else_is_left_behind(setting, cells, tmp_path):
    _, _, store, _ = setting
    before = store.storage.names("blobs")
    cells()(None)
    assert store.storage.names("blobs") == before
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["round-1.zarr"]


def shares_of(blocks, kernel, monkeypatch):
    asked = []
    monkeypatch.setattr(CellBlocks, "neighbourhoods", lambda self, kernel, shares, size: asked.extend(shares))
    blocks.round = ROUGH_ROUNDS if kernel else 0
    blocks(kernel)
    return asked


@pytest.mark.parametrize(("size", "least"), [(1, 1 / ROWS), (7, 7 / ROWS), (30, 0.25), (119, 119 / ROWS), (500, 1.0)])
def test_densities_go_from_all_rows_to_a_uniform_sample(cells, monkeypatch, size, least):
    once = shares_of(cells(size=size), None, monkeypatch)
    assert max(once) == 1.0
    assert min(once) == pytest.approx(least)
    steps = np.array(once[1:]) / once[:-1]
    assert np.all((steps >= THINNING - 1e-12) & (steps < 1.0))  # no density is skipped
    assert sorted(shares_of(cells(size=size), KERNEL, monkeypatch)) == sorted(2 * once)


def test_fewer_rows_than_a_block(cells):
    blocks = cells(size=500)(KERNEL)
    assert [sorted(y) for y in targets(blocks)] == [list(range(ROWS))]


def test_blocks_without_rows_are_left_out(cells):
    """A thin share of few rows may be nobody."""
    blocks = cells(size=3).neighbourhoods(None, [1.0, 1e-12, 1.0], 3)
    assert [block.rows for block in blocks] == [3, 3]


@pytest.mark.slow
def test_a_dense_block_is_narrow_in_the_metric_and_a_thin_one_is_wide(setting, cells):
    blocks = cells(size=12)
    spreads = []
    for _ in range(10):
        dense, thin = blocks.neighbourhoods(KERNEL, [1.0, 0.2], 12)
        spreads.append([SCALING.inputs(rows.X).std(axis=0) for _, rows in read_all([dense, thin])])
    dense, thin = np.mean(spreads, axis=0)
    assert dense[0] < 0.5 * dense[1]  # lengthscales are 0.2 and 5
    assert dense[0] < 0.7 * thin[0]


@pytest.fixture
def sampled(setting, tmp_path):
    """Makes `SampleBlocks` of some rows."""
    _, columns, *_ = setting
    obs = Observations(*(columns[name] for name in ("y", *COMPANIONS)))
    (tmp_path / "scratch").mkdir()

    def make(number, size):
        return SampleBlocks(columns["X"][number], obs[number], COMPANIONS, tmp_path / "scratch", size=size)

    return make


@pytest.mark.slow
@pytest.mark.parametrize(("size", "sizes"), [(120, [120]), (119, [60, 60]), (50, [40, 40, 40]), (1, [1] * 120)])
def test_a_sample_is_cut_into_even_blocks(sampled, size, sizes):
    number = np.random.default_rng(0).permutation(ROWS)
    blocks = sampled(number, size)
    assert blocks(None) == blocks(KERNEL)
    assert [block.rows for block in blocks(None)] == sizes
    assert np.concatenate(targets(blocks(None))).tolist() == number.tolist()
    assert all(part.data.kept for part in blocks(None))


def test_a_sample_is_cut_finer_at_first(sampled, monkeypatch):
    monkeypatch.setattr("bcmdist.learning.blocks.blocks.FIRST_BLOCK", 30)
    number = np.random.default_rng(0).permutation(ROWS)
    blocks = sampled(number, 60)
    assert blocks.largest == 60
    assert [block.rows for block in blocks(None)] == [30] * 4
    assert [block.rows for block in blocks(KERNEL)] == [60] * 2
    assert np.concatenate(targets(blocks(None))).tolist() == np.concatenate(targets(blocks(KERNEL))).tolist()


def test_a_sample_is_kept_with_its_companions(setting, sampled):
    _, columns, *_ = setting
    number = np.array([7, 3, 99])
    blocks = sampled(number, 2)
    _, found = zip(*read_all(blocks(KERNEL)), strict=True)
    np.testing.assert_array_equal(np.concatenate([rows.X for rows in found]), columns["X"][number])
    for name in ("y", *COMPANIONS):
        np.testing.assert_array_equal(
            np.concatenate([getattr(rows.obs, name) for rows in found]), columns[name][number]
        )
    again = sampled(np.array([5]), 2)  # as after a kill
    assert again(None) == blocks(None)

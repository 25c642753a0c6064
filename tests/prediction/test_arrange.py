"""Spatial partitions and local prediction through the facade: what is promised, and what survives faults."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

from bcmdist import GBCM, IngestOptions, SerialRuntime, Settings
from bcmdist.committee import fading as drift
from bcmdist.data.checks.checked_store import recorded
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.reorder import external_sort
from bcmdist.data.rows import read_all, read_rows
from bcmdist.data.writing import write_dataset
from bcmdist.errors import (
    BcmdistWarning,
    DataChanged,
    DiskFull,
    InvalidData,
    InvalidOption,
    MemoryLimit,
    ModelsDiffer,
    UnsupportedTarget,
)
from bcmdist.model.kernels import Leaf
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.local import cell_rows, halos, neighbours
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import local_expert, predict_local
from bcmdist.prediction.local.halos import load_arrangement
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.prediction.scoring import ranking
from bcmdist.prediction.scoring.ranking import concordance_pairs
from bcmdist.storage.cache import least_recently_used
from problems import CELLS, assert_same_committee, wiggly

ROWS = 700


@pytest.fixture
def wiggle(make_data, rng):
    """Too much detail for 30 query points: path, X (700, 2), y (700,)."""
    X = rng.uniform(-2, 2, (ROWS, 2))
    y = wiggly(X) + 0.05 * rng.standard_normal(ROWS)
    assert X.shape == (ROWS, 2)
    assert y.shape == (ROWS,)
    return make_data("wiggle.zarr", rows_per_chunk=128, X=X, y=y), X, y


@pytest.fixture
def fresh(make_data, rng):
    """New rows of the same function: path, X (300, 2)."""
    X = rng.uniform(-2.1, 2.1, (300, 2))
    return make_data("fresh.zarr", rows_per_chunk=70, X=X, y=wiggly(X) + 0.05 * rng.standard_normal(300)), X


class Killed(BaseException):
    """Stands for the end of the client."""


class Interrupted(SerialRuntime):
    """Ends when a sum of some label begins, or after it is done."""

    def __init__(self, label, *, after):
        super().__init__()
        self.label, self.after = label, after

    def sum(self, task, parts, *, label):
        if label == self.label and not self.after:
            raise Killed
        found = super().sum(task, parts, label=label)
        if label == self.label:
            raise Killed
        return found

    def each(self, work, *, label):
        if label != self.label:
            yield from super().each(work, label=label)
            return
        if self.after:
            list(super().each(work, label=label))
        raise Killed


def left_in(model):
    """What stands in a model directory."""
    return sorted(os.listdir(model))


WHOLE = ["acknowledged", "blobs", "cells.zarr", "commits"]


def assert_same_predictions(one, other, X, method="local", tolerance=1e-10):
    a, b = one.predict(X, method=method), other.predict(X, method=method)
    assert a.keys() == b.keys()
    for name, values in a.items():
        np.testing.assert_allclose(values, b[name], rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_the_whole_job(wiggle, fresh, tmp_path):
    path, X, _ = wiggle
    gbcm = GBCM.fit(path, CELLS, model=tmp_path / "m")
    assert left_in(tmp_path / "m") == WHOLE
    info = gbcm.info()
    assert info["method"] == "local"
    assert info["rows"] == ROWS
    assert set(info["cells"]) == {"count", "core", "around", "border_jump", "border_jump_error"}
    assert info["cells"]["count"] == gbcm.model.cells.cells > 4
    assert 0.0 < info["cells"]["border_jump_error"] < info["cells"]["border_jump"] < 1.0
    local, committee = gbcm.score(fresh[0]), gbcm.score(fresh[0], method="committee")
    assert local["rows"] == committee["rows"] == 300
    assert local["nmse"] < 0.03 < 0.3 < committee["nmse"]
    assert local["mnlp"] < committee["mnlp"]
    assert 0.85 < local["coverage95"] <= 1.0
    assert left_in(tmp_path / "m") == WHOLE
    again = GBCM.load(tmp_path / "m")
    assert_same_predictions(gbcm, again, X[:50], tolerance=0)
    assert GBCM.fit(path, CELLS, model=tmp_path / "m").commit == gbcm.commit  # the same fit: nothing to do


@pytest.mark.slow
def test_predictions_stand_in_the_order_of_the_data_and_do_not_depend_on_company(wiggle, fresh, tmp_path, rng):
    gbcm = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    X = np.vstack([fresh[1], wiggle[1][:40]])  # training rows among them
    write_dataset(tmp_path / "new.zarr", {"X": X}, rows_per_chunk=64)  # no targets
    assert gbcm.predict_zarr(tmp_path / "new.zarr", tmp_path / "p.zarr") == 340
    group = zarr.open_group(tmp_path / "p.zarr", mode="r")
    assert group.attrs["method"] == "local"
    whole = gbcm.predict(X)
    assert set(whole) == set(group.array_keys())
    order = rng.permutation(340)
    shuffled = gbcm.predict(X[order])
    each = [gbcm.predict(x[None, :]) for x in X[:40]]
    for name, values in whole.items():
        np.testing.assert_allclose(group[name][...], values, rtol=1e-12)
        np.testing.assert_allclose(shuffled[name], values[order], rtol=1e-12)
        np.testing.assert_allclose(np.concatenate([p[name] for p in each]), values[:40], rtol=1e-12)
    assert gbcm.predict(np.zeros((0, 2)))["mean"].shape == (0,)
    assert left_in(tmp_path / "m") == WHOLE


@pytest.mark.slow
def test_an_opened_model_keeps_the_experts_of_cells_whatever_else_is_opened(wiggle, tmp_path, monkeypatch):
    models = [GBCM.fit(wiggle[0], CELLS, model=tmp_path / name) for name in "mn"]
    x = wiggle[1][:1]
    before = [gbcm.predict(x) for gbcm in models]
    monkeypatch.setattr("bcmdist.prediction.local.cell_rows.read_rows", None)  # nothing is read again
    for gbcm, found in zip(models, before, strict=True):
        np.testing.assert_array_equal(gbcm.predict(x)["mean"], found["mean"])


@pytest.mark.slow
def test_inputs_around_partitions_are_read_once_and_again_where_memory_is_short(wiggle, tmp_path, monkeypatch):
    read = []

    def recorded_reads(parts):
        read.extend(part.key for part in parts)
        return read_all(parts)

    monkeypatch.setattr(cell_rows, "read_all", recorded_reads)
    fits = {}
    for name, allowed_bytes in (("roomy", cell_rows.INPUT_BYTES), ("short", 1)):
        monkeypatch.setattr(cell_rows, "_inputs", least_recently_used(allowed_bytes, lambda X: X.nbytes))
        read.clear()
        fits[name] = GBCM.fit(wiggle[0], CELLS, model=tmp_path / name)
        count = len(load_arrangement(fits[name].snapshot.reference).partitions(ROWS))
        assert count > 3
        assert len(set(read)) == count
        assert (len(read) == count) == (name == "roomy")
    assert_same_predictions(*fits.values(), wiggle[1], tolerance=0)


@pytest.mark.slow
def test_a_local_prediction_is_that_of_core_and_halo(wiggle, tmp_path, rng):
    """By hand: the rows of the cell, and their nearest neighbours by rank."""
    gbcm = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    X = rng.uniform(-2, 2, (5, 2))
    arrangement, model = load_arrangement(gbcm.snapshot.reference), gbcm.model
    everything, _ = read_rows(arrangement.data, np.arange(ROWS))
    Z = everything / model.query.kernel.parameters["lengthscale"]
    Z = model.scaling.inputs(everything) / 0.3
    mean, variance = load_neighbours(gbcm.snapshot.reference).latent(model.scaling.inputs(X))
    for k, cell in enumerate(arrangement.tree.route(model.scaling.inputs(X))):
        a, b = arrangement.edges[cell : cell + 2]
        others, count = np.r_[0:a, b:ROWS], arrangement.sizes.with_halo - (b - a)
        distance = np.sqrt(((Z[others, None] - Z[a:b]) ** 2).sum(axis=2))
        near = np.argsort(distance.min(axis=1), kind="stable")[: halos.CONSIDERED * count]
        rank = np.argsort(np.argsort(distance[near], axis=0), axis=0).min(axis=1).clip(max=halos.NEIGHBOURS)
        best = np.lexsort((distance[near].min(axis=1), rank))[:count]
        rows = np.sort(np.r_[a:b, others[near[best]]])
        assert set(range(a, b)) <= set(rows)
        assert len(rows) == arrangement.sizes.with_halo
        inputs, obs = read_rows(arrangement.data, rows)
        inputs, obs = model.scaling.inputs(inputs), model.scaling.observations(obs, model.likelihood.units)
        seen, new = committee_at_rows(model.query, gbcm.committee.posterior), model.scaling.inputs(X[k : k + 1])
        expert = local_expert(seen, model.likelihood, inputs, seen.columns(inputs), obs)
        exact = predict_local(seen, expert, new, seen.columns(new))
        np.testing.assert_allclose([mean[k : k + 1], variance[k : k + 1]], exact, rtol=1e-9)


@pytest.mark.slow
def test_on_a_cluster_it_is_the_same(wiggle, fresh, tmp_path, cluster):
    one = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "one")
    other = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "other", runtime=cluster)
    assert_same_committee(one.committee, other.committee)
    assert_same_predictions(one, other, fresh[1][:50])
    assert one.facts["cells"]["halos"] == other.facts["cells"]["halos"]
    a, b = one.score(fresh[0]), other.score(fresh[0], runtime=cluster)
    assert a["mnlp"] == pytest.approx(b["mnlp"], rel=1e-10)
    other.predict_zarr(fresh[0], tmp_path / "p.zarr", runtime=cluster)
    np.testing.assert_allclose(
        zarr.open_group(tmp_path / "p.zarr", mode="r")["mean"][...], one.predict(fresh[1])["mean"], rtol=1e-10
    )
    assert left_in(tmp_path / "other") == WHOLE


@pytest.mark.slow
def test_forgotten_rows_are_seen_by_nobody(wiggle, tmp_path):
    path, X, _ = wiggle
    gbcm = GBCM.fit(path, CELLS, model=tmp_path / "m")
    entry = gbcm.ledger[0]
    start, stop = (int(n) for n in entry.key.rpartition("[")[2].rstrip("]").split(":"))
    gone = zarr.open_group(tmp_path / "m/cells.zarr", mode="r")["row"][start:stop]
    less = gbcm.forget([entry.key])
    near = load_neighbours(less.snapshot.reference)
    arrangement = near.arrangement
    for cell in range(arrangement.tree.cells):
        rows = np.concatenate([near.rows.rows_of(leaf) for leaf in near.rows.leaves_of(cell)])
        assert not np.any((rows >= start) & (rows < stop))
    # The targets that are forgotten do not matter: written over, the prediction is the same.
    before = less.predict(X[gone])
    with_them = gbcm.predict(X[gone])
    assert np.abs(before["mean"] - with_them["mean"]).max() > 0.05
    assert np.all(before["variance"] >= with_them["variance"] * (1 - 1e-9))
    cells = zarr.open_group(tmp_path / "m/cells.zarr", mode="r+")
    cells["y"][start:stop] = 1e6
    after = GBCM.load(tmp_path / "m")
    load_neighbours.cache_clear()
    for name, values in after.predict(X[gone]).items():
        np.testing.assert_array_equal(values, before[name])


@pytest.mark.slow
def test_a_model_that_has_forgotten_everything_says_what_the_prior_says(wiggle, tmp_path):
    gbcm = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    empty = gbcm.forget([entry.key for entry in gbcm.ledger])
    committee = empty.predict(wiggle[1][:9], method="committee")
    for name, values in empty.predict(wiggle[1][:9]).items():
        np.testing.assert_allclose(values, committee[name], rtol=1e-12)


@pytest.mark.slow
def test_weights_count_near_by_as_well(wiggle, tmp_path):
    path, X, _ = wiggle
    gbcm = GBCM.fit(path, CELLS, model=tmp_path / "m")
    key = gbcm.ledger[1].key
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    light = gbcm.reweight({key: 1e-9})
    none = GBCM.load(tmp_path / "copy").forget([key])
    assert_same_predictions(light, none, X[:60], tolerance=1e-5)
    assert light.ledger[1].weight == 1e-9


@pytest.mark.slow
def test_rows_fade_near_by_as_they_do_in_the_committee(wiggle, fresh, tmp_path):
    """A half-life gives each partition a weight; given by hand, these weights are the same model."""
    path, X, _ = wiggle
    gbcm = GBCM.fit(path, CELLS, model=tmp_path / "m")
    gbcm = gbcm.reweight({gbcm.ledger[1].key: 0.5})
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    fading, _ = gbcm.ingest(gbcm.source(fresh[0]), IngestOptions(half_life=100.0))
    weights = drift.weights(fading.snapshot.facts.fading, fading.ledger)
    assert min(weights.values()) == 0.5 * 2.0 ** (-300 / 100.0)
    by_hand = GBCM.load(tmp_path / "copy").partial_fit(fresh[0]).reweight(weights)
    assert_same_committee(fading.committee, by_hand.committee)
    assert_same_predictions(fading, by_hand, np.vstack([X[:40], fresh[1][:20]]))
    one, other = (load_neighbours(gbcm.snapshot.reference).rows for gbcm in (fading, by_hand))
    np.testing.assert_array_equal(one.absorbed[:, 2], other.absorbed[:, 2])
    np.testing.assert_array_equal(one.late.obs.weight, other.late.obs.weight)


@pytest.mark.slow
def test_rows_that_have_faded_to_nothing_are_seen_by_nobody(wiggle, fresh, tmp_path):
    """2^(-300 / 0.29) is a subnormal number, whose inverse is none."""
    gbcm = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    fading, _ = gbcm.ingest(gbcm.source(fresh[0]), IngestOptions(half_life=0.29))
    counts = drift.weights(fading.snapshot.facts.fading, fading.ledger)
    assert 0.0 < min(counts.values()) < np.finfo(float).tiny
    rows = load_neighbours(fading.snapshot.reference).rows
    around = np.concatenate([rows.rows_of(leaf) for leaf in rows.leaves(fading.model.scaling.inputs(wiggle[1]))])
    assert len(around)
    assert around.min() >= ROWS  # only rows of the last partitions


@pytest.mark.slow
def test_local_predictions_are_those_of_the_newest_committee(wiggle, fresh, tmp_path):
    gbcm = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    more = gbcm.partial_fit(fresh[0])
    assert more.committee.total.rows == ROWS + 300
    one, other = load_neighbours(gbcm.snapshot.reference), load_neighbours(more.snapshot.reference)
    np.testing.assert_array_equal(one.rows.absorbed, other.rows.absorbed)
    assert len(other.rows.late) == 300
    scaled = more.model.scaling.inputs(fresh[1][:9])
    belief = more.committee.posterior
    near = load_neighbours(more.snapshot.reference)
    assert near.belief is not None
    np.testing.assert_array_equal(near.belief.mean, belief.mean)
    assert np.abs(near.latent(scaled)[0] - predict_latent(more.model.query, belief, scaled)[0]).max() > 1e-3


@pytest.mark.slow
def test_the_training_rows_are_not_heard_again_as_they_are_stored(wiggle, tmp_path):
    gbcm = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    assert gbcm.partial_fit(wiggle[0]).committee.total.rows == ROWS
    with pytest.raises(InvalidData, match="expected rows that were not absorbed yet"):
        gbcm.absorb([replace(partitions(open_data(wiggle[0]), gbcm.facts["rows_per_expert"])[0], stop=50)])


def test_rows_ingested_as_they_are_stored_are_not_heard_again_in_cells(wiggle, tmp_path):
    GBCM.prepare(wiggle[0], CELLS, model=tmp_path / "m").partial_fit(wiggle[0])
    with pytest.raises(InvalidData, match=r"wiggle.zarr/X\[0:256\] was ingested as it is stored"):
        GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    assert left_in(tmp_path / "m") == ["acknowledged", "blobs", "commits"]


@pytest.mark.slow
def test_models_without_cells_name_the_way_out(wiggle, fresh, tmp_path):
    chunks = GBCM.fit(wiggle[0], replace(CELLS, partition="chunks"), model=tmp_path / "chunks")
    assert chunks.info()["method"] == "committee"
    assert chunks.info()["cells"] is None
    prepared = GBCM.prepare(wiggle[0], CELLS, model=tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    other = GBCM.load(tmp_path / "other").partial_fit(fresh[0])
    one = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "one")
    with pytest.warns(BcmdistWarning, match="a merged model makes no local predictions"):
        merged = [one.merge(other, tmp_path / "a"), other.merge(one, tmp_path / "b")]
    for gbcm in (chunks, prepared, other, *merged):
        with pytest.raises(InvalidOption, match="got one without cells; use --method committee"):
            gbcm.predict(fresh[1], method="local")
        with pytest.raises(InvalidOption, match="--method committee"):
            gbcm.score(fresh[0], method="local")
        with pytest.raises(InvalidOption, match="--method committee"):
            gbcm.predict_zarr(fresh[0], tmp_path / "p.zarr", method="local")
        assert np.all(np.isfinite(gbcm.predict(fresh[1])["mean"]))
        assert gbcm.info()["method"] == "committee"
    assert not (tmp_path / "p.zarr").exists()
    assert_same_committee(merged[0].committee, merged[1].committee)
    assert merged[0].committee.total.rows == ROWS + 300
    with pytest.raises(InvalidOption, match=r"expected one of committee, local, augmented.*, got 'nearest'"):
        one.predict(fresh[1], method="nearest")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "after"),
    [
        ("survey", True),
        ("sort", False),
        ("sort", True),
        ("gather", True),
        ("experts", False),
        ("experts", True),
        ("centroids", False),
        ("halos", False),
        ("halos", True),
        ("borders", False),
    ],
)
def test_a_fit_that_was_killed_goes_on(wiggle, tmp_path, label, after):
    path, X, _ = wiggle
    whole = GBCM.fit(path, CELLS, model=tmp_path / "whole")
    with pytest.raises(Killed):
        GBCM.fit(path, CELLS, model=tmp_path / "m", runtime=Interrupted(label, after=after))
    gbcm = GBCM.fit(path, CELLS, model=tmp_path / "m")
    assert gbcm.info()["method"] == "local"
    assert gbcm.info()["cells"] == whole.info()["cells"]
    assert_same_committee(gbcm.committee, whole.committee)
    assert_same_predictions(gbcm, whole, X[:30], tolerance=1e-12)
    assert left_in(tmp_path / "m") == WHOLE
    assert len(gbcm.ledger) == len(whole.ledger)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["sort", "gather", "predict", "restore"])
def test_predicting_leaves_nothing_when_it_is_killed(wiggle, fresh, tmp_path, label):
    gbcm = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    with pytest.raises(Killed):
        gbcm.predict_zarr(fresh[0], tmp_path / "p.zarr", runtime=Interrupted(label, after=False))
    scratch = tmp_path / "m/scratch"
    assert not scratch.exists() or left_in(scratch) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fresh.zarr", "m", "wiggle.zarr"]
    gbcm.predict_zarr(fresh[0], tmp_path / "p.zarr")


def test_classes_are_calibrated_even_where_the_fit_was_killed_before(three, tmp_path):
    path, *_ = three
    with pytest.raises(Killed):
        GBCM.fit(path, CLASSES, model=tmp_path / "m", runtime=Interrupted("borders", after=False))
    gbcm = GBCM.fit(path, CLASSES, model=tmp_path / "m")
    assert gbcm.facts["local_calibration"]["slope"] > 0


@pytest.mark.slow
def test_data_that_change_on_the_way_are_refused(wiggle, tmp_path):
    path, *_ = wiggle
    GBCM.prepare(path, CELLS, model=tmp_path / "m")
    kept = zarr.open_group(path, mode="r")["y"][...]

    class Changing(SerialRuntime):
        """The data change after they have been surveyed again."""

        def sum(self, task, parts, *, label):
            if label == "sort":
                with recorded(path) as group:
                    group["y"][:3] = 17.0
            return super().sum(task, parts, label=label)

    with pytest.raises(DataChanged, match=r"wiggle.zarr/X\[0:256\]: expected the rows that were surveyed"):
        GBCM.fit(path, CELLS, model=tmp_path / "m", runtime=Changing())
    assert left_in(tmp_path / "m") == ["acknowledged", "blobs", "commits"]
    with recorded(path) as group:
        group["y"][...] = kept
    assert GBCM.fit(path, CELLS, model=tmp_path / "m").info()["rows"] == ROWS


@pytest.mark.slow
def test_a_full_disk_is_said_and_left_as_it_was(wiggle, tmp_path, monkeypatch):
    path, *_ = wiggle
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patch:
        patch.setattr(external_sort, "open", _raising_for_runs(full), raising=False)
        with pytest.raises(DiskFull, match=r"expected room for .* MB, got: No space left"):
            GBCM.fit(path, CELLS, model=tmp_path / "m")
    assert left_in(tmp_path / "m") == ["acknowledged", "blobs", "commits"]
    assert GBCM.fit(path, CELLS, model=tmp_path / "m").info()["method"] == "local"
    assert left_in(tmp_path / "m") == WHOLE


def _raising_for_runs(error):
    def opened(path, mode="r", **options):
        if Path(path).parent.name == "runs" and "x" in mode:
            raise error
        return open(path, mode, **options)

    return opened


@pytest.mark.slow
def test_arrays_of_other_names(make_data, wiggle, fresh, tmp_path):
    _, X, y = wiggle
    path = make_data("named.zarr", rows_per_chunk=100, inputs=X, target=y, weight=np.full(ROWS, 2.0))
    gbcm = GBCM.fit(path, replace(CELLS, x="inputs", y="target"), model=tmp_path / "m")
    heavy = GBCM.fit(make_data("heavy.zarr", rows_per_chunk=100, X=X, y=y, weight=np.full(ROWS, 2.0)), CELLS)
    assert_same_predictions(gbcm, heavy, X[:20])
    keys = [gbcm.ledger[0].key]
    assert_same_predictions(gbcm.forget(keys), heavy.forget([heavy.ledger[0].key]), X[:20])
    scores = gbcm.score(fresh[0], x="X", y="y")
    assert scores["nmse"] < 0.05
    assert gbcm.predict_zarr(fresh[0], tmp_path / "p.zarr", x="X") == 300


def spatial_fit(make_data, settings, **columns):
    gbcm = GBCM.fit(make_data("d.zarr", rows_per_chunk=64, **columns), settings)
    found = gbcm.predict(columns["X"][:7])
    assert gbcm.info()["method"] == "local"
    assert all(np.all(np.isfinite(values)) for values in found.values())
    return gbcm, found


@pytest.mark.parametrize("rows", [1, 2, 20, 79, 90])
@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")
def test_few_rows(make_data, rng, rows):
    X = rng.uniform(-1, 1, (rows, 2))
    gbcm, _ = spatial_fit(make_data, CELLS, X=X, y=wiggly(X))
    assert gbcm.info()["cells"]["count"] <= 2


@pytest.mark.slow
def test_all_rows_in_one_place(make_data, rng):
    with pytest.warns(BcmdistWarning):
        gbcm, found = spatial_fit(make_data, CELLS, X=np.full((900, 2), 3.0), y=rng.standard_normal(900))
    assert gbcm.info()["cells"]["count"] == 1
    assert len(gbcm.ledger) >= 2  # cut, so that no expert is too large
    assert abs(found["mean"][0]) < 0.2


@pytest.mark.slow
def test_a_cell_of_one_row(make_data, rng):
    X = np.vstack([rng.uniform(-1, 1, (400, 2)), [[900.0, 900.0]]])
    gbcm, _ = spatial_fit(make_data, CELLS, X=X, y=np.append(wiggly(X[:400]), 5.0))
    assert np.isfinite(gbcm.predict(X[-1:])["mean"]).all()
    assert np.isfinite(gbcm.predict([[900.0, 0.0]])["variance"]).all()


@pytest.mark.slow
def test_targets_without_noise(make_data, rng):
    X = rng.uniform(-1, 1, (600, 1))
    settings = replace(CELLS, kernel="se", set={"kernel.lengthscale": 0.6, "likelihood.noise_variance": 1e-8})
    _, found = spatial_fit(make_data, settings, X=X, y=np.sin(3 * X[:, 0]))
    np.testing.assert_allclose(found["mean"], np.sin(3 * X[:7, 0]), atol=1e-3)


@pytest.mark.slow
def test_conflicting_duplicates(make_data, rng):
    X = np.repeat(rng.uniform(-1, 1, (60, 2)), 10, axis=0)
    y = wiggly(X) + np.tile([-1.0, 1.0], 300)
    _, found = spatial_fit(make_data, replace(CELLS, set={"likelihood.noise_variance": 1.0}), X=X, y=y)
    assert np.abs(found["mean"] - wiggly(X[:7])).max() < 0.6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")
def test_a_lengthscale_at_its_bound_is_reported(make_data, rng, monkeypatch):
    monkeypatch.setitem(Leaf.bounds, "lengthscale", (1e-2, 3.0))
    X = rng.uniform(-1, 1, (500, 2))  # the second column says nothing
    settings = Settings(kernel="se", query=30, rows_per_expert=200, partition="spatial", effort="quick")
    gbcm, _ = spatial_fit(make_data, settings, X=X, y=np.sin(5 * X[:, 0]) + 0.05 * rng.standard_normal(500))
    assert gbcm.info()["hyperparameters"]["kernel.lengthscale"][1] == pytest.approx(3.0, rel=1e-3)
    assert gbcm.info()["at_bounds"] == ["kernel.lengthscale[1]"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")
def test_learning_from_targets_without_noise(make_data, rng):
    X = rng.uniform(-1, 1, (400, 1))
    settings = Settings(kernel="se", query=20, rows_per_expert=200, partition="spatial", effort="quick")
    _, found = spatial_fit(make_data, settings, X=X, y=np.sin(3 * X[:, 0]))
    np.testing.assert_allclose(found["mean"], np.sin(3 * X[:7, 0]), atol=1e-2)


CLASSES = replace(CELLS, task="classification", set={"kernel.lengthscale": 0.5}, rows_per_expert=150)


@pytest.fixture
def three(make_data, rng):
    """Three classes in stripes: path, X (600, 2), y (600,)."""
    X = rng.uniform(-2, 2, (600, 2))
    y = np.digitize(np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(600), [-0.5, 0.5]) * 2
    assert y.shape == (600,)
    return make_data("three.zarr", rows_per_chunk=100, X=X, y=y), X, y


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [None, "softmax"])
def test_classes(three, tmp_path, rng, likelihood):
    path, X, _ = three
    gbcm = GBCM.fit(path, replace(CLASSES, likelihood=likelihood), model=tmp_path / "m")
    assert gbcm.facts["local_calibration"]["slope"] > 0
    local, committee = gbcm.score(path), gbcm.score(path, method="committee")
    assert local["accuracy"] > max(0.9, committee["accuracy"])
    assert local["log_loss"] < committee["log_loss"]
    p = gbcm.predict(X[:30])
    assert p["probability"].shape == (30, 3)
    np.testing.assert_allclose(p["probability"].sum(axis=1), 1.0)
    assert set(p["label"]) <= {0, 2, 4}
    gbcm.predict_zarr(path, tmp_path / "p.zarr")
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "p.zarr", mode="r")["label"][:30], p["label"])


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["bernoulli", "svm"])
def test_two_classes(three, likelihood):
    _, X, y = three
    gbcm = GBCM.fit((X, (y > 2) * 1), replace(CLASSES, likelihood=likelihood))
    assert gbcm.facts["local_calibration"]["slope"] > 0
    p = gbcm.predict(X)
    assert np.mean(p["label"] == (y > 2)) > 0.9
    assert np.all(np.isfinite(p["probability"]))


OTHERS = {
    "poisson": lambda rng, f: {"y": rng.poisson(3 * np.exp(f)), "exposure": np.full(len(f), 3.0)},
    "weibull": lambda rng, f: {"y": np.exp(f) * rng.weibull(2, len(f)) + 1e-3, "event": rng.integers(0, 2, len(f))},
}


@pytest.mark.slow
@pytest.mark.parametrize(("task", "likelihood"), [("counts", "poisson"), ("lifetimes", "weibull")])
def test_counts_and_lifetimes(make_data, tmp_path, rng, monkeypatch, task, likelihood):
    X = rng.uniform(-2, 2, (600, 2))
    columns = {"X": X} | OTHERS[likelihood](rng, np.sin(4 * X[:, 0]))
    path = make_data("d.zarr", rows_per_chunk=100, **columns)
    settings = replace(CELLS, task=task, likelihood=likelihood, set={"kernel.lengthscale": 0.5})
    gbcm = GBCM.fit(path, settings, model=tmp_path / "m")
    score = gbcm.score(path)
    unknown = {name for name, value in score.items() if not np.all(np.isfinite(value))}
    assert unknown <= {"interval_score"}  # of censored lifetimes
    assert score["mnlp"] < gbcm.score(path, method="committee")["mnlp"]
    gbcm.predict_zarr(path, tmp_path / "p.zarr")
    group = zarr.open_group(tmp_path / "p.zarr", mode="r")
    exposure = columns.get("exposure", np.ones(600))
    said = gbcm.predict(X, exposure=exposure)
    for name, values in said.items():
        np.testing.assert_allclose(group[name][...], values, rtol=1e-9)
    # Over all pairs, though rows were scored cell by cell; nearly equal predictions may change places by rounding.
    event = columns.get("event", np.ones(600))
    ranked = said.get("median", said["observation_mean"]) / exposure
    pairs, right = concordance_pairs(columns["y"] / exposure, event, ranked)
    assert score["concordance"] == pytest.approx(right / pairs, abs=1e-6)
    with monkeypatch.context() as few:  # of a sample of rows by their numbers before they stood in cells
        few.setattr(ranking, "KEPT_ROWS", 200)
        sampled = gbcm.score(path)
        assert gbcm.score(path, method="committee")["concordance_error"] > 0.0
    whole = ranking.comparable(columns["y"] / exposure, event, ranked, np.arange(600), most=200)
    assert (sampled["concordance"], sampled["concordance_error"]) == pytest.approx(whole.concordance(600), abs=1e-6)


def test_exposures_that_cannot_be_are_named_where_they_stand(make_data, tmp_path, rng):
    X = rng.uniform(-2, 2, (300, 2))
    settings = replace(CELLS, task="counts", likelihood="poisson", set={"kernel.lengthscale": 0.5})
    gbcm = GBCM.fit((X, rng.poisson(3.0, 300)), settings, model=tmp_path / "m")
    bad = make_data("bad.zarr", rows_per_chunk=100, X=X, exposure=np.where(np.arange(300) == 217, -1.0, 1.0))
    with pytest.raises(UnsupportedTarget, match=r"bad.zarr: .* at row 217"):
        gbcm.predict_zarr(bad, tmp_path / "p.zarr")
    assert not (tmp_path / "p.zarr").exists()


@pytest.mark.slow
def test_several_passes(three, make_data):
    _, X, y = three
    gbcm = GBCM.fit((X, (y > 2) * 1), replace(CLASSES, passes="auto"))
    assert len(gbcm.facts["passes"]) > 1
    assert np.mean(gbcm.predict(X)["label"] == (y > 2)) > 0.9


@pytest.mark.slow
def test_local_experts_that_do_not_fit_are_refused_before_rows_are_copied(wiggle, fresh, tmp_path):
    small = SerialRuntime(allowed_bytes=500 * 2**20)
    with pytest.raises(MemoryLimit, match=r"local experts of 340 rows .*--partition chunks"):
        GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m", runtime=small)
    assert left_in(tmp_path / "m") == ["acknowledged", "blobs", "commits"]
    gbcm = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    with pytest.raises(MemoryLimit, match="predict with --method committee"):
        gbcm.score(fresh[0], runtime=small)
    assert gbcm.score(fresh[0], method="committee", runtime=small)["rows"] == 300


def test_softmax_coupled_is_refused_at_once():
    with pytest.raises(InvalidOption, match=r"softmax_coupled, got spatial.*--likelihood softmax or onehot"):
        replace(CLASSES, likelihood="softmax_coupled")


def test_targets_that_cannot_be_are_named_where_they_stand(three, make_data, tmp_path):
    path, X, y = three
    gbcm = GBCM.fit(path, CLASSES, model=tmp_path / "m")
    other = make_data("other.zarr", rows_per_chunk=100, X=X, y=np.where(np.arange(600) == 217, 7, y))
    with pytest.raises(UnsupportedTarget, match=r"other.zarr: expected the classes .* got 7 at row 217"):
        gbcm.score(other)
    assert left_in(tmp_path / "m") == WHOLE


@pytest.mark.slow
def test_experts_that_were_dropped_meanwhile_are_made_anew_or_still_there(wiggle, tmp_path, rng, monkeypatch):
    monkeypatch.setitem(halos.EFFORT_FACTORS, "quick", 0.15)  # so that cells do not see each other's rows
    gbcm = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "m")
    X = gbcm.model.scaling.inputs(rng.uniform(-2, 2, (200, 2)))
    exact = load_neighbours(gbcm.snapshot.reference).latent(X)
    load_neighbours.cache_clear()
    monkeypatch.setattr(neighbours, "_cache", least_recently_used(1, lambda kept: 1))
    near = load_neighbours(gbcm.snapshot.reference)
    leaves = near.rows.leaves(X)
    for leaf in np.unique(leaves):
        near.latent(X[leaves == leaf])  # the only one that is kept
        np.testing.assert_allclose(near.latent(X), exact, rtol=1e-12)
    # Two that take turns, as the threads of a worker may.
    everything = np.concatenate([near.rows.leaves_of(cell) for cell in range(near.arrangement.tree.cells)])
    for (_, one), (_, other) in zip(near._experts(everything), near._experts(everything), strict=True):
        assert one is not None
        assert other is not None
    load_neighbours.cache_clear()


# --- Rows that were absorbed in the order of cells are not absorbed again ---


@pytest.mark.slow
def test_a_model_under_another_path_does_not_hear_its_cells_again(wiggle, fresh, tmp_path):
    path = wiggle[0]
    GBCM.fit(path, CELLS, model=tmp_path / "m")
    (tmp_path / "link").symlink_to(tmp_path / "m")
    with pytest.raises(InvalidData, match="move the model back to its first path"):
        GBCM.fit(path, CELLS, model=tmp_path / "link")


def test_rows_ingested_between_arrangement_and_fit_are_not_heard_again(wiggle, tmp_path):
    path = wiggle[0]
    with pytest.raises(Killed):
        GBCM.fit(path, CELLS, model=tmp_path / "m", runtime=Interrupted("experts", after=False))
    GBCM.load(tmp_path / "m").partial_fit(path)
    with pytest.raises(InvalidData, match="was ingested as it is stored"):
        GBCM.fit(path, CELLS, model=tmp_path / "m")


@pytest.mark.slow
def test_merging_knows_rows_in_cells(wiggle, tmp_path):
    path = wiggle[0]
    GBCM.prepare(path, CELLS, model=tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    empty = GBCM.load(tmp_path / "b")
    cells = GBCM.fit(path, CELLS, model=tmp_path / "a")
    with pytest.warns(BcmdistWarning, match="a merged model makes no local predictions"):
        merged = cells.merge(empty, tmp_path / "merged")
    assert merged.partial_fit(path).committee.total.rows == cells.committee.total.rows
    stored = empty.partial_fit(path)
    for one, other in ((cells, stored), (stored, cells)):
        with pytest.raises(ModelsDiffer, match="in the order of cells"):
            one.merge(other, tmp_path / "again")


@pytest.mark.slow
def test_two_models_with_cells_are_not_merged(wiggle, fresh, tmp_path):
    one = GBCM.fit(wiggle[0], CELLS, model=tmp_path / "a")
    like = Settings(like=str(tmp_path / "a"), query=30, rows_per_expert=200, partition="spatial", effort="quick")
    other = GBCM.fit(fresh[0], like, model=tmp_path / "b")
    with pytest.raises(
        ModelsDiffer, match=r"both have absorbed theirs in the order of cells; fit one with --partition"
    ):
        one.merge(other, tmp_path / "both")

"""Rows that are absorbed after a fit with spatial cells: local predictions use them as if the fit had had them."""

import itertools
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from bcmdist import GBCM, IngestOptions, SerialRuntime, Settings
from bcmdist.api.requests import RefitOptions
from bcmdist.committee.row_copies import messages_with_copies
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.cell_tree import grow
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import Partition, partitions
from bcmdist.data.rows import read_all
from bcmdist.errors import BcmdistWarning, ModelDamaged
from bcmdist.model.kernels import metric
from bcmdist.model.targets import model_observations
from bcmdist.prediction.local import neighbours
from bcmdist.prediction.local.cell_rows import SPLIT
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import local_expert, predict_local
from bcmdist.prediction.local.halos import core_and_halo, scattered
from bcmdist.prediction.local.neighbours import load_neighbours
from problems import CELLS, assert_same_committee, wiggly

FIRST, ARRIVING, ARRIVALS = 400, 300, 5


@pytest.fixture
def field(make_data, rng):
    """Rows of a field with more detail than 30 query points show: path of the first, paths of arrivals, X, y of all."""
    X = rng.uniform(-2, 2, (FIRST + ARRIVALS * ARRIVING, 2))
    y = wiggly(X) + 0.05 * rng.standard_normal(len(X))
    first = make_data("first.zarr", rows_per_chunk=128, X=X[:FIRST], y=y[:FIRST])
    cuts = [slice(FIRST + k * ARRIVING, FIRST + (k + 1) * ARRIVING) for k in range(ARRIVALS)]
    later = [make_data(f"later{k}.zarr", rows_per_chunk=90, X=X[cut], y=y[cut]) for k, cut in enumerate(cuts)]
    return first, later, X, y


def ingested(gbcm, paths, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # of drift
        for path in paths:
            gbcm, _ = gbcm.ingest(gbcm.source(path), IngestOptions(**options))
    return gbcm


def with_all_rows(gbcm, X, obs, new):
    """Mean and variance at scaled rows of `new`, by cells that hold the scaled rows X, by hand."""
    model, sizes = gbcm.model, load_neighbours(gbcm.snapshot.reference).arrangement.sizes
    tree, unit = model.cells, metric(model.shared.kernel, model.inputs)
    seen, order = committee_at_rows(model.shared, gbcm.committee.posterior), scattered(X / unit)
    Z, cells, found = X[order] / unit, tree.route(X[order]), []
    for x in new:
        (cell,) = tree.route(x[None])
        own = cells == cell
        if own.sum() > SPLIT * sizes.core:
            split = grow(Z[own], np.ones(Z.shape[1]), cell_rows=sizes.core, partition_rows=own.sum())
            own[own] = split.route(Z[own]) == split.route(x[None] / unit)
        rows = order[core_and_halo(Z, own, sizes.with_halo)]
        expert = local_expert(seen, model.likelihood, X[rows], np.asfortranarray(seen.columns(X[rows])), obs[rows])
        found.append(predict_local(seen, expert, x[None], seen.columns(x[None])))
    mean, variance = zip(*found, strict=True)
    return np.concatenate(mean), np.concatenate(variance)


def in_model_units(gbcm, path):
    """Scaled inputs and observations of all rows of a data set."""
    data = open_data(path)
    part = Partition(data, 0, data.rows)
    ((_, rows),) = read_all([part])
    return gbcm.model.scaling.inputs(rows.X), model_observations(gbcm.model, part, rows.obs, rows.X)


def copies_in(gbcm):
    return {entry.copy for entry in gbcm.ledger} - {""}


def latent(gbcm, X):
    return load_neighbours(gbcm.snapshot.reference).latent(gbcm.model.scaling.inputs(X))


def assert_same_latent(one, other, X):
    np.testing.assert_allclose(latent(one, X), latent(other, X), rtol=1e-9, atol=1e-9)


def test_predictions_are_those_of_cells_that_hold_all_rows(field, make_data, tmp_path, rng):
    first, later, X, y = field
    gbcm = ingested(GBCM.fit(first, CELLS, model=tmp_path / "m"), later)
    new = rng.uniform(-2.2, 2.2, (25, 2))
    everything = in_model_units(gbcm, make_data("all.zarr", X=X, y=y))
    expected = with_all_rows(gbcm, *everything, gbcm.model.scaling.inputs(new))
    np.testing.assert_allclose(latent(gbcm, new), expected, rtol=1e-9, atol=1e-9)
    rows = load_neighbours(gbcm.snapshot.reference).rows
    assert any(len(rows.leaves_of(cell)) > 1 for cell in range(gbcm.model.cells.cells))  # cells were split
    assert "rows_outside" not in gbcm.info()["cells"]


@pytest.mark.slow
def test_kin40k_in_ten_arrivals(real_data, make_data, tmp_path):
    """36,000 rows, of which the fit has 3,600; tests/benchmarks/late_rows.py has the accuracy."""
    stored = np.load(real_data("kin40k"))
    X, y = (np.concatenate([stored[f"{k}_train"], stored[f"{k}_test"]]).astype(float) for k in ("X", "y"))
    parts = [
        make_data(f"{k}.zarr", rows_per_chunk=500, X=X[rows], y=y[rows])
        for k, rows in enumerate(np.array_split(np.arange(36_000), 10))
    ]
    values = {"kernel.lengthscale": 2.0, "likelihood.noise_variance": 0.005}
    settings = Settings(partition="spatial", kernel="matern52", query=200, learn=False, set=values, effort="quick")
    gbcm = ingested(GBCM.fit(parts[0], settings, model=tmp_path / "m"), parts[1:])
    everything = in_model_units(gbcm, make_data("all.zarr", rows_per_chunk=500, X=X[:36_000], y=y[:36_000]))
    mean, variance = latent(gbcm, X[-60:])
    m, v = with_all_rows(gbcm, *everything, gbcm.model.scaling.inputs(X[-60:]))
    np.testing.assert_allclose([mean, np.sqrt(variance)], [m, np.sqrt(v)], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_arrivals_predict_as_well_as_a_fit_of_all_rows(field, make_data, tmp_path, rng):
    first, later, X, y = field
    before = GBCM.fit(first, CELLS, model=tmp_path / "m")
    whole = GBCM.fit(make_data("all.zarr", X=X, y=y), CELLS, model=tmp_path / "all")
    new = rng.uniform(-2, 2, (600, 2))
    of = [np.sqrt(np.mean((one.predict(new)["mean"] - wiggly(new)) ** 2)) for one in (before, whole)]
    after = np.sqrt(np.mean((ingested(before, later).predict(new)["mean"] - wiggly(new)) ** 2))
    assert after < 1.05 * of[1] < 0.6 * of[0]


@pytest.mark.slow
def test_arrivals_count_once_in_any_order_and_can_be_forgotten(field, tmp_path, rng):
    first, later, *_ = field
    before = GBCM.fit(first, CELLS, model=tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "other")
    new = rng.uniform(-2, 2, (40, 2))
    gbcm = ingested(before, later[:2])
    other = ingested(GBCM.load(tmp_path / "other"), [later[1], later[0], later[1]], commit_every=1)
    assert_same_committee(gbcm.committee, other.committee)
    assert_same_latent(gbcm, other, new)
    keys = [entry.key for entry in gbcm.ledger if entry.key.startswith(later[1])]
    without = gbcm.forget(keys)
    assert_same_latent(without, ingested(GBCM.fit(first, CELLS, model=tmp_path / "n"), later[:1]), new)
    assert_same_latent(ingested(without, later[1:2]), gbcm, new)
    gone = copies_in(gbcm) - copies_in(without)
    assert len(gone) == len(keys)
    assert all(Path(gbcm.url, "blobs", name).exists() for name in gone)
    GBCM.load(gbcm.url).snapshot.store.prune(1)
    assert not any(Path(gbcm.url, "blobs", name).exists() for name in gone)


@pytest.mark.slow
def test_another_ingester_with_another_cut(field, tmp_path, monkeypatch, rng):
    """Where it absorbs a part of a partition meanwhile, the copy of the rest holds the rest."""
    first, later, X, _ = field
    gbcm = GBCM.fit(first, CELLS, model=tmp_path / "m")
    data, committed, tries = open_data(later[0]), Snapshot.committed, itertools.count()
    early = Partition(data, 0, 40)

    def slow(self):
        if self.pending and next(tries) == 0:
            newest = Snapshot.load(gbcm.url)
            absorbed = messages_with_copies(newest, [early], SerialRuntime(), label="test")
            committed(newest.changed(newest.committee.absorb(absorbed.message), absorbed.entries.values()))
        return committed(self)

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "committed", slow)
        after = ingested(gbcm, later[:1])
    late = load_neighbours(after.snapshot.reference).rows.late
    found = after.model.scaling.inputs(X[FIRST : FIRST + ARRIVING])
    assert len(late) == ARRIVING == sum(entry.rows for entry in after.ledger if entry.copy)
    np.testing.assert_array_equal(np.sort(late.X, axis=0), np.sort(found, axis=0))


@pytest.mark.slow
def test_commits_of_others_and_killed_ingesters_leave_no_rows(field, tmp_path, rng, monkeypatch):
    first, later, *_ = field
    gbcm = GBCM.fit(first, CELLS, model=tmp_path / "m")

    class Killed(BaseException):
        pass

    def killed(self):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "committed", killed)
        with pytest.raises(Killed):
            ingested(gbcm, later[:1])
    again = GBCM.load(gbcm.url)
    assert copies_in(again) == set()
    assert len(load_neighbours(again.snapshot.reference).rows.late) == 0
    blobs = len(list(Path(gbcm.url, "blobs").iterdir()))
    again.snapshot.store.prune(10)
    assert len(list(Path(gbcm.url, "blobs").iterdir())) < blobs
    assert len(load_neighbours(ingested(again, later[:1]).snapshot.reference).rows.late) == ARRIVING


@pytest.mark.slow
def test_experts_of_an_earlier_commit_are_renewed(field, make_data, tmp_path, rng, monkeypatch):
    """Far from an arrival only the posterior has changed; a renewed expert predicts as one that is made anew."""
    first, *_ = field
    gbcm = GBCM.fit(first, CELLS, model=tmp_path / "m")
    monkeypatch.setattr("bcmdist.prediction.local.halos.CANDIDATE_ROWS", 50)  # neighbours in the next partitions only
    new, made = rng.uniform(-2, 2, (200, 2)), []
    latent(gbcm, new)
    local = neighbours.local_expert
    monkeypatch.setattr(neighbours, "local_expert", lambda *given: made.append(1) or local(*given))
    X = np.array([[1.9, 1.9]]) + 0.05 * rng.standard_normal((30, 2))
    after = ingested(gbcm, [make_data("corner.zarr", X=X, y=wiggly(X))])
    renewed = latent(after, new)
    leaves = len(np.unique(load_neighbours(after.snapshot.reference).rows.leaves(after.model.scaling.inputs(new))))
    assert 0 < len(made) < leaves
    neighbours._cache.clear()
    load_neighbours.cache_clear()
    np.testing.assert_allclose(latent(after, new), renewed, rtol=1e-10, atol=1e-10)
    assert len(made) > leaves


def with_companions(rng, likelihood, n):
    """Columns of a data set for a likelihood."""
    X = rng.uniform(-2, 2, (n, 2))
    f, columns = np.sin(3 * X[:, 0]), {"X": X, "weight": rng.uniform(0.5, 2.0, n)}
    if likelihood == "poisson":
        exposure = rng.uniform(0.5, 3.0, n)
        return columns | {"y": rng.poisson(exposure * np.exp(f)).astype(float), "exposure": exposure}
    if likelihood == "gaussian":
        variance = rng.uniform(0.0, 0.5, n)
        return columns | {"y": f + np.sqrt(variance) * rng.standard_normal(n), "target_variance": variance}
    if likelihood == "softmax":
        return columns | {"y": np.digitize(f + 0.2 * rng.standard_normal(n), [-0.5, 0.5]).astype(float)}
    return columns | {"y": (f + 0.2 * rng.standard_normal(n) > 0).astype(float)}


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "softmax", "bernoulli"])
def test_other_likelihoods(make_data, tmp_path, rng, likelihood):
    columns = with_companions(rng, likelihood, 500)
    some = {"first": slice(0, 300), "later": slice(300, 500), "all": slice(0, 500)}
    paths = {
        name: make_data(f"{name}.zarr", rows_per_chunk=100, **{k: v[cut] for k, v in columns.items()})
        for name, cut in some.items()
    }
    settings = Settings(likelihood=likelihood, kernel="se", learn=False, query=10, rows_per_expert=150,
                        partition="spatial", effort="quick")  # fmt: skip
    gbcm = ingested(GBCM.fit(paths["first"], settings, model=tmp_path / "m"), [paths["later"]])
    new = rng.uniform(-2, 2, (7, 2))
    expected = with_all_rows(gbcm, *in_model_units(gbcm, paths["all"]), gbcm.model.scaling.inputs(new))
    np.testing.assert_allclose(latent(gbcm, new), expected, rtol=1e-7, atol=1e-7)  # modes by Newton's iteration


@pytest.mark.slow
def test_a_cluster_absorbs_and_predicts_the_same(field, tmp_path, cluster, rng):
    first, later, *_ = field
    gbcm = GBCM.fit(first, CELLS, model=tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "other")
    one = ingested(gbcm, later[:2])
    other = GBCM.load(tmp_path / "other")
    for path in later[:2]:
        other, _ = other.ingest(other.source(path), runtime=cluster)
    assert_same_latent(one, other, rng.uniform(-2, 2, (40, 2)))
    other.predict_zarr(later[2], tmp_path / "p.zarr", runtime=cluster)


@pytest.mark.slow
def test_copies_travel_with_the_model(field, make_data, tmp_path, rng):
    first, later, *_ = field
    gbcm = ingested(GBCM.fit(first, CELLS, model=tmp_path / "m"), later[:2])
    new = rng.uniform(-2, 2, (40, 2))
    before, saved = latent(gbcm, new), gbcm.save(tmp_path / "saved")
    for path in (tmp_path / "m", first, *later):
        shutil.rmtree(path)
    np.testing.assert_allclose(latent(GBCM.load(saved.url), new), before, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_a_copy_that_is_damaged_is_named(field, tmp_path, rng):
    first, later, *_ = field
    gbcm = ingested(GBCM.fit(first, CELLS, model=tmp_path / "m"), later[:1])
    (name, *_) = copies_in(gbcm)
    blob = Path(gbcm.url, "blobs", name)
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-8])
    load_neighbours.cache_clear()
    with pytest.raises(ModelDamaged, match=f"blob {name[:12]}"):
        GBCM.load(gbcm.url).predict(rng.uniform(-2, 2, (4, 2)))


@pytest.mark.slow
def test_a_window_forgets_near_by_as_well(field, tmp_path, rng):
    first, later, *_ = field
    gbcm = GBCM.fit(first, CELLS, model=tmp_path / "m")
    parts = partitions(open_data(later[0]), 200)
    after, _ = gbcm.ingest(gbcm.source(later[0]), IngestOptions(window=parts[-1].rows))
    assert len(load_neighbours(after.snapshot.reference).rows.late) == parts[-1].rows
    assert len(copies_in(after)) == 1


def arrays_of(gbcm):
    return {entry.key.partition("[")[0] for entry in gbcm.ledger if entry.copy}


@pytest.mark.parametrize("fate", ["gone", "changed"])
def test_rows_whose_source_is_lost_are_read_from_their_copies(field, make_data, tmp_path, rng, fate):
    """The committee forgets and is refitted as if the sources were as they had been; the model never opens them."""
    first, later, X, y = field
    gbcm = ingested(GBCM.fit(first, CELLS, model=tmp_path / "m"), later[:2])
    shutil.copytree(tmp_path / "m", tmp_path / "before")
    never = ingested(GBCM.fit(first, CELLS, model=tmp_path / "n"), later[:1])
    refitted = GBCM.load(tmp_path / "before").refit(RefitOptions(effort="quick"))
    for path in later:
        shutil.rmtree(path)
        if fate == "changed":
            make_data(Path(path).name, rows_per_chunk=90, X=X[:ARRIVING], y=-y[:ARRIVING])
    again = gbcm.refit(RefitOptions(effort="quick"))
    assert again.committee.total.rows == FIRST + 2 * ARRIVING
    assert_same_committee(again.committee, refitted.committee)
    assert arrays_of(again) == {f"{path}/X" for path in later[:2]}
    without = again.revert(gbcm.commit).forget([e.key for e in gbcm.ledger if e.key.startswith(later[1])])
    assert_same_committee(without.committee, never.committee, tolerance=1e-10)
    assert_same_latent(without, never, rng.uniform(-2, 2, (40, 2)))


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "softmax"])
def test_copies_hold_all_that_messages_depend_on(make_data, tmp_path, rng, likelihood):
    columns = with_companions(rng, likelihood, 300)
    parts = {"first": slice(0, 200), "later": slice(200, 300)}
    first, later = (make_data(f"{n}.zarr", **{k: v[cut] for k, v in columns.items()}) for n, cut in parts.items())
    settings = Settings(likelihood=likelihood, kernel="se", learn=False, query=8, partition="spatial", effort="quick",
                        target_transform="none")  # fmt: skip
    gbcm = ingested(GBCM.fit(first, settings, model=tmp_path / "m"), [later])
    shutil.copytree(tmp_path / "m", tmp_path / "before")
    keys = [entry.key for entry in gbcm.ledger if entry.copy]
    readable = _revised(GBCM.load(tmp_path / "before"), keys)
    shutil.rmtree(later)
    for one, other in zip(_revised(gbcm, keys), readable, strict=True):
        assert_same_committee(one.committee, other.committee)


def _revised(gbcm, keys):
    """A model after further passes, with other weights of some partitions, and without these."""
    refined = gbcm.refine()
    reweighted = refined.reweight(dict.fromkeys(keys, 2.0))
    return [refined, reweighted, reweighted.forget(keys)]


@pytest.mark.slow
def test_a_cluster_reads_copies(field, tmp_path, cluster):
    first, later, *_ = field
    gbcm = ingested(GBCM.fit(first, CELLS, model=tmp_path / "m"), later[:2])
    shutil.copytree(tmp_path / "m", tmp_path / "other")
    for path in later:
        shutil.rmtree(path)
    keys = [entry.key for entry in gbcm.ledger if entry.key.startswith(later[1])]
    one, other = gbcm.forget(keys), GBCM.load(tmp_path / "other").forget(keys, runtime=cluster)
    assert_same_committee(one.committee, other.committee)

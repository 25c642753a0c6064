"""A query set that grows while rows arrive gives one committee, whatever the batches, restarts and races."""

import itertools
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.committee.growth import without_needless
from bcmdist.committee.ingest.admission import Instructions
from bcmdist.committee.ingest.growing import Growth
from bcmdist.committee.ingest.loop import Loop
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.ingest.watch import Unwatched
from bcmdist.committee.revision import messages
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.writing import append_rows
from bcmdist.errors import CorruptChunk, InvalidOption, ModelDamaged
from bcmdist.prediction.latent import predict_latent
from bcmdist.storage.commits import open_store
from oracles import through_query_sets
from problems import assert_as_in_its_ledger, assert_same_committee

GIVEN = Settings(
    kernel="matern12",
    learn=False,
    mean="constant",
    query=8,
    rows_per_expert=20,
    set={"kernel.lengthscale": 2.0, "likelihood.noise_variance": 0.05},
)
GROW = IngestOptions(grow=True, grow_share=0.2, keep=1000)
GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def moving(make_data, rng, tmp_path):
    """A model prepared with rows of one place, and 12 partitions of rows that move to another: path, X, y."""
    X = np.column_stack([rng.uniform(-2, 0, 240) + np.repeat(np.arange(12.0), 20), rng.uniform(-1, 1, 240)])
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(240)
    start = make_data("start.zarr", rows_per_chunk=20, X=X[:20] - 0.1, y=y[:20])
    path = make_data("stream.zarr", rows_per_chunk=20, X=X, y=y)
    return GBCM.prepare(start, GIVEN, model=tmp_path / "model"), path, X, y


def copied(gbcm, name):
    """The same model in another directory."""
    target = Path(gbcm.url).parent / name
    shutil.copytree(gbcm.url, target)
    return GBCM.load(target)


def grown(gbcm, path, options=GROW, **how):
    return gbcm.ingest(gbcm.source(path), options, **how)[0]


def assert_same(one, other):
    """Two models have the same query points, committee and ledger."""
    np.testing.assert_array_equal(one.model.shared.points, other.model.shared.points)
    assert_same_committee(one.committee, other.committee)
    assert [(e.key, e.digest, e.query) for e in one.ledger] == [(e.key, e.digest, e.query) for e in other.ledger]


def test_a_grown_committee_is_that_of_the_dense_model(moving, rng):
    gbcm, path, X, y = moving
    gbcm = grown(gbcm, path)
    model, scaling = gbcm.model, gbcm.model.scaling
    assert (model.shared.jitter, len(gbcm.ledger)) == (0.0, 12)
    counts = [*(one.count for one in model.earlier), model.shared.functions]
    assert counts == sorted(set(counts))
    assert counts[-1] > 2 * counts[0]
    rows = {part.key: slice(part.start, part.stop) for part in partitions(open_data(path), 20)}
    parts = [
        (
            np.arange(counts[e.query]),
            scaling.inputs(X[rows[e.key]]),
            (y[rows[e.key]] - scaling.y_mean) / scaling.y_scale,
        )
        for e in gbcm.ledger
    ]
    new = rng.uniform(-2, 10, (40, 2))
    noise = float(model.likelihood.parameters["noise_variance"][0])
    how = (model.shared.kernel, model.shared.mean, noise, model.shared.points, parts)
    mean, variance = through_query_sets(*how, scaling.inputs(new))
    found = gbcm.predict(new, method="committee")
    np.testing.assert_allclose(found["mean"], mean * scaling.y_scale + scaling.y_mean, atol=1e-10)
    np.testing.assert_allclose(found["variance"], variance * scaling.y_scale**2, atol=1e-10)
    assert_as_in_its_ledger(gbcm)


def test_predictions_where_the_rows_moved_to(moving, rng):
    gbcm, path, _, _ = moving
    fixed, moved = grown(copied(gbcm, "fixed"), path, IngestOptions()), grown(gbcm, path)
    new = np.column_stack([rng.uniform(5, 10, 200), rng.uniform(-1, 1, 200)])
    truth = np.sin(2 * new[:, 0]) + new[:, 1]
    errors = [np.sqrt(np.mean((one.predict(new)["mean"] - truth) ** 2)) for one in (fixed, moved)]
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("threads", [1, 12])
@pytest.mark.parametrize("every", [1, 5, None])
def test_batches_and_commits_change_nothing(moving, threads, every):
    gbcm, path, _, _ = moving
    expected = grown(copied(gbcm, "other"), path)
    runtime = SerialRuntime()
    runtime.threads = threads
    assert_same(grown(gbcm, path, replace(GROW, commit_every=every), runtime=runtime), expected)


def test_a_cluster_grows_the_same(moving, cluster):
    gbcm, path, _, _ = moving
    expected = grown(copied(gbcm, "other"), path)
    assert_same(grown(gbcm, path, runtime=cluster), expected)


class Dying(SerialRuntime):
    """Is interrupted after so many sums and outcomes."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def _step(self):
        self.most -= 1
        if self.most < 0:
            raise KeyboardInterrupt

    def each(self, work, *, label):
        for outcome in super().each(work, label=label):
            self._step()
            yield outcome

    def sum(self, *arguments, **how):
        self._step()
        return super().sum(*arguments, **how)


def test_interrupts_at_every_step_change_nothing(moving):
    gbcm, path, _, _ = moving
    expected = grown(copied(gbcm, "expected"), path)
    for step in range(1, 60):
        found = copied(gbcm, f"run-{step}")
        try:
            found = grown(found, path, replace(GROW, commit_every=2), runtime=Dying(step))
        except KeyboardInterrupt:
            found = grown(GBCM.load(found.url), path)
        else:
            break
        assert_same(found, expected)
    assert step > 10


def test_two_ingesters_that_grow_lose_nothing(moving, monkeypatch):
    gbcm, path, _, _ = moving
    committed, tries = Snapshot.committed, []

    def slow(self):
        if self.pending and len(tries) < 3:
            tries.append(1)
            if len(tries) in (1, 3):
                grown(GBCM.load(gbcm.url), path, replace(GROW, max_partitions=4))
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", slow)
    grown(GBCM.load(gbcm.url), path, replace(GROW, commit_every=2))
    found = GBCM.load(gbcm.url)
    assert sorted(e.key for e in found.ledger) == sorted(part.key for part in partitions(open_data(path), 20))
    assert_as_in_its_ledger(found)


def test_an_ingester_without_growth_and_one_with(moving, monkeypatch):
    gbcm, path, _, _ = moving
    committed, tries = Snapshot.committed, []

    def slow(self):
        if self.pending and not tries:
            tries.append(1)
            grown(GBCM.load(gbcm.url), path, replace(GROW, max_partitions=6))
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", slow)
    grown(GBCM.load(gbcm.url), path, IngestOptions(commit_every=9))
    found = GBCM.load(gbcm.url)
    assert len(found.ledger) == 12
    assert len({e.query for e in found.ledger}) > 1
    assert_as_in_its_ledger(found)


def test_partitions_are_forgotten_through_their_own_query_set(moving):
    gbcm, path, _, _ = moving
    gbcm = grown(gbcm, path)
    gone = [gbcm.ledger[k].key for k in (0, 5, 11)]
    before = gbcm.committee
    forgotten = gbcm.forget(gone)
    assert_as_in_its_ledger(forgotten)
    assert forgotten.committee.total.rows == before.total.rows - 60
    again = forgotten.reweight({forgotten.ledger[0].key: 2.0})
    assert_as_in_its_ledger(again)
    back = grown(again, path)
    assert len(back.ledger) == 12
    assert_as_in_its_ledger(back)


@pytest.mark.parametrize("fading", [{"half_life": 60.0}, {"window": 100}])
def test_old_rows_fade_through_their_own_query_set(moving, fading):
    gbcm, path, _, _ = moving
    found = grown(gbcm, path, replace(GROW, **fading))
    assert found.model.earlier
    assert_as_in_its_ledger(found)


def test_rows_that_are_explained_add_no_points(moving, make_data, rng):
    gbcm, path, X, y = moving
    found = grown(gbcm, path)
    again = make_data("again.zarr", rows_per_chunk=20, X=X + 1e-3, y=y)
    after = grown(found, again)
    assert after.model.shared.functions == found.model.shared.functions
    assert len(after.ledger) == 24
    assert_as_in_its_ledger(after)


def test_the_number_of_points_is_limited(moving):
    gbcm, path, _, _ = moving
    found = grown(gbcm, path, replace(GROW, query_most=14))
    assert found.model.shared.functions == 14
    assert found.info()["capacity"] == {"points": 14, "first": 8, "sets": len(found.model.earlier) + 1, "most": 14}
    with pytest.raises(InvalidOption, match=r"--query-most: expected at least the 14 query points of .*, got 9"):
        grown(found, path, replace(GROW, query_most=9))


def test_by_default_a_watched_source_adds_points_where_rows_are_new(moving):
    gbcm, path, _, _ = moving
    options = IngestOptions(watch=True, max_partitions=12)
    fixed = copied(gbcm, "fixed")
    found, _ = gbcm.ingest(gbcm.source(path, watch=True), options)
    assert found.model.shared.functions > 8
    assert_as_in_its_ledger(found)
    found, _ = fixed.ingest(fixed.source(path, watch=True), replace(options, grow=False))
    assert found.model.shared.functions == 8


def test_a_model_that_cannot_grow_says_why(classes, make_data, tmp_path):
    path, _, _ = classes
    settings = Settings(learn=False, query=8, approximation="ep", rows_per_expert=50)
    gbcm = GBCM.prepare(path, settings, model=tmp_path / "model")
    with pytest.raises(InvalidOption, match=r"--grow: expected query points that can be added to, .*expectation prop"):
        gbcm.ingest(gbcm.source(path), GROW)
    after, report = gbcm.ingest(gbcm.source(path, watch=True), IngestOptions(watch=True, max_partitions=2))
    assert report.partitions == 2
    assert not after.model.earlier


@pytest.mark.parametrize("version", ["format3", "format4"])
def test_an_older_model_grows(version, tmp_path, make_data, rng):
    shutil.copytree(GOLDEN / version / "model", tmp_path / "model")
    old = GBCM.load(tmp_path / "model")
    X = rng.uniform(3, 6, (60, 2))
    path = make_data(rows_per_chunk=20, X=X, y=np.sin(X[:, 0]))
    inside = rng.uniform(-2, 2, (30, 2))
    found = grown(old, path)
    assert found.model.shared.functions > old.model.shared.functions
    assert [entry.query for entry in found.ledger[:3]] == [0, 0, 0]
    assert found.ledger[-1].query > 0
    added = messages(found.snapshot, {entry.key: 1.0 for entry in found.ledger[3:]}, SerialRuntime())
    before, after = (
        predict_latent(one.model.shared, committee.posterior, one.model.scaling.inputs(inside))
        for one, committee in ((old, old.committee), (found, found.committee.withdraw(added)))
    )
    np.testing.assert_allclose(after, before, rtol=1e-9)


def test_new_points_are_refined_and_further_rows_ingested(classes, make_data, rng, tmp_path):
    path, X, y = classes
    settings = Settings(learn=False, query=8, rows_per_expert=50, set={"kernel.lengthscale": 0.5})
    gbcm = GBCM.prepare(path, settings, model=tmp_path / "model")
    found = grown(gbcm, path, replace(GROW, grow_share=0.5)).refine()
    assert {entry.query for entry in found.ledger} == {len(found.model.earlier)}
    more = make_data("more.zarr", X=X + 4.0, y=y)
    after = grown(found, more, replace(GROW, grow_share=0.5))
    assert after.model.shared.functions > found.model.shared.functions
    assert_as_in_its_ledger(after)
    assert_as_in_its_ledger(after.forget([after.ledger[0].key]))


def test_a_damaged_query_set_is_refused(moving):
    gbcm, path, _, _ = moving
    store = open_store(grown(gbcm, path).url)
    newest = store.load()
    facts = newest.facts
    facts["model"]["earlier"][0]["points"] = 500
    names = store.record(newest.number)["arrays"]
    store.commit(newest.number + 1, arrays=names, facts=facts, segments=newest.ledger.digests, offsets={})
    with pytest.raises(ModelDamaged, match=r"expected at most \d+ points of earlier query set 0, found 500"):
        GBCM.load(gbcm.url)


def test_a_stream_that_goes_on(moving):
    gbcm, path, X, y = moving
    found = grown(gbcm, path, replace(GROW, max_partitions=6))
    append_rows(path, X[:40] + np.array([20.0, 0.0]), y[:40], rows_per_chunk=20)
    found = grown(found, path)
    assert len(found.ledger) == 14
    assert_as_in_its_ledger(found)


def test_a_partition_that_fails_keeps_no_others_back(moving):
    gbcm, path, _, _ = moving
    chunk = next(Path(path).glob("X/c/5/*"))
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(CorruptChunk):
        grown(gbcm, path)
    found = grown(GBCM.load(gbcm.url), path, replace(GROW, skip=True))
    assert (len(found.ledger), len(found.facts["skipped"])) == (11, 1)
    assert_as_in_its_ledger(found)


@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")  # of rows outside of the cells, and of drift
def test_a_spatial_model_that_grows_predicts_from_the_rows_around_as_before(moving, rng, tmp_path):
    _, _, X, y = moving
    spatial = GBCM.fit((X, y), replace(GIVEN, partition="spatial", query=6), model=tmp_path / "spatial")
    append_rows(tmp_path / "far.zarr", rng.uniform(30, 32, (60, 2)), rng.normal(size=60), rows_per_chunk=20)
    after = grown(spatial, tmp_path / "far.zarr")
    assert after.model.shared.functions > 6
    new = np.column_stack([rng.uniform(0, 6, 30), rng.uniform(-1, 1, 30)])
    found, before = after.predict(new, method="local"), spatial.predict(new, method="local")
    # Far rows move the constant mean, which the rows around leave some of.
    np.testing.assert_allclose(found["mean"], before["mean"], atol=0.05)
    np.testing.assert_allclose(found["variance"], before["variance"], rtol=0.01)


def test_a_grown_model_is_pickled(moving, rng):
    gbcm, path, _, _ = moving
    found = grown(gbcm, path)
    again = pickle.loads(pickle.dumps(found))
    new = rng.uniform(-2, 8, (5, 2))
    np.testing.assert_array_equal(again.predict(new)["mean"], found.predict(new)["mean"])
    assert_as_in_its_ledger(again)


def test_the_limit_of_points_is_kept(moving):
    gbcm, path, _, _ = moving
    found = grown(gbcm, path, replace(GROW, query_most=12, max_partitions=6))
    assert grown(found, path).model.shared.functions == 12


def test_a_limit_or_a_share_asks_for_growth(moving):
    gbcm, path, _, _ = moving
    assert grown(gbcm, path, IngestOptions(query_most=30)).model.earlier
    with pytest.raises(InvalidOption, match="--no-grow: expected no --grow-share or --query-most with it"):
        IngestOptions(grow=False, query_most=30)


# --- Points that are no longer needed ---


@pytest.fixture
def windowed(make_data, rng, tmp_path):
    """A model of a stream that moves on, of which only the newest rows count, and its path."""
    X = np.column_stack([rng.uniform(-2, 0, 800) + np.repeat(np.arange(40.0), 20), rng.uniform(-1, 1, 800)])
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(800)
    start = make_data("start.zarr", rows_per_chunk=20, X=X[:20] - 0.1, y=y[:20])
    path = make_data("stream.zarr", rows_per_chunk=20, X=X, y=y)
    settings = replace(GIVEN, kernel="se", set={"kernel.lengthscale": 0.5, "likelihood.noise_variance": 0.05})
    return GBCM.prepare(start, settings, model=tmp_path / "model"), path, X


WINDOW = replace(GROW, window=100)


def test_points_of_rows_that_have_left_the_window_are_dropped(windowed, monkeypatch):
    gbcm, path, X = windowed
    other = copied(gbcm, "other")
    after = grown(gbcm, path, replace(WINDOW, commit_every=4))
    assert_as_in_its_ledger(after)
    counts = [one.count for one in after.model.earlier]
    assert any(later < before for before, later in itertools.pairwise(counts))
    monkeypatch.setattr(Growth, "may_reduce", lambda *_: False)
    whole = grown(other, path, WINDOW)
    assert after.model.shared.functions < 0.7 * whole.model.shared.functions
    new = X[-100:]
    one, two = after.predict(new), whole.predict(new)
    np.testing.assert_allclose(one["mean"], two["mean"], atol=0.05 * np.sqrt(two["variance"].min()))
    again = GBCM.load(gbcm.url)
    np.testing.assert_allclose(again.predict(new)["mean"], one["mean"], rtol=1e-12, atol=1e-12)
    used, stored = {entry.query for entry in again.ledger}, [one.stored is not None for one in again.model.earlier]
    assert sum(stored) <= len(used) + 1  # sets that no partition was absorbed through do not stay
    assert any(one.gone for one in again.model.earlier)
    assert not any(again.model.earlier.lacks(number) for number in used)


def test_messages_about_a_set_that_is_gone_are_computed_again(windowed, monkeypatch):
    """Another ingester has dropped the points while this one had messages about them that it has not committed."""
    gbcm, path, _ = windowed
    after = grown(gbcm, path, replace(WINDOW, commit_every=4))
    loop = Loop(after.snapshot, after.source(path), SerialRuntime(), WINDOW, Unwatched(), lambda one: one)
    monkeypatch.setattr(loop.admission, "overtaken", lambda *_: Instructions())
    monkeypatch.setattr("bcmdist.committee.ingest.loop.absorbed_again", lambda *_: "again")
    for number, one in enumerate(after.model.earlier):
        batch = SimpleNamespace(query=number, parts={}, entries={})
        assert loop._left_of(batch) == ("again" if one.gone else batch)


def test_needless_points_change_no_prediction(windowed):
    gbcm, path, X = windowed
    before = grown(gbcm, path, replace(GROW, commit_every=4))
    keys = [entry.key for entry in before.ledger[:30]]
    less = before.forget(keys)
    after = without_needless(less.snapshot).committed()
    assert after.model.shared.functions < 0.6 * less.model.shared.functions
    scaled = after.model.scaling.inputs(X)
    mean, variance = predict_latent(less.model.shared, less.committee.posterior, scaled)
    m, v = predict_latent(after.model.shared, after.committee.posterior, scaled)
    assert np.abs((m - mean) / np.sqrt(variance)).max() < 1e-3
    near = slice(-160, None)  # elsewhere f was known to depend on the points, and is not any more
    np.testing.assert_allclose(v[near], variance[near], rtol=0.05)
    assert without_needless(after) is after  # the others are needed
    found = GBCM.load(gbcm.url)
    last = found.forget([found.ledger[-1].key])
    assert_as_in_its_ledger(last)

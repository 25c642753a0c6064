"""How errors are spread, from whole jobs: measured at the end of a fit, told by what arrives, kept with the ledger."""

import contextlib
import shutil
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from scipy.stats import norm

from bcmdist import GBCM, IngestOptions, SerialRuntime, Settings
from bcmdist.committee import commit_record
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import BcmdistWarning, CommitRefused, InvalidOption, ModelDamaged
from bcmdist.prediction.errors.error_distribution import residuals_of
from bcmdist.prediction.errors.scale_mixture import NORMAL
from bcmdist.prediction.predictive_model import PREDICTORS
from bcmdist.storage import commits, ledger
from bcmdist.storage.ledger import Ledger

GIVEN = Settings(
    partition="chunks",
    kernel="se",
    learn=False,
    set={"kernel.lengthscale": 0.6, "likelihood.noise_variance": 0.05},
    query=40,
    rows_per_expert=150,
)
SPATIAL = replace(GIVEN, partition="spatial", effort="quick")
ROWS = 1500


def signal(X):
    return np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


def spread_out(rng, n):
    """Rows whose errors grow along the first input, and are heavier than normal."""
    X = rng.uniform(-2, 2, (n, 2))
    return X, signal(X) + 0.15 * np.exp(0.6 * X[:, 0]) * rng.standard_t(4, n) / np.sqrt(2)


@pytest.fixture
def odd(make_data, rng):
    """Path of a data set whose errors are no normal ones of one scale, and more such rows."""
    X, y = spread_out(rng, ROWS)
    return make_data("odd.zarr", rows_per_chunk=150, X=X, y=y), *spread_out(rng, 2000)


def spread(gbcm, method=None):
    return PREDICTORS[gbcm.chosen_method(method)].of_snapshot(gbcm.snapshot).error_distribution


def covered(gbcm, X, y, level):
    tail = 0.5 * (1 - level)
    p = gbcm.predict(X, quantiles=(tail, 1 - tail))
    return np.mean((p[f"quantile{tail:g}"] < y) & (y < p[f"quantile{1 - tail:g}"]))


def nearly_normal(shape):
    """Whether intervals are those of the model, up to chance (500 residuals: .06)."""
    return all(abs(shape.quantile(q) - NORMAL.quantile(q)) < 0.15 for q in (0.025, 0.1, 0.25, 0.75, 0.9, 0.975))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [GIVEN, SPATIAL], ids=["chunks", "spatial"])
def test_intervals_hold_what_they_say(settings, odd, tmp_path):
    path, X, y = odd
    gbcm = GBCM.fit(path, settings, model=tmp_path / "model")
    plain = GBCM.fit(path, replace(settings, noise="constant"), model=tmp_path / "plain")
    assert spread(gbcm).scale is not None
    assert spread(plain).scale is None
    for level in (0.5, 0.8, 0.95):
        assert covered(gbcm, X, y, level) == pytest.approx(level, abs=0.04)
    third = np.argsort(gbcm.predict(X)["observation_variance"])[-len(X) // 3 :]
    assert covered(gbcm, X[third], y[third], 0.8) == pytest.approx(0.8, abs=0.06)
    assert gbcm.facts["spread"]["gain"] > 0.05
    found, before = gbcm.predict(X), plain.predict(X)
    np.testing.assert_array_equal(found["mean"], before["mean"])  # f is what it was, but within the observation
    np.testing.assert_array_equal(found["variance"], np.minimum(before["variance"], found["observation_variance"]))


@pytest.mark.slow
def test_scores_are_of_what_is_predicted(odd, tmp_path, make_data):
    path, X, y = odd
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    new = make_data("new.zarr", X=X, y=y)
    score, p, told = gbcm.score(new), gbcm.predict(X), spread(gbcm)
    sd = np.sqrt(p["observation_variance"])
    z = (y - p["observation_mean"]) / sd
    assert score["mnlp"] == pytest.approx(-np.mean(told.shape.log_density(z) - np.log(sd)), rel=1e-9)
    assert score["coverage95"] == pytest.approx(np.mean((p["lower95"] <= y) & (y <= p["upper95"])), abs=1e-9)
    assert score["mnlp"] < -np.mean(norm.logpdf(y, p["observation_mean"], sd)) - 0.01
    assert score["crps"] == pytest.approx(np.mean(sd * told.shape.crps(z)), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [GIVEN, SPATIAL], ids=["chunks", "spatial"])
def test_data_as_the_model_says_are_predicted_as_it_says(settings, make_data, rng, tmp_path):
    X = rng.uniform(-2, 2, (ROWS, 2))
    y = signal(X) + 0.2 * rng.standard_normal(ROWS)
    given = settings.set | {"likelihood.noise_variance": 0.04 / np.var(y)}
    gbcm = GBCM.fit(make_data(X=X, y=y), replace(settings, set=given), model=tmp_path / "model")
    assert gbcm.facts["spread"]["process"] is None
    assert nearly_normal(spread(gbcm).shape)


@pytest.mark.slow
def test_each_method_has_a_shape_of_its_own(odd, tmp_path):
    path, *_ = odd
    gbcm = GBCM.fit(path, SPATIAL, model=tmp_path / "model")
    local, committee = spread(gbcm, "local"), spread(gbcm, "committee")
    assert committee.scale is None
    assert local.shape != committee.shape
    assert sum(len(entry.residuals.local) for entry in gbcm.ledger if entry.residuals) > 700
    assert sum(entry.residuals.counts[0] for entry in gbcm.ledger if entry.residuals) >= 250


@pytest.mark.slow
def test_serial_and_cluster_tell_the_same(odd, tmp_path, cluster):
    path, X, _ = odd
    one = GBCM.fit(path, GIVEN, model=tmp_path / "one", runtime=SerialRuntime())
    two = GBCM.fit(path, GIVEN, model=tmp_path / "two", runtime=cluster)
    for name, value in one.predict(X).items():
        np.testing.assert_allclose(two.predict(X)[name], value, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(spread(two).shape.weights, spread(one).shape.weights, rtol=1e-8, atol=1e-12)


@pytest.mark.slow
def test_what_is_forgotten_is_not_told(odd, tmp_path):
    path, *_ = odd
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    gone = {entry.key for entry in gbcm.ledger[2:4]}
    after = gbcm.forget(sorted(gone))
    kept = Ledger.of(entry for entry in gbcm.ledger if entry.key not in gone)
    assert all(entry.residuals for entry in after.ledger)
    before, left = (residuals_of(gbcm.snapshot.facts, ledger, "committee") for ledger in (gbcm.ledger, kept))
    now = residuals_of(after.snapshot.facts, after.ledger, "committee")
    np.testing.assert_array_equal(now.arrays()[1], left.arrays()[1])
    gone_counts = before.histogram().counts - now.histogram().counts
    withdrawn = Ledger.of(entry for entry in gbcm.ledger if entry.key in gone)
    forgotten = residuals_of(gbcm.snapshot.facts, withdrawn, "committee")
    np.testing.assert_allclose(gone_counts, forgotten.histogram().counts, atol=1e-10)
    assert spread(after).shape != spread(gbcm).shape


@pytest.mark.slow
def test_residuals_of_a_merged_committee(odd, tmp_path):
    """They are those of one fit; where rows are gone, those of both committees."""
    path, *_ = odd
    parts = partitions(open_data(path), 150)
    one = GBCM.prepare(path, GIVEN, model=tmp_path / "one")
    two = GBCM.prepare(path, GIVEN, model=tmp_path / "two")
    fit = GBCM.prepare(path, GIVEN, model=tmp_path / "fit").absorb(parts)
    one, two = one.absorb(parts[:5]), two.absorb(parts[5:])
    anew = one.merge(two, tmp_path / "anew")
    expected = residuals_of(fit.snapshot.facts, fit.ledger, "committee").arrays()[1]
    found = residuals_of(anew.snapshot.facts, anew.ledger, "committee").arrays()[1]
    np.testing.assert_allclose(found, expected, atol=1e-5)  # as they are rounded
    shutil.rmtree(path)
    with pytest.warns(BcmdistWarning, match="none of 1500 rows can be read"):
        both = one.merge(two, tmp_path / "both")
    joined = residuals_of(both.snapshot.facts, both.ledger, "committee")
    ledger = one.ledger.extended(two.ledger)
    np.testing.assert_array_equal(
        joined.arrays()[1], residuals_of(both.snapshot.facts, ledger, "committee").arrays()[1]
    )
    assert joined.count == sum(len(entry.residuals) for entry in ledger) == 1500


@pytest.mark.slow
def test_arrivals_tell_before_they_are_heard(odd, tmp_path, make_data):
    path, X, y = odd
    gbcm = GBCM.fit(path, replace(GIVEN, noise="constant"), model=tmp_path / "model")
    known = residuals_of(gbcm.snapshot.facts, gbcm.ledger, "committee").count
    later, _ = gbcm.ingest(gbcm.source(make_data("later.zarr", rows_per_chunk=100, X=X[:400], y=y[:400])))
    arrived = [entry for entry in later.ledger if "later" in entry.key]
    assert {len(entry.residuals) for entry in arrived} == {16}
    p = gbcm.predict(X[:400])
    own = (y[:400] - p["mean"]) / np.sqrt(p["variance"] + 0.05 * gbcm.model.scaling.y_scale**2)
    first = min(arrived, key=lambda entry: int(entry.key.split("[")[-1].split(":")[0]))
    gaps = np.abs(np.subtract.outer(first.residuals.committee, own)).min(axis=1)
    assert gaps.max() < 1e-6  # as they are rounded
    assert residuals_of(later.snapshot.facts, later.ledger, "committee").count == known + 16 * len(arrived)


@pytest.mark.slow
def test_a_stream_into_an_empty_committee_tells_once_enough_was_heard(make_data, rng, tmp_path):
    X, y = spread_out(rng, 4500)
    path = make_data(rows_per_chunk=50, X=X, y=y)
    gbcm = GBCM.prepare(path, replace(GIVEN, rows_per_expert=50), model=tmp_path / "model")
    assert spread(gbcm).shape == NORMAL
    gbcm, _ = gbcm.ingest(gbcm.source(path), IngestOptions(commit_every=8))
    told = [len(entry.residuals or ()) for entry in gbcm.ledger]
    assert told[:8] == [0] * 8  # before the first commit all there is to predict by is the prior
    assert set(told[16:]) == {16}
    assert spread(gbcm).shape != NORMAL


def test_a_stream_is_read_once(make_data, rng, tmp_path, monkeypatch):
    X, y = spread_out(rng, 500)
    path = make_data(rows_per_chunk=50, X=X, y=y)
    gbcm = GBCM.prepare(path, replace(GIVEN, rows_per_expert=50), model=tmp_path / "model")
    monkeypatch.setattr("bcmdist.prediction.measuring.measurement._left_out", None)
    gbcm, report = gbcm.ingest(gbcm.source(path))
    assert (gbcm.commit, report.rows) == (2, 500)
    assert spread(gbcm).shape == NORMAL


@pytest.mark.slow
def test_a_fit_that_ended_before_it_was_measured_is_measured_later(odd, tmp_path, monkeypatch):
    path, *_ = odd

    def killed(snapshot, runtime, *, read=True):
        raise KeyboardInterrupt

    monkeypatch.setattr("bcmdist.api.fit.measured", killed)
    with pytest.raises(KeyboardInterrupt):
        GBCM.fit(path, GIVEN, model=tmp_path / "model")
    assert spread(GBCM.load(tmp_path / "model")).shape == NORMAL
    monkeypatch.undo()
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    whole = GBCM.fit(path, GIVEN, model=tmp_path / "whole")
    assert spread(gbcm).shape == spread(whole).shape


def test_noise_is_of_regressions(classes, tmp_path):
    path, *_ = classes
    with pytest.raises(InvalidOption, match=r"--noise varying, got the likelihood bernoulli; leave it out"):
        GBCM.fit(path, Settings(partition="chunks", noise="varying"), model=tmp_path / "model")


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["process", "places", "residuals"])
def test_an_error_distribution_that_cannot_be_is_refused_by_writers_and_readers(damage, odd, tmp_path, monkeypatch):
    path, *_ = odd
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    snapshot = gbcm.snapshot
    entries, known = list(gbcm.ledger), snapshot.facts.errors.error_scale
    if damage == "process":
        known = structs.replace(known, process=structs.replace(known.process, lengthscale=[1.0]))
    elif damage == "places":
        entries = [replace(e, residuals=replace(e.residuals, places=e.residuals.places[:, 1:])) for e in entries]
    else:
        record = entries[0].residuals
        entries[0] = replace(entries[0], residuals=replace(record, committee=record.committee * np.nan))
    with pytest.raises(CommitRefused, match="expected"):
        snapshot.successor(snapshot.committee, entries, rewrite=True, spread=known)
    assert GBCM.load(tmp_path / "model").commit == snapshot.commit
    for module in (commits, ledger, commit_record):  # as other software may write it
        monkeypatch.setattr(module, "read_back", lambda where: contextlib.suppress(ModelDamaged))
    snapshot.successor(snapshot.committee, entries, rewrite=True, spread=known)
    with pytest.raises(ModelDamaged, match="expected"):
        GBCM.load(tmp_path / "model")


@pytest.mark.slow
def test_rows_heard_as_they_are_stored_are_none_of_cells(make_data, rng, tmp_path):
    X, y = spread_out(rng, 1200)
    path = make_data(rows_per_chunk=100, X=X[:300], y=y[:300])
    gbcm = GBCM.fit(path, replace(SPATIAL, rows_per_expert=50), model=tmp_path / "model")
    first = {entry.key for entry in gbcm.ledger}
    later = make_data("later.zarr", rows_per_chunk=50, X=X[300:600], y=y[300:600])
    gbcm, _ = gbcm.ingest(gbcm.source(later))
    last = make_data("last.zarr", rows_per_chunk=50, X=X[600:], y=y[600:])
    gbcm = gbcm.absorb(partitions(open_data(last), 50))  # more than twice the rows: it is measured again
    gbcm = GBCM.load(tmp_path / "model")
    assert gbcm.facts["spread"]["rows"] == 1200
    local = {entry.key for entry in gbcm.ledger if entry.residuals and entry.residuals.local is not None}
    assert local
    assert local <= first
    assert np.isfinite(gbcm.predict(X[:5])["lower95"]).all()


@pytest.mark.slow
def test_merged_models_tell_nothing_of_local_errors(odd, make_data, rng, tmp_path):
    path, X, y = odd
    gbcm = GBCM.prepare(path, SPATIAL, model=tmp_path / "prepared")
    shutil.copytree(tmp_path / "prepared", tmp_path / "other")
    GBCM.fit(path, SPATIAL, model=tmp_path / "prepared")
    gbcm = GBCM.load(tmp_path / "prepared")
    other = make_data("other.zarr", rows_per_chunk=100, X=X[:300], y=y[:300])
    two = GBCM.load(tmp_path / "other").partial_fit(other)
    with pytest.warns(BcmdistWarning, match="a merged model makes no local predictions"):
        both = gbcm.merge(two, tmp_path / "both")
    assert not any(entry.residuals.local is not None for entry in both.ledger if entry.residuals)
    assert both.facts["method"] == "committee"
    assert both.facts["spread"]["rows"] == both.committee.total.rows  # measured again, of the committee
    assert residuals_of(both.snapshot.facts, both.ledger, "committee").count >= 250
    assert np.isfinite(both.predict(X[:5])["lower95"]).all()


@pytest.mark.slow
def test_a_stream_of_single_rows_can_be_told_of(make_data, rng, tmp_path):
    X, y = spread_out(rng, 700)
    path = make_data(rows_per_chunk=100, X=X, y=y)
    gbcm = GBCM.fit(path, replace(GIVEN, rows_per_expert=100), model=tmp_path / "model")
    few = make_data("few.zarr", rows_per_chunk=1, X=X[:40] + 0.01, y=y[:40])
    gbcm, _ = gbcm.ingest(gbcm.source(few))
    assert np.isfinite(gbcm.predict(X[:5])["lower95"]).all()


# --- Counts and lifetimes ---

COUNTS = replace(
    GIVEN,
    likelihood="negative_binomial",
    set={"kernel.lengthscale": 0.8, "kernel.variance": 0.5, "likelihood.shape": 4.0},
)


def counted(rng, n, *, shape):
    """Counts of a mean that is no secret, whose over-dispersion is a function of the first input."""
    X = rng.uniform(-2, 2, (n, 2))
    mu = np.exp(1.5 + 0.6 * signal(X))
    return X, rng.negative_binomial(shape(X), shape(X) / (shape(X) + mu)).astype(float)


def untold(gbcm, path):
    """The same model, that knows nothing of its errors."""
    shutil.copytree(gbcm.snapshot.store.storage.url, path)
    snapshot = GBCM.load(path).snapshot
    bare = [replace(entry, residuals=None) for entry in snapshot.ledger]
    snapshot.successor(snapshot.committee, bare, rewrite=True, spread=None)
    return GBCM.load(path)


def apart(X):
    return np.exp(1.0 + 1.5 * X[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_counts_of_another_dispersion_are_told(partition, make_data, rng, tmp_path):
    (X, y), (Xt, yt) = counted(rng, ROWS, shape=apart), counted(rng, 2000, shape=apart)
    settings = replace(COUNTS, partition=partition)
    path, new = make_data(rows_per_chunk=150, X=X, y=y), make_data("new.zarr", rows_per_chunk=1000, X=Xt, y=yt)
    gbcm = GBCM.fit(path, settings, model=tmp_path / "model")
    told = spread(gbcm)
    assert told.scale is not None
    assert gbcm.info()["errors"]["scale"] == "varying"
    score, before = gbcm.score(new), untold(gbcm, tmp_path / "untold").score(new)
    assert score["mnlp"] < before["mnlp"] - 0.02
    assert score["pit_distance"] < 0.8 * before["pit_distance"]
    assert score["mae"] == before["mae"]


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_counts_as_the_model_says_are_predicted_as_it_says(partition, make_data, rng, tmp_path):
    X, y = counted(rng, ROWS, shape=lambda X: np.full(len(X), 4.0))
    gbcm = GBCM.fit(make_data(X=X, y=y), replace(COUNTS, partition=partition), model=tmp_path / "model")
    assert gbcm.facts["spread"]["process"] is None
    assert nearly_normal(spread(gbcm).shape)


@pytest.mark.slow
def test_lives_that_end_otherwise_than_the_model_says_are_told(make_data, rng, tmp_path):
    """Weibull lives of shape 3, taken for exponential ones, of which a third is censored."""
    X = rng.uniform(-2, 2, (ROWS, 2))
    life, seen = np.exp(signal(X)) * rng.weibull(3.0, ROWS), rng.exponential(4.0, ROWS)
    path = make_data(X=X, y=np.minimum(life, seen), event=(life <= seen).astype(float))
    settings = replace(GIVEN, likelihood="exponential", set={"kernel.lengthscale": 0.8}, noise="constant")
    gbcm = GBCM.fit(path, settings, model=tmp_path / "model")
    shape = spread(gbcm).shape
    assert shape.quantile(0.9) - shape.quantile(0.1) < 0.75 * (NORMAL.quantile(0.9) - NORMAL.quantile(0.1))
    score, before = gbcm.score(path), untold(gbcm, tmp_path / "untold").score(path)
    assert score["mnlp"] < before["mnlp"] - 0.1
    assert score["pit_distance"] < before["pit_distance"]
    # Medians move with the shape, further where a row's own distribution is wider: few pairs change places.
    assert score["concordance"] == pytest.approx(before["concordance"], abs=1e-3)


@pytest.mark.slow
def test_arrivals_of_counts_tell_before_they_are_heard(make_data, rng, tmp_path):
    X, y = counted(rng, ROWS, shape=apart)
    path = make_data(rows_per_chunk=50, X=X, y=y)
    gbcm = GBCM.prepare(path, replace(COUNTS, rows_per_expert=50), model=tmp_path / "model")
    gbcm, _ = gbcm.ingest(gbcm.source(path), IngestOptions(commit_every=8))
    told = [error for entry in gbcm.ledger if entry.residuals for error in entry.residuals.committee]
    assert len(told) >= 300
    assert np.abs(told).max() <= 7.0
    assert not spread(gbcm).shape.normal or spread(gbcm).scale is not None


@pytest.mark.slow
def test_sites_that_cannot_be_worked_out_again_tell_nothing_of_the_committee(make_data, rng, tmp_path):
    X, y = counted(rng, 900, shape=apart)
    gbcm = GBCM.fit(make_data(X=X, y=y), replace(COUNTS, approximation="ep"), model=tmp_path / "model")
    assert spread(gbcm).shape == NORMAL
    assert not any(entry.residuals for entry in gbcm.ledger)


@pytest.mark.slow
def test_partitions_that_begin_at_the_same_row_are_drawn_apart(make_data, rng, tmp_path):
    """Data sets of one partition each, as in a stream: what is random of their errors is their own."""
    X, y = counted(rng, 1200, shape=lambda X: np.full(len(X), 4.0))
    gbcm = GBCM.fit(make_data("first.zarr", X=X, y=y), COUNTS, model=tmp_path / "model")
    X, y = X[:20], y[:20]
    for path in (make_data("one.zarr", X=X, y=y), make_data("two.zarr", X=X + 1e-9, y=y)):
        gbcm, _ = gbcm.ingest(gbcm.source(path))
    one, two = (e.residuals.committee for e in gbcm.ledger if "one.zarr" in e.key or "two.zarr" in e.key)
    assert len(one) == len(two) == 16
    assert np.abs(np.sort(one) - np.sort(two)).max() > 1e-3

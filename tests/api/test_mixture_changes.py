"""Mixtures that ingest, forget, merge and revert: all members by one commit."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import oracles
from bcmdist import GBCM, HMC, Mixture, Settings, sample_posterior
from bcmdist.api.mixtures import backup, changes, ingestion, tasks
from bcmdist.api.mixtures.backup import back_up_mixture
from bcmdist.api.mixtures.density import default_objective
from bcmdist.api.mixtures.tasks import coordinates_of, parts_of
from bcmdist.app.cli.main import cli
from bcmdist.app.model_check import checks_of
from bcmdist.committee.backup import copy_of
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.mixture_commits import contents_of, references, revision_store, weights_of
from bcmdist.errors import (
    BcmdistWarning,
    CommitConflict,
    InvalidOption,
    ModelExists,
    ModelNotFound,
    ModelsDiffer,
)
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.storage.commits import open_store

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default::bcmdist.errors.BcmdistWarning")]

SETTINGS = Settings(partition="chunks", kernel="se", mean="zero", query=15, rows_per_expert=30)
SHORT = HMC(iterations=40, burn_in=20)
EXACT = {"rtol": 1e-10, "atol": 1e-10}
X_NEW = np.random.default_rng(9).uniform(-2, 2, (12, 2))


def rows_of(seed, count=60):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (count, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(count)


def sampled_in(place, make_data, settings=SETTINGS, **how):
    """A mixture of three samples of 60 rows."""
    X, y = rows_of(0)
    path = make_data(f"{place.name}.zarr", rows_per_chunk=30, X=X, y=y)
    return sample_posterior(path, settings, model=place, samples=3, hmc=SHORT, **how)


@pytest.fixture
def more(make_data):
    """Two further data sets."""
    return [make_data(f"more{seed}.zarr", rows_per_chunk=30, X=X, y=y) for seed in (1, 2) for X, y in [rows_of(seed)]]


@pytest.fixture
def mixture(tmp_path, make_data):
    return sampled_in(tmp_path / "m", make_data)


def assert_same_mixture(one, other):
    equal = np.full(len(one.members), 1.0 / len(one.members))
    np.testing.assert_allclose(one.predictive.weights or equal, other.predictive.weights or equal, **EXACT)
    a, b = one.predict(X_NEW), other.predict(X_NEW)
    for name, values in a.items():
        np.testing.assert_allclose(values, b[name], **EXACT, err_msg=name)


def ledgers(mixture):
    return [sorted((e.key, e.digest, e.weight) for e in member.ledger) for member in mixture.members]


def dense(mixture, seeds):
    """Means, variances (K, n) of f, and log evidences (K,), of the members' dense PITC models of rows of some seeds."""
    found = []
    for member in mixture.members:
        model, scaling = member.model, member.model.scaling
        assert model.shared.jitter == 0.0
        blocks = [X[k : k + 30] for seed in seeds for X, _ in [rows_of(seed)] for k in (0, 30)]
        ys = [y[k : k + 30] for seed in seeds for _, y in [rows_of(seed)] for k in (0, 30)]
        scaled = [scaling.inputs(block) for block in blocks], [(y - scaling.y_mean) / scaling.y_scale for y in ys]
        noise = float(model.likelihood.noise_variance[0])
        mean, variance, evidence = oracles.pitc(
            model.shared.kernel, model.shared.points, *scaled, noise, scaling.inputs(X_NEW)
        )
        units = model.likelihood.units
        found.append((scaling.original("mean", mean, units), scaling.original("variance", variance, units), evidence))
    return tuple(np.array(part) for part in zip(*found, strict=True))


# --- Ingestion ---


@pytest.mark.parametrize("kind", ["equal", "evidence"])
def test_ingestion_in_parts_is_the_mixture_of_dense_committees(mixture, more, kind):
    for path in more:
        mixture = mixture.partial_fit(path, sample_weights=kind)
    assert (mixture.commit, mixture.info()["rows"], mixture.info()["sample_weights"]) == (3, 180, kind)
    means, variances, evidence = dense(mixture, (0, 1, 2))
    ratio = evidence - dense(mixture, (0,))[2]
    w = np.exp(ratio - ratio.max()) / np.exp(ratio - ratio.max()).sum()
    np.testing.assert_allclose(mixture.info()["effective_samples"], 1.0 / (w**2).sum(), rtol=1e-6)
    if kind == "equal":
        assert mixture.predictive.weights is None
        w = np.full(3, 1 / 3)
    else:
        np.testing.assert_allclose(mixture.predictive.weights, w, rtol=1e-6, atol=1e-12)
        w = np.array(mixture.predictive.weights)
    mean = w @ means
    found = mixture.predict(X_NEW)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9, atol=1e-9)  # inverses in the oracle
    np.testing.assert_allclose(found["variance"], w @ (variances + means**2) - mean**2, rtol=1e-7)


def test_a_weighted_mixture_is_that_of_its_single_committees(mixture, more):
    now = mixture.partial_fit(more[0], sample_weights="evidence")
    each = [GBCM.load(member.url).predict(X_NEW) for member in now.members]
    w = np.array(now.predictive.weights)
    for mean, variance in (("mean", "variance"), ("observation_mean", "observation_variance")):
        m, v = np.array([one[mean] for one in each]), np.array([one[variance] for one in each])
        np.testing.assert_allclose(now.predict(X_NEW)[mean], w @ m, rtol=1e-12)
        np.testing.assert_allclose(now.predict(X_NEW)[variance], w @ (v + m**2) - (w @ m) ** 2, rtol=1e-9)
    by_hand = Mixture([GBCM.load(member.url) for member in now.members], weights=w)
    assert_same_mixture(by_hand, now)
    scores = now.score(more[1])
    assert scores["mnlp"] == pytest.approx(by_hand.score(more[1])["mnlp"], rel=1e-10)
    for bad in ([0.5, 0.5], [1.0, 0.5, -0.5], [1.0, 1.0, 1.0]):
        with pytest.raises(InvalidOption, match="expected 3 weights, one for each member"):
            Mixture(list(now.members), weights=bad)


def test_rows_count_once_and_a_forgotten_partition_comes_back(mixture, more):
    one = mixture.partial_fit(more[0], sample_weights="evidence")
    assert mixture.newest().partial_fit(more[0]).commit == one.commit  # nothing was new
    key = next(entry.key for entry in one.ledger if "more1" in entry.key)
    gone = one.forget([key])
    assert (gone.commit, gone.info()["rows"], len(set(map(str, ledgers(gone))))) == (3, 90, 1)
    again = gone.partial_fit(more[0])
    assert_same_mixture(again, one)
    assert_same_mixture(again.forget([e.key for e in one.ledger if "more1" in e.key]), mixture)
    half = again.newest().reweight({one.ledger[0].key: 0.5})
    assert {entry.weight for member in half.members for entry in member.ledger} == {0.5, 1.0}


def test_few_effective_samples_are_warned_of(mixture, make_data):
    X, y = rows_of(5, 240)
    other = make_data("other.zarr", rows_per_chunk=30, X=X, y=4.0 * y)
    with pytest.warns(BcmdistWarning, match=r"prefers few of its 3 samples \(as many as 1\.\d\), which have equal"):
        mixture.partial_fit(other)
    some = make_data("some.zarr", rows_per_chunk=30, X=X[:30], y=y[:30])
    with pytest.warns(BcmdistWarning, match=r"only 1\.\d of its 3 samples count, by the evidence"):
        mixture.newest().partial_fit(some, sample_weights="evidence")


def test_weights_of_samples_are_refused_for_one_committee(mixture, more):
    with pytest.raises(InvalidOption, match="--sample-weights: expected a mixture over hyper-parameters, got one"):
        mixture.members[0].ingest(mixture.source(more[0]), IngestOptions(sample_weights="evidence"))
    with pytest.raises(InvalidOption, match="--sample-weights: expected equal or evidence, got 'some'"):
        IngestOptions(sample_weights="some")


def test_a_watched_source_is_committed_in_rounds(mixture, more, tmp_path, monkeypatch):
    monkeypatch.setattr(ingestion, "ROUND_SECONDS", 0.0)
    folder = tmp_path / "folder"
    folder.mkdir()
    os.rename(more[0], folder / "a.zarr")
    polls = []

    def stop():
        polls.append(1)
        if len(polls) == 3:
            os.rename(more[1], folder / "b.zarr")
        return Mixture.load(mixture.url).info()["rows"] == 180

    options = IngestOptions(watch=True, commit_every=1, stop=stop, grow=False)
    after, report = mixture.ingest(mixture.source(folder, watch=True), options)
    assert (report.partitions, report.rows, after.info()["rows"]) == (4, 120, 180)
    assert after.commit > 2
    assert len(set(map(str, ledgers(after)))) == 1
    assert len({str(member.snapshot.offsets) for member in after.members}) == 1
    limited, report = mixture.newest().ingest(mixture.source(folder), IngestOptions(max_partitions=1))
    assert (limited.commit, report.partitions) == (after.commit, 0)


def test_rows_that_fade_fade_in_all_members(mixture, more):
    with contextlib.closing(mixture.source(more[0])) as source:
        faded, _ = mixture.ingest(source, IngestOptions(half_life=60.0, commit_every=1))
    counts = [member.weights for member in faded.members]
    assert counts[0] == counts[1] == counts[2]
    assert len(set(counts[0].values())) > 1


def test_query_points_grow_in_all_members(mixture, make_data):
    X, y = rows_of(7)
    far = make_data("far.zarr", rows_per_chunk=30, X=X + 6.0, y=y)
    with contextlib.closing(mixture.source(far)) as source:
        grown, report = mixture.ingest(source, IngestOptions(grow=True))
    assert report.partitions == 2
    assert all(member.model.shared.functions > 15 for member in grown.members)
    assert len(set(map(str, ledgers(grown)))) == 1


# --- Interruptions and races ---


def interrupted(monkeypatch, change, *, member=1):
    """Make a change of a mixture that is interrupted at a member."""
    inner = changes._changed

    def stopped(number, snapshot, of):
        if number == member:
            raise KeyboardInterrupt
        return inner(number, snapshot, of)

    with monkeypatch.context() as patch:
        patch.setattr(changes, "_changed", stopped)
        with pytest.raises(KeyboardInterrupt):
            change()


def test_an_interrupted_ingestion_changes_nothing_and_is_finished_by_the_next_change(mixture, more, monkeypatch):
    expected = mixture.predict(X_NEW)
    interrupted(monkeypatch, lambda: mixture.partial_fit(more[0]), member=2)
    left = Mixture.load(mixture.url)
    assert (left.commit, left.info()["rows"]) == (1, 60)
    np.testing.assert_array_equal(left.predict(X_NEW)["mean"], expected["mean"])
    assert [open_store(member.url).head() - member.commit for member in left.members] == [1, 1, 0]
    after = left.partial_fit(more[1])
    assert [one["operation"] for one in after.history()] == ["fit", "recover", "ingest"]
    assert (after.info()["rows"], len(set(map(str, ledgers(after))))) == (180, 1)
    means, *_ = dense(after, (0, 1, 2))
    np.testing.assert_allclose(after.predict(X_NEW)["mean"], means.mean(axis=0), rtol=1e-9, atol=1e-9)


def test_an_interrupted_withdrawal_is_taken_back(mixture, more, monkeypatch):
    one = mixture.partial_fit(more[0])
    interrupted(monkeypatch, lambda: one.forget([one.ledger[0].key]))
    assert_same_mixture(Mixture.load(one.url), one)
    again = one.newest().partial_fit(more[0])
    assert [entry["operation"] for entry in again.history()][-1] == "recover"
    assert_same_mixture(again, one)


def test_a_killed_process_leaves_a_whole_state(mixture, more):
    script = f"""
        import os, signal
        from bcmdist import Mixture
        from bcmdist.api.mixtures import changes
        inner = changes._changed
        def killed(number, snapshot, change):
            if number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return inner(number, snapshot, change)
        changes._changed = killed
        Mixture.load({mixture.url!r}).partial_fit({more[0]!r})
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert ended.returncode == -9
    left = Mixture.load(mixture.url)
    assert_same_mixture(left, mixture)
    after = left.partial_fit(more[0])
    assert (after.info()["rows"], len(set(map(str, ledgers(after))))) == (120, 1)


def test_two_writers_lose_nothing(mixture, more, monkeypatch):
    """The second writer commits while the first is between its members and its commit."""
    inner, raced = changes._committed, []

    def raced_by(contents, after, operation, sample_weights=None):
        if not raced:
            raced.append(contents)
            mixture.newest().partial_fit(more[1])
        return inner(contents, after, operation, sample_weights)

    monkeypatch.setattr(changes, "_committed", raced_by)
    monkeypatch.setattr(changes, "PAUSE", 0.0)
    after = mixture.partial_fit(more[0])
    assert (after.info()["rows"], len(set(map(str, ledgers(after))))) == (180, 1)
    assert len({entry.key for entry in after.ledger}) == 6
    monkeypatch.setattr(changes, "_committed", lambda *_: (_ for _ in ()).throw(CommitConflict("taken")))
    with pytest.raises(CommitConflict, match="taken"):
        after.forget([after.ledger[0].key])


def test_members_of_other_rows_are_left_alone(mixture, more, tmp_path):
    """A list by hand of members that differ in their rows."""
    mixture.members[0].partial_fit(more[0])
    store = open_store(mixture.members[0].url)
    place = tmp_path / "m" / "mixture.json"
    listed = [list(one) for one in json.loads(place.read_text())]
    listed[0][1:] = [store.head(), store.newest().digest]
    place.write_text(json.dumps(listed))
    with pytest.raises(InvalidOption, match="expected members that have absorbed the same rows"):
        Mixture.load(mixture.url).forget([mixture.ledger[0].key])


# --- Earlier commits ---


def test_commits_are_listed_returned_to_and_pruned(mixture, more):
    one = mixture.partial_fit(more[0])
    two = one.partial_fit(more[1], sample_weights="evidence")
    back, before = two.revert(2), one.predict(X_NEW)
    assert (back.commit, back.info()["sample_weights"]) == (4, "equal")
    assert_same_mixture(back, one)
    assert [(c["number"], c["operation"], c["rows"], c["partitions"]) for c in back.history()] == [
        (1, "fit", 60, 2),
        (2, "ingest", 120, 4),
        (3, "ingest", 180, 6),
        (4, "revert", 120, 4),
    ]
    with pytest.raises(InvalidOption, match="--to: expected a commit before the newest, 1 to 3, got 4"):
        back.revert(4)
    with pytest.raises(InvalidOption, match="expected at least 1 commit"):
        back.prune(0)
    with Mixture.held(mixture.url, commit=3) as kept:
        pruned = back.prune(1)
        assert (pruned["kept"], pruned["removed"]) == ([3, 4], [1, 2])
        assert kept.predict(X_NEW)["mean"] == pytest.approx(two.predict(X_NEW)["mean"], rel=1e-12)
    np.testing.assert_allclose(Mixture.load(mixture.url).predict(X_NEW)["mean"], before["mean"], **EXACT)
    with pytest.raises(ModelNotFound, match="commit 1, found it pruned"), Mixture.held(mixture.url, commit=1):
        pass
    with pytest.raises(ModelNotFound, match="expected commit 9 of a mixture, found none"):
        Mixture.load(mixture.url, commit=9)
    assert revision_store(mixture.url).numbers() == [3]


def test_a_mixture_that_was_not_changed_cannot_be_reverted(mixture):
    with pytest.raises(InvalidOption, match="expected a model that has changed since its first commit"):
        mixture.revert(1)
    with pytest.raises(
        InvalidOption, match="expected one stored in a directory to forget, got one assembled in memory"
    ):
        Mixture(list(mixture.members)).forget(["a"])


# --- Merging and copying ---


def test_mixtures_of_the_same_samples_are_merged(mixture, more, tmp_path):
    like = Settings(like=mixture.url, query=15, rows_per_expert=30)
    north = sample_posterior(more[0], like, model=tmp_path / "north")
    for one, other in zip(mixture.members, north.members, strict=True):
        assert one.info()["hyperparameters"] == other.info()["hyperparameters"]
    merged = mixture.merge(north, tmp_path / "both")
    assert (merged.info()["rows"], merged.info()["rhat"]) == (120, mixture.info()["rhat"])
    for k, member in enumerate(merged.members):
        alone = mixture.members[k].merge(north.members[k], tmp_path / f"alone{k}")
        np.testing.assert_allclose(member.predict(X_NEW)["mean"], alone.predict(X_NEW)["mean"], **EXACT)
    more_rows = merged.partial_fit(more[1], sample_weights="evidence")
    assert more_rows.info()["rows"] == 180
    swapped = north.merge(mixture, tmp_path / "swapped")
    assert swapped.info()["effective_samples"] == pytest.approx(merged.info()["effective_samples"], rel=1e-8)
    with pytest.raises(ModelExists):
        mixture.merge(north, tmp_path / "both")


def test_other_samples_are_not_merged(mixture, tmp_path, make_data, more):
    other = sampled_in(tmp_path / "other", make_data, replace(SETTINGS, seed=5))
    with pytest.raises(ModelsDiffer, match=r"expected the same samples .* fit one of the two with --like the other"):
        mixture.merge(other, tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_a_copy_predicts_alike_and_goes_on(mixture, more, tmp_path):
    one = mixture.partial_fit(more[0], sample_weights="evidence")
    copy = one.save(tmp_path / "copy")
    assert_same_mixture(copy, one)
    assert copy.info()["effective_samples"] == pytest.approx(one.info()["effective_samples"], rel=1e-10)
    assert_same_mixture(copy.partial_fit(more[1]), one.partial_fit(more[1]))
    assert "more1" not in (tmp_path / "copy" / "mixture.json").read_text()


# --- Experts, cells and clusters ---


@pytest.mark.parametrize("expert", ["fitc", "sor"])
def test_other_experts_are_sampled_by_their_own_evidence(expert, tmp_path, make_data):
    mixture = sampled_in(tmp_path / "m", make_data, replace(SETTINGS, expert=expert))
    prepared, path = GBCM.load(f"{mixture.url}/prepared"), mixture.members[0].facts["data"]
    parts = parts_of(prepared, path, SETTINGS)
    objective, coordinates = default_objective(prepared, parts, SerialRuntime()), coordinates_of(prepared)
    value, _ = objective(prepared.model.shared.kernel, prepared.model.likelihood)
    assert value == pytest.approx(prepared.absorb(parts).committee.log_evidence, rel=1e-6)  # jitter 1e-10
    density, phi = coordinates.log_density(objective), coordinates.start(1)
    numeric = [(density(phi + 1e-5 * e)[0] - density(phi - 1e-5 * e)[0]) / 2e-5 for e in np.eye(len(phi))]
    np.testing.assert_allclose(density(phi)[1], numeric, rtol=1e-5, atol=1e-5)
    assert {member.facts["expert"] for member in mixture.members} == {expert}


@pytest.fixture
def spatial(tmp_path, make_data):
    """A mixture with cells, of a function that few query points cannot represent; its rows, and further ones."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (420, 2))
    y = 2.0 * np.sin(6 * X[:, 0]) * np.cos(5 * X[:, 1]) + X[:, 1] + 0.1 * rng.standard_normal(420)
    path, test = (make_data(f"{n}.zarr", X=X[a:], y=y[a:]) for n, a in (("train", 120), ("test", 300)))
    settings = Settings(partition="spatial", kernel="se", query=20, rows_per_expert=100, effort="quick")
    make = lambda place, **how: sample_posterior(  # noqa: E731
        path, settings, model=tmp_path / place, samples=3, hmc=SHORT, **how
    )
    return make, make_data("held.zarr", X=X[:120], y=y[:120]), X[:120], path, test


def test_cells_are_shared_and_predictions_are_local(spatial, tmp_path):
    make, held, X, *_ = spatial
    mixture = make("m")
    assert mixture.chosen_method() == "local"
    assert (tmp_path / "m" / "prepared" / "cells.zarr").exists()
    assert not any((tmp_path / "m" / "members" / f"000{k}" / "cells.zarr").exists() for k in range(3))
    found, each = mixture.predict(X), [GBCM.load(member.url).predict(X, method="local") for member in mixture.members]
    m, v = np.array([one["mean"] for one in each]), np.array([one["variance"] for one in each])
    np.testing.assert_allclose(found["mean"], m.mean(axis=0), **EXACT)
    np.testing.assert_allclose(found["variance"], (v + m**2).mean(axis=0) - m.mean(axis=0) ** 2, rtol=1e-8)
    scores = {method: mixture.score(held, method=method) for method in ("committee", "local")}
    assert scores["local"]["rmse"] < 0.5 * scores["committee"]["rmse"]
    assert scores["local"]["mnlp"] < scores["committee"]["mnlp"]
    assert mixture.predict_zarr(held, tmp_path / "p.zarr") == 120
    for name, values in found.items():
        np.testing.assert_allclose(zarr.open_group(tmp_path / "p.zarr")[name][:], values, rtol=1e-9, atol=1e-12)
    gone = mixture.forget([mixture.ledger[0].key])
    assert np.abs(gone.predict(X)["mean"] - found["mean"]).max() > 1e-3
    assert_same_predictions(gone.revert(1).predict(X), found)
    assert_same_predictions(gone.newest().save(tmp_path / "copy").predict(X), found)
    with pytest.warns(BcmdistWarning, match="prefers few of its 3 samples"):
        after = Mixture.load(mixture.url).partial_fit(held)
    assert all(entry.copy for entry in after.ledger if "held.zarr" in entry.key)  # local predictions use them
    assert after.score(held)["rmse"] < 0.5 * scores["local"]["rmse"]


def assert_same_predictions(one, other):
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], **EXACT, err_msg=name)


def test_a_mixture_with_cells_is_pruned(spatial, tmp_path):
    """Halos belong to the directory of the cells: members do not look for them in their own."""
    make, held, X, *_ = spatial
    with pytest.warns(BcmdistWarning, match="prefers few of its 3 samples"):
        changed, _ = make("m").ingest(held)
    expected = changed.predict(X)
    assert changed.prune(1)["kept"] == [2]
    for member in changed.members:
        assert len(os.listdir(os.path.join(member.url, "commits"))) == 1
    assert_same_predictions(Mixture.load(tmp_path / "m").predict(X), expected)


def test_a_moved_mixture_finds_its_cells(spatial, tmp_path):
    make, _, X, *_ = spatial
    expected = make("m").predict(X)
    os.rename(tmp_path / "m", tmp_path / "moved")
    assert_same_predictions(Mixture.load(tmp_path / "moved").predict(X), expected)


def test_a_cluster_makes_the_same_mixture(spatial, cluster):
    make, _, X, *_ = spatial
    here, there = make("here"), make("there", runtime=cluster)
    np.testing.assert_array_equal(here.predict(X)["mean"], there.predict(X)["mean"])


def test_a_cluster_makes_the_same_changes(tmp_path, make_data, more, cluster):
    one, other = sampled_in(tmp_path / "a", make_data), sampled_in(tmp_path / "b", make_data, runtime=cluster)
    key = one.ledger[0].key
    one = one.partial_fit(more[0]).forget([key])
    other = other.partial_fit(more[0], runtime=cluster).forget([other.ledger[0].key], runtime=cluster)
    assert_same_mixture(one, other)


def test_few_chains_are_summed_over_partitions(tmp_path, make_data, cluster, monkeypatch):
    """One chain of many partitions: evaluations are spread over the workers, not chains."""
    monkeypatch.setattr(tasks.SampleChain, "__call__", None)  # workers import their own
    mixture = sampled_in(tmp_path / "a", make_data, chains=1, runtime=cluster)
    assert len(mixture.members) == 3


def test_a_forecast_has_the_weights_of_the_members(tmp_path):
    series = np.sin(np.arange(120) / 3.0) + 0.05 * np.random.default_rng(0).standard_normal(120)
    np.savetxt(tmp_path / "s.csv", series, header="y", comments="")
    data = tmp_path / "s.zarr"
    done = CliRunner().invoke(cli, ["import", str(tmp_path / "s.csv"), str(data), "--y", "y", "--lags", "3"])
    assert done.exit_code == 0, done.output
    settings = Settings(partition="chunks", kernel="se", mean="zero", query=15, rows_per_expert=60)
    mixture = sample_posterior(data, settings, model=tmp_path / "m", samples=3, hmc=SHORT)
    weighted = Mixture(list(mixture.members), weights=(0.7, 0.2, 0.1))
    state = series[-1:-4:-1]
    each = [member.forecast(state, 4).mean for member in mixture.members]
    np.testing.assert_allclose(weighted.forecast(state, 4).mean, np.tensordot([0.7, 0.2, 0.1], each, 1), rtol=1e-12)
    done = CliRunner().invoke(cli, ["forecast", str(tmp_path / "m"), "--steps", "4", "--json"])
    assert done.exit_code == 0, done.output


def test_terms_of_a_mixture_add_up(tmp_path, make_data):
    X, y = rows_of(0)
    path = make_data("sum.zarr", rows_per_chunk=30, X=X, y=y)
    settings = replace(SETTINGS, kernel="se+linear", query=30)
    mixture = sample_posterior(path, settings, model=tmp_path / "m", samples=3, hmc=SHORT)
    found, each = mixture.predict(X_NEW, terms=True), [one.predict(X_NEW, terms=True) for one in mixture.members]
    np.testing.assert_allclose(found["term_mean"].sum(axis=1), found["mean"], rtol=1e-9)
    m, v = (np.array([one[name] for one in each]) for name in ("term_mean", "term_variance"))
    np.testing.assert_allclose(found["term_variance"], (v + m**2).mean(axis=0) - m.mean(axis=0) ** 2, rtol=1e-7)


def test_contents_of_a_mixture_are_named_by_their_commit(mixture, more):
    one = mixture.partial_fit(more[0])
    assert contents_of(mixture.url, 1) == mixture.contents
    assert contents_of(mixture.url) == one.contents
    assert_same_mixture(Mixture.load(mixture.url, commit=1), mixture)


# --- Backups ---


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_a_restored_mixture_predicts_the_same_and_absorbs_the_rest(tmp_path, make_data, more, partition):
    """At its second commit, while later ones are made; restored to the old place after the directory was lost."""
    one, copy = sampled_in(tmp_path / "m", make_data, replace(SETTINGS, partition=partition)), tmp_path / "copy"
    second = one.partial_fit(str(more[0]))
    third = second.partial_fit(str(more[1]))
    expected, figures, all_rows = second.predict(X_NEW), second.info(), third.predict(X_NEW)
    done = CliRunner().invoke(cli, ["backup", one.url, str(copy), "--at", "2", "--json"])
    assert done.exit_code == 0, done.output
    figures_of_copy = json.loads(done.output)
    assert [figures_of_copy[name] for name in ("commit", "rows", "partitions")] == [2, 120, len(second.ledger)]
    assert "mixture" in dict(checks_of(str(copy)))
    shutil.rmtree(tmp_path / "m")
    back_up_mixture(str(copy), one.url)
    restored = Mixture.load(one.url)
    assert repr(restored.info()) == repr(figures)  # nan is equal to nan
    assert restored.advised() == second.advised()
    for name, values in restored.predict(X_NEW).items():
        np.testing.assert_array_equal(values, expected[name])
    again = restored.partial_fit(str(more[0])).partial_fit(str(more[1]))
    assert again.commit == 3
    for name, values in again.predict(X_NEW).items():
        np.testing.assert_allclose(values, all_rows[name], **EXACT, err_msg=name)


def test_others_commit_and_prune_during_a_backup(mixture, tmp_path, monkeypatch, more):
    """After each member and before the record of the mixture; its second commit, which stays until it is copied."""
    second, copy, later = mixture.partial_fit(str(more[0])), tmp_path / "copy", iter(more[1:])
    expected = second.predict(X_NEW)

    def pruned(snapshot, to):
        if one := next(later, None):
            Mixture.load(mixture.url).partial_fit(str(one)).prune(1)
        return copy_of(snapshot, to)

    monkeypatch.setattr(backup, "copy_of", pruned)
    assert back_up_mixture(mixture.url, str(copy)).number == 2
    assert contents_of(mixture.url).number == 3
    for name, values in Mixture.load(copy).predict(X_NEW).items():
        np.testing.assert_array_equal(values, expected[name])
    with pytest.raises(ModelExists, match="new or empty directory"):
        back_up_mixture(mixture.url, str(copy))


def test_a_loaded_mixture_stays_while_others_commit_and_prune(mixture, more):
    """Its own record too, which workers read."""
    second = mixture.partial_fit(str(more[0]))
    with Mixture.held(mixture.url) as held:
        Mixture.load(mixture.url).partial_fit(str(more[1])).prune(1)
        references.cache_clear()
        weights_of.cache_clear()
        assert held.commit == second.commit == 2
        assert held.info()["rows"] == 120
        assert held.predictive.weights is None
        assert len(references(held.contents)) == 3


def test_an_interrupted_backup_of_a_mixture_cannot_be_loaded(mixture, tmp_path, monkeypatch):
    copy, copied = tmp_path / "copy", []

    def interrupted(snapshot, to):
        copied.append(to)
        if len(copied) == 3:
            raise KeyboardInterrupt
        return copy_of(snapshot, to)

    with monkeypatch.context() as patched:
        patched.setattr(backup, "copy_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            back_up_mixture(mixture.url, str(copy))
    with pytest.raises(ModelNotFound, match="repeat an interrupted backup"):
        Mixture.load(copy)
    with pytest.raises(ModelExists, match="remove what an interrupted backup has left"):
        back_up_mixture(mixture.url, str(copy))
    shutil.rmtree(copy)
    back_up_mixture(mixture.url, str(copy))
    assert_same_mixture(Mixture.load(copy), Mixture.load(mixture.url))


def test_copies_of_rows_are_not_backed_up_to_an_object_store(tmp_path, make_data):
    one = sampled_in(tmp_path / "m", make_data, replace(SETTINGS, partition="spatial"))
    with pytest.raises(InvalidOption, match="back it up to a disk"):
        back_up_mixture(one.url, "s3://bucket/copy")

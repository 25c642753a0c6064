"""A model is refitted by one commit, while others ingest, and returns to an earlier state."""

import json
import re
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.api.requests import RefitOptions
from bcmdist.app.cli.main import cli
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.writing import append_rows, write_dataset
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption
from problems import assert_as_in_its_ledger, assert_same_committee

WRONG = Settings(
    kernel="se",
    learn=False,
    query=30,
    rows_per_expert=50,
    partition="chunks",
    set={"kernel.lengthscale": 3.0, "likelihood.noise_variance": 0.5},
)
QUICK = RefitOptions(effort="quick")


@pytest.fixture
def model(make_data, rng, tmp_path):
    """A model with hyper-parameters that do not suit its rows, and their path."""
    X = rng.uniform(-2, 2, (400, 2))
    path = make_data("stream.zarr", X=X, y=truth(X) + 0.1 * rng.standard_normal(400))
    return GBCM.fit(path, WRONG, model=tmp_path / "model"), path


def truth(X):
    return np.sin(3 * X[:, 0]) + X[:, 1]


def appended(path, rng, count, *, low=-2.0):
    X = rng.uniform(low, low + 4.0, (count, 2))
    append_rows(path, X, truth(X) + 0.1 * rng.standard_normal(count), rows_per_chunk=50)


def error(gbcm, rng):
    new = rng.uniform(-2, 2, (300, 2))
    return np.sqrt(np.mean((gbcm.predict(new)["mean"] - truth(new)) ** 2))


def test_a_refitted_model_predicts_better_and_keeps_its_ledger(model, rng):
    gbcm, _ = model
    after = gbcm.refit(QUICK)
    assert after.commit == gbcm.commit + 1
    assert after.snapshot.identity == gbcm.snapshot.identity
    assert [(e.key, e.digest, e.rows) for e in after.ledger] == [(e.key, e.digest, e.rows) for e in gbcm.ledger]
    assert after.offsets == gbcm.offsets
    assert_as_in_its_ledger(after)
    assert error(after, rng) < 0.3 * error(gbcm, rng)
    assert after.info()["errors"]["residuals"] > 0
    assert not (after.store.storage.names("scratch"))


def test_the_way_back(model, rng):
    gbcm, _ = model
    new = rng.uniform(-2, 2, (20, 2))
    back = gbcm.refit(QUICK).revert(gbcm.commit)
    assert back.commit == gbcm.commit + 2
    for name, values in gbcm.predict(new).items():
        np.testing.assert_array_equal(back.predict(new)[name], values)
    assert back.ledger == gbcm.ledger
    with pytest.raises(InvalidOption, match=r"--to: expected a commit before the newest, 1 to \d+, got 99"):
        back.revert(99)


def test_rows_absorbed_after_a_state_come_again_when_it_is_back(model, rng):
    gbcm, path = model
    appended(path, rng, 100)
    later = gbcm.partial_fit(path)
    assert len(later.ledger) == 10
    back = later.revert(gbcm.commit)
    assert len(back.ledger) == 8
    assert_same_committee(back.partial_fit(path).committee, later.committee)


def test_what_others_ingest_meanwhile_is_part_of_it(model, rng, monkeypatch):
    gbcm, path = model
    appended(path, rng, 100)
    committed, tries = Snapshot.committed, []

    def slow(self):
        if self.pending and not tries:
            tries.append(1)
            other = GBCM.load(gbcm.url)
            other.forget([other.ledger[1].key]).partial_fit(path)
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", slow)
    gbcm.refit(QUICK)
    found = GBCM.load(gbcm.url)
    assert len(found.ledger) == 10
    assert_as_in_its_ledger(found)


@pytest.mark.parametrize("grow", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_an_ingestion_goes_on_under_the_new_hyperparameters(model, rng, monkeypatch, grow, back):
    gbcm, path = model
    appended(path, rng, 300, low=2.0)
    committed, tries = Snapshot.committed, []

    def slow(self):
        tries.append(1)
        if self.pending and len(tries) == 2:
            after = GBCM.load(gbcm.url).refit(QUICK)
            if back:
                after.revert(gbcm.commit)
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", slow)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # of drift: the rows come from a new place
        gbcm.ingest(gbcm.source(path), IngestOptions(commit_every=2, grow=grow, grow_share=0.05 if grow else None))
        found = GBCM.load(gbcm.url)
        assert_as_in_its_ledger(found)
        if back:  # what was absorbed after the commit that is back comes again when the source is read again
            assert len(found.ledger) == 12
            found, _ = found.ingest(found.source(path), IngestOptions(grow=grow))
    assert len(found.ledger) == 14
    assert_as_in_its_ledger(found)


@pytest.mark.parametrize("fading", [{}, {"half_life": 100.0}, {"window": 200}])
@pytest.mark.parametrize("act", ["forget", "reweight", "ingest"])
def test_changes_by_others_while_rows_are_absorbed_again(model, rng, monkeypatch, fading, act):
    gbcm, path = model
    appended(path, rng, 100)
    gbcm, _ = gbcm.ingest(gbcm.source(path), IngestOptions(**fading))
    committed, tries = Snapshot.committed, []

    def slow(self):
        if self.pending and not tries:
            tries.append(1)
            other = GBCM.load(gbcm.url)
            if act == "forget":
                other.forget([other.ledger[-2].key])
            elif act == "reweight":
                other.reweight({other.ledger[-2].key: 3.0})
            else:
                appended(path, rng, 50)
                other.ingest(other.source(path))
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", slow)
    gbcm.refit(QUICK)
    assert_as_in_its_ledger(GBCM.load(gbcm.url))


def test_the_newest_rows_are_those_absorbed_last(model, make_data, rng, monkeypatch):
    gbcm, _ = model
    X = rng.uniform(-2, 2, (100, 2))
    gbcm = gbcm.partial_fit(make_data("a_new.zarr", X=X, y=truth(X)))  # sorted by name it is before the others
    found = []

    def chosen(url, columns, **how):
        found.append(columns["X"])
        write_dataset(url, columns, **how)

    monkeypatch.setattr("bcmdist.api.refitting.write_dataset", chosen)
    gbcm.refit(replace(QUICK, newest=50))
    np.testing.assert_array_equal(found[0], X[50:])


def test_query_points_are_chosen_among_all_rows(make_data, rng, tmp_path):
    X = np.column_stack([np.sort(rng.uniform(0, 20, 1500)), rng.uniform(-1, 1, 1500)])
    path = make_data("stream.zarr", rows_per_chunk=50, X=X, y=truth(X) + 0.1 * rng.standard_normal(1500))
    gbcm = GBCM.fit(path, replace(WRONG, query=60), model=tmp_path / "model")
    after = gbcm.refit(replace(QUICK, newest=300))
    points = after.model.scaling.original_inputs(after.model.shared.points)[:, 0]
    assert (points < 5).mean() > 0.15
    errors = [np.sqrt(np.mean((one.predict(X)["mean"] - truth(X)) ** 2)) for one in (gbcm, after)]
    assert errors[1] < errors[0]


def test_a_refit_that_predicts_worse_says_so(make_data, rng, tmp_path):
    X = rng.uniform(-2, 2, (400, 2))
    path = make_data("rows.zarr", X=X, y=truth(X) + 0.1 * rng.standard_normal(400))
    settings = Settings(query=80, rows_per_expert=50, partition="chunks", kernel="se", effort="quick")
    gbcm = GBCM.fit(path, settings, model=tmp_path / "model")
    with pytest.warns(BcmdistWarning, match=r"predicted worse than before, with a rmse of .*revert .* --to 2` returns"):
        gbcm.refit(replace(QUICK, query=5))


def test_fading_rows_keep_their_weights(model, rng):
    gbcm, path = model
    appended(path, rng, 100)
    faded, _ = gbcm.ingest(gbcm.source(path), IngestOptions(half_life=100.0))
    after = faded.refit(replace(QUICK, newest=120))
    assert after.weights == faded.weights
    assert_as_in_its_ledger(after)


def test_classes_are_calibrated_again(classes, tmp_path):
    path, _, _ = classes
    gbcm = GBCM.fit(path, Settings(learn=False, query=20, partition="chunks", rows_per_expert=60), model=tmp_path / "m")
    after = gbcm.refit(QUICK)
    assert_as_in_its_ledger(after)
    assert after.score(path)["log_loss"] < gbcm.score(path)["log_loss"]


def test_rows_that_are_gone_are_counted(model, make_data, rng):
    gbcm, path = model
    X = rng.uniform(-2, 2, (60, 2))
    gone = make_data("gone.zarr", X=X, y=truth(X))
    gbcm = gbcm.partial_fit(gone)
    shutil.rmtree(gone)
    with pytest.warns(BcmdistWarning, match="60 of 460 rows cannot be read again and are left out"):
        after = gbcm.refit(QUICK)
    assert after.committee.total.rows == 400
    shutil.rmtree(path)
    with pytest.raises(InvalidData, match="expected rows that can be read again, found none"):
        after.refit(QUICK)
    assert GBCM.load(gbcm.url).commit == after.commit


@pytest.mark.slow
def test_spatial_models_keep_their_cells_and_find_halos_again(model, make_data, rng, tmp_path):
    _, path = model
    spatial = GBCM.fit(path, replace(WRONG, partition="spatial"), model=tmp_path / "spatial")
    X = rng.uniform(-2, 2, (200, 2))
    spatial = spatial.partial_fit(make_data("later.zarr", X=X, y=truth(X) + 0.1 * rng.standard_normal(200)))
    after = spatial.refit(QUICK)
    assert after.commit == spatial.commit + 1
    assert after.chosen_method() == "local"
    assert [(e.key, e.copy) for e in after.ledger] == [(e.key, e.copy) for e in spatial.ledger]
    assert after.facts["cells"]["edges"] == spatial.facts["cells"]["edges"]
    assert after.facts["cells"]["halos"] != spatial.facts["cells"]["halos"]
    assert error(after, rng) < 0.7 * error(spatial, rng)
    assert_as_in_its_ledger(after)
    back = after.revert(spatial.commit)
    new = rng.uniform(-2, 2, (20, 2))
    np.testing.assert_allclose(back.predict(new)["mean"], spatial.predict(new)["mean"], rtol=1e-12)


def test_a_spatial_fit_that_is_not_complete_is_refused(model, tmp_path):
    _, path = model
    prepared = GBCM.prepare(path, replace(WRONG, partition="spatial"), model=tmp_path / "spatial").partial_fit(path)
    with pytest.raises(InvalidOption, match="cannot be refitted: its fit is not complete"):
        prepared.refit(QUICK)
    with pytest.raises(InvalidOption, match="cannot be refitted: its fit is not complete"):
        prepared.ingest(prepared.source(path), IngestOptions(refit="auto"))


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, None])
def test_a_model_is_refitted_when_what_arrives_is_worse_than_expected(make_data, rng, tmp_path, every):
    """Rows that come later vary four times as fast."""
    X = rng.uniform(-2, 2, (1000, 2))
    path = make_data("first.zarr", X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(1000))
    gbcm = GBCM.fit(path, replace(WRONG, learn=True, set={}, effort="quick"), model=tmp_path / "model")
    X = rng.uniform(-2, 2, (1500, 2))
    later = make_data("later.zarr", X=X, y=np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(1500))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        after, report = gbcm.ingest(gbcm.source(later), IngestOptions(refit="auto", commit_every=every))
    assert any(re.search(r"worse than expected since .*; refitted in commit \d+", str(one.message)) for one in found)
    assert report.rows == 1500
    assert after.committee.total.rows == 2500
    assert after.facts["refits"] >= 1
    assert after.commit == GBCM.load(gbcm.url).commit
    assert_as_in_its_ledger(after)
    assert after.partial_fit(later).committee.total.rows == 2500


def run(*arguments):
    found = CliRunner().invoke(cli, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_the_commands(model):
    gbcm, _ = model
    refitted = run("refit", gbcm.url, "--effort", "quick", "--kernel", "matern52", "--query", 40, "--serial", "--quiet")
    assert (refitted["kernel"], refitted["rows"]) == ("matern52", 400)
    assert run("revert", gbcm.url, "--to", gbcm.commit)["rows"] == 400
    assert run("info", gbcm.url)["kernel"] == "se"


def test_arguments_of_other_kinds_are_refused(model, rng):
    gbcm, path = model
    with pytest.raises(InvalidOption, match=r"expected a commit before the newest.*got 1.5"):
        gbcm.refit(QUICK).revert(1.5)
    with pytest.raises(InvalidOption, match="expected a path, a URL or an opened source, got ndarray; for rows in mem"):
        gbcm.ingest(rng.standard_normal((5, 2)))
    with pytest.raises(InvalidOption, match="expected weights by key, got 'half'; give a mapping"):
        gbcm.reweight("half")
    assert GBCM.load(gbcm.url).ingest(path)[1].duplicates == len(gbcm.ledger)


def test_the_history_says_what_commits_did(model, rng):
    gbcm, path = model
    appended(path, rng, 50)
    after = gbcm.partial_fit(path).refit(QUICK)
    last = after.forget([after.ledger[0].key])
    operations = [line["operation"] for line in last.history()]
    assert operations[0] == "prepare"
    assert operations[-3:] == ["absorb", "refit or revert", "forget"]

"""Model directories of every format: tests/golden/format<N>, with what each commit predicted when it was written."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bcmdist import GBCM, IngestOptions
from bcmdist.prediction.errors.error_distribution import error_distribution_of, load_error_distribution
from bcmdist.storage.commits import open_store
from bcmdist.storage.records import FORMAT
from bcmdist.storage.residual_records import WRITTEN

GOLDEN = Path(__file__).parents[1] / "golden"
FORMATS = {"format1": 1, "format2": 2, "format3": 3, "format3_residuals": 3, "format4": 4, "format6": 6}
WITH_RESIDUALS = ("format3_residuals", "format4", "format6")


@pytest.fixture(params=FORMATS)
def golden(request, tmp_path):
    """A copy of a model directory, its format, and what was expected of it."""
    folder = GOLDEN / request.param
    shutil.copytree(folder / "model", tmp_path / "model")
    return tmp_path / "model", FORMATS[request.param], json.loads((folder / "expected.json").read_text())


def assert_predicts(model, expected):
    for number, said in expected["commits"].items():
        gbcm = GBCM.load(model, commit=int(number))
        assert len(gbcm.ledger) == said["partitions"]
        found = gbcm.predict(np.array(expected["X"]))
        assert set(found) == set(said) - {"partitions"}
        for name, values in found.items():  # 1e-12: another BLAS sums in another order
            np.testing.assert_allclose(values, said[name], rtol=1e-12, atol=1e-12)


def test_an_older_model_predicts_as_it_did(golden):
    model, _, expected = golden
    assert len(expected["commits"]) == 4
    assert_predicts(model, expected)


@pytest.mark.slow
def test_an_older_model_hears_more_and_keeps_its_past(golden, make_data, rng):
    model, version, expected = golden
    before = GBCM.load(model)
    X = rng.uniform(-2, 2, (40, 2))
    after = before.partial_fit(make_data(X=X, y=np.sin(2 * X[:, 0]) + X[:, 1]))
    assert [e.key for e in after.ledger[:3]] == [e.key for e in before.ledger]
    assert after.ledger == GBCM.load(model).ledger
    assert [line["format"] for line in open_store(model).history()] == [version] * 4 + [FORMAT]
    assert_predicts(model, expected)


@pytest.mark.parametrize("golden", ["format1", "format2", "format3"], indirect=True)
def test_what_an_older_format_did_not_know(golden):
    model, version, _ = golden
    gbcm = GBCM.load(model)
    assert gbcm.offsets == ({} if version < 3 else {"": 1})  # of partitions that were listed
    assert [entry.position for entry in gbcm.ledger] == [None] * 3


def test_commits_of_a_model_without_a_recorded_identity_share_a_derived_one(golden):
    model, _, expected = golden
    identities = {GBCM.load(model, commit=int(number)).snapshot.identity for number in expected["commits"]}
    assert len(identities) == 1
    store, newest = open_store(model), open_store(model).load()
    names = store.record(newest.number)["arrays"]
    store.commit(newest.number + 1, arrays=names, facts=newest.facts, segments=newest.ledger.digests, offsets={})
    assert {store.load().identity} == identities


def test_a_model_with_earlier_query_sets_predicts_and_grows_as_it_did(tmp_path, make_data, rng):
    shutil.copytree(GOLDEN / "format5" / "model", tmp_path / "model")
    expected, gbcm = json.loads((GOLDEN / "format5" / "expected.json").read_text()), GBCM.load(tmp_path / "model")
    assert [line["format"] for line in gbcm.store.history()] == [5, 5]
    assert [entry.query for entry in gbcm.ledger] == expected["queries"]
    for name, values in gbcm.predict(np.array(expected["X"])).items():  # 1e-12: another BLAS sums in another order
        np.testing.assert_allclose(values, expected["predictions"][name], rtol=1e-12, atol=1e-12)
    X = rng.uniform(8, 10, (60, 2))
    path = make_data(X=X, y=np.sin(X[:, 0]), rows_per_chunk=30)
    after, _ = gbcm.ingest(gbcm.source(path), IngestOptions(grow=True))
    assert after.model.shared.functions > expected["points"]


def test_the_newest_format_has_a_golden_model():
    assert max(FORMATS.values()) == FORMAT
    records = (GOLDEN / f"format{FORMAT}/model/commits").iterdir()
    assert {json.loads(record.read_text())["format"] for record in records} == {FORMAT}


def near(value):
    """A JSON value that equals others with nearly the same numbers: another BLAS sums in another order."""
    if isinstance(value, dict):
        return {name: near(one) for name, one in value.items()}
    if isinstance(value, list):
        return [near(one) for one in value]
    return pytest.approx(value, rel=1e-12, abs=1e-12) if isinstance(value, float) else value


@pytest.mark.parametrize("golden", WITH_RESIDUALS, indirect=True)
def test_residuals_of_an_older_model_are_read(golden):
    model, _, expected = golden
    gbcm = GBCM.load(model)
    found = json.loads(json.dumps(gbcm.info()))
    errors = expected["info"]["errors"]  # newer ones have more fields
    shown = found | {"errors": {name: found["errors"][name] for name in errors}}
    before = {name: value for name, value in expected["info"].items() if name != "advice"}  # in other words today
    assert {name: shown[name] for name in before} == near(before)
    assert "query points limit the fit" in found["advice"]
    assert found["errors"]["residuals"] == 300
    assert found["errors"]["scale"] == "varying"
    in_task, here = (
        load_error_distribution(gbcm.snapshot.reference, "committee"),
        error_distribution_of(gbcm.snapshot, "committee"),
    )
    # BLAS rounds by where arrays lie in memory, and weights are found by iterations.
    np.testing.assert_allclose(in_task.shape.quantile(0.9), here.shape.quantile(0.9), rtol=1e-8)
    widening = [one.widening(np.eye(2), np.ones(2)) for one in (in_task, here)]
    np.testing.assert_allclose(*widening, rtol=1e-10)


@pytest.mark.parametrize("golden", WITH_RESIDUALS, indirect=True)
def test_the_next_commit_of_an_older_model_holds_its_residuals_in_arrays(golden):
    model, _, _ = golden
    before = GBCM.load(model).snapshot
    before.successor(before.committee, [])
    after = GBCM.load(model).snapshot
    assert set(WRITTEN) <= set(after.store.record(after.commit)["arrays"])
    assert after.ledger.digests == before.ledger.digests
    for old, new in zip(before.ledger, after.ledger, strict=True):
        np.testing.assert_array_equal(old.residuals.table(), new.residuals.table())


def test_ledger_segments_hold_no_residuals():
    store = open_store(GOLDEN / "format6/model")
    assert all(entry.residuals is None for digest in store.record(4)["segments"] for entry in store.segment(digest))

"""Model directories that older versions wrote: tests/golden/format<N>, with what each commit predicted then."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bcmdist import GBCM
from bcmdist.storage.commits import open_store
from bcmdist.storage.records import FORMAT

GOLDEN = Path(__file__).parents[1] / "golden"
FORMATS = [1, 2, 3]


@pytest.fixture(params=FORMATS)
def golden(request, tmp_path):
    """A copy of a model directory, its format, and what was expected of it."""
    folder = GOLDEN / f"format{request.param}"
    shutil.copytree(folder / "model", tmp_path / "model")
    return tmp_path / "model", request.param, json.loads((folder / "expected.json").read_text())


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
    store.commit(newest.number + 1, arrays=names, facts=newest.facts, segments=newest.segments, offsets={})
    assert {store.load().identity} == identities


def test_the_newest_format_has_a_golden_model():
    assert FORMATS[-1] == FORMAT
    records = (GOLDEN / f"format{FORMAT}/model/commits").iterdir()
    assert {json.loads(record.read_text())["format"] for record in records} == {FORMAT}

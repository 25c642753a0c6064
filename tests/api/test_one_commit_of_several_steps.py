"""Absorbing, calibrating and measuring errors make one commit; what was absorbed outlives a failure of what follows."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.api import fit
from bcmdist.committee.loading import load_committee, load_facts
from bcmdist.errors import MemoryLimit, ModelDamaged

GIVEN = Settings(partition="chunks", kernel="se", learn=False, query=10, rows_per_expert=100)


@pytest.fixture
def data(make_data, rng):
    X = rng.uniform(-2.0, 2.0, (300, 2))
    return make_data(X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300), rows_per_chunk=100)


def test_a_fit_makes_two_commits(data, tmp_path):
    gbcm = GBCM.fit(data, GIVEN, model=tmp_path / "model")
    assert gbcm.commit == 2
    assert gbcm.facts["spread"]["rows"] == 300
    assert sorted(gbcm.facts["seconds"]) == sorted(GBCM.load(tmp_path / "model").facts["seconds"])
    assert {"experts", "errors"} <= gbcm.facts["seconds"].keys()
    assert not [blob for blob in (tmp_path / "model/blobs").iterdir() if b"checksum" in blob.read_bytes()]  # no draft


def test_what_was_absorbed_is_committed_if_errors_cannot_be_measured(data, tmp_path, monkeypatch):
    whole = GBCM.fit(data, GIVEN, model=tmp_path / "whole")

    def fail(*_, **__):
        raise MemoryLimit("expected more memory")

    monkeypatch.setattr(fit, "measured", fail)
    with pytest.raises(MemoryLimit, match="more memory"):
        GBCM.fit(data, GIVEN, model=tmp_path / "model")
    assert (GBCM.load(tmp_path / "model").commit, GBCM.load(tmp_path / "model").committee.total.rows) == (2, 300)
    monkeypatch.undo()
    resumed = GBCM.fit(data, GIVEN, model=tmp_path / "model")
    assert resumed.commit == 3
    assert resumed.facts["spread"] == whole.facts["spread"]
    np.testing.assert_array_equal(resumed.committee.total.eta, whole.committee.total.eta)


def test_tasks_read_a_draft_while_it_is_there(data, tmp_path):
    snapshot = GBCM.fit(data, GIVEN, model=tmp_path / "model").snapshot
    half = snapshot.committee.total.weighted(0.5)
    changed = snapshot.changed(type(snapshot.committee)(half, snapshot.model.shared.belief), whole_targets=7)
    assert changed.reference == snapshot.reference
    with changed.drafted() as draft:
        assert draft.reference != snapshot.reference
        np.testing.assert_array_equal(load_committee(draft.reference).total.eta, half.eta)
        assert load_facts(draft.reference).to_json()["whole_targets"] == 7
        assert snapshot.store.head() == snapshot.commit
    load_facts.cache_clear()
    with pytest.raises(ModelDamaged, match="expected a file, found none"):
        snapshot.store.record_of(draft.reference)
    after = draft.changed(skipped=("late",)).committed()
    assert (after.commit, after.pending, after.reference) == (3, False, snapshot.store.newest())
    assert after.ledger.digests == snapshot.ledger.digests
    assert after.committed() is after

"""Backups: the same model elsewhere, at one commit, whatever others do meanwhile."""

import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.app.model_check import checks_of
from bcmdist.committee import backup
from bcmdist.committee.backup import back_up
from bcmdist.errors import ModelExists, ModelNotFound
from bcmdist.storage.blobs import copy_blobs
from bcmdist.storage.commits import ModelStore, open_store

KIND = {"chunks": {}, "spatial": {"partition": "spatial"}, "sites": {"approximation": "ep", "task": "classification"}}


@pytest.fixture
def rows(rng):
    X = rng.uniform(-2, 2, (300, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(300)


def fitted(rows, model, kind, make_data):
    X, y = rows
    y = (y > 0).astype(np.uint8) if kind == "sites" else y
    how = {"partition": "chunks", "kernel": "se", "query": 20, "rows_per_expert": 60, "effort": "quick"} | KIND[kind]
    return GBCM.fit(make_data(X=X, y=y, rows_per_chunk=60), Settings(**how), model=model)


@pytest.mark.parametrize("kind", KIND)
def test_a_restored_model_predicts_the_same_and_absorbs_the_rest(kind, rows, tmp_path, make_data):
    model, copy = tmp_path / "model", tmp_path / "copy"
    gbcm = fitted(rows, model, kind, make_data)
    done = CliRunner().invoke(cli, ["backup", str(model), str(copy), "--json"])
    assert done.exit_code == 0, done.output
    assert dict(checks_of(str(copy)))["ledger"].startswith(f"{len(gbcm.ledger)} partitions")
    X = rows[0][:20] + 0.01
    expected = gbcm.predict(X)
    shutil.rmtree(model)
    back_up(str(copy), str(model))
    restored = GBCM.load(model)
    assert (restored.commit, restored.snapshot.identity) == (gbcm.commit, gbcm.snapshot.identity)
    for name, values in restored.predict(X).items():
        np.testing.assert_array_equal(values, expected[name])
    more = restored.forget([restored.ledger[0].key])
    assert (more.commit, len(more.ledger)) == (gbcm.commit + 1, len(gbcm.ledger) - 1)


def test_others_commit_and_prune_meanwhile(rows, tmp_path, make_data, monkeypatch):
    """The commit that is copied stays until it is."""
    model, copy = tmp_path / "model", tmp_path / "copy"
    gbcm = fitted(rows, model, "chunks", make_data)

    def copied(store, other, digests):
        gbcm.reweight({gbcm.ledger[0].key: 0.5}).forget([gbcm.ledger[1].key])
        open_store(model).prune(1)
        copy_blobs(store, other, digests)

    monkeypatch.setattr(ModelStore, "copy_blobs", copied)
    assert back_up(str(model), str(copy)).commit == gbcm.commit
    assert open_store(model).head() == gbcm.commit + 2
    assert dict(checks_of(str(copy)))["commits"].endswith(f"the newest is {gbcm.commit}")


def test_a_backup_that_was_interrupted_holds_no_model_and_can_be_repeated(rows, tmp_path, make_data, monkeypatch):
    model, copy = tmp_path / "model", tmp_path / "copy"
    fitted(rows, model, "chunks", make_data)

    def interrupted(store, other, digests):
        copy_blobs(store, other, digests[:3])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ModelStore, "copy_blobs", interrupted)
        with pytest.raises(KeyboardInterrupt):
            back_up(str(model), str(copy))
    with pytest.raises(ModelNotFound):
        GBCM.load(copy)
    back_up(str(model), str(copy))
    assert "none of them twice" in dict(checks_of(str(copy)))["ledger"]
    with pytest.raises(ModelExists):
        backup.back_up(str(model), str(copy))

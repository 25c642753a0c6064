"""Models replaced under their path while somebody works with them: nothing is mixed, nothing is lost."""

import shutil

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.ingest import loop
from bcmdist.committee.ingest.loop import totalled
from bcmdist.errors import CommitConflict
from problems import assert_same_committee

SETTINGS = {"query": 10, "learn": False, "kernel": "se", "rows_per_expert": 30}


def rows(seed, count=60):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (count, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Two models with commits of the same numbers, which nobody changes."""
    folder = tmp_path_factory.mktemp("fitted")
    return [GBCM.fit(rows(seed), Settings(**SETTINGS), model=folder / str(seed)) for seed in range(2)]


def copied(gbcm, path):
    shutil.copytree(gbcm.url, path)
    return GBCM.load(path)


def put_in_place(path, other):
    """Replace a model directory by another, by renaming."""
    path.rename(path.with_name(f"{path.name}.replaced"))
    other.rename(path)


def test_rows_are_not_added_to_another_model_under_the_same_path(fitted, tmp_path):
    gbcm, other = copied(fitted[0], tmp_path / "m"), copied(fitted[1], tmp_path / "other")
    assert gbcm.commit == other.commit
    put_in_place(tmp_path / "m", tmp_path / "other")
    with pytest.raises(CommitConflict, match="another process works on this model: load it again and repeat"):
        gbcm.partial_fit(*rows(2))
    with pytest.raises(CommitConflict, match="another process works on this model: load it again and repeat"):
        gbcm.snapshot.successor(gbcm.committee, [])
    with pytest.raises(CommitConflict, match=r"expected the model .* another one is there now; load it again"):
        gbcm.newest()
    assert_same_committee(GBCM.load(tmp_path / "m").committee, other.committee)


def test_rows_are_not_absorbed_in_turn_by_another_model_under_the_same_path(tmp_path):
    (X, y), settings = rows(0), Settings(**SETTINGS, task="classification", linearise="running")
    gbcm = GBCM.fit(X, (y > 0).astype(float), settings, model=tmp_path / "m")
    other = GBCM.fit(-X, (y > 0).astype(float), settings, model=tmp_path / "other")
    put_in_place(tmp_path / "m", tmp_path / "other")
    with pytest.raises(CommitConflict, match="load it again and repeat"):
        gbcm.partial_fit(X + 0.1, (y > 0).astype(float))
    assert GBCM.load(tmp_path / "m").commit == other.commit


def test_commits_do_not_follow_those_of_a_copy_that_went_another_way(fitted, tmp_path):
    gbcm = copied(fitted[0], tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    ours, theirs = gbcm.partial_fit(*rows(1)), GBCM.load(tmp_path / "copy").partial_fit(*rows(2))
    assert ours.commit == theirs.commit
    put_in_place(tmp_path / "m", tmp_path / "copy")
    with pytest.raises(CommitConflict, match="load it again and repeat"):
        ours.partial_fit(*rows(3))
    assert_same_committee(ours.newest().committee, theirs.committee)


def test_a_model_replaced_before_the_commit_is_left_alone(fitted, tmp_path, monkeypatch):
    gbcm, other = copied(fitted[0], tmp_path / "m"), copied(fitted[1], tmp_path / "other")

    def replaced_meanwhile(*arguments, **options):
        put_in_place(tmp_path / "m", tmp_path / "other")
        return totalled(*arguments, **options)

    monkeypatch.setattr(loop, "totalled", replaced_meanwhile)
    with pytest.raises(CommitConflict, match="another one is there now"):
        gbcm.partial_fit(*rows(2))
    assert GBCM.load(tmp_path / "m").commit == other.commit
    assert_same_committee(GBCM.load(tmp_path / "m").committee, other.committee)


def test_a_model_restored_from_an_older_copy_before_the_commit_absorbs_the_rows(fitted, tmp_path, monkeypatch):
    gbcm = copied(fitted[0], tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    ours = gbcm.partial_fit(*rows(1))

    def replaced_meanwhile(*arguments, **options):
        if (tmp_path / "copy").exists():
            put_in_place(tmp_path / "m", tmp_path / "copy")
        return totalled(*arguments, **options)

    monkeypatch.setattr(loop, "totalled", replaced_meanwhile)
    after = ours.partial_fit(*rows(2))
    assert (after.commit, after.committee.total.rows) == (gbcm.commit + 1, 120)
    assert GBCM.load(tmp_path / "m").committee.total.rows == 120

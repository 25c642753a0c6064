"""The record of a commit that was acknowledged is gone: said, and never an older state in its place."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.errors import CommitConflict, ModelDamaged
from bcmdist.storage.commits import ModelStore, open_store
from bcmdist.storage.disk import LocalStorage

LOST = "expected commit {}, which its writer has confirmed, found no record of it"


@pytest.fixture
def store(tmp_path):
    """A model directory of four commits."""
    made = open_store(tmp_path / "model")
    for number in range(1, 5):
        put(made, number)
    return made


def put(store, number):
    arrays = store.put_arrays({"a": np.full(3, float(number))}, before=store.arrays_before(number))
    return store.commit(number, arrays=arrays, facts={}, segments=[], offsets={})


def lose(store, *numbers):
    for number in numbers:
        Path(store.storage.url, f"commits/{number:08d}.json").unlink()


@pytest.mark.parametrize(("numbers", "named"), [([4], 4), ([3, 4], 3), ([2], 2), ([1], 1), ([1, 2, 3, 4], 1)])
def test_a_lost_record_is_named(store, numbers, named):
    lose(store, *numbers)
    for use in (store.head, store.load):
        with pytest.raises(ModelDamaged, match=LOST.format(named)):
            use()
    if 1 not in numbers:
        assert store.load(1).number == 1  # what one names is that


def test_a_lost_record_among_others_is_left_behind_by_pruning(store):
    lose(store, 2)
    store.prune(1)
    assert store.load().number == 4


def test_the_newest_that_is_lost_is_still_named_after_pruning(store):
    store.prune(2)
    assert store.storage.names("acknowledged") == ["00000004"]
    lose(store, 4)
    with pytest.raises(ModelDamaged, match=LOST.format(4)):
        store.load()
    store.prune(1)
    with pytest.raises(ModelDamaged, match=LOST.format(4)):
        store.load()


def test_who_writes_does_not_go_on_from_an_older_state(store):
    lose(store, 4)
    with pytest.raises(CommitConflict):
        put(store, 5)
    with pytest.raises(ModelDamaged, match=LOST.format(4)):
        store.load()


def test_older_directories_claim_nothing(store):
    shutil.rmtree(Path(store.storage.url, "acknowledged"))
    lose(store, 4)
    assert store.load().number == 3
    put(store, 4)
    lose(store, 4)
    with pytest.raises(ModelDamaged, match=LOST.format(4)):
        store.load()


def test_what_was_not_acknowledged_is_no_loss(store):
    """A writer that dies before its record, or right after it."""
    store.put_arrays({"a": np.zeros(7)})
    assert store.load().number == 4
    Path(store.storage.url, "acknowledged/00000004").unlink()
    assert store.load().number == 4


class Full(LocalStorage):
    """Has no room for what comes after a record."""

    def put_if_absent(self, name, data):
        if name.startswith("acknowledged/"):
            raise OSError(28, "No space left on device")
        return super().put_if_absent(name, data)


def test_a_commit_that_cannot_be_acknowledged_is_one(tmp_path):
    store = ModelStore(Full(tmp_path / "model"))
    put(store, 1)
    assert store.load().number == 1


class SeenLater(LocalStorage):
    """Lists what is there, but for a record that is made meanwhile, or pruned after it was listed."""

    def names(self, folder):
        found = super().names(folder)
        return found[:1] + found[2:] if folder == "commits" else found


def test_a_record_that_a_listing_has_missed_is_there(store):
    assert ModelStore(SeenLater(store.storage.url)).head() == 4


def test_names_that_are_none_of_ours(store):
    for folder in ("pruned", "acknowledged", "holds", "commits"):
        store.storage.put_if_absent(f"{folder}/.DS_Store", b"")
        store.storage.put_if_absent(f"{folder}/copy of 7", b"")
    assert store.load().number == 4
    assert store.prune(1)["kept"] == [4]


def test_a_model_is_not_fitted_anew_over_a_lost_record(wave, tmp_path):
    given = Settings(kernel="se", query=10, rows_per_expert=60, learn=False)
    model = tmp_path / "model"
    GBCM.fit(wave[0], given, model=model)
    blobs = open_store(model).storage.names("blobs")
    lose(open_store(model), 1, 2)
    with pytest.raises(ModelDamaged, match=LOST.format(1)):
        GBCM.fit(wave[0], given, model=model)
    assert open_store(model).storage.names("blobs") == blobs

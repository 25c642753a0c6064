"""Aliases: a commit with a name is kept, and is the one that was named."""

import shutil

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.errors import CommitConflict, InvalidOption, ModelDamaged, ModelNotFound
from bcmdist.storage import leases
from bcmdist.storage.commits import open_store

GIVEN = Settings(partition="chunks", kernel="se", query=10, rows_per_expert=60, learn=False)


@pytest.fixture
def model(rng, tmp_path):
    """A model of four commits."""
    X = rng.uniform(-2, 2, (60, 1))
    gbcm = GBCM.fit((X, np.sin(X[:, 0])), GIVEN, model=tmp_path / "model")
    for shift in (0.1, 0.2):
        gbcm = gbcm.partial_fit(X + shift, np.sin(X[:, 0] + shift), same_rows="allow")
    assert gbcm.commit == 4
    return gbcm.url


def test_a_commit_is_kept_while_an_alias_names_it(model):
    store, before = open_store(model), GBCM.load(model, commit=2).predict(np.ones((1, 1)))
    store.set_alias("stable", 2)
    assert store.prune(1)["held"] == {"2": ["alias stable"]}
    assert store.numbers() == [2, 4]
    for commit in ("stable", "2", 2):
        with GBCM.held(model, commit=commit) as found:
            assert found.commit == 2
            np.testing.assert_array_equal(found.predict(np.ones((1, 1)))["mean"], before["mean"])
    back = GBCM.load(model).revert("stable")
    assert (back.commit, back.committee.total.rows) == (5, 60)
    store.set_alias("stable", 4)
    assert [one.commit for one in store.aliases().values()] == [4]
    assert store.storage.names("aliases") == ["stable-00000002"]
    with pytest.raises(ModelNotFound, match="expected commit 2"), GBCM.held(model, commit=2):
        pass
    store.remove_alias("stable")
    assert store.aliases() == {}
    assert store.prune(1)["kept"] == [5]
    store.set_alias("stable")
    assert store.number_of("stable") == 5
    assert store.foreign() == []


def test_what_cannot_be_named(model):
    store = open_store(model)
    for name in ("", "3", "a/b", "-a", "x" * 51):
        with pytest.raises(InvalidOption, match="alias: expected at most 50 letters"):
            store.set_alias(name, 2)
    store.prune(1)
    for commit in (2, 99):
        with pytest.raises(ModelNotFound, match=f"expected commit {commit}"):
            store.set_alias("stable", commit)
    for ask in (store.remove_alias, store.number_of):
        with pytest.raises(ModelNotFound, match="or an alias, got 'stable'; aliases: none, set one"):
            ask("stable")
    store.storage.put_if_absent("aliases/stable-00000001", b'{"commit": 0}')
    with pytest.raises(ModelDamaged, match="stable-00000001"):
        store.aliases()


def test_a_commit_of_another_model_is_not_taken_for_the_one_that_was_named(model, tmp_path, rng):
    open_store(model).set_alias("stable", 2)
    X = rng.uniform(-2, 2, (60, 1))
    other = GBCM.fit((X, X[:, 0]), GIVEN, model=tmp_path / "other").url
    shutil.copytree(f"{model}/aliases", f"{other}/aliases")
    with pytest.raises(CommitConflict, match=r"which stable names, found .* set the alias again"):
        GBCM.load(other, commit="stable")


def test_a_commit_that_is_named_while_it_is_pruned_is_kept(model, monkeypatch):
    """The alias is set, and the lease under which it was set ends, after pruning has read the aliases."""
    store, lease = open_store(model), leases.hold(open_store(model), 2)
    lease.__enter__()
    look, calls = leases.leased, []

    def late(of):
        if not calls:
            calls.append(1)
            store.set_alias("stable", "2")
            lease.__exit__(None, None, None)
        return look(of)

    granted = leases.hold
    # The lease of `set_alias` is the one above, which was granted before the commit was marked as pruned.
    monkeypatch.setattr(type(store), "hold", lambda one, number: granted(one, 0))
    monkeypatch.setattr(leases, "leased", late)
    assert store.prune(1)["kept"] == [2, 4]


def test_of_two_changes_at_a_time_both_are_made(model, monkeypatch):
    store, put = open_store(model), type(open_store(model).storage).put_if_absent
    store.set_alias("stable", 2)
    calls = []

    def overtaken(storage, name, data):
        if name.startswith("aliases/") and not calls:
            calls.append(1)
            store.set_alias("stable", 3)
        return put(storage, name, data)

    monkeypatch.setattr(type(store.storage), "put_if_absent", overtaken)
    store.set_alias("stable", 4)
    assert (store.number_of("stable"), store.storage.names("aliases")) == (4, ["stable-00000003"])

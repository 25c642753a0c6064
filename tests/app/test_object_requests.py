"""How many requests a model on an object store costs, and that the few that are made show every change."""

import numpy as np
import pytest
from services import QUICK

from bcmdist import GBCM, Settings
from bcmdist.api.mixture import opened
from bcmdist.app.service import loaded, served
from bcmdist.app.service.catalogue import OTHER, Catalogue
from bcmdist.app.service.loaded import Changes
from bcmdist.app.service.waiting import WaitingRows
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.mixture_commits import contents_of, revision_store
from bcmdist.errors import ModelDamaged
from bcmdist.storage.commits import open_store
from bcmdist.storage.locate import open_storage

pytest.importorskip("obstore")

from servers import set_s3, small_s3

MODELS = "s3://bucket/models"


@pytest.fixture(scope="module")
def fitted_once():
    """The objects of a model `wave` below `MODELS`, and what is known about each."""
    with pytest.MonkeyPatch.context() as monkeypatch, small_s3() as made:
        set_s3(monkeypatch, made.url)
        fit("wave", 0)
        return made.objects, made.about


@pytest.fixture
def server(monkeypatch, fitted_once):
    """An object store with a model `wave` below `MODELS`."""
    with small_s3() as made:
        set_s3(monkeypatch, made.url)
        made.objects, made.about = map(dict, fitted_once)
        yield made


def fit(name, seed):
    """A model of 120 rows in two partitions, in two commits."""
    X = np.random.default_rng(seed).uniform(-2, 2, (120, 2))
    return GBCM.fit((X, np.sin(2 * X[:, 0])), Settings(**QUICK), model=f"{MODELS}/{name}")


@pytest.fixture
def catalogue(server, tmp_path):
    """The served models; nobody looks at the store but the test."""
    made = Catalogue(MODELS, WaitingRows(), tmp_path / "rows")
    made._closing.set()
    made._thread.join()
    yield made
    made.close()


def commit_of(catalogue):
    with catalogue["wave"].using() as state:
        return state.fitted.commit


def next_commit():
    """Commit the newest state once more, as another process; the number."""
    store = open_store(f"{MODELS}/wave")
    record = store.record(store.head())
    state = {name: record[name] for name in ("arrays", "facts", "segments", "offsets")}
    return store.commit(record["number"] + 1, **state).number


def test_at_rest_a_model_costs_less_than_two_lists_a_look(catalogue, server, monkeypatch):
    monkeypatch.setattr(served, "BEAT_SECONDS", 0.0)  # as if looks were seconds apart
    catalogue.look()
    with server.counted() as requests:
        for _ in range(2 * loaded.MOST_LISTS):
            catalogue.look_again()
    print(requests)
    assert set(requests) <= {"LIST", "GET"}
    assert requests.total() < 2 * 2 * loaded.MOST_LISTS
    with server.counted() as requests:
        catalogue["wave"].renew()
    assert requests == {"LIST": 1}


def test_each_look_shows_a_new_commit(catalogue):
    for looks in (1, 2, 1):
        number = next_commit()
        for _ in range(looks):
            catalogue.look_again()
            assert commit_of(catalogue) == number


def test_a_look_shows_commits_after_those_that_are_pruned(catalogue):
    for _ in range(3):
        next_commit()
    store = open_store(f"{MODELS}/wave")
    store.prune(1)
    catalogue.look_again()
    assert [commit_of(catalogue)] == store.numbers()


def test_a_look_shows_a_model_that_was_replaced(catalogue):
    catalogue.look_again()
    before = commit_of(catalogue)
    open_storage(f"{MODELS}/wave").remove_all()
    identity = fit("wave", 1).snapshot.identity
    catalogue.look_again()
    assert commit_of(catalogue) == before
    with catalogue["wave"].using() as state:
        assert state.fitted.snapshot.identity == identity


def test_the_loss_of_a_later_commit_is_seen_after_a_number_of_looks(catalogue):
    url = f"{MODELS}/wave"
    catalogue.look_again()
    next_commit()
    store = open_store(url)
    store.remove_record(store.head())
    for _ in range(loaded.MOST_LISTS + 1):
        catalogue.look_again()
    assert catalogue.unreadable == {"wave": ModelDamaged.__name__}


def test_models_and_aliases_of_others_are_seen_within_a_round_of_looks(catalogue):
    fit("second", 1)
    open_store(f"{MODELS}/wave").set_alias("stable", 1)
    for _ in range(OTHER):
        catalogue.look_again()
    assert [name for name, _ in catalogue] == ["second", "wave"]
    assert catalogue["wave"].commits.aliases["stable"].commit == 1
    open_storage(f"{MODELS}/second").remove_all()
    for _ in range(2 * OTHER):
        catalogue.look_again()
    assert [name for name, _ in catalogue] == ["wave"]
    assert not catalogue.unreadable


def test_changes_of_a_mixture(server):
    url, storage = f"{MODELS}/mixed", open_storage(f"{MODELS}/mixed")
    storage.put_if_absent("mixture.json", b"[]")
    changes = Changes(url)

    def looked():
        """Whether the mixture must be looked at, and whether it must be once more."""
        first = changes.since(contents_of(url))
        changes.confirm(contents_of(url))
        return first, changes.since(contents_of(url))

    assert looked() == (True, False)
    revision_store(url).commit(1, arrays={}, facts={}, segments=[], offsets={})
    assert looked() == (True, False)
    revision_store(url).commit(2, arrays={}, facts={}, segments=[], offsets={})
    assert looked() == (True, False)
    storage.remove("mixture.json")
    storage.put_if_absent("mixture.json", b"[ ]")
    assert looked() == (True, False)


def test_what_a_commit_costs(server):
    store = open_store(f"{MODELS}/log")
    first = store.commit(1, arrays=store.put_arrays({"a": np.ones(3)}), facts={}, segments=[], offsets={})
    with server.counted() as requests:  # two arrays, the record, its witness; that before, and what is pruned
        arrays = store.put_arrays({"a": np.zeros(3), "b": np.eye(2)}, before=store.load(1).hashes)
        store.commit(2, arrays=arrays, facts={}, segments=[], offsets={}, identity="i", parent=first.digest)
    assert requests == {"PUT": 4, "GET": 3, "LIST": 2}  # of which the load is GET 2, LIST 1


def test_what_an_ingestion_costs(server, make_data, rng):
    X = rng.uniform(-2, 2, (600, 2))
    gbcm = GBCM.load(f"{MODELS}/wave")
    source = make_data("local.zarr", X=X, y=np.sin(2 * X[:, 0]), rows_per_chunk=60)
    with server.counted() as requests:
        after, _ = gbcm.ingest(gbcm.source(source), IngestOptions(commit_every=1, keep=100))
    commits = after.commit - gbcm.commit
    print(commits, requests)
    assert commits == 10
    assert requests["PUT"] <= 3 + 8 * commits  # a lease, a trial of conditions; six blobs, a record and its witness
    assert requests["HEAD"] <= 1 + commits  # of blobs whose name is taken, by equal content
    assert requests["LIST"] <= 14 + commits  # at the end old commits are pruned
    assert requests["GET"] <= 20 + 5 * commits  # of which the serial workers 3, and pruning 1
    assert requests["DELETE"] <= 2 + commits


def test_what_opening_costs(server):
    with server.counted() as requests, opened(f"{MODELS}/wave") as fitted:
        fitted.predict(np.zeros((3, 2)))
    assert requests.pop("GET") == 1 + len(open_store(f"{MODELS}/wave").record(fitted.commit)["arrays"])
    assert requests == {"LIST": 5, "PUT": 1, "DELETE": 1}  # a lease

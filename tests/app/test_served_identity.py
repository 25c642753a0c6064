"""Models replaced, removed and restored under a name: the state that is served, and keys, belong to a model."""

import json
import shutil
import threading
import time

import numpy as np
import pytest
from services import asked, fitted, new_rows, send

from bcmdist import GBCM
from bcmdist.app.service import served
from bcmdist.app.service.answers import Refused
from problems import assert_same_committee

POINTS = [[0.5, 1.0], [-1.0, 0.25]]
PREDICT = "/models/wave/predict"


@pytest.fixture(scope="module")
def fitted_once(tmp_path_factory):
    """Two models with commits of the same numbers, which nobody changes."""
    folder = tmp_path_factory.mktemp("fitted")
    fitted(folder, "wave")
    fitted(folder, "other", rows=60)
    return folder


@pytest.fixture
def models(fitted_once, tmp_path):
    """Directory of models with the first one in it."""
    shutil.copytree(fitted_once / "wave", tmp_path / "models" / "wave")
    return tmp_path / "models"


def put_in_place(models, other, name="wave"):
    """Replace a model by a copy of another one, by renaming."""
    shutil.copytree(other, models.parent / "new")
    (models / name).rename(models.parent / f"replaced-{len(list(models.parent.iterdir()))}")
    (models.parent / "new").rename(models / name)


def make_mixture(path, *members):
    """A mixture of copies of fitted models."""
    path.mkdir()
    listed = []
    for number, member in enumerate(members):
        shutil.copytree(member, path / str(number))
        reference = GBCM.load(path / str(number)).snapshot.reference
        listed.append([str(number), reference.number, reference.digest])
    (path / "mixture.json").write_text(json.dumps(listed))
    return path


def mean(client):
    answer = client.post(PREDICT, json={"X": POINTS})
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]["mean"]


def of_model(path):
    return GBCM.load(path).predict(np.array(POINTS))["mean"].tolist()


# --- The state that is served ---


def test_a_model_replaced_by_one_that_is_not_newer_is_served(models, fitted_once):
    other = fitted_once / "other"
    assert GBCM.load(other).commit == GBCM.load(models / "wave").commit
    with asked(models) as client:
        before = client.get("/events?model=wave&seconds=0").text
        put_in_place(models, other)
        client.service.catalogue.look()
        assert mean(client) == of_model(other)
        after = client.get("/events?model=wave&seconds=0").text
        rows = client.get("/models/wave").json()["rows"]
        answer = send(client, new_rows(), "a")
    assert rows == 60
    assert before.partition("event: model\n")[2] != after.partition("event: model\n")[2]
    assert answer.status_code == 200, answer.text
    assert GBCM.load(models / "wave").committee.total.rows == 90


def test_rows_reach_a_model_that_was_replaced_a_moment_ago(models, fitted_once):
    with asked(models) as client:
        put_in_place(models, fitted_once / "other")
        answer = send(client, new_rows(), "a")
    assert answer.status_code == 200, answer.text
    assert GBCM.load(models / "wave").committee.total.rows == 90


def test_rows_reach_a_model_that_was_replaced_after_a_renewal_had_looked(models, fitted_once, monkeypatch):
    version, looked, go_on = served.newest_version, threading.Event(), threading.Event()

    def slow_version(url):
        found = version(url)
        looked.set()
        assert go_on.wait(30)
        return found

    with asked(models) as client:
        monkeypatch.setattr(served, "newest_version", slow_version)
        renewal = threading.Thread(target=client.service.catalogue["wave"].renew)
        renewal.start()
        assert looked.wait(30)
        put_in_place(models, fitted_once / "other")
        threading.Timer(0.2, go_on.set).start()
        answer = send(client, new_rows(), "a")
        renewal.join()
    assert answer.status_code == 200, answer.text


def test_rows_that_wait_while_their_model_is_replaced_are_to_be_sent_again(models, fitted_once, monkeypatch):
    ingest = GBCM.ingest

    def replaced_meanwhile(self, *arguments, **options):
        monkeypatch.undo()
        put_in_place(models, fitted_once / "other")
        return ingest(self, *arguments, **options)

    with asked(models) as client:
        monkeypatch.setattr(GBCM, "ingest", replaced_meanwhile)
        first, again = (send(client, new_rows(), "a") for _ in range(2))
    assert (first.status_code, first.json()["error"]) == (503, "CommitConflict")
    assert first.headers["Retry-After"] == "5"
    assert again.status_code == 200, again.text
    assert GBCM.load(models / "wave").committee.total.rows == 90


def test_rows_that_wait_while_an_older_copy_is_restored_are_absorbed(models, fitted_once, monkeypatch):
    ingest = GBCM.ingest

    def replaced_meanwhile(self, *arguments, **options):
        monkeypatch.undo()
        put_in_place(models, fitted_once / "wave")
        return ingest(self, *arguments, **options)

    with asked(models) as client:
        assert send(client, new_rows(0), "a").status_code == 200
        monkeypatch.setattr(GBCM, "ingest", replaced_meanwhile)
        answer = send(client, new_rows(1), "b")
    assert answer.status_code == 200, answer.text
    assert GBCM.load(models / "wave").committee.total.rows == 150


def test_a_model_replaced_by_a_mixture_and_that_by_another(models, fitted_once, tmp_path):
    wave, other = fitted_once / "wave", fitted_once / "other"
    first, second = make_mixture(tmp_path / "1", wave, other), make_mixture(tmp_path / "2", other, other)
    with asked(models) as client:
        put_in_place(models, first)
        client.service.catalogue.look()
        np.testing.assert_allclose(mean(client), np.mean([of_model(wave), of_model(other)], axis=0), rtol=1e-12)
        refused = send(client, new_rows(), "a")
        put_in_place(models, second)
        client.service.catalogue.look()
        np.testing.assert_allclose(mean(client), of_model(other), rtol=1e-12)
        put_in_place(models, wave)
        client.service.catalogue.look()
        assert mean(client) == of_model(wave)
        assert send(client, new_rows(), "a").status_code == 200
    assert refused.status_code == 422


@pytest.mark.parametrize("successor", ["wave", "mixture"])
def test_points_that_reach_a_mixture_that_was_replaced_are_predicted_by_its_successor(
    models, fitted_once, tmp_path, successor
):
    """Members of a mixture are read when they are needed; none of these is there any more."""
    wave, other = fitted_once / "wave", fitted_once / "other"
    successors = {"wave": wave, "mixture": make_mixture(tmp_path / "2", other, other)}
    put_in_place(models, make_mixture(tmp_path / "1", wave, wave))
    with asked(models) as client:
        put_in_place(models, successors[successor])
        np.testing.assert_allclose(mean(client), of_model(wave if successor == "wave" else other), rtol=1e-12)


def test_rows_of_a_model_that_is_removed_are_answered(models, monkeypatch):
    ingest = GBCM.ingest

    def removed_meanwhile(self, *arguments, **options):
        shutil.rmtree(models / "wave")
        return ingest(self, *arguments, **options)

    with asked(models) as client:
        monkeypatch.setattr(GBCM, "ingest", removed_meanwhile)
        served = client.service.catalogue["wave"]
        answer = send(client, new_rows(), "a")
        client.service.catalogue.look()
        with pytest.raises(Refused, match="it was removed or the service is ending"), served.using():
            pass
        with pytest.raises(Refused, match="it was removed or the service is ending"):
            served.writer.submit(None)
    assert answer.status_code == 404, answer.text


# --- Keys ---


def test_rows_that_another_service_commits_meanwhile_are_not_counted_again(models, monkeypatch):
    """Two services get the same two requests; one of them commits while the other one is about to."""
    ingest, by_other = GBCM.ingest, []
    with asked(models) as client, asked(models.parent, models=str(models)) as other:

        def overtaken(self, *arguments, **options):
            if not by_other:
                by_other.append(None)
                rows = new_rows(1)
                by_other[0] = other.service.catalogue["wave"].submit("b", np.array(rows["X"]), np.array(rows["y"]))
                assert by_other[0][1].result() is False
            return ingest(self, *arguments, **options)

        monkeypatch.setattr(GBCM, "ingest", overtaken)
        served = client.service.catalogue["wave"]
        first, again = (new_rows(seed) for seed in range(2))
        received = [
            served.inbox.receive(GBCM.load(models / "wave"), key, np.array(rows["X"]), np.array(rows["y"]))
            for key, rows in (("a", first), ("b", again))
        ]
        assert served._absorb(received) == [False, True]
    assert GBCM.load(models / "wave").committee.total.rows == 120 + 2 * 30


def test_a_key_does_not_outlive_its_model(models, fitted_once):
    with asked(models) as client:
        assert send(client, new_rows(), "a").headers["Idempotent-Replayed"] == "false"
        shutil.rmtree(models / "wave")
        client.service.catalogue.look()
        shutil.copytree(fitted_once / "other", models / "wave")
        client.service.catalogue.look()
        first, again = (send(client, new_rows(), "a") for _ in range(2))
    assert [answer.headers["Idempotent-Replayed"] for answer in (first, again)] == ["false", "true"]
    assert GBCM.load(models / "wave").committee.total.rows == 90


def test_another_model_takes_other_rows_under_an_old_key(models, fitted_once):
    with asked(models) as client:
        assert send(client, new_rows(0), "a").status_code == 200
        put_in_place(models, fitted_once / "other")
        assert send(client, new_rows(1), "a").status_code == 200
        assert send(client, new_rows(0), "a").status_code == 409
    assert GBCM.load(models / "wave").committee.total.rows == 90


def test_a_model_restored_from_an_older_copy_absorbs_rows_again(models, fitted_once):
    with asked(models) as client:
        assert send(client, new_rows(), "a").status_code == 200
        expected = GBCM.load(models / "wave").committee
        put_in_place(models, fitted_once / "wave")
        first, again = (send(client, new_rows(), "a") for _ in range(2))
    assert [answer.headers["Idempotent-Replayed"] for answer in (first, again)] == ["false", "true"]
    assert_same_committee(GBCM.load(models / "wave").committee, expected)


def test_keys_are_known_after_a_restart_and_after_pruning(models):
    for expected in ("false", "true", "true"):
        with asked(models) as client:
            answer = send(client, new_rows(), "a")
            assert answer.headers["Idempotent-Replayed"] == expected, answer.text
        GBCM.load(models / "wave").store.prune(1)
    assert GBCM.load(models / "wave").committee.total.rows == 150


def test_rows_that_were_forgotten_are_absorbed_again_when_they_are_sent_again(models):
    with asked(models) as client:
        assert send(client, new_rows(), "a").status_code == 200
        after = GBCM.load(models / "wave")
        before = after.forget([after.ledger[-1].key])
        assert before.committee.total.rows == 120
        answer = send(client, new_rows(), "a")
    assert answer.headers["Idempotent-Replayed"] == "false"
    assert_same_committee(GBCM.load(models / "wave").committee, after.committee)


def sent(client, rows, key):
    """The answer to rows, as of a client that sends them again while their model is being replaced."""
    for _ in range(100):
        answer = send(client, rows, key)
        if answer.status_code not in (404, 503):
            break
        time.sleep(0.05)
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_rows_copies_restorations_and_forgetting(models, fitted_once, tmp_path, seed):
    """What a model has absorbed are the keys that its directory has met, whichever stood under the name meanwhile."""
    rng, copies = (
        np.random.default_rng(seed),
        [(fitted_once / "wave", 120, frozenset()), (fitted_once / "other", 60, frozenset())],
    )
    base, keys = 120, frozenset()
    with asked(models) as client:
        for step in range(60):
            act = rng.choice(["send", "send", "send", "copy", "restore", "forget", "look", "prune"])
            gbcm = GBCM.load(models / "wave")
            if act == "send":
                key = int(rng.integers(8))
                answer = sent(client, new_rows(key, rows=10 + key), f"k{key}")
                assert answer.status_code == 200, answer.text
                assert answer.headers["Idempotent-Replayed"] == ("true" if key in keys else "false")
                keys |= {key}
            elif act == "copy":
                shutil.copytree(models / "wave", tmp_path / f"copy-{step}")
                copies.append((tmp_path / f"copy-{step}", base, keys))
            elif act == "restore":
                path, base, keys = copies[int(rng.integers(len(copies)))]
                put_in_place(models, path)
            elif act == "forget" and keys:
                entry = gbcm.ledger[-1]
                gbcm.forget([entry.key])
                keys -= {entry.rows - 10}
            elif act == "prune":
                gbcm.store.prune(1)
            elif act == "look":
                client.service.catalogue.look()
            assert GBCM.load(models / "wave").committee.total.rows == base + sum(10 + key for key in keys)

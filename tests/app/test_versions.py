"""Earlier commits of a served model: predict at one, return to one, and give one a name."""

import json
import shutil
import threading

import numpy as np
import pytest
from click.testing import CliRunner
from processes import wait_until
from services import asked, client_of, fitted, new_rows, send

from bcmdist import GBCM, write_dataset
from bcmdist.app.cli.main import cli
from bcmdist.app.service import reverts
from bcmdist.app.service.commits_by_name import MOST_KEPT
from bcmdist.app.service.tokens import Tokens, add_token
from bcmdist.errors import CommitConflict, ModelNotFound
from bcmdist.storage.commits import open_store

POINTS = {"X": [[0.5, 1.0], [-1.0, 0.25]]}


@pytest.fixture(scope="module")
def absorbed_once(tmp_path_factory):
    """A directory with a model of five commits, of which the newer ones absorbed rows of requests."""
    folder = tmp_path_factory.mktemp("models")
    fitted(folder)
    with asked(folder) as client:
        assert [send(client, new_rows(k), f"key-{k}").status_code for k in range(3)] == [200] * 3
    return folder


@pytest.fixture
def models(absorbed_once, tmp_path):
    shutil.copytree(absorbed_once, tmp_path / "models")
    return tmp_path / "models"


def run(*arguments):
    done = CliRunner().invoke(cli, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def predict(client, commit=None):
    return client.post("/models/wave/predict" + (f"?commit={commit}" if commit else ""), json=POINTS)


def revert(client, to, key="back"):
    return client.post("/models/wave/revert", json={"to": to}, headers={"Idempotency-Key": key})


def test_predictions_at_a_commit_are_its_own_and_few_commits_stay_loaded(models):
    with asked(models) as client:
        listed = [one["number"] for one in client.get("/models/wave/history").json()["history"]]
        assert listed == [1, 2, 3, 4, 5]
        for commit in (*listed[1:], 2):
            said = predict(client, commit).json()
            expected = GBCM.load(models / "wave", commit=commit).predict(np.array(POINTS["X"]))
            np.testing.assert_allclose(said["predictions"]["mean"], expected["mean"], rtol=1e-14)
            assert said["commit"] == str(commit)
        served = client.service.catalogue["wave"]
        served.commits.look()
        assert len(open_store(models / "wave").held()) <= 1 + MOST_KEPT
        open_store(models / "wave").prune(1)
        answers = {commit: predict(client, commit) for commit in (1, 99, "stabel")}
        assert {commit: answer.status_code for commit, answer in answers.items()} == {1: 410, 99: 404, "stabel": 404}
        assert "GET /models/wave/history lists, 1 was pruned; name a later one" in answers[1].json()["message"]
        assert "GET /models/wave/aliases lists" in answers["stabel"].json()["message"]
        served.commits.drop()
        assert list(open_store(models / "wave").held()) == [5]
    assert open_store(models / "wave").held() == {}


def test_an_alias_names_a_commit_wherever_one_is_named(models, tmp_path):
    wave = models / "wave"
    with asked(models) as client:
        answer = client.request("PUT", "/models/wave/aliases/stable", json={"commit": 2})
        assert answer.json() == {"model": "wave", "aliases": {"stable": 2}}
        open_store(wave).prune(1)
        assert predict(client, "stable").json()["commit"] == "2"
        assert run("alias", "list", wave) == {"aliases": {"stable": 2}}
        assert run("info", wave, "--at", "stable")["rows"] == 120
        assert run("alias", "set", wave, "stable", "--at", 5) == {"alias": "stable", "commit": 5}
        wait_until(lambda: predict(client, "stable").json()["commit"] == "5", "the alias of another process")
        assert client.request("PUT", "/models/wave/aliases/3", json={}).status_code == 400
        assert client.request("PUT", "/models/wave/aliases/new", json={"commit": 1}).status_code == 404
        assert client.request("DELETE", "/models/wave/aliases/stable").json()["aliases"] == {}
        assert client.request("DELETE", "/models/wave/aliases/stable").status_code == 404
        assert client.request("PUT", "/models/wave/aliases/last", json={}).json()["aliases"] == {"last": 5}
    write_dataset(tmp_path / "new.zarr", {"X": np.array(POINTS["X"])})
    run("predict", wave, tmp_path / "new.zarr", "--out", tmp_path / "out.zarr", "--at", "last", "--serial")
    assert run("alias", "remove", wave, "last") == {"removed": "last"}
    done = CliRunner().invoke(cli, ["revert", str(wave), "--to", "last"])
    assert "expected the number of a commit or an alias, got 'last'; aliases: none" in done.output


def test_a_revert_is_made_once(models):
    with asked(models) as client:
        first = revert(client, 3)
        assert first.json() == {"model": "wave", "to": 3, "commit": 6, "rows": 150, "partitions": 3}
        assert predict(client).json()["predictions"] == predict(client, 3).json()["predictions"]
        assert send(client, new_rows(9), "key-9").status_code == 200
        again = revert(client, 3)
        assert (again.json(), again.headers["Idempotent-Replayed"]) == (first.json(), "true")
        assert GBCM.load(models / "wave").commit == 7
        assert [revert(client, 2).status_code, revert(client, 7, "new").status_code] == [409, 422]
        assert revert(client, 99, "other").status_code == 404
        assert send(client, new_rows(1), "key-1").headers["Idempotent-Replayed"] == "false"  # was reverted
    assert GBCM.load(models / "wave").committee.total.rows == 210


def test_a_revert_whose_answer_was_lost_is_not_made_again(models, monkeypatch):
    """The process dies between the commit and the record of the answer; then others commit."""
    first = reverts._first

    def dies(storage, name, value):
        if name.endswith("reverted.json"):
            raise RuntimeError
        return first(storage, name, value)

    with asked(models) as client:
        monkeypatch.setattr(reverts, "_first", dies)
        assert revert(client, 3).status_code == 500
        monkeypatch.setattr(reverts, "_first", first)
    with asked(models) as client:
        assert send(client, new_rows(9), "key-9").status_code == 200
        again = revert(client, 3)
    assert (again.json()["commit"], again.headers["Idempotent-Replayed"]) == (6, "true")
    assert GBCM.load(models / "wave").commit == 7


def test_a_revert_that_others_overtake_is_made_after_them(models, monkeypatch):
    before, calls = GBCM.revert, []

    def overtaken(gbcm, to):
        if not calls:
            calls.append(1)
            gbcm.partial_fit(np.ones((5, 2)), np.ones(5))
            raise CommitConflict("taken")
        return before(gbcm, to)

    monkeypatch.setattr(GBCM, "revert", overtaken)
    with asked(models) as client:
        assert revert(client, "2").status_code == 422  # a number is no alias
        assert revert(client, 2).json()["commit"] == 7
    assert GBCM.load(models / "wave").committee.total.rows == 120


def test_of_two_services_one_reverts(models):
    answers = {}
    with asked(models) as one, asked(models) as other:
        for client in (one, other):  # validators of requests are made once, and not by several threads
            assert revert(client, 9, "none").status_code == 404

        def ask(client):
            answers[client] = revert(client, 2)

        threads = [threading.Thread(target=ask, args=(client,)) for client in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert answers[one].json() == answers[other].json()
    assert [answer.status_code for answer in answers.values()] == [200, 200]
    assert GBCM.load(models / "wave").commit == 6


def test_who_may_read_may_not_change_versions(models, tmp_path):
    token = add_token(tmp_path / "tokens.json", "reader", ["read"])
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "a"}
    with asked(models, tokens=Tokens(tmp_path / "tokens.json")) as client:
        answers = [client.post("/models/wave/revert", json={"to": 2}, headers=headers)]
        answers.append(client.request("PUT", "/models/wave/aliases/a", json={}, headers=headers))
        answers.append(client.request("DELETE", "/models/wave/aliases/a", headers=headers))
        assert client.get("/models/wave/aliases", headers=headers).json() == {"model": "wave", "aliases": {}}
    assert [one.status_code for one in answers] == [403] * 3


def test_the_client_has_versions_too(models):
    with asked(models) as service:
        client = client_of(service)
        client.set_alias("wave", "stable", 3)
        assert (client.aliases("wave"), len(client.history("wave"))) == ({"stable": 3}, 5)
        expected = GBCM.load(models / "wave", commit=3).predict(np.array(POINTS["X"]))["mean"]
        np.testing.assert_allclose(client.predict("wave", POINTS["X"], commit="stable")["mean"], expected, rtol=1e-14)
        receipt = client.revert("wave", "stable", key="back")
        assert (receipt["commit"], client.revert("wave", "stable", key="back")) == (6, receipt)
        np.testing.assert_allclose(client.predict("wave", POINTS["X"])["mean"], expected, rtol=1e-14)
        client.remove_alias("wave", "stable")
        with pytest.raises(ModelNotFound, match="GET /models/wave/aliases lists"):
            client.predict("wave", POINTS["X"], commit="stable")

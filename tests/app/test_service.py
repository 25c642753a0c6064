"""The service as applications ask it: predictions are the model's own, and rows count once."""

import errno
import gc
import json
import os
import re
import shutil
import warnings

import numpy as np
import pytest
from processes import wait_until
from services import asked, fitted, new_rows, send

from bcmdist import GBCM, HMC, Mixture, Settings, sample_posterior
from bcmdist.app.service.answers import refused
from bcmdist.app.service.metrics import COUNTERS, GAUGES, SECONDS, Metrics
from bcmdist.app.service.page import SCRIPTS
from problems import assert_same_committee

# The same numbers through JSON, whose digits give each of them back.
SAME = {"rtol": 1e-14, "atol": 0.0}
POINTS = [[0.5, 1.0], [-1.0, 0.25]]


@pytest.fixture(scope="module")
def fitted_once(tmp_path_factory):
    """A model of numbers, which nobody changes."""
    folder = tmp_path_factory.mktemp("models")
    return folder, fitted(folder)


@pytest.fixture
def wave(fitted_once, tmp_path):
    """Directory of models, and a copy of the model in it."""
    shutil.copytree(fitted_once[0], tmp_path / "models")
    return tmp_path / "models", GBCM.load(tmp_path / "models" / "wave")


# --- Predictions ---


def test_predictions_are_those_of_the_model(wave):
    folder, gbcm = wave
    with asked(folder) as client:
        answer = client.post("/models/wave/predict", json={"X": POINTS, "quantiles": [0.9]})
    assert answer.status_code == 200
    said, expected = answer.json(), gbcm.predict(np.array(POINTS), quantiles=(0.9,))
    assert (said["rows"], said["method"], said["commit"]) == (2, "committee", str(gbcm.commit))
    for name, values in expected.items():
        np.testing.assert_allclose(said["predictions"][name], values, **SAME)
    for name in ("", "observation_"):
        np.testing.assert_allclose(said["predictions"][f"{name}sd"], np.sqrt(expected[f"{name}variance"]), **SAME)


def test_intervals_are_quantiles_at_their_ends(wave):
    folder, gbcm = wave
    with asked(folder) as client:
        said = client.post("/models/wave/predict", json={"X": POINTS, "intervals": [0.5, 0.95]}).json()["predictions"]
    expected = gbcm.predict(np.array(POINTS), quantiles=(0.25, 0.75))
    np.testing.assert_allclose(said["lower50"], expected["quantile0.25"], **SAME)
    np.testing.assert_allclose(said["upper50"], expected["quantile0.75"], **SAME)
    np.testing.assert_allclose(said["upper95"], expected["upper95"], rtol=1e-10)  # by bisection
    assert "quantile0.25" not in said


def test_probabilities_of_classes(tmp_path):
    gbcm = fitted(tmp_path, "classes", task="classification")
    with asked(tmp_path) as client:
        said = client.post("/models/classes/predict", json={"X": POINTS}).json()["predictions"]
        odd = client.post("/models/classes/predict", json={"X": POINTS, "quantiles": [0.5]})
    np.testing.assert_allclose(said["probability"], gbcm.predict(np.array(POINTS))["probability"], **SAME)
    assert odd.status_code == 422
    assert "quantiles: expected levels" in odd.json()["message"]


def test_local_experts_predict(tmp_path):
    gbcm = fitted(tmp_path, partition="spatial")
    with asked(tmp_path) as client:
        said = client.post("/models/wave/predict", json={"X": POINTS}).json()
        committee = client.post("/models/wave/predict", json={"X": POINTS, "method": "committee"}).json()
    assert (said["method"], committee["method"]) == ("local", "committee")
    np.testing.assert_allclose(said["predictions"]["mean"], gbcm.predict(np.array(POINTS))["mean"], **SAME)


@pytest.mark.slow
def test_mixtures_predict_and_absorb(tmp_path, rng, make_data):
    X = rng.uniform(-2, 2, (60, 2))
    settings = Settings(partition="chunks", query=10, kernel="se", mean="zero", rows_per_expert=30)
    data, hmc = make_data(X=X, y=X[:, 0] + 0.1 * rng.standard_normal(60)), HMC(iterations=6, burn_in=2)
    mixture = sample_posterior(data, settings, model=tmp_path / "models" / "mixed", samples=2, chains=1, hmc=hmc)
    with asked(tmp_path / "models") as client:
        said = client.post("/models/mixed/predict", json={"X": POINTS, "quantiles": [0.9]}).json()
        told, listed = client.get("/models/mixed").json(), client.get("/models").json()["models"]
        refused = [client.post("/models/mixed/predict", json={"X": POINTS, "exposure": 2.0})]
        refused.append(client.get("/models/mixed/calibration"))
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # the rows are of another function
            sent, again = (send(client, new_rows(), "a", "mixed") for _ in range(2))
        after = client.post("/models/mixed/predict", json={"X": POINTS, "quantiles": [0.9]}).json()
        history, drift = (client.get(f"/models/mixed/{what}").json() for what in ("history", "drift"))
        shown = client.service.board.model("mixed")
        first = client.post("/models/mixed/predict?commit=1", json={"X": POINTS, "quantiles": [0.9]}).json()
        back = [
            client.post("/models/mixed/revert", json={"to": 1}, headers={"Idempotency-Key": "back"}) for _ in range(2)
        ]
        named = client.request("PUT", "/models/mixed/aliases/stable", json={"commit": 1})
    expected = mixture.predict(np.array(POINTS), quantiles=(0.9,))
    for name, values in expected.items():
        np.testing.assert_allclose(said["predictions"][name], values, **SAME)
    assert (told["samples"], listed[0]["name"]) == (2, "mixed")
    assert first["predictions"] == said["predictions"]
    assert [one.json()["commit"] for one in back] == [3, 3]
    assert Mixture.load(mixture.url).info()["rows"] == 60
    now = Mixture.load(mixture.url, commit=2)
    for name, values in now.predict(np.array(POINTS), quantiles=(0.9,)).items():
        np.testing.assert_allclose(after["predictions"][name], values, **SAME)
    assert (sent.status_code, again.json() == sent.json(), now.commit, now.info()["rows"]) == (200, True, 2, 90)
    assert ([one["rows"] for one in history["history"]], len(drift["curve"])) == ([60, 90], 1)
    assert (shown["commit"], shown["calibration"], shown["relevance"]["columns"]) == (
        "2, a mixture of 2",
        None,
        ["X[0]", "X[1]"],
    )
    assert named.json() == {"model": "mixed", "aliases": {"stable": 1}}
    assert [answer.status_code for answer in refused] == [422] * 2
    assert "expected a single committee to compute the coverage of" in refused[1].json()["message"]
    assert not any(str(tmp_path) in answer.text for answer in refused)


def test_columns_by_name(tmp_path):
    pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.uniform(-2, 2, (60, 2)), columns=["depth", "north"])
    gbcm = GBCM.fit(
        (frame, frame.depth), Settings(partition="chunks", query=10, learn=False, kernel="se"), model=tmp_path / "named"
    )
    with asked(tmp_path) as client:
        said = client.post("/models/named/predict", json={"X": [[1.0, 0.5]], "columns": ["north", "depth"]}).json()
        odd = client.post("/models/named/predict", json={"X": [[1.0, 0.5]], "columns": ["north", "deep"]})
    np.testing.assert_allclose(said["predictions"]["mean"], gbcm.predict(np.array([[0.5, 1.0]]))["mean"], **SAME)
    assert odd.status_code == 422
    assert "'depth' is not there (but 'deep')" in odd.json()["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"X": [[1.0]]}, r"X: expected shape (n, 2), as in training, got (1, 1)"),
        ({"X": [[1.0, 2.0], [1.0]]}, "X: expected 2 numbers in each row, got 1 in row 1"),
        ({"X": [[1.0, "secret"]]}, "body.X.0.1: Input should be a valid number"),
        ({"X": []}, "body.X: List should have at least 1 item"),
        ({"X": POINTS, "quantiles": [1.0]}, "less than 1"),
        ({"X": POINTS, "method": "local"}, "expected a model fitted with --partition spatial"),
        ({"X": POINTS, "method": "secret"}, "expected one of committee, local"),
        ({"X": POINTS, "exposure": 2.0}, "exposure: expected a likelihood that uses it"),
        ({"X": POINTS, "nonsense": 2.0}, "Extra inputs are not permitted"),
        ({"X": POINTS, "columns": ["a", "b"]}, "the columns of the training data had no names"),
        ({"X": POINTS, "columns": []}, "body.columns: List should have at least 1 item"),
        ({"X": POINTS, "columns": ["", "b"]}, "body.columns.0: String should have at least 1 character"),
        ({"X": POINTS, "method": ""}, "body.method: String should have at least 1 character"),
    ],
)
def test_points_that_cannot_be_predicted_at_are_refused(wave, body, text):
    with asked(wave[0]) as client:
        answer = client.post("/models/wave/predict", json=body)
    assert answer.status_code == 422
    assert text in answer.json()["message"]


def test_numbers_that_are_not_finite_are_refused(wave):
    with asked(wave[0]) as client:
        answer = client.post(
            "/models/wave/predict", content=b'{"X": [[NaN, 1.0]]}', headers={"Content-Type": "application/json"}
        )
    assert (answer.status_code, answer.json()["error"]) == (422, "InvalidRequest")


# --- Rows ---


def test_rows_are_heard_once_under_their_key(wave):
    folder, gbcm = wave
    with asked(folder) as client:
        first, again = (send(client, new_rows(), "a") for _ in range(2))
        told = client.get("/models/wave").json()
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert first.json() | {"digest": ""} == {"model": "wave", "rows": 30, "partitions": 1, "digest": ""}
    assert [answer.headers["Idempotent-Replayed"] for answer in (first, again)] == ["false", "true"]
    assert told["rows"] == gbcm.committee.total.rows + 30
    assert told["advice"] == GBCM.load(folder / "wave").info()["advice"]
    assert "left out: " in told["advice"]


def test_rows_say_what_they_say_in_a_data_set(wave, fitted_once, make_data, tmp_path):
    folder, _ = wave
    with asked(folder) as client:
        assert send(client, new_rows(), "a").status_code == 200
    shutil.copytree(fitted_once[0] / "wave", tmp_path / "peer")
    rows = {name: np.array(column) for name, column in new_rows().items()}
    by_hand = GBCM.load(tmp_path / "peer").partial_fit(make_data("new.zarr", **rows))
    assert_same_committee(GBCM.load(folder / "wave").committee, by_hand.committee)


def test_predictions_follow_rows_at_once(wave):
    folder, _ = wave
    with asked(folder) as client:
        before = client.post("/models/wave/predict", json={"X": POINTS}).json()
        assert send(client, new_rows(), "a").status_code == 200
        after = client.post("/models/wave/predict", json={"X": POINTS}).json()
    assert int(after["commit"]) > int(before["commit"])
    expected = GBCM.load(folder / "wave").predict(np.array(POINTS))
    np.testing.assert_allclose(after["predictions"]["mean"], expected["mean"], **SAME)


def test_other_rows_under_a_key_are_refused(wave):
    folder, _ = wave
    with asked(folder) as client:
        send(client, new_rows(0), "a")
        answer = send(client, new_rows(1), "a")
    assert (answer.status_code, answer.json()["error"]) == (409, "ChunkConflict")
    assert "give new rows a key of their own" in answer.json()["message"]


@pytest.mark.slow
def test_what_was_kept_and_not_committed_is_heard_when_it_is_sent_again(wave, monkeypatch):
    """As of a process that dies between both."""
    folder, gbcm = wave
    with asked(folder) as client:
        with monkeypatch.context() as patched:
            patched.setattr("bcmdist.api.gbcm.GBCM.ingest", lambda *_, **__: 1 / 0)
            lost = send(client, new_rows(), "a")
        assert (lost.status_code, lost.json()["error"]) == (500, "InternalError")
        again = send(client, new_rows(), "a")
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "false")
    assert GBCM.load(folder / "wave").committee.total.rows == gbcm.committee.total.rows + 30


@pytest.mark.parametrize("place", ["os.mkdir", "os.fsync", "os.link"])
def test_a_full_disk_is_507_whatever_file_is_written(wave, monkeypatch, place):
    folder, _ = wave

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with asked(folder) as client:
        with monkeypatch.context() as patched:
            patched.setattr(place, full)
            answer = send(client, new_rows(), "a")
        assert (answer.status_code, answer.json()["error"]) == (507, "DiskFull")
        assert send(client, new_rows(), "a").status_code == 200


def test_an_error_of_a_full_disk_from_anywhere_is_507():
    answer = refused(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/b"))
    assert (answer.status, answer.error) == (507, "DiskFull")
    assert "/a/b" not in answer.message
    assert refused(OSError(errno.EIO, os.strerror(errno.EIO))).status == 500


def test_a_key_that_two_services_are_sent_counts_once(wave, monkeypatch):
    folder, gbcm = wave
    with asked(folder) as one, asked(folder) as other:
        first = send(one, new_rows(), "a")
        monkeypatch.setattr("bcmdist.app.service.inbox._refreshed", lambda *_: False)  # both write at the same time
        again = send(other, new_rows(), "a")
    assert first.json() == again.json()
    assert GBCM.load(folder / "wave").committee.total.rows == gbcm.committee.total.rows + 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"y": [1.0]}, "y: expected 30 values, one for each row of X, got 1"),
        ({"y": ["secret"] * 30}, "y: expected numbers as in training, got texts"),
        ({"weight": [-1.0] * 30}, "weight"),
        ({"X": [[1.0]] * 30}, "X: expected shape (n, 2)"),
    ],
)
def test_rows_that_no_model_can_hear_are_refused_and_leave_nothing(wave, change, text):
    folder, gbcm = wave
    with asked(folder) as client:
        answer = send(client, new_rows() | change, "a")
        assert send(client, new_rows(), "a").status_code == 200
    assert answer.status_code == 422
    assert text in answer.json()["message"]
    assert str(folder) not in answer.text
    assert GBCM.load(folder / "wave").committee.total.rows == gbcm.committee.total.rows + 30


def test_a_key_is_needed(wave):
    with asked(wave[0]) as client:
        assert client.post("/models/wave/rows", json=new_rows()).status_code == 422
        assert send(client, new_rows(), "x" * 201).status_code == 422


def test_labels_are_heard_by_name(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, (60, 2))
    y = np.where(X[:, 0] > 0, "wet", "dry")
    gbcm = GBCM.fit((X, y), Settings(partition="chunks", query=10, learn=False, kernel="se"), model=tmp_path / "soil")
    with asked(tmp_path) as client:
        good = send(client, {"X": POINTS, "y": ["wet", "dry"]}, "a", "soil")
        odd = send(client, {"X": POINTS, "y": ["wet", "moist"]}, "b", "soil")
    assert good.status_code == 200, good.text
    assert (odd.status_code, odd.json()["error"]) == (422, "UnsupportedTarget")
    assert GBCM.load(tmp_path / "soil").committee.total.rows == gbcm.committee.total.rows + 2


@pytest.mark.slow
def test_what_follows_a_commit_may_fail_without_taking_it_back(tmp_path):
    """Probabilities are calibrated with rows of the training data, which are not there any more."""
    rows = fitted(tmp_path, "classes", task="classification").committee.total.rows
    gc.collect()
    with asked(tmp_path) as client:
        answer = send(client, {"X": POINTS, "y": [0.0, 1.0]}, "a", "classes")
    assert answer.status_code == 200
    assert GBCM.load(tmp_path / "classes").committee.total.rows == rows + 2


# --- Models ---


@pytest.mark.slow
def test_models_come_change_and_go(wave):
    folder, gbcm = wave
    with asked(folder) as client:
        catalogue = client.service.catalogue
        fitted(folder, "later")
        catalogue.look()
        assert [one["name"] for one in client.get("/models").json()["models"]] == ["later", "wave"]
        after = gbcm.forget([gbcm.ledger[0].key])
        wait_until(lambda: client.get("/models/wave").json()["commit"] == after.commit > gbcm.commit, "the new commit")
        shutil.rmtree(folder / "later")
        catalogue.look()
        assert client.get("/models/later").status_code == 404


def test_a_state_that_is_asked_outlives_its_successor(wave):
    folder, gbcm = wave
    with asked(folder) as client:
        served = client.service.catalogue["wave"]
        with served.using() as loaded:
            before = loaded.predict(np.array(POINTS), method=None)[1]["mean"]
            assert send(client, new_rows(), "a").status_code == 200
            np.testing.assert_array_equal(loaded.predict(np.array(POINTS), method=None)[1]["mean"], before)
            assert loaded.fitted.commit in gbcm.store.held()
        assert gbcm.commit not in gbcm.store.held()


def test_a_damaged_model_is_told_and_others_are_served(wave):
    folder, _ = wave
    (folder / "broken" / "commits").mkdir(parents=True)
    (folder / "broken" / "commits" / "00000001.json").write_text("{}")
    with asked(folder) as client:
        listed = {one["name"]: one for one in client.get("/models").json()["models"]}
        assert client.post("/models/wave/predict", json={"X": POINTS}).status_code == 200
        assert client.get("/models/broken").status_code == 503
    assert listed["broken"]["error"] == "ModelDamaged"


def test_metrics_of_two_services_are_apart():
    first, second = Metrics(), Metrics()
    first.count("bcmdist_predicted_rows_total", 3, model='a"b')
    first.took(0.3, route="/models")
    text, gauges = first.text({"bcmdist_model_rows": [({"model": "a"}, 2.0)]}), second.text({})
    assert 'bcmdist_predicted_rows_total{model="a\\"b"} 3.0\n' in text
    assert 'bcmdist_request_seconds_bucket{le="0.25",route="/models"} 0.0\n' in text
    assert 'bcmdist_request_seconds_bucket{le="0.5",route="/models"} 1.0\n' in text
    assert 'bcmdist_request_seconds_count{route="/models"} 1.0\n' in text
    assert 'bcmdist_model_rows{model="a"} 2.0\n' in text
    assert "_created" not in text
    assert [line for line in gauges.splitlines() if not line.startswith("#")] == []


def test_history_and_metrics(wave):
    folder, gbcm = wave
    with asked(folder) as client:
        send(client, new_rows(), "a")
        client.post("/models/wave/predict", json={"X": POINTS})
        history, text = client.get("/models/wave/history").json()["history"], client.get("/metrics").text
    assert history[-1]["rows"] == gbcm.committee.total.rows + 30
    assert str(folder) not in json.dumps(history)
    assert 'bcmdist_ingested_rows_total{model="wave"} 30' in text
    assert 'bcmdist_predicted_rows_total{model="wave"} 2' in text
    assert f'bcmdist_model_rows{{model="wave"}} {gbcm.committee.total.rows + 30}' in text
    assert 'bcmdist_requests_total{method="POST",route="/models/{name}/predict",status="200"} 1.0\n' in text
    names = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    gauges = {(name, "gauge") for name in GAUGES}
    assert set(names) == {(name, "counter") for name in COUNTERS} | gauges | {(SECONDS[0], "histogram")}
    assert len(names) == len(set(names))
    for line in text.splitlines():
        assert line.startswith("# ") or len(line.rpartition(" ")[0].partition("{")[0].split()) == 1


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("/", ["/page.css", "/theme.js", "/page.js", "/docs"]),
        ("/docs", ["/page.css", "/theme.js", "/requests.js", "/", "/openapi.json"]),
    ],
)
def test_a_page_finds_what_it_names(wave, page, names):
    with asked(wave[0]) as client:
        text = client.get(page).text
        named = re.findall(r'(?:href|src)="(/[^"]*)"', text)
        assert named == names
        kinds = [client.get(url).headers["Content-Type"].partition(";")[0] for url in named]
        scripts = {name: client.get(f"/{name}").text for name in SCRIPTS}
    assert kinds[:2] == ["text/css", "text/javascript"]
    ids = set(re.findall(r'id="([\w-]+)"', text))
    others = {"requests.js"} if page == "/" else scripts.keys() - {"requests.js", "token.js"}
    for script in (scripts[name] for name in scripts.keys() - others):
        assert set(re.findall(r'from "\./([^"]*)"', script)) <= scripts.keys()
        assert set(re.findall(r'\$\("([\w-]+)"\)', script)) <= ids
        assert set(re.findall(r'put\("([\w-]+)"', script)) <= ids

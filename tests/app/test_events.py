"""What is told while things change: events, calibration, drift, and how far the service is behind."""

import asyncio
import json
import re
import shutil
import threading

import numpy as np
import pytest
from processes import LONG
from services import Server, asked, fitted, httpx, new_rows, send

from bcmdist import GBCM
from bcmdist.app import figures
from bcmdist.app.service import events
from bcmdist.app.service.asking import submit
from bcmdist.app.service.bodies import NewRows
from bcmdist.app.service.limits import Limits
from bcmdist.prediction.errors.error_distribution import error_distribution_of


@pytest.fixture(scope="module")
def fitted_once(tmp_path_factory):
    """A model with as many rows as it takes to know how errors are spread."""
    folder = tmp_path_factory.mktemp("models")
    return folder, fitted(folder, rows=600)


@pytest.fixture
def wave(fitted_once, tmp_path):
    """Directory of models, and a copy of the model in it."""
    shutil.copytree(fitted_once[0], tmp_path / "models")
    return tmp_path / "models", GBCM.load(tmp_path / "models" / "wave")


def last_events(text):
    """Data of events, by their names, the last of each."""
    assert text.endswith("\n\n")
    return {name: json.loads(data) for name, data in re.findall(r"^event: (\w+)\ndata: (.*)\n$", text, re.MULTILINE)}


@pytest.mark.slow
def test_events_tell_of_models_and_of_one(wave):
    folder, gbcm = wave
    with asked(folder) as client:
        answer = client.get("/events?model=wave&seconds=0")
        for number in range(3):
            assert send(client, new_rows(number), str(number)).status_code == 200
        after = last_events(client.get("/events?model=wave&seconds=0").text)
        alone = last_events(client.get("/events?seconds=0").text)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    before, rows = last_events(answer.text), gbcm.committee.total.rows
    assert (before["models"][0]["rows"], before["model"]["curve"], before["jobs"]) == (rows, [], [])
    assert [point["rows"] for point in after["model"]["curve"]] == [rows + 30, rows + 60, rows + 90]
    assert after["model"]["history"][-1]["rows"] == after["models"][0]["rows"] == rows + 90
    assert after["model"]["relevance"]["columns"] == ["X[0]", "X[1]"]
    assert alone.keys() == {"models", "jobs"}
    assert str(folder) not in answer.text


def test_the_document_tells_what_events_and_refusals_are(wave):
    with asked(wave[0]) as client:
        answers = client.get("/openapi.json").json()["paths"]["/events"]["get"]["responses"]
    event = answers["200"]["content"]["text/event-stream"]["schema"]
    assert event["required"] == ["event", "data"]
    assert list(answers["422"]["content"]) == ["application/json"]


def test_no_more_watch_than_may_when_all_come_at_once(wave, monkeypatch):
    monkeypatch.setattr(events, "MOST_STREAMS", 3)

    async def watch(client, count):
        return await asyncio.gather(*(client.http.get("/events?seconds=0.5") for _ in range(count)))

    with asked(wave[0]) as client:
        codes = [answer.status_code for answer in client._run(watch(client, 8))]
        assert client.service.streams == 0
        again = client.get("/events?seconds=0")
    assert sorted(codes) == [200] * 3 + [503] * 5
    assert again.status_code == 200


def test_events_of_what_is_not_there_are_refused(wave):
    with asked(wave[0]) as client:
        codes = [client.get(f"/events?{query}").status_code for query in ("model=no", "model=..", "seconds=1e9")]
    assert codes == [404, 422, 422]


def test_events_of_a_mixture_or_a_classifier(tmp_path):
    fitted(tmp_path, "classes", task="classification")
    with asked(tmp_path) as client:
        found = last_events(client.get("/events?model=classes&seconds=0").text)["model"]
    (_, one), side = found["view"]["probability"], figures.MAP_POINTS
    assert len(one) == side**2
    assert found["calibration"] == {"left_out": None, "arrivals": None}


@pytest.mark.slow
def test_streams_end_with_the_service_and_show_what_comes(wave):
    """A batch shows within two seconds, and nobody waits for streams to end."""
    folder, gbcm = wave
    server = Server(folder)
    try:
        with httpx.Client(base_url=server.url, timeout=20) as http, http.stream("GET", "/events?model=wave") as stream:
            lines = stream.iter_lines()
            first = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
            assert first[0]["rows"] == gbcm.committee.total.rows
            sent = threading.Thread(target=send, args=(Asker(server.url), new_rows(), "a"))
            sent.start()
            wanted = f'"rows":{gbcm.committee.total.rows + 30},"inputs"'
            assert any(wanted in line for line in lines)
            sent.join()
            assert server.end() == 0
            assert "event: problem" not in list(lines)
    finally:
        server.end(9)


class Asker:
    """Asks a server, each time by a connection of its own."""

    def __init__(self, url):
        self.url = url

    def post(self, path, **options):
        return httpx.post(self.url + path, timeout=20, **options)


# --- Figures ---


def test_calibration_counts_rows_in_intervals(wave):
    """Against a plain count of the residuals that the ledger notes, of normal errors of one scale."""
    folder, gbcm = wave
    with asked(folder) as client:
        found = client.get("/models/wave/calibration").json()
    z = np.concatenate([entry.residuals.committee for entry in gbcm.ledger])
    spread = error_distribution_of(gbcm.snapshot, "committee")
    assert (found["left_out"]["rows"], found["arrivals"]) == (len(z), None)
    if spread.scale is None:
        inside = np.mean((z >= spread.shape.quantile(0.025)) & (z <= spread.shape.quantile(0.975)))
        assert found["left_out"]["shares"][figures.LEVELS.index(0.95)] == pytest.approx(inside, abs=1e-12)
    assert np.all(np.diff(found["left_out"]["shares"]) >= 0.0)


def test_calibration_under_the_model_reads_rows(tmp_path, make_data, rng):
    X = rng.uniform(-2, 2, (120, 2))
    data = make_data(X=X, y=X[:, 0] + 0.1 * rng.standard_normal(120), rows_per_chunk=60)
    from bcmdist import Settings

    gbcm = GBCM.fit(
        data, Settings(partition="chunks", query=20, learn=False, kernel="se"), model=tmp_path / "models" / "line"
    )
    with asked(tmp_path / "models") as client:
        found = client.get("/models/line/calibration?under_model=true").json()["under_model"]
        assert found["coverage95"] == pytest.approx(gbcm.calibration()["coverage95"], abs=1e-12)
        shutil.rmtree(data)
        refused = client.get("/models/line/calibration?under_model=true")
        assert client.get("/models/line/calibration").status_code == 200
    assert (refused.status_code, refused.json()["error"]) == (409, "DataNotFound")
    assert str(tmp_path) not in refused.text


@pytest.mark.slow
def test_drift_of_rows_that_moved_is_told(wave):
    folder, _ = wave
    moved = {"X": [[x, 9.0 - x] for x in np.linspace(-2, 2, 30)], "y": [40.0] * 30}
    with asked(folder) as client:
        for number in range(12):
            send(client, new_rows(number), str(number))
        before = client.get("/models/wave/drift").json()["drift"]
        for number in range(3):
            send(client, moved, f"moved {number}".replace(" ", "-"))
        after = client.get("/models/wave/drift").json()
    assert (before["worse"], after["drift"]["worse"]) == (False, True)
    assert "worse than expected" in after["drift"]["verdict"]
    scores = [point["log_score"] for point in after["curve"]]
    assert len(scores) == 15
    assert scores[-3] < min(scores[:12])


def test_waiting_rows_are_behind(wave, monkeypatch):
    folder, _ = wave
    go_on = threading.Event()
    with asked(folder) as client:
        served = client.service.catalogue["wave"]
        monkeypatch.setattr(served.writer, "_commit_rows", lambda requests: [go_on.wait(LONG)])
        *_, done = submit(served, "a", NewRows(**new_rows()), most_rows=100)
        told = client.get("/models/wave").json()
        text = client.get("/metrics").text
        go_on.set()
        done.result(LONG)
        after = client.get("/models/wave").json()
    assert told["waiting_rows"] == 30
    assert told["lag"]["rows"] == 30
    assert told["lag"]["seconds"] > 0.0
    assert 'bcmdist_model_waiting_rows{model="wave"} 30' in text
    (behind,) = re.findall(r'^bcmdist_model_lag_seconds{model="wave"} (.*)$', text, re.MULTILINE)
    assert 'bcmdist_model_lag_rows{model="wave"} 30' in text
    assert float(behind) > told["lag"]["seconds"]
    assert (after["waiting_rows"], after["lag"]) == (0, {"rows": 0, "seconds": 0.0})


@pytest.mark.slow
def test_senders_are_slowed_down_before_memory_fills(wave, monkeypatch):
    """What waits is bounded: more is refused, keeps nothing, and counts once when it is sent again."""
    folder, gbcm = wave
    go_on = threading.Event()
    with asked(folder, limits=Limits(waiting_rows=60)) as client:
        served = client.service.catalogue["wave"]
        commit_rows = served.writer._commit_rows
        monkeypatch.setattr(served.writer, "_commit_rows", lambda requests: go_on.wait(LONG) and commit_rows(requests))
        sent = [submit(served, str(k), NewRows(**new_rows(k)), most_rows=100)[-1] for k in range(2)]
        refused = [send(client, new_rows(k), str(k)) for k in (2, 3)]
        assert served.waiting_rows == 60
        go_on.set()
        for done in sent:
            done.result(LONG)
        again = [send(client, new_rows(k), str(k)) for k in range(4)]
    assert [(one.status_code, one.json()["error"], one.headers["Retry-After"]) for one in refused] == [
        (503, "Behind", "5")
    ] * 2
    assert [one.status_code for one in again] == [200] * 4
    assert [one.headers["Idempotent-Replayed"] for one in again] == ["true", "true", "false", "false"]
    assert GBCM.load(folder / "wave").committee.total.rows == gbcm.committee.total.rows + 4 * 30

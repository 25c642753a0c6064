"""Whoever asks the service learns nothing of where it keeps things: all routes are walked with a token to read."""

import json
from dataclasses import replace

import numpy as np
import pytest
from services import asked, fitted, new_rows, send
from test_work import FIT, ThisMachine

from bcmdist import GBCM
from bcmdist.app.service.names import of_figures, short_name
from bcmdist.app.service.tokens import Tokens, add_token
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.writing import write_dataset

pytestmark = pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")  # of what arrives
SECRET = "cobwebbed cellar"  # in all paths; what looks like a path ends at its blank


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Directory with `models` and `data`, where a model has met rows that it did not expect."""
    home = tmp_path_factory.mktemp("home") / SECRET
    gbcm, rng = fitted(home / "models"), np.random.default_rng(1)
    X = rng.uniform(-2, 2, (120, 2))
    for name, columns in {"train": {"X": X, "y": X[:, 0]}, "shifted": {"X": X, "y": X[:, 0] + 9.0}}.items():
        write_dataset(home / "data" / f"{name}.zarr", columns, rows_per_chunk=30)
    gbcm.ingest(gbcm.source(str(home / "data" / "shifted.zarr")), IngestOptions(half_life=1e6))
    (home / "models" / "broken" / "commits").mkdir(parents=True)
    (home / "models" / "broken" / "commits" / "00000001.json").write_text("{}")
    return home


@pytest.fixture(scope="module")
def client(home):
    """Of a service with a scheduler, a job that went well and one that failed."""
    tokens, scopes = home / "tokens.json", ("read", "ingest", "admin")
    keys = {scope: add_token(tokens, scope, [scope]) for scope in scopes}
    work = {"data": str(home / "data"), "scheduler": "tcp://127.0.0.1:8786"}
    with asked(home / "models", work=work, tokens=Tokens(tokens)) as client:
        client.service.work = replace(client.service.work, machine=ThisMachine)
        client.keys = keys
        for body in (FIT, {"request": "ingest", "model": "wave", "source": "train.zarr"}):
            answer = client.post("/jobs", json=body, headers=bearer(client, "admin"))
            assert answer.status_code == 202, answer.text
        yield client


def bearer(client, scope):
    return {"Authorization": f"Bearer {client.keys[scope]}"}


def refuse_places(answer):
    """Fail where an answer holds a part of a path."""
    text = answer.text + json.dumps(dict(answer.headers))
    for part in (SECRET, *SECRET.split(), "/models/wave/X", ".rows", "127.0.0.1:8786"):
        assert part not in text, text[max(0, text.find(part) - 200) : text.find(part) + 200]


def test_the_model_has_something_to_hide(home):
    told = GBCM.load(home / "models" / "wave").info()
    assert SECRET in told["drift"]["verdict"]
    assert SECRET in told["fading"]["source"]


def routes(client):
    """Paths to be read, of each model and job, with the words that choose among answers."""
    jobs = [one["id"] for one in client.get("/jobs", headers=bearer(client, "read")).json()["jobs"]]
    assert len(jobs) == 2
    for path, methods in client.get("/openapi.json", headers=bearer(client, "read")).json()["paths"].items():
        if "get" in methods:
            for name in ("wave", "broken", "none"):
                for job in jobs:
                    yield path.replace("{name}", name).replace("{id}", job)
    yield from ("/events?model=wave&seconds=0", "/events?model=broken&seconds=0", "/openapi.json", "/", "/nothing")
    yield "/models/wave/calibration?under_model=true"


def test_no_route_names_a_place(client):
    walked = sorted({path for path in routes(client) if path != "/events"})
    assert {"/models/wave/drift", "/models/wave", "/models/wave/history", "/metrics"} <= set(walked)
    answers = {path: client.get(path, headers=bearer(client, "read")) for path in walked}
    for answer in answers.values():
        refuse_places(answer)
    assert answers["/models/wave"].json()["drift"]["verdict"].startswith("worse than expected since partition 1 (shif")
    assert answers["/models/wave"].json()["fading"]["source"] == "shifted.zarr"


@pytest.mark.parametrize(
    "body",
    [
        {"X": [[1.0]]},
        {"X": [[1.0, 2.0]], "method": "local"},
        {"X": [[1.0, 2.0]], "exposure": 2.0},
        {"X": [[1.0, 2.0]], "columns": ["a", "b"]},
    ],
)
def test_no_refusal_of_points_names_a_place(client, body):
    answer = client.post("/models/wave/predict", json=body, headers=bearer(client, "read"))
    assert answer.status_code == 422
    refuse_places(answer)


@pytest.mark.parametrize("change", [{"y": [1e200] * 30}, {"weight": [-1.0] * 30}, {"y": [1.0]}, {"event": [1.0] * 30}])
def test_no_refusal_of_rows_names_a_place(client, change):
    answer = send(client, new_rows() | change, "a", **bearer(client, "ingest"))
    assert answer.status_code == 422
    refuse_places(answer)


@pytest.mark.parametrize(
    "change", [{"data": "none.zarr"}, {"data": "../x"}, {"settings": {"x": "Z"}}, {"settings": {"query_from": "none"}}]
)
def test_no_refusal_of_a_job_names_a_place(client, change):
    answer = client.post("/jobs", json=FIT | change, headers=bearer(client, "admin"))
    assert answer.status_code in (404, 422), answer.text
    refuse_places(answer)


def test_data_sets_are_named_without_where_they_are():
    assert short_name("/a b/c/train.zarr/X[0:30]") == "train.zarr/X[0:30]"
    assert short_name("redis://host:6379/0/stream[1-0]/X[0:3]") == "stream[1-0]/X[0:3]"
    found = of_figures({"skipped": ["/a b/c/train.zarr/X[0:30]"], "fading": None, "drift": None}, ())
    assert found == {"skipped": ["train.zarr/X[0:30]"], "fading": None, "drift": None}

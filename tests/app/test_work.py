"""Jobs over HTTP: names in, names out, carried out beside a scheduler as any other."""

import json
import socket
from dataclasses import replace
from typing import get_args

import pytest
from services import asked, fitted

from bcmdist import GBCM, SerialRuntime
from bcmdist.api.requests import REQUESTS, FitRequest, IngestRequest, PredictRequest
from bcmdist.app import jobs
from bcmdist.app.coordinator import coordinate
from bcmdist.app.journal import open_job
from bcmdist.app.service.bodies import Job
from bcmdist.data.writing import write_dataset
from bcmdist.learning.option_fields import has_fields, hints_of, types_of

FIT = {
    "request": "fit",
    "data": "train.zarr",
    "model": "made",
    "settings": {"learn": False, "query": 20, "rows_per_expert": 30, "kernel": "se"},
}


class ThisMachine:
    """A scheduler's machine that is this process."""

    def __init__(self, address):
        self.address = address

    def run(self, function, *arguments):
        if function is not jobs.spawn:
            return function(*arguments)
        coordinate(open_job(*arguments), lambda address, watch: SerialRuntime(progress=watch.progress))
        return socket.gethostname(), 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def client(tmp_path, rng):
    """Of a service with a scheduler, a model `wave`, and a data set train.zarr."""
    fitted(tmp_path / "models")
    X = rng.uniform(-2, 2, (90, 2))
    write_dataset(tmp_path / "data" / "train.zarr", {"X": X, "y": X[:, 0]}, rows_per_chunk=30)
    work = {"data": str(tmp_path / "data"), "scheduler": "tcp://127.0.0.1:8786"}
    with asked(tmp_path / "models", work=work) as client:
        client.service.work = replace(client.service.work, machine=ThisMachine)
        yield client


def test_kinds_of_jobs_over_http_are_those_of_requests():
    assert set(get_args(Job.model_fields["request"].annotation)) == set(REQUESTS)


def test_a_model_is_scored_and_merged_by_name(client):
    def result(**asked):
        submitted = client.post("/jobs", json=asked)
        assert submitted.status_code == 202, submitted.text
        return client.get(f"/jobs/{submitted.json()['id']}").json()["result"]

    for name in ("one", "two"):
        result(**FIT | {"model": name})
    assert result(request="score", model="one", data="train.zarr")["rows"] == 90
    refused = client.post("/jobs", json={"request": "merge", "model_a": "one", "model_b": "../two", "model": "both"})
    assert (refused.status_code, refused.json()["error"]) == (422, "InvalidOption")
    refused = client.post("/jobs", json={"request": "merge", "model_a": "one", "model_b": "two", "model": "two"})
    assert refused.json()["error"] == "ModelExists"
    assert result(request="refit", model="one", options={"effort": "quick"})["rows"] == 90


def test_a_fit_is_submitted_watched_and_served(client, tmp_path):
    submitted = client.post("/jobs", json=FIT)
    assert submitted.status_code == 202, submitted.text
    told = client.get(f"/jobs/{submitted.json()['id']}").json()
    assert (told["state"], told["model"], told["data"]) == ("finished", "made", "train.zarr")
    assert told["result"]["rows"] == 90
    assert [one["id"] for one in client.get("/jobs").json()["jobs"]] == [told["id"]]
    for answer in (submitted, client.get("/jobs")):
        assert str(tmp_path) not in answer.text
        assert "8786" not in answer.text
    client.service.catalogue.look()
    assert client.get("/models/made").json()["rows"] == 90
    cancelled = client.request("DELETE", f"/jobs/{told['id']}")
    assert (cancelled.status_code, cancelled.json()["error"]) == (409, "JobRefused")


def test_an_ingestion_is_a_job_too(client, tmp_path):
    answer = client.post("/jobs", json={"request": "ingest", "model": "wave", "source": "train.zarr"})
    assert answer.status_code == 202
    assert GBCM.load(tmp_path / "models" / "wave").committee.total.rows == 120 + 90


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"data": "../models/wave"}, 422, "data: expected a name"),
        ({"data": "/etc"}, 422, "data: expected a name"),
        ({"data": "s3://bucket/a"}, 422, "data: expected a name"),
        ({"data": "link.zarr"}, 422, "data: expected a name"),
        ({"data": "none.zarr"}, 404, "data: expected a Zarr group at none.zarr, found none"),
        ({"model": ".rows"}, 422, "model: expected a name"),
        ({"settings": {"query_from": "/etc"}}, 422, "query_from: expected a name"),
        ({"settings": {"nonsense": 1}}, 422, "request: expected fields of fit.settings"),
        ({"request": "nonsense"}, 422, "Input should be 'fit'"),
        ({"settings": {"query": -1}}, 422, "query"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_no_job(client, tmp_path, change, code, text):
    (tmp_path / "data" / "link.zarr").symlink_to(tmp_path / "data" / "train.zarr")
    answer = client.post("/jobs", json=FIT | change)
    assert answer.status_code == code
    assert text in answer.json()["message"]
    assert str(tmp_path) not in answer.text
    assert client.get("/jobs").json() == {"jobs": []}


def texts_of(kind, path=()):
    """Where a request has a text, or a list of texts, by the names of fields on the way."""
    for name, hint in hints_of(kind).items():
        if has_fields(hint):
            yield from texts_of(hint, (*path, name))
        elif any(one in (str, list[str]) for one in types_of(hint)):
            yield (*path, name), list[str] in types_of(hint)


TEXTS = [
    pytest.param(name, path, several, value, id=f"{name} {'.'.join(path)} {value!r:.9}")
    for name, kind in {"fit": FitRequest, "ingest": IngestRequest, "predict": PredictRequest}.items()
    for number, (path, several) in enumerate(texts_of(kind))
    for value in ("a\0b", "x" * 5000, *(["\ud800"] if number == 0 else []))  # halves are looked for where NUL is
]


@pytest.mark.parametrize(("name", "path", "several", "value"), TEXTS)
def test_texts_that_name_nothing_are_refused(client, name, path, several, value):
    """With NUL, which no path holds, half a character, or too long for a name: wherever they stand."""
    places = {
        "fit": {},
        "ingest": {"source": "train.zarr", "model": "wave"},
        "predict": {"model": "wave", "out": "out"},
    }
    body = {"fit": FIT, "ingest": {"request": "ingest"}, "predict": {"request": "predict", "data": "train.zarr"}}[name]
    body = json.loads(json.dumps(body | places[name]))
    within = body
    for field in path[:-1]:
        within = within.setdefault(field, {})
    within[path[-1]] = [value] if several else value
    answer = client.post("/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code in (202, 400, 404, 409, 422), answer.text
    assert len(answer.text) < 2000
    if answer.status_code == 202:
        assert client.get(f"/jobs/{answer.json()['id']}").json()["error"] != "ValueError"


@pytest.mark.parametrize("place", ["data", "model"])
@pytest.mark.parametrize("value", ["a\0b", "x" * 5000, ""])
def test_names_that_no_file_can_have_are_refused(client, place, value):
    answer = client.post("/jobs", json=FIT | {place: value})
    assert answer.status_code == 422
    assert answer.json()["error"] in ("InvalidOption", "InvalidRequest")
    assert place in answer.json()["message"]


@pytest.mark.parametrize("job", ["20260101-000000-aaaa", "..%2Fx", "%00", "x" * 300])
def test_jobs_that_are_not_there(client, job):
    for method in ("GET", "DELETE"):
        assert client.request(method, f"/jobs/{job}").status_code in (400, 404)


def test_without_a_scheduler_nothing_is_submitted(tmp_path):
    with asked(tmp_path) as client:
        answer = client.post("/jobs", json=FIT)
        assert client.get("/jobs").json() == {"jobs": []}
    assert (answer.status_code, answer.json()["error"]) == (409, "JobRefused")

"""Values and names that nobody can mean, sent to the service: refused by their field."""

import json
from dataclasses import replace

import numpy as np
import pytest
from services import asked, fitted, send
from test_work import FIT, ThisMachine

from bcmdist import GBCM, Settings
from bcmdist.data.writing import write_dataset


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fitted(folder)
    X = np.random.default_rng(0).uniform(-2, 2, (60, 2))
    GBCM.fit((X, X[:, 0]), Settings(query=10, learn=False, kernel="linear"), model=folder / "line")
    return folder


@pytest.fixture(scope="module")
def client(models, tmp_path_factory):
    """Of a service with a scheduler and a data set train.zarr."""
    data = tmp_path_factory.mktemp("data")
    write_dataset(data / "train.zarr", {"X": np.zeros((9, 2)), "y": np.zeros(9)})
    with asked(models, work={"data": str(data), "scheduler": "tcp://127.0.0.1:8786"}) as client:
        client.service.work = replace(client.service.work, machine=ThisMachine)
        yield client


@pytest.mark.parametrize("name", ["wave", "line"])
@pytest.mark.parametrize("value", [1e308, -1e151])
def test_inputs_of_any_size_are_answered(client, name, value):
    answers = [
        client.post(f"/models/{name}/predict", json={"X": [[0.0, value]]}),
        client.post(f"/models/{name}/predict", json={"X": [[0.0, value]], "X_variance": [[0.1, 0.1]]}),
        send(client, {"X": [[0.0, value]], "y": [1.0]}, f"{value}", name),
    ]
    assert [answer.status_code for answer in answers] == [422] * 3
    assert all("expected finite numbers (up to 1e+150)" in answer.json()["message"] for answer in answers)


@pytest.mark.parametrize("column", ["event", "trials", "exposure"])
def test_columns_that_the_model_does_not_read_are_refused(client, column):
    answer = send(client, {"X": [[0.0, 0.0]], "y": [1.0], column: [1.0]}, column)
    assert answer.status_code == 422, answer.text
    assert f"{column}: expected a likelihood that uses it, got gaussian; leave it out" in answer.json()["message"]


def test_columns_that_the_model_reads_are_absorbed(tmp_path):
    rng = np.random.default_rng(0)
    X, exposure = rng.uniform(-2, 2, (60, 1)), rng.uniform(1, 2, 60)
    y, settings = rng.poisson(exposure).astype(float), Settings(query=10, learn=False, kernel="se", task="counts")
    GBCM.fit(X, y, settings, companions={"exposure": exposure}, model=tmp_path / "counts")
    with asked(tmp_path) as client:
        good = send(client, {"X": [[0.0]], "y": [3.0], "exposure": [1.5], "weight": [2.0]}, "a", "counts")
        odd = send(client, {"X": [[0.0]], "y": [3.0], "trials": [4.0]}, "b", "counts")
    assert good.status_code == 200, good.text
    assert odd.status_code == 422
    assert "trials: expected a likelihood that uses it, got negative_binomial" in odd.json()["message"]


PLACES = [
    FIT | {"model": "a\0b"},
    FIT | {"data": "a\0b"},
    FIT | {"data": "a\ud800b"},
    FIT | {"data": "x" * 5000},
    FIT | {"settings": {"query_from": "a\0b"}},
    FIT | {"settings": {"kernel": "a\0b"}},
    FIT | {"settings": {"x": "a\0b"}},
    {"request": "ingest", "model": "wave", "source": "a\0b"},
    {"request": "predict", "model": "wave", "data": "train.zarr", "out": "a\0b"},
    {"request": "score", "model": "wave", "data": "a\0b"},
]


@pytest.mark.parametrize("body", PLACES, ids=map(str, range(len(PLACES))))
def test_names_that_no_file_can_have_are_refused(client, body):
    answer = client.post("/jobs", content=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text

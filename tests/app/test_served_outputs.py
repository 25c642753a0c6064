"""Models of several outputs behind the service: rows by name, and what is no output of the model."""

import numpy as np
import pandas as pd
import pytest
from services import asked

from bcmdist import GBCM, Settings

URL = "/models/soil/predict"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(0)
    X = pd.DataFrame({"metal": np.tile(["lead", "zinc"], 30), "east": rng.uniform(0, 5, 60)})
    y = np.where(X.metal == "zinc", 100.0, 1.0) * (5.0 + np.sin(X.east)) + 0.1 * rng.standard_normal(60)
    settings = Settings(output="metal", kernel="se", learn=False, query=30, partition="chunks")
    GBCM.fit(X, y.to_numpy(), settings, model=place / "soil")
    return place


def test_rows_of_each_output(folder):
    rows = [{"metal": "zinc", "east": 2.0}, {"metal": "lead", "east": 2.0}]
    expected = GBCM.load(folder / "soil").predict(pd.DataFrame(rows))
    with asked(folder) as client:
        found = client.post(URL, json={"rows": rows}).json()["predictions"]
        np.testing.assert_allclose(found["observation_mean"], expected["observation_mean"], rtol=1e-12)
        assert found["mean"][0] > 50.0 * found["mean"][1]
        assert client.get("/models/soil").json()["outputs"]["names"] == ["lead", "zinc"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"metal": "gold", "east": 2.0}, "expected an output that the model was fitted to"),
        ({"east": 2.0}, "expected the column 'metal' in each row"),
    ],
)
def test_other_outputs_are_refused(folder, row, message):
    with asked(folder) as client:
        answer = client.post(URL, json={"rows": [row]})
        assert answer.status_code == 422
        assert message in answer.json()["message"]

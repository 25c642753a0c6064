"""Levels that training lacks are counted at every door: Python, HTTP as JSON, in pieces and as Arrow, the client."""

import json

import numpy as np
import pytest
from services import asked

from bcmdist import GBCM, Settings
from bcmdist.app.service.asking import MOST_ROWS
from bcmdist.client import Client
from bcmdist.data.arrow import MEDIA_TYPE
from bcmdist.errors import BcmdistWarning

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
pa = pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")

URL = "/models/flats/predict"
NEW = pd.DataFrame({"area": [50.0, 60.0, 70.0], "town": ["Wien", "Ulm", "Rom"]})
WARNED = r"levels of 'town' in 2 rows are not in the training data: taken for random ones of those that are"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(0)
    frame = pd.DataFrame({"area": rng.uniform(30, 200, 200), "town": rng.choice(["Ulm", "Chur"], 200)})
    GBCM.fit(frame, frame.area, Settings(kernel="se", query=20, learn=False), model=place / "flats")
    return place


def test_python_warns(folder):
    made = GBCM.load(folder / "flats")
    for predict in (made.predict, made.predict_frame):
        with pytest.warns(BcmdistWarning, match=f"X: {WARNED}"):
            predict(NEW)
        with pytest.warns(BcmdistWarning, match="the level of 'town' in 1 row is not"):
            predict(NEW[:1])
    made.predict(NEW[1:2])  # warnings are errors here


def test_answers_say_how_many(folder):
    rows = NEW.to_dict("records")
    with asked(folder) as client:
        assert client.post(URL, json={"rows": rows}).json()["unknown_levels"] == {"town": 2}
        assert "unknown_levels" not in client.post(URL, json={"rows": rows[1:2]}).json()
        many = client.post(URL, json={"rows": rows * MOST_ROWS}).json()
        assert many["unknown_levels"] == {"town": 2 * MOST_ROWS}
        content = pa.BufferOutputStream()
        table = pa.Table.from_pandas(NEW, preserve_index=False)
        with pa.ipc.new_stream(content, table.schema) as writer:
            writer.write_table(table)
        kinds = {"Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
        answer = client.post(URL, content=content.getvalue().to_pybytes(), headers=kinds)
        about = pa.ipc.open_stream(answer.content).schema.metadata
        assert json.loads(about[b"unknown_levels"]) == {"town": 2}


def test_the_client_warns(folder, monkeypatch):
    with asked(folder) as server:
        monkeypatch.setattr(Client, "_json", lambda self, verb, path, body: server.post(path, json=body).json())
        service = Client("http://service")
        with pytest.warns(BcmdistWarning, match=WARNED):
            service.predict("flats", NEW)
        service.predict("flats", NEW[1:2])

"""The service says that an ingester is dead, and that nobody knows how much waits."""

import re

from services import asked, fitted

from bcmdist.storage.heartbeats import beating
from bcmdist.storage.leases import this_process

SOURCE = "redis://h:6379/0/rows"


def left(store):
    """The heartbeat of an ingester that was killed."""
    from bcmdist.storage.blobs import canonical_json

    content = {"model": store.storage.url, "source": SOURCE, "process": this_process() | {"pid": -1}}
    store.storage.put_if_absent(f"ingesters/{0:032x}-00000000", canonical_json(content))


def gauge(client, name):
    found = re.findall(rf'^{name}{{model="wave"}} (.*)$', client.get("/metrics").text, re.MULTILINE)
    return [float(value) for value in found]


def test_a_service_whose_ingester_is_dead_is_not_ready(tmp_path, monkeypatch):
    monkeypatch.setattr("bcmdist.app.service.served.BEAT_SECONDS", 0.0)
    store = fitted(tmp_path).store
    with asked(tmp_path) as client:
        look = client.service.catalogue.look
        assert client.get("/ready").status_code == 200
        assert gauge(client, "bcmdist_model_lag_rows") == [0.0]
        assert client.get("/models/wave").json()["ingesters"] == []
        with beating(store, SOURCE):
            look()
            assert client.get("/ready").status_code == 200
            assert [one["alive"] for one in client.get("/models/wave").json()["ingesters"]] == [True]
            assert gauge(client, "bcmdist_model_ingesters") == [1.0]
        left(store)
        look()
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["error"]) == (503, "IngesterDead")
        assert "expected an ingester" in answer.json()["message"]
        assert "wave" not in answer.text  # nobody has shown a token
        figures = client.get("/models/wave").json()
        assert figures["lag"] == {"rows": None, "seconds": None}
        assert [one["alive"] for one in figures["ingesters"]] == [False]
        assert SOURCE not in str(figures)
        assert client.get("/models").json()["models"][0]["lag"] == {"rows": None, "seconds": None}
        assert gauge(client, "bcmdist_model_lag_rows") == gauge(client, "bcmdist_model_lag_seconds") == []
        assert gauge(client, "bcmdist_model_ingesters") == [0.0]
        assert client.get("/health").status_code == 200
        with beating(store, SOURCE):  # started again
            look()
            assert client.get("/ready").status_code == 200

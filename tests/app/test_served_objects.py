"""Models of an object store that are served, with the rows of requests on a disk."""

import pytest
from services import QUICK, asked, new_rows, send

from bcmdist import GBCM, Settings
from bcmdist.app.service.catalogue import Catalogue
from bcmdist.errors import DataNotFound, InvalidOption

pytest.importorskip("obstore")

from bcmdist.storage.locate import open_storage
from servers import set_s3, small_s3

MODELS = "s3://bucket/models"


@pytest.fixture
def objects(monkeypatch, wave):
    """A store of objects with a model `wave` below `MODELS`."""
    with small_s3() as server:
        set_s3(monkeypatch, server.url)
        GBCM.fit(wave[0], Settings(**QUICK), model=f"{MODELS}/wave")
        yield server


def test_models_of_an_object_store_are_served_and_hear_rows(objects, tmp_path):
    open_storage(MODELS).put_if_absent("other/notes.txt", b"no model")
    with asked(tmp_path, models=MODELS, work={"rows": str(tmp_path / "rows")}) as client:
        assert [one["name"] for one in client.get("/models").json()["models"]] == ["wave"]
        rows = new_rows()
        before = client.post("/models/wave/predict", json={"X": rows["X"]})
        assert before.status_code == 200, before.text
        assert send(client, rows, "a").status_code == 200
        assert send(client, rows, "a").status_code == 200  # once, under one key
        assert client.get("/models/wave").json()["rows"] == 240 + 30
    assert GBCM.load(f"{MODELS}/wave").committee.total.rows == 240 + 30
    assert len(list((tmp_path / "rows/wave").glob("*/*.zarr.zip"))) == 1


def test_a_newer_commit_is_served(objects, tmp_path):
    catalogue = Catalogue(MODELS, tmp_path / "rows")
    try:
        gbcm = GBCM.load(f"{MODELS}/wave")
        gbcm.forget([gbcm.ledger[0].key])
        catalogue.look()
        with catalogue["wave"].using() as loaded:
            assert loaded.fitted.snapshot.committee.total.rows < 240
    finally:
        catalogue.close()


@pytest.mark.parametrize(
    ("folder", "rows", "error", "words"),
    [
        (MODELS, None, InvalidOption, "expected --rows DIR on a disk beside an object store, got none"),
        (MODELS, "s3://bucket/rows", InvalidOption, "--rows: expected a directory on a disk, got s3://"),
        ("https://host/models", "rows", InvalidOption, "MODELS_DIR: expected a directory on a disk, got https://"),
        ("nowhere", None, DataNotFound, "expected a directory of models"),
    ],
)
def test_what_cannot_be_served(folder, rows, error, words):
    with pytest.raises(error, match=words):
        Catalogue(folder, rows)

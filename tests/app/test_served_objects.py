"""Models of an object store that are served, with the rows of requests on a disk or beside them."""

import pytest
from services import QUICK, asked, new_rows, send

from bcmdist import GBCM, Settings
from bcmdist.app.service.catalogue import Catalogue
from bcmdist.app.service.waiting import WaitingRows
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


@pytest.mark.filterwarnings("ignore:(?s).*what arrives is far worse:bcmdist.errors.BcmdistWarning")
@pytest.mark.parametrize("rows_folder", [None, "rows"])
def test_models_of_an_object_store_are_served_and_absorb_rows(objects, tmp_path, rows_folder):
    """Rows of requests are stored on a disk, or beside the models; sent to another service they count once."""
    open_storage(MODELS).put_if_absent("other/notes.txt", b"no model")
    rows, answers = new_rows(), []
    place = str(tmp_path / "rows") if rows_folder else f"{MODELS}/.rows"
    for _ in range(2):
        work = {"rows": place if rows_folder else None}
        with asked(tmp_path, models=MODELS, work=work) as client:
            assert [one["name"] for one in client.get("/models").json()["models"]] == ["wave"]
            before = client.post("/models/wave/predict", json={"X": rows["X"]})
            assert before.status_code == 200, before.text
            answers += [send(client, rows, "a") for _ in range(2)]
            assert client.get("/models/wave").json()["rows"] == 240 + 30
            assert send(client, new_rows(9), "a").status_code == 409
    assert [one.status_code for one in answers] == [200] * 4
    assert [one.headers["Idempotent-Replayed"] for one in answers] == ["false", "true", "true", "true"]
    model = GBCM.load(f"{MODELS}/wave")
    assert model.committee.total.rows == 240 + 30
    stored = open_storage(f"{place}/wave/{model.snapshot.identity}").names("")
    assert [name.endswith(".zarr.zip") for name in stored] == [True]
    model.forget([model.ledger[0].key])
    assert GBCM.load(f"{MODELS}/wave").committee.total.rows == 240 + 30 - model.ledger[0].rows


def test_a_newer_commit_is_served(objects, tmp_path):
    catalogue = Catalogue(MODELS, WaitingRows(), tmp_path / "rows")
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
        (
            MODELS,
            "https://host/rows",
            InvalidOption,
            "--rows: expected a directory on a disk or an obj.*, got https://",
        ),
        (
            "https://host/models",
            "rows",
            InvalidOption,
            "MODELS_DIR: expected a directory on a disk or .*, got https://",
        ),
        ("nowhere", None, DataNotFound, "expected a directory of models"),
    ],
)
def test_what_cannot_be_served(folder, rows, error, words):
    with pytest.raises(error, match=words):
        Catalogue(folder, WaitingRows(), rows)

"""What is kept of the rows of requests, and for how long."""

import os
import shutil
import time

import pytest
from processes import wait_until
from services import asked, fitted, new_rows, send

from bcmdist import GBCM
from bcmdist.app.service import catalogue as catalogues
from problems import assert_same_committee

DAY = 86_400.0


@pytest.fixture(scope="module")
def fitted_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    fitted(folder)
    return folder / "wave"


@pytest.fixture
def models(fitted_once, tmp_path):
    shutil.copytree(fitted_once, tmp_path / "models" / "wave")
    return tmp_path / "models"


def files(models):
    """Files of rows; the lock of those that commit them is none."""
    return sorted(path for path in (models / ".rows").rglob("*") if path.is_file() and path.suffix != ".lock")


def make_old(path, days):
    os.utime(path, (time.time() - days * DAY,) * 2)


def refused(*_, **__):
    raise RuntimeError("on purpose")


def test_a_request_is_one_file(models):
    with asked(models) as client:
        for number in range(3):
            assert send(client, new_rows(number), f"k{number}").status_code == 200
    assert len(files(models)) == 3


def test_rows_that_the_ledger_names_are_kept(models):
    with asked(models) as client:
        before = GBCM.load(models / "wave")
        assert send(client, new_rows(), "a").status_code == 200
        (kept,) = files(models)
        make_old(kept, 1000)
        assert client.service.catalogue["wave"].sweep(1) == 0
    after = GBCM.load(models / "wave")
    assert files(models) == [kept]
    assert_same_committee(after.forget([after.ledger[-1].key]).committee, before.committee)  # which reads them


def test_rows_that_no_ledger_names_are_kept_for_some_days(models, monkeypatch):
    with asked(models) as client:
        with monkeypatch.context() as patched:
            patched.setattr(GBCM, "ingest", refused)
            assert send(client, new_rows(), "a").status_code == 500
        served, (kept,) = client.service.catalogue["wave"], files(models)
        make_old(kept, 29)
        assert served.sweep(30) == 0
        make_old(kept, 31)
        assert served.sweep(30) == 1
        assert files(models) == []
        assert send(client, new_rows(), "a").status_code == 200
    assert GBCM.load(models / "wave").committee.total.rows == 150


def test_rows_that_are_sent_again_are_new(models, monkeypatch):
    with asked(models) as client:
        monkeypatch.setattr(GBCM, "ingest", refused)
        send(client, new_rows(), "a")
        make_old(*files(models), 31)
        send(client, new_rows(), "a")
        assert client.service.catalogue["wave"].sweep(30) == 0


def test_what_unfinished_writes_have_left_is_removed_after_a_day(models):
    with asked(models) as client:
        assert send(client, new_rows(), "a").status_code == 200
        (kept,) = files(models)
        for name, days in {".tmp-old": 1.1, ".tmp-new": 0.9}.items():
            (kept.parent / name).write_bytes(b"half")
            make_old(kept.parent / name, days)
        assert client.service.catalogue["wave"].sweep(30) == 1
    assert [path.name for path in files(models)] == [".tmp-new", kept.name]


def test_the_service_sweeps_by_itself(models, monkeypatch):
    monkeypatch.setattr(catalogues, "RENEW_SECONDS", 0.01)
    with asked(models) as client:
        assert send(client, new_rows(), "a").status_code == 200
        folder = files(models)[0].parent
    (folder / ("0" * 32 + ".zarr.zip")).write_bytes(b"")
    make_old(folder / ("0" * 32 + ".zarr.zip"), 8)
    with asked(models, work={"keep_rows": 9}):
        pass
    with asked(models, work={"keep_rows": 7}):
        wait_until(lambda: len(files(models)) == 1, "a sweep")


def test_rows_of_other_models_are_left(models, fitted_once, tmp_path):
    """Nobody knows where copies of them are, whose ledgers name these rows."""
    with asked(models) as client:
        assert send(client, new_rows(), "a").status_code == 200
        make_old(*files(models), 1000)
        shutil.rmtree(models / "wave")
        fitted(models, rows=60)
        client.service.catalogue.look()
        assert client.service.catalogue["wave"].sweep(1) == 0
    assert len(files(models)) == 1

"""Rows that local predictions do not find around new points, as they were ingested by an earlier version: a warning."""

import json
import shutil
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.committee.facts import Cells
from bcmdist.errors import BcmdistWarning

SPATIAL = Settings(kernel="se", learn=False, query=10, rows_per_expert=60, partition="spatial")
TOLD = r"80 of 320 rows.*count through the committee only.*fit again.*--method committee"


@pytest.fixture(autouse=True)
def cells_take_no_rows(monkeypatch):
    """As in versions that made no copies of rows."""
    monkeypatch.setattr(Cells, "take_rows", False)


@pytest.fixture
def ingested(wave, make_data, tmp_path):
    """A spatial model that has ingested 80 rows whose targets are shifted by 3; inputs and targets of these."""
    path, X, y = wave
    model = GBCM.fit(path, SPATIAL, model=tmp_path / "model")
    later = make_data("later.zarr", X=X[:80] + 0.001, y=y[:80] + 3.0, rows_per_chunk=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # of drift
        return model.ingest(model.source(later))[0], later, X[:80] + 0.001, y[:80] + 3.0


def once(call):
    with pytest.warns(BcmdistWarning, match=TOLD) as found:
        call()
    assert len(found) == 1


def test_predictions_warn_once_a_call(ingested, tmp_path):
    gbcm, later, X, y = ingested
    once(lambda: gbcm.predict(X))
    once(lambda: gbcm.predict_zarr(later, tmp_path / "p.zarr"))
    once(lambda: gbcm.score(later))
    once(lambda: gbcm.score(X, y))
    once(lambda: GBCM.load(gbcm.url).predict(X))


def test_info_counts_them(ingested):
    gbcm, *_ = ingested
    found = gbcm.info()  # without a warning, since the advice is shown with it
    assert found["cells"]["rows_outside"] == 80
    assert "80 of 320 rows" in found["advice"]


def test_the_committee_counts_all_rows_and_nothing_is_said(ingested, wave, tmp_path):
    gbcm, later, X, _ = ingested
    gbcm.predict(X, method="committee")
    gbcm.score(later, method="committee")
    gbcm.predict_zarr(later, tmp_path / "c.zarr", method="committee")
    before = GBCM.fit(wave[0], SPATIAL, model=tmp_path / "before")
    before.predict(X)
    assert "rows_outside" not in before.info()["cells"]
    assert "through the committee" not in before.info()["advice"]


def test_commands_warn(ingested, tmp_path):
    gbcm, later, *_ = ingested
    commands = [
        ["score", gbcm.url, later, "--serial"],
        ["predict", gbcm.url, later, "--out", str(tmp_path / "out.zarr"), "--serial"],
    ]
    for command in commands:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            result = CliRunner().invoke(cli, [*command, "--json"], catch_exceptions=False)
        (said,) = json.loads(result.stdout.splitlines()[-1])["warnings"]
        assert "80 of 320 rows" in said
        assert result.stderr.count("80 of 320 rows") == 1


def test_ingestion_warns_of_new_rows_only(ingested, make_data):
    gbcm, _, X, y = ingested
    more = make_data("more.zarr", X=X + 0.002, y=y, rows_per_chunk=40)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        first, again = (CliRunner().invoke(cli, ["ingest", gbcm.url, more, "--serial"]) for _ in range(2))
    assert first.stderr.count("160 of 400 rows") == 1
    assert "through the committee only" not in again.stderr


def test_merging_says_that_local_predictions_end(wave, make_data, tmp_path):
    path, X, y = wave
    GBCM.prepare(path, SPATIAL, model=tmp_path / "prepared")
    shutil.copytree(tmp_path / "prepared", tmp_path / "other")
    one = GBCM.fit(path, SPATIAL, model=tmp_path / "prepared")
    other = GBCM.load(tmp_path / "other").partial_fit(make_data("b.zarr", X=X[:80] + 0.001, y=y[:80]))
    for number, pair in enumerate([(one, other), (other, one)]):
        with pytest.warns(BcmdistWarning, match=r"320 rows count through the committee only.*fit again"):
            both = pair[0].merge(pair[1], tmp_path / f"both{number}")
        assert both.chosen_method() == "committee"
        np.testing.assert_allclose(both.predict(X)["mean"], both.predict(X, method="committee")["mean"])

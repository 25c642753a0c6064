"""Streams ingested by the Kalman filter's step of mean and covariance give the committee of summed messages."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, DaskRuntime, IngestOptions, SerialRuntime, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.writing import append_rows, write_dataset
from bcmdist.errors import InvalidData, InvalidOption
from problems import assert_same_committee

ROWS = 40


def sensor(rng, X):
    return np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(len(X))


def visits(rng, X):
    return rng.poisson(np.exp(1.0 + np.sin(X[:, 0]))).astype(float)


def classes(rng, X):
    return (X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.standard_normal(len(X)) > 1.0).astype(float)


STREAMS = {
    "a sensor": (sensor, {"task": "regression"}),
    "counts": (visits, {"task": "counts"}),
    "classes": (classes, {"task": "classification"}),
}


@pytest.fixture(params=STREAMS)
def stream(request, tmp_path, rng):
    """Two models that have absorbed nothing, and a data set of 8 partitions."""
    targets, how = STREAMS[request.param]
    X = rng.uniform(-2, 2, (8 * ROWS, 2))
    write_dataset(tmp_path / "stream.zarr", {"X": X, "y": targets(rng, X)}, rows_per_chunk=ROWS)
    settings = Settings(kernel="matern32", learn=False, query=25, rows_per_expert=ROWS, partition="chunks", **how)
    one, other = (GBCM.prepare(tmp_path / "stream.zarr", settings, model=tmp_path / name) for name in "ab")
    return one, other, tmp_path / "stream.zarr"


@pytest.mark.parametrize("half_life", [None, 100.0])
def test_both_forms_give_one_committee(stream, half_life):
    one, other, url = stream
    options = {"commit_every": 2, "half_life": half_life}
    one, _ = one.ingest(one.source(url), IngestOptions(update="information", **options))
    other, _ = other.ingest(other.source(url), IngestOptions(update="kalman", **options))
    assert_same_committee(one.committee, other.committee)
    assert [entry.digest for entry in one.ledger] == [entry.digest for entry in other.ledger]
    updates = [[commit["update"] for commit in found.history() if commit["update"]] for found in (one, other)]
    assert len(updates[0]) >= 4
    for information, kalman in zip(*updates, strict=True):
        assert (information["form"], kalman["form"]) == ("information", "kalman")
        for name in ("rows", "measurements", "innovation", "gain"):
            assert kalman[name] == pytest.approx(information[name], rel=1e-8)


@pytest.fixture
def sensor_model(tmp_path, rng):
    X = rng.uniform(-2, 2, (8 * ROWS, 2))
    write_dataset(tmp_path / "stream.zarr", {"X": X, "y": sensor(rng, X)}, rows_per_chunk=ROWS)
    values = {"likelihood.noise_variance": 0.04 / 1.9}  # that of the standardised targets
    settings = Settings(kernel="matern32", learn=False, query=25, rows_per_expert=ROWS, partition="chunks", set=values)
    return GBCM.prepare(tmp_path / "stream.zarr", settings, model=tmp_path / "model"), tmp_path / "stream.zarr"


@pytest.mark.slow
def test_workers_give_the_updates_of_one_process(sensor_model, tmp_path):
    model, url = sensor_model
    found = []
    with DaskRuntime(workers=2) as runtime:
        for where in (SerialRuntime(), runtime):
            start = GBCM.load(model.url).save(tmp_path / f"copy{len(found)}")
            options = IngestOptions(update="kalman", commit_every=100)
            found.append(start.ingest(start.source(url), options, runtime=where)[0])
    assert_same_committee(found[0].committee, found[1].committee)
    one, other = (fitted.facts["update"] for fitted in found)
    for name in ("commit", "rows", "measurements", "innovation", "gain"):
        assert one[name] == pytest.approx(other[name], rel=1e-8)


def test_update_returns_innovation_and_gain(sensor_model, rng):
    model, url = sensor_model
    model = model.partial_fit(url)
    X = rng.uniform(-2, 2, (ROWS, 2))
    after, usual = model.update(X, sensor(rng, X))
    assert after.committee.total.rows == 9 * ROWS
    assert (usual.rows, usual.form, usual.commit) == (ROWS, "kalman", after.commit)
    assert 0.2 < usual.innovation < 3.0
    _, moved = after.update(X, sensor(rng, X) + 2.0)
    assert moved.innovation > 5.0 * usual.innovation
    assert 0.0 < moved.gain < usual.gain < 1.0, "the same places again"
    _, added = after.update(X, sensor(rng, X), form="information")
    assert added.form == "information"


def test_update_without_new_rows_is_refused(sensor_model):
    model, url = sensor_model
    model, _ = model.update(url)
    with pytest.raises(InvalidData, match="expected rows that were not absorbed yet, all were; give new rows"):
        model.update(url)


def test_a_form_of_another_name_is_refused():
    with pytest.raises(InvalidOption, match="--update: expected information or kalman, got 'filter'; give one of"):
        IngestOptions(update="filter")


def test_command_line(sensor_model, rng):
    model, url = sensor_model

    def run(*words):
        result = CliRunner().invoke(cli, [*words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    figures = json.loads(run("ingest", model.url, str(url), "--update", "kalman", "--serial", "--json"))
    assert figures["update"]["form"] == "kalman"
    assert f"innovation {figures['update']['innovation']:.2f}, gain" in run("info", model.url, "--history")
    X = rng.uniform(-2, 2, (ROWS, 2))
    append_rows(url, X, sensor(rng, X))
    figures = json.loads(run("ingest", model.url, str(url), "--serial", "--json"))
    assert figures["partitions"] == 1
    assert "update" not in figures
    assert GBCM.load(model.url).history()[-1]["update"] is None


def test_an_expert_without_a_matrix_is_refused_before_rows_are_read(tmp_path, rng, monkeypatch):
    pytest.importorskip("finufft", reason="fourier: pip install 'bcmdist[fourier]'")
    X = rng.uniform(-2, 2, (80, 1))
    write_dataset(tmp_path / "a.zarr", {"X": X, "y": np.sin(X[:, 0])}, rows_per_chunk=ROWS)
    settings = Settings(expert="fourier", kernel="se", tolerance=0.1, learn=False)
    model = GBCM.prepare(tmp_path / "a.zarr", settings, model=tmp_path / "model")
    source = model.source(tmp_path / "a.zarr")
    monkeypatch.setattr(source, "read", None)
    with pytest.raises(InvalidOption, match="--update: expected an expert whose messages contain a precision matrix"):
        model.ingest(source, IngestOptions(update="information"))

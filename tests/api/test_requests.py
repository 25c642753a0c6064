"""Requests are values: as JSON and back, refused by the field, checked without a runtime, carried out as by hand."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api.carry_out import carry_out, check
from bcmdist.api.request_json import from_json, to_json
from bcmdist.api.requests import (
    FitRequest,
    ForecastRequest,
    ForgetRequest,
    IngestRequest,
    MergeRequest,
    PredictRequest,
    RefitOptions,
    RefitRequest,
    ScoreRequest,
    located,
    named_places,
    request_of,
)
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.errors import BcmdistError, DataExists, DataNotFound, InvalidOption, InvalidRequest, ModelNotFound
from bcmdist.learning.option_fields import hints_of
from problems import assert_same_committee

QUICK = Settings(partition="chunks", learn=False, kernel="se", query=30, rows_per_expert=60)
SOME = [
    FitRequest("d", "m", replace(QUICK, set={"kernel.lengthscale": [0.5, 2.0], "kernel.variance": 1.5}), "hmc", 3, 1),
    FitRequest("d", "m", Settings(partition="chunks", query="auto", passes="auto"), prepare_only=True),
    FitRequest("d", "m", Settings(expert="dgp", layers=3, units=5)),
    FitRequest("d", "m", Settings(partition="chunks", noisy_inputs="hmc")),
    IngestRequest("m", "s", IngestOptions(watch=True, half_life=100, window=7, skip=True, same_rows="allow"), 2.5),
    PredictRequest("m", "d", "o", method="another", id="name"),
    ScoreRequest("m", "d", y="target"),
    ForecastRequest("m", 3, "series.csv", inputs="naive"),
    ForgetRequest("m", ["one", "two"]),
    MergeRequest("a", "b", "m", query_most=30),
    RefitRequest("m", RefitOptions(newest=100, kernel="se")),
]


@pytest.mark.parametrize("request_", SOME, ids=lambda one: type(one).__name__)
def test_there_and_back(request_):
    assert from_json(json.loads(json.dumps(to_json(request_)))) == request_


def test_every_value_is_written():
    """What a request means does not change with defaults; what a later version adds is as by default."""
    written = to_json(FitRequest("d", "m"))
    assert written["request"] == "fit"
    assert written["settings"] == {name: getattr(Settings(), name) for name in (*hints_of(Settings), "noisy_inputs")}
    assert "stop" not in to_json(SOME[4])["options"]
    assert from_json({"request": "fit", "data": "d", "model": "m"}) == FitRequest("d", "m")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"request": "plot"}, r"one of fit, ingest, predict, score, .*refit, got \{'request': 'plot'"),
        ({"request": None}, "expected an object whose request is one of"),
        ({"querry": 3}, r"expected fields of fit \(data, model, settings, .*\), got 'querry'; leave it out"),
        ({"settings": {"querry": 3}}, r"expected fields of fit.settings \(task, .*, layers, .*, got 'querry'"),
        ({"settings": {"query": 1.5}}, 'a whole number or "auto" or null as fit.settings.query, got 1.5; correct it'),
        ({"settings": {"seed": True}}, "a whole number as fit.settings.seed, got True"),
        ({"settings": {"learn": 1}}, "true or false as fit.settings.learn, got 1"),
        ({"settings": {"partition": "cubes"}}, '"chunks" or "spatial" as fit.settings.partition, got \'cubes\''),
        ({"settings": {"set": {"kernel.variance": "1"}}}, "an object as fit.settings.set"),
        ({"settings": []}, r"an object as fit.settings, got \[\]"),
        ({"samples": 1e3}, "a whole number as fit.samples, got 1000.0"),
        ({"data": None}, "a text as fit.data, got None"),
    ],
)
def test_what_is_no_request_is_refused_by_the_field(change, said):
    with pytest.raises(InvalidRequest, match=f"request: .*{said}"):
        from_json(to_json(FitRequest("d", "m")) | change)


@pytest.mark.parametrize("found", [None, [], "fit", {}, 3])
def test_what_is_no_object_is_refused(found):
    with pytest.raises(InvalidRequest, match="expected an object whose request is one of"):
        from_json(found)


def test_what_is_missing_is_named():
    with pytest.raises(InvalidRequest, match="expected model in fit, it is not there; add it"):
        from_json({"request": "fit", "data": "d"})


def test_values_are_checked_as_when_they_are_said():
    with pytest.raises(InvalidOption, match="query: expected at least 1, got 0"):
        from_json({"request": "fit", "data": "d", "model": "m", "settings": {"query": 0}})
    with pytest.raises(InvalidOption, match="--prepare-only: expected hyper-parameters by evidence, got hmc"):
        FitRequest("d", "m", prepare_only=True, hyperparameters="hmc")
    with pytest.raises(InvalidOption, match="--keep: expected at least 1, got 0"):
        request_of(IngestRequest, {"model": "m", "source": "s", "keep": 0})


def test_values_by_the_names_of_fields():
    given = {"data": "d", "model": "m", "query": 7, "samples": 3, "layers": 3, "expert": "dgp", "unheard": "of"}
    settings = Settings(query=7, expert="dgp", layers=3)
    assert request_of(FitRequest, given) == FitRequest("d", "m", settings, samples=3)


def test_options_of_methods_stand_among_the_fields_of_settings():
    """As jobs of earlier versions have them: those of all methods, at their defaults where the expert reads others."""
    settings = to_json(FitRequest("d", "m", Settings(expert="dgp", layers=3)))["settings"]
    assert settings.items() >= {"layers": 3, "units": None, "deep_sites": "tied"}.items()
    assert "networks" not in settings
    earlier = settings | {"networks": 4, "tolerance": 0.001, "rvm_dictionary": None, "noisy_inputs": "no"}
    found = from_json({"request": "fit", "data": "d", "model": "m", "settings": earlier})
    assert found == FitRequest("d", "m", Settings(expert="dgp", layers=3))
    with pytest.raises(InvalidOption, match="networks: expected the expert mnnmix with it, got dgp"):
        from_json({"request": "fit", "data": "d", "model": "m", "settings": settings | {"networks": 5}})
    with pytest.raises(InvalidRequest, match=r"expected a whole number as fit\.settings\.layers, got '3'"):
        from_json({"request": "fit", "data": "d", "model": "m", "settings": settings | {"layers": "3"}})


def test_places_are_absolute_and_hold_no_password(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = located(PredictRequest("m", "file:///d.zarr", "s3://bucket/o"))
    assert named_places(found) == {"model": f"{tmp_path}/m", "data": "/d.zarr", "out": "s3://bucket/o"}
    with pytest.raises(BcmdistError, match="leave them out"):
        located(IngestRequest("m", "redis://me:hunter2@host/stream"))


def test_requests_load_nothing_heavy():
    code = "import sys, bcmdist.api.requests; print(sorted({'numpy', 'scipy', 'zarr', 'dask'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# --- Carried out ---


@pytest.mark.slow
def test_they_do_what_the_facade_does(wave, tmp_path):
    path, X, _ = wave
    model = str(tmp_path / "m")
    fitted = carry_out(FitRequest(path, model, QUICK, prepare_only=True), SerialRuntime)
    assert (fitted["rows"], fitted["commit"]) == (0, 1)
    ingested = carry_out(IngestRequest(model, path, IngestOptions(max_partitions=2)), SerialRuntime)
    assert (ingested["partitions"], ingested["stopped"]) == (2, False)
    assert ingested["rows_per_second"] == pytest.approx(ingested["rows"] / ingested["seconds"])
    carry_out(FitRequest(path, model, QUICK), SerialRuntime)
    by_hand = GBCM.fit(path, QUICK)
    assert_same_committee(GBCM.load(model).committee, by_hand.committee)
    scored = carry_out(ScoreRequest(model, path), SerialRuntime)
    assert scored == {"method": "committee", **GBCM.load(model).score(path)}
    out = str(tmp_path / "p.zarr")
    said = carry_out(PredictRequest(model, path, out), SerialRuntime)
    assert (said["rows"], said["out"], said["method"]) == (len(X), out, "committee")
    assert list(said) == ["rows", "seconds", "out", "method", "unused"]


@pytest.mark.filterwarnings("ignore:.*the model knows no names")
def test_a_check_refuses_and_leaves_nothing(wave, tmp_path):
    path, X, _ = wave
    model, out = str(tmp_path / "m"), str(tmp_path / "out.csv")
    with pytest.raises(DataNotFound):
        check(FitRequest(str(tmp_path / "no.zarr"), model))
    with pytest.raises(ModelNotFound):
        check(IngestRequest(model, path))
    commit = GBCM.fit(path, QUICK, model=model).commit
    with pytest.raises(DataExists):
        check(PredictRequest(model, path, path))
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join(["a,b", *(f"{a},{b}" for a, b in X[:5])]))
    before = sorted(tmp_path.rglob("*"))
    check(FitRequest(path, str(tmp_path / "new"), QUICK))
    check(PredictRequest(model, str(rows), out))
    check(IngestRequest(model, path))
    assert sorted(tmp_path.rglob("*")) == before
    assert GBCM.load(model).commit == commit


def test_no_runtime_is_made_for_what_is_refused(tmp_path):
    with pytest.raises(DataNotFound):
        carry_out(FitRequest(str(tmp_path / "no.zarr"), str(tmp_path / "m")), lambda: pytest.fail("was made"))


def test_what_is_no_request():
    with pytest.raises(InvalidRequest, match=r"expected a request to fit, ingest, predict, .*refit, got Settings; see"):
        check(Settings(partition="chunks"))

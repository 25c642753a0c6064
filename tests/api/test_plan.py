"""Plans of fits: tasks are timed as they run, counts grow as work does, and nothing is written beside data or model."""

import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bcmdist
from bcmdist import GBCM, SerialRuntime, Settings, plan
from bcmdist.api.plan.steps import PASSES, Step, steps
from bcmdist.api.plan.trial import CLIENT, Stopwatch
from bcmdist.api.requests import FitRequest
from bcmdist.app.cli.main import cli
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import Span
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption, MemoryLimit, ModelExists
from bcmdist.learning.evidence.objectives import LocalObjective
from bcmdist.learning.prepare import fit_context, survey
from bcmdist.learning.search_length import PER_STEP, evaluations

FIT = Settings(learn=False, kernel="se", query=30, rows_per_expert=60)
MANY = 10_000  # rows of the planned fits; the timings are given


# --- Timing ---


@dataclass(frozen=True)
class Sleep:
    """A task that takes 2 ms."""

    def __call__(self, part, rows):
        time.sleep(0.002)
        return 1


@dataclass(frozen=True)
class Another(Sleep):
    """The same of another kind."""


SPANS = [Span(0, 1), Span(1, 2), Span(2, 3)]


def test_tasks_are_timed_by_stage_and_label():
    run = Stopwatch(1e9)
    with run.stage("experts"):
        run.sum(Sleep(), SPANS, label="a")
        assert len(list(run.each([(Sleep(), SPANS[:2]), (Sleep(), SPANS[2:])], label="b"))) == 2
        time.sleep(0.01)
    for label in "ab":
        seconds, tasks = run.times["experts", label]
        assert tasks == 3
        assert seconds >= 0.006
    assert run.times["experts", CLIENT][0] >= 0.01


def test_one_round_ends_when_the_first_kind_of_task_comes_again():
    run = Stopwatch(1e9)
    with run.stage("train", one_round=True):
        for _ in range(5):
            run.sum(Sleep(), SPANS, label="train")
            run.sum(Sleep(), SPANS, label="train")
            run.sum(Another(), SPANS, label="train")
    assert run.times["train", "train"][1] == 9
    assert run.sum(Sleep(), SPANS, label="later") == 3


# --- Counts ---

TIMES = {
    ("first", "learn"): (2.0, 2),
    ("later", "learn"): (4.0, 2),
    ("near", "neighbourhoods"): (1.0, 2),
    ("judge", "judge"): (1.0, 2),
    ("query", CLIENT): (1.0, 1),
    ("experts", "experts"): (2.0, 2),
    ("experts", CLIENT): (0.5, 1),
    ("errors", "errors"): (1.0, 2),
}


@pytest.fixture
def case(make_data, rng):
    """Function of settings: the context of a fit to 10,000 rows."""
    data = open_data(make_data(rows_per_chunk=500, X=rng.standard_normal((MANY, 2)), y=rng.standard_normal(MANY)))

    def made(**settings):
        settings = Settings(**({"rows_per_expert": 500, "kernel": "se"} | settings))
        return fit_context(data, survey(data, settings, SerialRuntime(), among=range(4)), settings, SerialRuntime())

    return made


def seconds(case, times=TIMES, threads=1, task=0.0, latency=0.0):
    found = {}
    for step in steps(case, times, 300, 2, 1000):
        found[step.stage] = found.get(step.stage, 0.0) + step.seconds(threads, task, latency)
    return found


def test_tasks_are_repeated_for_each_partition_up_to_their_limit(case):
    found = seconds(case(learn=False))
    assert found["experts"] == pytest.approx(20 * 1.0 + 0.5)
    assert found["errors"] == pytest.approx(16 * 0.5)
    assert found["query"] == pytest.approx(3.0)  # from 3,000 rows in place of 1000
    assert "learn" not in found


def test_threads_share_tasks_and_each_task_costs_something(case):
    given = case(learn=False)
    assert seconds(given, threads=2)["experts"] == pytest.approx(10 * 1.0 + 0.5)
    assert seconds(given, task=0.1)["experts"] == pytest.approx(20 * 1.1 + 0.5)
    assert seconds(given, latency=0.1)["experts"] == pytest.approx(20 * 1.0 + 0.6)
    assert Step("query", 3.0, 0.0).seconds(8, 1.0, 1.0) == 3.0


def test_learning_is_evaluations_times_blocks(case):
    given = case()
    coarse, fine, further = evaluations(given)
    assert further == 0.0
    assert seconds(given)["learn"] == pytest.approx(10 * 1.0 * coarse + 10 * 2.0 * fine)
    quick, thorough = (seconds(case(effort=effort))["learn"] for effort in ("quick", "thorough"))
    assert quick < seconds(given)["learn"] < thorough
    assert evaluations(case(partition="spatial"))[2] > 0
    assert seconds(case(partition="spatial"))["learn"] > 0


def test_passes_are_repeated(case):
    times = {("passes", "pass 2"): (2.0, 2), ("passes", CLIENT): (0.5, 1)}
    assert seconds(case(learn=False), times)["passes"] == pytest.approx(PASSES * (20 * 1.0 + 0.5))


@pytest.mark.slow
def test_evaluations_are_about_those_that_a_fit_makes(wave, monkeypatch):
    made, objective = [], LocalObjective.__call__

    def counting(self, kernel, likelihood):
        made.append(1)
        return objective(self, kernel, likelihood)

    monkeypatch.setattr(LocalObjective, "__call__", counting)
    path, *_ = wave
    settings = Settings(query=30, rows_per_expert=60, effort="quick")
    GBCM.prepare(path, settings)
    expected = plan(path, settings).evaluations
    assert expected / 2 < len(made) < 2 * expected
    assert PER_STEP[True] > PER_STEP[False]


# --- Of data ---


def files(folder):
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*")}


KEYS = {
    "rows",
    "partitions",
    "query",
    "likelihood",
    "threads",
    "evaluations",
    "projected_seconds",
    "projected_gflops",
    "projected_megabytes",
    "projected_peak_megabytes",
    "advice",
    "seconds",
}


@pytest.mark.slow
def test_the_command_prints_a_plan_and_writes_nothing(wave, tmp_path):
    path, *_ = wave
    before, model = files(tmp_path), tmp_path / "m"
    arguments = ["fit", path, "--model", str(model), "--plan", "--serial", "--query", "30", "--rows-per-expert", "60"]
    done = CliRunner().invoke(cli, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert set(told) - {"warnings"} == KEYS
    assert (told["rows"], told["partitions"], told["query"], told["threads"]) == (240, 5, 30, 1)
    projected = told["projected_seconds"]
    assert {"start", "survey", "learn", "query", "experts", "total"} <= projected.keys()
    assert projected["total"] == pytest.approx(sum(s for stage, s in projected.items() if stage != "total"))
    assert set(told["projected_megabytes"]) == {"messages", "to_client", "to_store"}
    assert told["seconds"] > 0
    assert files(tmp_path) == before
    text = CliRunner().invoke(cli, arguments).stdout
    assert "projected_seconds" in text
    assert "advice" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"partition": "spatial"},
        {"likelihood": "student_t", "passes": "auto"},
        {"likelihood": "student_t", "approximation": "ep"},
        {"expert": "fitc"},
        {"objective": "committee", "query_method": "optimised"},
        {"expert": "fitc", "objective": "local"},
        {"expert": "rrgp_star", "objective": "committee", "query_method": "hpev-sgev"},
        {"query": "auto"},
    ],
)
def test_settings(wave, settings):
    path, *_ = wave
    settings = {"partition": "chunks"} | settings
    found = plan(path, replace(FIT, learn=True, **settings))
    assert all(math.isfinite(s) and s >= 0 for s in found.projected_seconds.values())
    assert found.projected_seconds["total"] > 0
    assert found.projected_gflops["experts"] > 0
    assert found.projected_peak_megabytes > 0
    assert ("passes" in found.projected_seconds) == (settings.get("passes") == "auto")
    assert ("halos" in found.projected_seconds) == (settings["partition"] == "spatial")
    assert found.advice


@pytest.mark.slow
def test_classes(classes, make_data, rng):
    path, X, _ = classes
    assert plan(path, FIT).likelihood == "bernoulli"
    found = plan(make_data("three.zarr", X=X, y=rng.integers(3, size=len(X))), replace(FIT, task="classification"))
    assert found.likelihood == "onehot"
    assert found.projected_seconds["calibrate"] > 0


@pytest.mark.slow
def test_on_a_cluster(wave, cluster):
    path, *_ = wave
    found = plan(path, FIT, runtime=cluster)
    assert found.threads == 2
    assert found.projected_seconds["experts"] > 0


def test_bad_input_is_refused_as_by_a_fit(wave, tmp_path, make_data):
    path, X, y = wave
    with pytest.raises(DataNotFound, match="expected a Zarr group"):
        plan(str(tmp_path / "no.zarr"), FIT)
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    with pytest.raises(ModelExists, match="new or empty directory, got one with other files"):
        plan(path, FIT, model=other)
    with pytest.raises(MemoryLimit, match="expert of 50 rows"):
        plan(path, FIT, runtime=SerialRuntime(allowed_bytes=1e6))
    with pytest.raises(InvalidData, match="finite"):
        plan(make_data("nan.zarr", X=np.where(X > 1.9, np.nan, X), y=y), FIT)
    for beside in ({"prepare_only": True}, {"hyperparameters": "hmc"}):
        with pytest.raises(InvalidOption, match="--plan: expected a whole fit"):
            FitRequest("d", "m", FIT, plan=True, **beside)


def test_a_directory_that_holds_a_fit_is_only_planned_for_the_same(wave, tmp_path):
    path, *_ = wave
    GBCM.fit(path, FIT, model=tmp_path / "m")
    assert plan(path, FIT, model=tmp_path / "m").rows == 240
    with pytest.raises(ModelExists, match="got a fit of other data or settings"):
        plan(path, replace(FIT, query=20), model=tmp_path / "m")


def test_arrays_in_memory(rng):
    X = rng.standard_normal((100, 2))
    assert plan((X, X[:, 0]), FIT).rows == 100
    assert bcmdist.plan is plan


@pytest.mark.slow
def test_rows_that_are_sorted_by_class_are_seen_from_the_first_to_the_last(make_data, rng):
    """Classes that are not seen would be planned as another likelihood."""
    classes = np.repeat([0.0, 1.0, 2.0], 20_000)
    path = make_data("sorted.zarr", rows_per_chunk=2000, X=rng.standard_normal((60_000, 2)), y=classes)
    found = plan(path, Settings(task="classification", learn=False, kernel="se", query=30))
    assert found.likelihood == "onehot"


def test_learning_is_planned_to_end_with_its_limit(wave):
    """Not other stages; with a shorter limit than learning would take."""
    settings = Settings(query=30, rows_per_expert=60, kernel="se")
    free, limited = (plan(wave[0], replace(settings, seconds=seconds)).projected_seconds for seconds in (None, 1e-4))
    assert free["learn"] > limited["learn"] == 1e-4
    assert limited["total"] == pytest.approx(sum(limited.values()) - limited["total"], rel=1e-12)  # rounding

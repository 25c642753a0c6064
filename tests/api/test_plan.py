"""Plans of fits: their counts are those of what runs, they grow as work does, and nothing is written or fitted."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bcmdist
from bcmdist import GBCM, SerialRuntime, Settings, linalg, plan
from bcmdist.api.plan import work
from bcmdist.api.plan.rates import Rates
from bcmdist.api.plan.stages import EVALUATIONS, Planned, evaluations, steps
from bcmdist.api.plan.work import Work
from bcmdist.api.requests import FitRequest
from bcmdist.app.cli.main import cli
from bcmdist.committee.committee import Committee
from bcmdist.data.observations import unweighted
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption, MemoryLimit, ModelExists
from bcmdist.experts.evidence import local_evidence
from bcmdist.experts.expert import expert_message
from bcmdist.learning.evidence.objectives import LocalObjective
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.leave_one_out import left_out_of_committee
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import local_expert, predict_local

FIT = Settings(learn=False, kernel="se", query=30, rows_per_expert=60)
N, Q, K = 240, 160, 40


# --- Counts ---


@pytest.fixture
def counted(monkeypatch):
    """Flops of the functions of `linalg` that are called meanwhile, by kind of `Work`."""
    found, inside = dict.fromkeys(("factor", "solve", "product", "inverse"), 0.0), []

    def count(name, kind, flops):
        function = getattr(linalg, name)

        def counting(*arguments, **options):
            if not inside:  # they call each other
                found[kind] += flops(*arguments)
            inside.append(name)
            try:
                return function(*arguments, **options)
            finally:
                inside.pop()

        monkeypatch.setattr(linalg, name, counting)

    count("cholesky", "factor", lambda A: len(A) ** 3 / 3)
    count("inverse", "inverse", lambda L: 2 * len(L) ** 3 / 3)
    for name in ("solve_lower", "solve_lower_transposed", "solve_right_transposed"):
        count(name, "solve", lambda L, B: len(L) * B.size * (B.ndim == 2))  # of vectors it is left out
    count("subtract_outer_lower", "product", lambda _, V: len(V) * V.size)
    for name in ("gram", "gram_lower"):
        count(name, "product", lambda W: W.size * W.shape[1])
    return found


@pytest.fixture
def rows(rng):
    """Query values, rows (N, 3), observations and a likelihood."""
    X = rng.standard_normal((N, 3))
    query = prepare(rng.standard_normal((Q, 3)), kernel=parse_kernel("matern32", inputs=3), mean=Mean("zero"))
    return query, X, unweighted(np.sin(X[:, 0])), make_likelihood("gaussian")


def same(counted, planned: Work):
    for kind in ("factor", "solve", "inverse"):
        assert counted[kind] == pytest.approx(getattr(planned, kind), rel=0.05), kind


def test_a_message_takes_what_is_counted(rows, counted):
    query, X, obs, likelihood = rows
    expert_message(query, likelihood, X, obs)
    same(counted, work.message(N, Q, exact=True))
    assert counted["product"] == work.message(N, Q, exact=True).product


def test_an_evidence_takes_what_is_counted(rows, counted):
    query, X, obs, likelihood = rows
    local_evidence(query.kernel, Mean("constant"), likelihood, X, obs)
    same(counted, work.evidence(N, exact=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "bernoulli"])
def test_an_evidence_at_a_mode_takes_about_what_is_estimated(rows, counted, rng, name):
    query, X, _, _ = rows
    obs = unweighted(rng.poisson(np.exp(np.sin(X[:, 0]))) if name != "bernoulli" else 1.0 * (X[:, 0] > 0))
    local_evidence(query.kernel, Mean("constant"), make_likelihood(name), X, obs)
    planned = work.evidence(N, exact=False)
    assert counted["inverse"] == pytest.approx(planned.inverse)
    assert planned.factor / 2 <= counted["factor"] <= 2 * planned.factor


def test_rows_left_out_take_what_is_counted(rows, counted):
    query, X, obs, likelihood = rows
    belief = Committee(expert_message(query, likelihood, X, obs)).posterior
    counted |= dict.fromkeys(counted, 0.0)
    left_out_of_committee(query, likelihood, belief, X, obs, np.arange(K))
    same(counted, work.left_out_of_committee(N, K, Q, exact=True))


def test_local_experts_take_what_is_counted(rows, counted):
    query, X, obs, likelihood = rows
    belief = Committee(expert_message(query, likelihood, X, obs)).posterior
    counted |= dict.fromkeys(counted, 0.0)
    seen = committee_at_rows(query, belief)
    expert = local_expert(seen, likelihood, X, seen.columns(X), obs)
    predict_local(seen, expert, X[:K], seen.columns(X[:K]))
    same(counted, work.local_expert(N, K, Q, exact=True))


# --- What is planned of them ---

RATES = Rates({250: (1e-10,) * len(Work().counts), 1000: (1e-10,) * len(Work().counts)}, 0.0, 0.0, 0.0, 1)


def planned(rows=10_000, **settings):
    how = Settings(**({"rows_per_expert": 500} | settings))
    parts = rows // how.rows_per_expert
    return Planned(how, make_likelihood("gaussian"), rows, 8, 1000, parts, how.rows_per_expert, 300, False, True)


def seconds(case, rates=RATES, row_seconds=1e-6):
    found = {}
    for step in steps(case):
        found[step.stage] = found.get(step.stage, 0.0) + step.seconds(rates, row_seconds)
    return found


def test_what_depends_on_all_rows_grows_with_them():
    few, many = (seconds(planned(rows, learn=False)) for rows in (80_000, 640_000))
    for stage in ("survey", "experts"):
        assert many[stage] == pytest.approx(8 * few[stage])
    assert many["errors"] == few["errors"]
    assert many["query"] == few["query"]
    spatial = [seconds(planned(rows, learn=False, partition="spatial"))["experts"] for rows in (80_000, 640_000)]
    assert spatial[1] == pytest.approx(8 * spatial[0])


def test_learning_does_not_grow_with_the_rows_beyond_its_sample():
    assert seconds(planned(80_000))["learn"] == seconds(planned(640_000))["learn"]
    assert (
        seconds(planned(effort="quick"))["learn"]
        < seconds(planned())["learn"]
        < seconds(planned(effort="thorough"))["learn"]
    )
    assert "learn" not in seconds(planned(learn=False))


def test_threads_share_tasks_and_each_task_costs_something():
    case = planned(learn=False)
    alone, both = seconds(case), seconds(case, replace(RATES, threads=2))
    assert both["experts"] == pytest.approx(alone["experts"] / 2)
    slow = seconds(case, replace(RATES, task=0.1))
    assert slow["experts"] - alone["experts"] == pytest.approx(0.1 * case.parts)
    rounds = seconds(planned(), replace(RATES, kept_round=0.01))["learn"] - seconds(planned())["learn"]
    assert rounds == pytest.approx(0.01 * sum(evaluations(planned())))


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
    assert EVALUATIONS[True] > EVALUATIONS[False]


# --- Of data ---


def files(folder):
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*")}


@pytest.fixture
def no_fit(monkeypatch):
    """Nothing can be fitted."""

    def fail(*_, **__):
        raise AssertionError("a plan fits nothing")

    monkeypatch.setattr("bcmdist.learning.first_commit.prepare_model", fail)
    monkeypatch.setattr("bcmdist.experts.contributions.Expert.__call__", fail)


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
@pytest.mark.usefixtures("no_fit")
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
@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"partition": "spatial"},
        {"likelihood": "student_t", "passes": "auto"},
        {"likelihood": "student_t", "approximation": "ep"},
        {"expert": "fitc"},
        {"objective": "committee", "query_method": "optimised"},
        {"expert": "fitc", "objective": "committee", "query_method": "optimised"},
        {"expert": "rrgp_star", "objective": "committee", "query_method": "hpev-sgev"},
        {"query": "auto"},
    ],
)
def test_settings(wave, settings):
    path, *_ = wave
    found = plan(path, replace(FIT, learn=True, **settings))
    assert all(math.isfinite(s) and s >= 0 for s in found.projected_seconds.values())
    assert found.projected_seconds["total"] > 0
    assert found.projected_gflops["experts"] > 0
    assert found.projected_peak_megabytes > 0
    assert ("passes" in found.projected_seconds) == (settings.get("passes") == "auto")
    assert ("halos" in found.projected_seconds) == (settings.get("partition") == "spatial")
    assert found.advice


@pytest.mark.slow
@pytest.mark.usefixtures("no_fit")
def test_classes(classes, make_data, rng):
    path, X, _ = classes
    assert plan(path, FIT).likelihood == "bernoulli"
    found = plan(make_data("three.zarr", X=X, y=rng.integers(3, size=len(X))), replace(FIT, task="classification"))
    assert found.likelihood == "onehot"
    assert found.projected_seconds["calibrate"] > 0


@pytest.mark.usefixtures("no_fit")
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
    with pytest.raises(ModelExists, match="new or empty directory, it holds other files"):
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
    with pytest.raises(ModelExists, match="it holds a fit of other data or settings"):
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

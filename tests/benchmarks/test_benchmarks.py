"""The accuracy benchmark: its baselines' arithmetic, its verdicts, and that it runs."""

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import accuracy
import effort as efforts
import growing
import ingest
import numpy as np
import outputs
import plan as plans
import pytest
import residuals
import sums
from accuracy import BY_NAME, Case, Row, at_most, in_deviations, table, verdict
from sklearn.datasets import make_friedman1
from threadpoolctl import threadpool_limits

import baselines
from baselines import LEAST_PROBABILITY, Predictions, class_figures, dense, dense_gp, figures_of, regression_figures
from bcmdist import GBCM, Settings
from bcmdist.model.mean import Mean
from commands import Unfinished, run
from oracles import full_gp
from problems import make_kernel


@pytest.mark.parametrize("block", [7, 100])
def test_dense_gp_by_blocks(rng, block):
    X, Xs, y = rng.standard_normal((60, 2)), rng.standard_normal((20, 2)), rng.standard_normal(60)
    kernel, H = make_kernel("matern32"), Mean("linear").design
    mean, covariance, _ = full_gp(kernel, H, X, y, 0.1, Xs)
    m, v = dense_gp(kernel, H, X, y, 0.1, Xs, block=block)
    # Rounding amplified by the condition number of K, about 1e5 with the vague trend.
    np.testing.assert_allclose(m, mean, atol=1e-9)
    np.testing.assert_allclose(v, np.diag(covariance), atol=1e-9)


def test_dense_gp_of_a_model_with_one_expert_scores_the_same(rng, make_data):
    X = rng.uniform(-2, 2, (60, 2))
    rows = {"X": X, "y": 3.0 + 20.0 * np.sin(X).sum(axis=1) + rng.standard_normal(60)}
    train, test = ({n: v[part] for n, v in rows.items()} for part in (slice(40), slice(40, None)))
    # Query points at all rows: the committee is the exact GP, but for its jitter.
    gbcm = GBCM.fit(make_data("train.zarr", **train), Settings(kernel="se", learn=False, query=40))
    wanted = gbcm.score(make_data("test.zarr", **test))
    found = dense(gbcm.url, train, test)
    for name in ("rmse", "nmse", "mnlp", "crps", "coverage95"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-5), name


def test_constant_predictions_have_closed_scores(rng):
    y_train, y = rng.standard_normal(50), rng.standard_normal(30)
    found = regression_figures(Predictions(np.full(30, y_train.mean()), np.ones(30)), y_train, y)
    assert found["nmse"] == pytest.approx(1.0)
    error = y - y_train.mean()
    assert found["mnlp"] == pytest.approx(0.5 * (error**2).mean() + 0.5 * np.log(2 * np.pi))
    assert found["coverage95"] == (np.abs(error) < 1.959964).mean()


def test_a_class_said_to_be_impossible_costs_a_finite_log_loss():
    found = class_figures(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]))
    assert found["log_loss"] == pytest.approx(-0.5 * np.log(LEAST_PROBABILITY), rel=1e-6)


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("method", ["intercept", "linear", "hgb"])
def test_baselines_see_what_is_there(method, task):
    X, y = make_friedman1(400, 5, noise=0.5, random_state=0)
    if task == "classification":
        y = 3.0 + (y > np.median(y)) * 2.0
    X = np.column_stack([X, np.ones(len(X))])
    with threadpool_limits(1):
        found = figures_of(method, {"X": X[:300], "y": y[:300]}, {"X": X[300:], "y": y[300:]}, task, np.inf)
    explained = 1 - found["nmse"] if task == "regression" else 2 * found["accuracy"] - 1
    assert explained >= {"intercept": -0.2, "linear": 0.5, "hgb": 0.5}[method]
    assert found["seconds"] > 0


def test_a_library_that_is_not_installed_is_said(monkeypatch, capsys, make_data):
    data = make_data(X=np.zeros((4, 1)), y=np.arange(4.0))
    monkeypatch.setitem(sys.modules, "gpboost", None)
    monkeypatch.setattr(sys, "argv", ["baselines.py", "gpboost", data, data, "--task", "regression"])
    baselines.main()
    assert json.loads(capsys.readouterr().out) == {"none": "not installed: gpboost"}


def row(method="bcmdist", failed="", **figures):
    case = Case("some", "regression", "own", bars={"nmse": at_most(0.5)}, rivals={"rmse": ("lightgbm", 1.02)})
    return Row(case, method, (8, 2), [figures | {"note": "", "seconds": 1.0}] if figures else [], failed)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (row(nmse=0.5, rmse=1.02), row("lightgbm", rmse=1.0), "yes"),
        (row(nmse=0.5, rmse=1.03), row("lightgbm", rmse=1.0), "no: rmse 1.03 > 1.02 by lightgbm"),
        (row(nmse=0.6, rmse=1.0), row("lightgbm", rmse=1.0), "no: nmse 0.6 not in [-inf, 0.5]"),
        (row(nmse=0.5, rmse=1.0), row("lightgbm", failed="not installed"), "so far; not known: rmse of lightgbm"),
        (row(failed="stopped"), row("lightgbm", rmse=1.0), "no"),
    ],
)
def test_verdicts(ours, theirs, expected):
    assert verdict(ours.case, {"bcmdist": ours, "lightgbm": theirs}) == expected


def test_averages_over_splits_have_standard_errors():
    several = Row(BY_NAME["uci_yacht"], "hgb", (8, 2), [{"rmse": v, "note": ""} for v in (1.0, 2.0, 3.0)])
    assert several.mean("rmse") == 2.0
    assert several.error("rmse") == pytest.approx(np.std([1, 2, 3], ddof=1) / np.sqrt(3))
    assert "| 2 ± 0.6 |" in table("regression", [several])


def test_standard_deviations_of_the_targets_as_units(rng):
    y_train, y, mean = rng.standard_normal(40), rng.standard_normal(9), rng.standard_normal(9)
    once = regression_figures(Predictions(mean, np.ones(9)), y_train, y)
    scaled = regression_figures(Predictions(7 * mean, np.full(9, 49.0)), 7 * y_train, 7 * y)
    found = in_deviations(scaled, 7.0)
    assert found.pop("pit") == pytest.approx(once.pop("pit"))
    assert found == pytest.approx(once)


def test_names_of_sets_and_methods():
    assert accuracy.names_of(BY_NAME)("pol,kin40k") == ("pol", "kin40k")
    with pytest.raises(argparse.ArgumentTypeError, match="got poll"):
        accuracy.names_of(BY_NAME)("poll")


@pytest.mark.parametrize(
    ("program", "expected"),
    [("import time; time.sleep(60)", "stopped after 0.5 s"), ("raise OSError('no disk')", "OSError: no disk")],
)
def test_commands_that_hang_or_fail(program, expected):
    with pytest.raises(Unfinished, match=expected):
        run([sys.executable, "-c", program], seconds=0.5 if "sleep" in program else None)


def test_without_data_it_says_what_to_set(monkeypatch, capsys):
    monkeypatch.delenv("BCMDIST_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["accuracy.py", "--quick"])
    accuracy.main()
    assert "set BCMDIST_DATA" in capsys.readouterr().out


def test_a_set_that_is_absent_is_a_row(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("BCMDIST_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["accuracy.py", "--sets", "pol"])
    accuracy.main()
    assert f"skipped: not in {tmp_path}" in capsys.readouterr().out


@pytest.mark.slow  # 12 processes
@pytest.mark.parametrize("name", ["uci_yacht", "meuse", "crabs"])
def test_splits_differ(name, real_data):
    real_data(name)
    options = argparse.Namespace(splits=2, limit=60)
    data = Path(os.environ["BCMDIST_DATA"])
    found = accuracy.measure(BY_NAME[name], ["linear"], options, data, lambda row, number: None)["linear"]
    score = "mnlp" if BY_NAME[name].task == "regression" else "log_loss"
    assert found.failed == ""
    assert found.error(score) > 0


@pytest.mark.slow
def test_figures_of_targets_in_single_precision_can_be_written(tmp_path, rng):
    np.savez(tmp_path / "some.npz", X=rng.standard_normal((60, 2)), y=rng.standard_normal(60).astype(np.float32))
    case, options = Case("some", "regression", "holdout", standardised=True), argparse.Namespace(splits=1, limit=60)
    found = accuracy.measure(case, ["intercept"], options, tmp_path, lambda row, number: None)["intercept"]
    assert json.loads(json.dumps(found.record()))["mean"]["rmse"] == found.mean("rmse")


@pytest.mark.slow
def test_quick_mode(monkeypatch, capsys, tmp_path, real_data):
    for name in accuracy.QUICK_SETS:
        real_data(name)
    out = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["accuracy.py", "--quick", "--partition", "chunks", "--out", str(out)])
    accuracy.main()
    rows = json.loads(out.read_text())
    assert [(r["set"], r["method"], r["failed"]) for r in rows] == [
        (name, method, "") for name in accuracy.QUICK_SETS for method in accuracy.QUICK_METHODS
    ]
    assert rows[0]["mean"]["rmse"] < rows[1]["mean"]["rmse"]


@pytest.mark.slow
def test_the_benchmark_of_growing_query_sets_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["growing.py", "--rows", "8000", "--json"])
    growing.main()
    found = json.loads(capsys.readouterr().out)
    error = {name: one["rmse"] for name, one in found.items() if name != "at rest"}
    assert error["grown from 20"] < 0.1 * error["fixed at the beginning"]
    assert error["grown from 20"] <= 1.3 * error["in hindsight, as many"]
    assert error["both merged"] < 0.5 * min(error["first half alone"], error["second half alone"])
    assert found["at rest"][0]["points"] == found["at rest"][1]["points"]


@pytest.mark.slow
def test_the_benchmark_of_ingestion_runs():
    figures = ingest.main(quick=True)
    assert [figures[name]["commits"] for name in ingest.POLICIES] == [1, 6, 1]
    assert all(0 < figures[name]["share_of_limit"] < 1 for name in ingest.POLICIES)


def test_the_benchmark_of_the_ledger_runs():
    script = Path(__file__).with_name("ledger.py")
    command = [sys.executable, script, "--entries", "3000", "--json"]
    (found,) = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["partitions"] == 3000
    assert min(found["commit"], found["drift"]) > 0


@pytest.mark.slow
def test_the_benchmark_of_sums_runs():
    figures = sums.main(quick=True)
    assert figures["partitions"] == 40
    assert 0 < figures["told_bytes_per_partition"] <= 2000
    message = 8 * 100 * 101 / 2
    assert figures["fetched_bytes_per_partition"] < 0.5 * message  # a total, and what a fit asks besides


@pytest.mark.slow
def test_the_benchmark_of_waves_runs():
    fourier = pytest.importorskip("finufft") and importlib.import_module("fourier")
    figures = fourier.main(quick=True)
    assert figures["dense_gap"] <= 1e-3
    assert figures["coverage95"] == pytest.approx(0.95, abs=0.02)
    assert figures["rows_per_second_experts"] > figures["rows_per_second_read"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("sphere", marks=pytest.mark.nightly), "lonlat"])
def test_the_benchmark_of_a_billion_rows_absorbs_each_row_once_with_kills(kind):
    billion = pytest.importorskip("finufft") and importlib.import_module("billion_rows")
    figures = billion.main(
        billion.parse(["--quick", "--kills", "1", "--inputs", kind, "--sample", "2000", "--linearise", "own"])
    )
    assert figures["absorbed"] == figures["expected"] > 0
    assert figures["of_sample"].keys() == {"spatial", "fourier"}
    assert figures["kills"] == 1
    assert figures["log_loss"] < 0.5 * figures["log_loss_of_share"]


@pytest.mark.slow
def test_the_benchmark_of_the_relief_runs():
    relief = pytest.importorskip("finufft") and importlib.import_module("relief")
    figures = relief.main(relief.parse(["--quick", "--workers", "0"]))
    for name in ("fourier", "spatial"):
        assert figures[name]["rows"] == figures["rows"] > 0
        assert figures[name]["near"]["rmse"] < 0.2 * figures["sd"]  # whose noise is a tenth


@pytest.mark.slow
@pytest.mark.alone
def test_messages_without_a_matrix_of_rows_cost_a_part_of_others():
    """Some 20 times less here (`residuals.py` measures it); a third would still be told by a busy machine."""
    found = {row["residual"]: row for row in residuals.measured(quick=True)}
    for name in ("gaussian", "laplace"):
        assert 0 < max(found[apart][name] for apart in ("none", "diagonal")) < found["block"][name] / 3


@pytest.mark.slow
def test_the_benchmark_of_effort_runs(capsys):
    found = efforts.main(efforts.parse(["--quick", "--workers", "0"]))["made 300 x 2"]
    assert all(0.0 < found[name]["learning"] < found[name]["command"] for name in ("quick", "normal"))
    assert "longer than promised: none" in capsys.readouterr().out


@pytest.mark.slow
def test_the_benchmark_of_plans_runs():
    found = plans.main(["generated_500"], quick=True)["generated_500"]
    projected, measured = found["seconds"]["total"]
    assert found["ratio"] == projected / measured
    assert min(found["seconds"]["experts"]) > 0


@pytest.mark.slow
def test_metals_together_beat_one_alone(real_data):
    rows = outputs.meuse()
    for how in ("random", "block"):
        out = outputs.left_out(rows, "cadmium", how, seed=0)
        together, alone = (outputs.scored(rows, out, "cadmium", together=one, effort="quick") for one in (True, False))
        assert together.rmse < 0.9 * alone.rmse
        assert together.mnlp < alone.mnlp - 0.1

"""Whole jobs on real data, by the command line: bars that a committee alone must reach."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import poisson

pytestmark = pytest.mark.slow


def bcmdist(*arguments):
    command = [sys.executable, "-m", "bcmdist", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def fitted_scores(path, folder, *, split=(), task="regression", query=1000, effort="quick"):
    """Import both parts, fit, score; the figures of both commands. By default effort on a cluster, else serially."""
    for part in ("train", "test"):
        bcmdist("import", path, folder / f"{part}.zarr", "--part", part, *split)
    how = ("--serial",) if effort == "quick" else ()
    asked = ("--task", task, "--query", query, "--effort", effort, *how)
    fit = bcmdist("fit", folder / "train.zarr", "--model", folder / "model", *asked)
    return fit | bcmdist("score", folder / "model", folder / "test.zarr", *how)


@pytest.mark.nightly
def test_kin40k(real_data, tmp_path):
    figures = fitted_scores(real_data("kin40k"), tmp_path, effort="normal")
    assert figures["rows"] == 30_000
    assert figures["nmse"] <= 0.08
    assert 0.92 <= figures["coverage95"] <= 0.98


@pytest.mark.nightly
def test_pumadyn(real_data, tmp_path):
    """Four of 32 inputs matter; learning must find them."""
    figures = fitted_scores(real_data("pumadyn32nm"), tmp_path, effort="normal")
    assert figures["nmse"] <= 0.05


@pytest.mark.nightly
def test_defaults_are_better_than_simple_baselines_where_inputs_repeat(real_data, tmp_path):
    """On rows left out of a fit by default: least squares, trees, nearest neighbours."""
    split = ("--mask", "test_mask", "--mask-row", 0)
    bcmdist("import", real_data("uci_protein"), tmp_path / "train.zarr", "--part", "train", *split)
    found = bcmdist("fit", tmp_path / "train.zarr", "--model", tmp_path / "model")["left_out"]
    assert found["model"] < min(found["baselines"].values())


def test_pima(real_data, tmp_path):
    path = real_data("pima")
    figures = fitted_scores(path, tmp_path, split=("--holdout", 0.3333, "--seed", 0), task="classification", query=500)
    with np.load(path) as arrays:
        y = arrays["y"]
    order = np.random.default_rng(0).permutation(len(y))
    test, train = y[order[: int(0.3333 * len(y))]], y[order[int(0.3333 * len(y)) :]]
    rate = train.mean()
    base = -np.mean(np.where(test == 1, np.log(rate), np.log(1 - rate)))
    assert figures["log_loss"] <= base - 0.1


THIRDS = ("--holdout", 0.3333, "--seed", 0)


def thirds(columns, *names):
    """Training and test rows of some columns, split as `--holdout 0.3333 --seed 0` does."""
    order = np.random.default_rng(0).permutation(len(columns[names[0]]))
    test = int(0.3333 * len(order))
    return [columns[name][order[test:]] for name in names], [columns[name][order[:test]] for name in names]


@pytest.mark.nightly
def test_doctor_visits(real_data, tmp_path):
    """Against the Poisson rate of the training rows."""
    path = real_data("doctor_visits")
    figures = fitted_scores(path, tmp_path, split=THIRDS, task="counts", query=500)
    with np.load(path) as columns:
        (train,), (test,) = thirds(columns, "y")
    assert figures["mnlp"] <= -poisson.logpmf(test, train.mean()).mean() - 0.15
    assert figures["coverage95"] >= 0.95  # of small counts: intervals cannot be cut to measure


@pytest.mark.nightly
def test_leukaemia_survival(real_data, tmp_path):
    """Against one constant hazard, estimated from the training rows; right-censored."""
    path = real_data("leuksurv")
    figures = fitted_scores(path, tmp_path, split=THIRDS, task="lifetimes", query=500)
    with np.load(path) as columns:
        (time, event), (later, later_event) = thirds(columns, "time", "event")
    rate = event.sum() / time.sum()
    assert figures["mnlp"] <= (later * rate - later_event * np.log(rate)).mean() - 0.3
    assert figures["concordance"] >= 0.65
    assert 0.93 <= figures["coverage95"] <= 0.99

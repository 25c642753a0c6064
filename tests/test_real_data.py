"""Whole jobs on real data, by the command line: bars that a committee alone must reach."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow


def bcmdist(*arguments):
    command = [sys.executable, "-m", "bcmdist.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def fitted_scores(path, folder, *, split=(), task="regression", query=1000):
    """Import both parts, fit, score; the figures of both commands."""
    for part in ("train", "test"):
        bcmdist("import", path, folder / f"{part}.zarr", "--part", part, *split)
    fit = bcmdist("fit", folder / "train.zarr", "--model", folder / "model", "--task", task, "--query", query)
    return fit | bcmdist("score", folder / "model", folder / "test.zarr")


def test_kin40k(real_data, tmp_path):
    figures = fitted_scores(real_data("kin40k"), tmp_path)
    assert figures["rows"] == 30_000
    assert figures["nmse"] <= 0.08
    assert 0.92 <= figures["coverage95"] <= 0.98


def test_elevators(real_data, tmp_path):
    figures = fitted_scores(real_data("elevators_raw"), tmp_path, split=("--holdout", 0.1, "--seed", 0))
    assert figures["nmse"] <= 0.12
    assert 0.92 <= figures["coverage95"] <= 0.98


def test_pumadyn(real_data, tmp_path):
    """Four of 32 inputs matter; learning must find them."""
    figures = fitted_scores(real_data("pumadyn32nm"), tmp_path)
    assert figures["nmse"] <= 0.05


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

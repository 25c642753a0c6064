"""The benchmark of estimators: the arithmetic of its table, that test rows stay apart, and what it skips."""

import sys

import numpy as np
import pytest

import estimators

pandas = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")


def table(rows, *, counts=False):
    X = pandas.DataFrame({"x": np.arange(rows, dtype=float)})
    return estimators.Rows(X, np.arange(rows) % 3.0 + 1.0, counts=counts)


def cells(monkeypatch, test, predicted):
    monkeypatch.setitem(estimators.METHODS, "known", lambda *_: predicted)
    return [cell.strip() for cell in estimators.line("set", "known", test, test, estimators.How()).split("|")]


def test_figures_are_means_over_test_rows(monkeypatch):
    test = table(30)
    y = test.y
    predicted = estimators.Predictions(y + 2.0, np.arange(30.0), y - 1.0, np.where(y == 1.0, y - 0.5, y))
    found = cells(monkeypatch, test, predicted)
    assert found[1:7] == ["set", "30", "known", "RMSE 2", "14.5000", "0.667"]
    counts = table(30, counts=True)
    found = cells(monkeypatch, counts, estimators.Predictions(np.full(30, 2.0), *np.zeros((3, 30))))
    deviance = 2.0 * np.mean(y * np.log(y / 2.0) - y + 2.0)
    assert found[4] == f"deviance {deviance:.4g}"


def test_rows_for_testing_are_no_training_rows_and_always_the_same():
    out, kept = estimators._split(100, estimators.HOLDOUT, seed=0)
    assert sorted([*out, *kept]) == list(range(100))
    np.testing.assert_array_equal(out, estimators._split(100, estimators.HOLDOUT, seed=0)[0])


@pytest.mark.parametrize("counts", [False, True])
def test_a_gaussian_process_of_a_subset_gives_densities_and_intervals(counts, rng):
    x = rng.uniform(0.0, 3.0, 80)
    y = rng.poisson(np.exp(x)).astype(float) if counts else np.sin(x) + 0.1 * rng.standard_normal(80)
    X = pandas.DataFrame({"x": x, "kind": pandas.Categorical(rng.choice(["a", "b"], 80))})
    rows = estimators.Rows(X, y, counts=counts)
    predicted = estimators.of_sklearn_gp(rows[np.arange(60)], rows[np.arange(60, 80)], estimators.How(gp_rows=40))
    assert predicted.note == "40 rows"
    assert np.all(predicted.low <= predicted.high)
    if counts:
        assert predicted.loss.min() >= 0.0  # of a mass


def test_without_data_it_says_so(monkeypatch, capsys):
    monkeypatch.delenv("BCMDIST_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["estimators.py"])
    estimators.main()
    assert capsys.readouterr().out.startswith("skipped: BCMDIST_DATA names no directory")

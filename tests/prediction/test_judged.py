"""Rows beside their predictions: their scores are those that are added up, and any partitioning gives the same rows."""

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.prediction import datasets
from bcmdist.prediction.datasets import ScoredRows
from bcmdist.prediction.scored_rows import nothing

QUICK = {"learn": False, "kernel": "se", "query": 20, "rows_per_expert": 60}


def judged(model, path, most=10**6):
    data = datasets.open_new_rows(model.snapshot, path, y="y")
    return datasets.judged(model.predictive, data, model.chosen_method(), SerialRuntime(), most=most)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification", "counts", "lifetimes"])
def test_scores_of_the_rows_are_those_of_the_data_set(task, rng, make_data):
    X = rng.uniform(-2, 2, (240, 2))
    f = np.sin(2 * X[:, 0])
    columns = {
        "regression": {"y": f + 0.1 * rng.standard_normal(240)},
        "classification": {"y": (f > 0).astype(float)},
        "counts": {"y": rng.poisson(2 * np.exp(f)).astype(float), "exposure": np.full(240, 2.0)},
        "lifetimes": {"y": np.exp(f) * rng.weibull(1.5, 240) + 1e-3, "event": (rng.random(240) < 0.7).astype(float)},
    }[task]
    path = make_data(X=X, **columns)
    model = GBCM.fit(path, Settings(task=task, **QUICK))
    rows, whole = judged(model, path), model.scores(path).summary()
    found = rows.scores().summary()
    assert found.keys() == whole.keys()
    for name, value in whole.items():  # the same sums in another order
        assert found[name] == pytest.approx(value, rel=1e-10, abs=1e-12, nan_ok=True), name
    np.testing.assert_array_equal(rows.number, np.arange(240))
    np.testing.assert_array_equal(rows.X, X)
    np.testing.assert_allclose(rows.y, columns["y"], rtol=1e-12, atol=1e-12)  # scaled and back


def test_rows_of_local_predictions_come_back_in_their_order(rng, make_data):
    X = rng.uniform(-2, 2, (240, 2))
    path = make_data(X=X, y=np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(240))
    model = GBCM.fit(path, Settings(**QUICK | {"partition": "spatial"}))
    assert model.chosen_method() == "local"
    rows = judged(model, path)
    np.testing.assert_array_equal(rows.X, X)
    assert rows.scores().summary()["rmse"] == pytest.approx(model.score(path)["rmse"], rel=1e-9)


def test_some_rows_are_the_same_of_any_partitioning(wave):
    path, *_ = wave
    model = GBCM.fit(path, Settings(**QUICK))
    data = open_data(path)
    task = ScoredRows(model.predictive.stored("committee"), share=0.25)
    found = [SerialRuntime().sum(task, partitions(data, size), label="judge") for size in (50, 120, 240)]
    assert 30 <= len(found[0]) <= 90  # 60 expected, 6.7 standard deviation
    for other in found[1:]:
        np.testing.assert_array_equal(other.number, found[0].number)
        np.testing.assert_allclose(other.columns["log_density"], found[0].columns["log_density"], rtol=1e-10)


def test_no_rows_are_the_identity(wave):
    path, *_ = wave
    rows = judged(GBCM.fit(path, Settings(**QUICK)), path)
    for joined in (nothing(2) + rows, rows + nothing(2)):
        np.testing.assert_array_equal(joined.number, rows.number)
    assert len(nothing(2) + nothing(2)) == 0
    halves = rows[:100] + rows[100:]
    np.testing.assert_array_equal(halves.y, rows.y)
    assert halves.scores().summary() == rows.scores().summary()


def test_a_cluster_gives_the_same_rows(wave, cluster):
    path, *_ = wave
    model = GBCM.fit(path, Settings(**QUICK))
    data = datasets.open_new_rows(model.snapshot, path, y="y")
    found = datasets.judged(model.predictive, data, None, cluster, most=100)
    here = judged(model, path, most=100)
    np.testing.assert_array_equal(found.number, here.number)
    # workers multiply matrices with other numbers of threads: rounding only
    np.testing.assert_allclose(found.columns["log_density"], here.columns["log_density"], rtol=1e-9)

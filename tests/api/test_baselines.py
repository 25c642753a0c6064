"""Baselines against what they are by definition, and against brute force."""

import numpy as np
import pytest
from scipy.stats import norm

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api.comparison import baselines as baselines_module
from bcmdist.api.comparison.baselines import NEIGHBOURS, baselines, nearest, training_data, training_rows
from bcmdist.prediction import datasets

QUICK = {"learn": False, "kernel": "se", "query": 20, "rows_per_expert": 60}


def baseline_scores(model, test):
    """Baselines that have learned from the training rows, and the rows they are judged on."""
    data = training_data(model.snapshot, None)
    training = training_rows(model.snapshot, data, named="train")
    opened = datasets.open_new_rows(model.snapshot, test, y="y")
    rows = datasets.judged(model.predictive, opened, None, SerialRuntime(), most=10**6)
    return baselines(model.snapshot, training, rows)


def test_nearest_are_those_of_brute_force(rng):
    known, X = rng.standard_normal((60, 3)), rng.standard_normal((25, 3))
    distance = ((X[:, None] - known) ** 2).sum(axis=2)
    np.testing.assert_array_equal(np.sort(nearest(known, X, 4)), np.sort(np.argsort(distance, axis=1)[:, :4]))
    own = ((known[:, None] - known) ** 2).sum(axis=2) + np.diag(np.full(60, np.inf))
    found = nearest(known, known, 4, but=np.arange(60))
    np.testing.assert_array_equal(np.sort(found), np.sort(np.argsort(own, axis=1)[:, :4]))


@pytest.mark.slow
def test_baselines_of_numbers(rng, make_data):
    X, Z = rng.uniform(-2, 2, (300, 2)), rng.uniform(-2, 2, (80, 2))
    y, z = (np.sin(A[:, 0]) + A[:, 1] + 0.1 * rng.standard_normal(len(A)) + 5.0 for A in (X, Z))
    model = GBCM.fit(make_data("train.zarr", X=X, y=y), Settings(**QUICK))
    found = baseline_scores(model, make_data("test.zarr", X=Z, y=z))
    mean = found["mean"]
    assert mean["rmse"] == pytest.approx(np.sqrt(np.mean((z - y.mean()) ** 2)), rel=1e-10)
    assert mean["nmse"] == pytest.approx(1.0, rel=1e-10)
    assert mean["mnlp"] == pytest.approx(-norm.logpdf(z, y.mean(), y.std()).mean(), rel=1e-10)
    weights = np.linalg.lstsq(np.column_stack([np.ones(300), X]), y, rcond=None)[0]
    error = z - np.column_stack([np.ones(80), Z]) @ weights
    assert found["linear least squares"]["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-8)
    scale = X.std(axis=0)
    distance = (((Z[:, None] - X) / scale) ** 2).sum(axis=2)
    near = y[np.argsort(distance, axis=1)[:, :NEIGHBOURS]].mean(axis=1)
    assert found["nearest neighbours"]["mae"] == pytest.approx(np.abs(z - near).mean(), rel=1e-8)


def test_errors_of_least_squares_are_those_of_rows_left_out(rng, make_data):
    """Allen's formula against fits without each row."""
    X = rng.uniform(-2, 2, (40, 2))
    y = X[:, 0] ** 2 + rng.standard_normal(40)
    design, out = np.column_stack([np.ones(40), X]), []
    for k in range(40):
        rest = np.arange(40) != k
        out.append(y[k] - design[k] @ np.linalg.lstsq(design[rest], y[rest], rcond=None)[0])
    path = make_data(X=X, y=y)
    found = baseline_scores(GBCM.fit(path, Settings(**QUICK)), path)["linear least squares"]
    variance = np.mean(np.square(out))
    wanted = 0.5 * np.log(2 * np.pi * variance) + 0.5 * found["rmse"] ** 2 / variance
    assert found["mnlp"] == pytest.approx(wanted, rel=1e-8)


def test_baselines_of_classes(rng, make_data):
    X = rng.uniform(-2, 2, (300, 2))
    y = (X[:, 0] > 0.7).astype(float)
    path = make_data(X=X, y=y)
    found = baseline_scores(GBCM.fit(path, Settings(**QUICK, task="classification")), path)
    share = y.mean()
    assert found["mean"]["accuracy"] == pytest.approx(max(share, 1 - share))
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert found["mean"]["log_loss"] == pytest.approx(entropy, rel=1e-10)
    assert found["nearest neighbours"]["accuracy"] > 0.9


@pytest.mark.slow
def test_baselines_of_counts_take_exposure_into_account(rng, make_data):
    X, exposure = rng.uniform(-2, 2, (300, 2)), rng.uniform(0.5, 8.0, 300)
    y = rng.poisson(exposure * 1.5).astype(float)
    path = make_data(X=X, y=y, exposure=exposure)
    found = baseline_scores(GBCM.fit(path, Settings(**QUICK, task="counts", likelihood="poisson")), path)
    mean = exposure * y.sum() / exposure.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        saturated = np.where(y > 0, y * np.log(y / mean), 0.0)
    assert found["mean"]["deviance"] == pytest.approx(np.mean(2 * (saturated - y + mean)), rel=1e-8)
    assert found["mean"]["mae"] == pytest.approx(np.abs(y - mean).mean(), rel=1e-10)
    assert found["mean"]["concordance"] == pytest.approx(0.5, abs=1e-9)  # all have one rate: ties count half


@pytest.mark.slow
def test_baselines_of_lifetimes_divide_time_at_risk_by_events(rng, make_data):
    X = rng.uniform(-2, 2, (300, 2))
    t, c = rng.exponential(2.0, 300) + 1e-3, rng.exponential(4.0, 300) + 1e-3
    y, event = np.minimum(t, c), (t <= c).astype(float)
    path = make_data(X=X, y=y, event=event)
    found = baseline_scores(GBCM.fit(path, Settings(**QUICK, task="lifetimes", likelihood="exponential")), path)
    mean = y.sum() / event.sum()
    assert found["mean"]["mae"] == pytest.approx(np.abs(y - mean).mean(), rel=1e-8)
    assert all(np.isfinite(list(one.values())).all() for one in found.values())


def test_few_chunks_of_many_rows_are_read():
    """A run of rows is in one chunk or two; of fewer rows any are drawn."""
    many = baselines_module.sampled(10**9, 0)
    assert len(np.unique(many)) == len(many) == baselines_module.MOST_ROWS
    assert 0 <= many[0] < many[-1] < 10**9
    assert np.count_nonzero(np.diff(many) > 1) <= baselines_module.RUNS
    assert len(np.unique(many // 100_000)) <= 2 * baselines_module.RUNS
    np.testing.assert_array_equal(baselines_module.sampled(7, 0), np.arange(7))

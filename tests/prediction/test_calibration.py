import numpy as np
import pytest
from scipy.special import expit, softmax

from bcmdist import GBCM, Settings
from bcmdist.prediction.errors.platt_scaling import Calibration, HeldOutRows, fit_calibration, per_class

N = 4000


def held_out(mean, variance, target):
    return HeldOutRows(mean, variance, target.astype(float), np.ones(len(target)))


def test_known_slope_and_biases_are_found(rng):
    mean, variance = rng.standard_normal((N, 3)), np.zeros((N, 3))
    p = softmax(3.0 * mean + np.array([0.0, 1.0, -0.5]), axis=1)
    target = np.array([rng.choice(3, p=row) for row in p])
    found = fit_calibration(held_out(mean, variance, target))
    assert found.slope == pytest.approx(3.0, rel=0.1)  # three standard errors
    np.testing.assert_allclose(found.bias, [0.0, 1.0, -0.5], atol=0.2)


def test_two_classes_are_platt_s_map(rng):
    """One latent stands for f_1 - f_0: P(y = 1) = 1 / (1 + exp(-(A f + B)))."""
    f = rng.standard_normal(N)
    target = rng.uniform(size=N) < expit(2.0 * f - 1.0)
    found = fit_calibration(held_out(f, np.zeros(N), target))
    p = found.probability(np.array([0.0, 1.0]), np.zeros(2))[:, 1]
    np.testing.assert_allclose(p, expit([-1.0, 1.0]), atol=0.04)


def test_separable_classes_leave_the_slope_finite():
    f = np.linspace(-1, 1, 40)
    found = fit_calibration(held_out(f, np.zeros(40), f > 0))
    assert found.slope < 1e3
    p = found.probability(f, np.zeros(40))[:, 1]
    assert np.all((p > 0) & (p < 1))


def test_what_is_not_known_is_near_the_base_rate():
    """The latent's variance pulls probabilities together."""
    calibration = Calibration(5.0, (0.0, 0.0))
    p = calibration.probability(np.array([[1.0, -1.0]] * 2), np.array([[0.01, 0.01], [50.0, 50.0]]))
    assert p[0, 0] > 0.99
    assert p[1, 0] < 0.95


def test_one_latent_is_the_difference_of_two():
    mean, variance = per_class(np.array([2.0]), np.array([3.0]))
    assert mean[0, 1] - mean[0, 0] == 2.0
    assert variance.sum() == 3.0


@pytest.mark.parametrize("rows_per_expert", [60, 1000])
@pytest.mark.parametrize("likelihood", ["onehot", "svm"])
def test_probabilities_of_a_fit_are_calibrated_on_new_rows(make_data, rng, likelihood, rows_per_expert):
    X = rng.uniform(-2, 2, (2000, 2))
    y = (rng.uniform(size=2000) < expit(4 * np.sin(2 * X[:, 0]) + 2 * X[:, 1])) * 1
    settings = Settings(
        task="classification",
        likelihood=likelihood,
        kernel="se",
        learn=False,
        query=40,
        rows_per_expert=rows_per_expert,
    )
    gbcm = GBCM.fit(make_data("train.zarr", X=X[:600], y=y[:600], rows_per_chunk=60), settings)
    figures = gbcm.score(make_data("test.zarr", X=X[600:], y=y[600:]))
    assert figures["ece"] < 0.1  # half of it is sampling error of 1400 rows in 15 bins
    assert figures["log_loss"] < 0.55


def test_calibration_is_made_up_for_after_a_fit_was_cut_short(make_data, rng, tmp_path, monkeypatch):
    X = rng.uniform(-2, 2, (300, 2))
    path = make_data(X=X, y=(X[:, 0] > 0) * 1)
    settings = Settings(task="classification", likelihood="onehot", kernel="se", learn=False, query=20)
    empty = GBCM.prepare(path, settings, model=tmp_path / "model")
    np.testing.assert_allclose(empty.predict(X[:3])["probability"], 0.5)
    with monkeypatch.context() as patch:
        patch.setattr("bcmdist.api.fit.calibrated", lambda snapshot, runtime, **_: snapshot)
        GBCM.fit(path, settings, model=tmp_path / "model")
    assert GBCM.load(tmp_path / "model").facts.get("calibration") is None
    whole = GBCM.fit(path, settings, model=tmp_path / "model")
    assert whole.facts["calibration"]["slope"] > 0


def test_a_store_sorted_by_class_is_calibrated_anew(make_data, rng, tmp_path):
    X = rng.uniform(-2, 2, (400, 2))
    y = (X[:, 0] > 0) * 1
    order = np.argsort(y, kind="stable")
    path = make_data("all.zarr", X=X[order], y=y[order])
    first, second = (make_data(f"{c}.zarr", X=X[y == c], y=y[y == c]) for c in (0, 1))
    settings = Settings(
        task="classification", likelihood="onehot", kernel="se", learn=False, query=20, rows_per_expert=50
    )
    gbcm = GBCM.prepare(path, settings, model=tmp_path / "model").partial_fit(first).partial_fit(second)
    whole = GBCM.fit(path, settings)
    assert gbcm.score(path)["log_loss"] < whole.score(path)["log_loss"] + 0.05


def test_forgetting_most_rows_calibrates_anew(make_data, rng):
    X = rng.uniform(-2, 2, (400, 2))
    path = make_data(X=X, y=(X[:, 0] + rng.standard_normal(400) > 0) * 1)
    given = {"task": "classification", "likelihood": "onehot", "rows_per_expert": 50}
    gbcm = GBCM.fit(path, Settings(kernel="se", learn=False, query=20, **given))
    less = gbcm.forget([entry.key for entry in gbcm.ledger[:4]])
    assert (gbcm.facts["calibration"]["rows"], less.facts["calibration"]["rows"]) == (400, 200)

"""Probabilities of two classes are corrected where rows left out ask for it, and only there."""

import numpy as np
import pytest
from scipy.special import expit

from bcmdist import GBCM, Settings
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.prediction.errors.platt_scaling import HeldOutRows
from bcmdist.prediction.errors.recalibration import Recalibration, fit_recalibration

BERNOULLI = make_likelihood("bernoulli")
N = 2000
GIVEN = {"task": "classification", "kernel": "se", "learn": False, "query": 20}


def left_out(f, y):
    return HeldOutRows(f, np.zeros(len(f)), y.astype(float), np.ones(len(f)))


def drawn(rng, f, slope=1.0, intercept=0.0):
    return left_out(f, rng.uniform(size=len(f)) < expit(intercept + slope * f))


@pytest.mark.parametrize(("slope", "intercept"), [(2.0, 0.0), (0.5, 1.0), (0.3, -0.5)])
def test_known_slope_and_intercept_are_found(rng, slope, intercept):
    found = fit_recalibration(drawn(rng, 2.0 * rng.standard_normal(N), slope, intercept), BERNOULLI, 0)
    assert found.slope == pytest.approx(slope, rel=0.2)
    assert found.intercept == pytest.approx(intercept, abs=0.25)


def test_what_is_right_is_left_as_it_is():
    """A gain of two standard errors happens by chance in fewer than 1 of 1000."""
    rngs = [np.random.default_rng(seed) for seed in range(100)]
    taken = [fit_recalibration(drawn(rng, 2.0 * rng.standard_normal(500)), BERNOULLI, 0) for rng in rngs]
    assert taken == [None] * 100


def test_steeper_is_shrunk_by_what_was_learned(rng):
    seen = drawn(rng, rng.standard_normal(N), 2.0)
    slopes = [fit_recalibration(seen, BERNOULLI, learned).slope for learned in (0, 20, 40)]
    assert slopes[0] > slopes[1] > slopes[2] > 1.0
    flatter = drawn(rng, rng.standard_normal(N), 0.3)
    assert fit_recalibration(flatter, BERNOULLI, 0) == fit_recalibration(flatter, BERNOULLI, 40)


def test_the_order_of_rows_does_not_matter(rng):
    """Partitions come in any order, which also says who judges whom."""
    seen = drawn(rng, rng.standard_normal(N), 1.3)
    order = rng.permutation(N)
    mixed = HeldOutRows(seen.mean[order], seen.variance[order], seen.target[order], seen.weight[order])
    assert fit_recalibration(mixed, BERNOULLI, 3) == fit_recalibration(seen, BERNOULLI, 3)


def test_separable_classes_leave_the_slope_finite():
    f = np.linspace(-1.0, 1.0, 100)
    found = fit_recalibration(left_out(f, f > 0), BERNOULLI, 0)
    assert found.slope <= 100.0
    p = found.corrected(BERNOULLI.class_probability(f, np.zeros(100)))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)


def test_separable_classes_are_fitted_to_smoothed_targets(rng):
    """The oracle is a logistic regression on each row twice, with either label, weighted by Platt's targets."""
    LogisticRegression = pytest.importorskip("sklearn.linear_model").LogisticRegression
    f = np.sort(rng.uniform(-1.0, 1.0, 100))
    sign, weight = np.where(f > 0.2, 1.0, -1.0), rng.uniform(0.5, 1.5, 100)
    total = {label: weight[sign == label].sum() for label in (1.0, -1.0)}
    own = np.array([(total[label] + 1.0) / (total[label] + 2.0) for label in sign])
    oracle = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(
        np.tile(f, 2)[:, None], np.concatenate([sign, -sign]), np.concatenate([weight * own, weight * (1.0 - own)])
    )
    found = fit_recalibration(HeldOutRows(f, np.zeros(100), 0.5 * (sign + 1.0), weight), BERNOULLI, 0)
    assert found.slope == pytest.approx(oracle.coef_[0, 0], rel=1e-3)
    assert found.intercept == pytest.approx(oracle.intercept_[0], rel=1e-3)


def test_few_rows_of_a_class_correct_nothing(rng):
    f = rng.standard_normal(100)
    assert fit_recalibration(left_out(f, np.arange(100) < 19), BERNOULLI, 0) is None
    assert fit_recalibration(left_out(f, np.zeros(100)), BERNOULLI, 0) is None


def test_small_probabilities_keep_their_digits():
    mean = np.array([-300.0, 300.0, -1e4, 1e4])
    p = BERNOULLI.class_probability(mean, np.zeros(4))
    np.testing.assert_allclose(Recalibration(1.0, 0.0).corrected(p)[:2], p[:2], rtol=1e-12)
    assert np.all(np.isfinite(Recalibration(2.0, -1.0).corrected(p)))


def test_the_identity_changes_nothing(rng):
    p = BERNOULLI.class_probability(rng.standard_normal(50), rng.uniform(0, 9, 50))
    np.testing.assert_allclose(Recalibration(1.0, 0.0).corrected(p), p, rtol=1e-12)


# --- Of fits ---


def separable(rng, rows):
    """Classes that a line tells apart but for a few rows: a kernel of variance 1 says too little of them."""
    X = rng.uniform(-2, 2, (rows, 2))
    return X, (X[:, 0] + 0.05 * rng.standard_normal(rows) > 0) * 1


def assert_no_certainty(gbcm, X, y):
    """True labels are never next to impossible, and no worse predicted than without a correction."""
    said, rows = gbcm.predict(X), np.arange(len(y))
    before = gbcm.model.likelihood.class_probability(said["mean"], said["variance"])[rows, y]
    p = said["probability"][rows, y]
    assert p.min() >= 1e-3
    assert -np.log(p).mean() <= -np.log(before).mean() + 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_probabilities_of_separable_classes_are_never_0(seed):
    X = np.random.default_rng(seed).normal(size=(1120, 2))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    assert_no_certainty(
        GBCM.fit(X[:120], y[:120], Settings(partition="chunks", task="classification")), X[120:], y[120:]
    )


@pytest.mark.parametrize("seed", range(4))
def test_probabilities_of_wine_are_never_0(real_data, seed):
    data = np.load(real_data("wine"))
    two = data["y"] < 2
    X, y = data["X"][two], data["y"][two].astype(int)
    rows = np.random.default_rng(seed).permutation(len(y))
    train, test = rows[:65], rows[65:]
    assert_no_certainty(
        GBCM.fit(X[train], y[train], Settings(partition="chunks", task="classification")), X[test], y[test]
    )


@pytest.mark.parametrize("likelihood", ["bernoulli", "probit"])
def test_nearly_separable_classes_are_said_so(make_data, rng, likelihood):
    X, y = separable(rng, 1600)
    settings = Settings(partition="chunks", likelihood=likelihood, rows_per_expert=100, **GIVEN)
    gbcm = GBCM.fit(make_data("train.zarr", X=X[:600], y=y[:600], rows_per_chunk=100), settings)
    assert gbcm.facts["recalibration"]["slope"] > 1.2
    test = make_data("test.zarr", X=X[600:], y=y[600:])
    before = GBCM(gbcm.snapshot.successor(gbcm.committee, [], recalibration=None))
    assert "recalibration" not in before.facts
    assert gbcm.score(test)["log_loss"] < before.score(test)["log_loss"] - 0.02
    np.testing.assert_array_equal(gbcm.predict(X)["mean"], before.predict(X)["mean"])


def test_data_of_the_model_are_predicted_as_before(make_data, rng):
    """f of the prior, labels of f: nothing is corrected, and nothing is committed for it."""
    X = rng.uniform(-2, 2, (600, 2))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=-1) / 2.0 / X.var(axis=0).mean())
    f = np.linalg.cholesky(K + 1e-9 * np.eye(600)) @ rng.standard_normal(600)
    path = make_data(X=X, y=(rng.uniform(size=600) < expit(f)) * 1, rows_per_chunk=200)
    gbcm = GBCM.fit(path, Settings(partition="chunks", rows_per_expert=200, **GIVEN))
    assert "recalibration" not in gbcm.facts
    expected = gbcm.model.likelihood.class_probability(*(gbcm.predict(X)[name] for name in ("mean", "variance")))
    np.testing.assert_array_equal(gbcm.predict(X)["probability"], expected)


@pytest.mark.slow
def test_it_follows_what_is_heard_and_forgotten(make_data, rng, tmp_path):
    X, y = separable(rng, 900)
    parts = [make_data(f"{k}.zarr", X=X[k::3], y=y[k::3], rows_per_chunk=100) for k in range(3)]
    settings = Settings(partition="chunks", rows_per_expert=100, **GIVEN)
    gbcm = GBCM.fit(parts[0], settings, model=tmp_path / "m")
    more = gbcm.partial_fit(parts[1]).partial_fit(parts[2])
    assert [g.facts["recalibration"]["rows"] for g in (gbcm, more)] == [300, 900]
    assert more.partial_fit(parts[2]).commit == more.commit
    less = more.forget([entry.key for entry in more.ledger if entry.key.startswith(parts[2])])
    assert less.facts["recalibration"]["rows"] == 600
    finer = less.refine()
    assert finer.facts["recalibration"]["linearised_at"] == finer.facts["linearised_at"]
    assert finer.facts["recalibration"]["linearised_at"] is not None
    again = GBCM.fit(parts[0], settings, model=tmp_path / "n")
    assert again.facts["recalibration"] == gbcm.facts["recalibration"]
    assert GBCM.fit(parts[0], settings, model=tmp_path / "n").commit == again.commit

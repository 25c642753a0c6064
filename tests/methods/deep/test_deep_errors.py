"""The distribution of the errors of deep processes, from rows of training and rows left out."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.data.observations import unweighted
from bcmdist.data.rows import read_all
from bcmdist.experts.expert import expert_message
from bcmdist.learning.training_errors import TrainingErrors
from bcmdist.methods.deep import adam, training
from bcmdist.methods.deep.objective import DeepObjective
from bcmdist.model.loading import load_scaling
from bcmdist.prediction.latent import predict_latent

ASKED = Settings(expert="dgp", units=2, query=15, rows_per_expert=300, effort="quick")


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def few(monkeypatch):
    """A few steps are enough."""
    monkeypatch.setattr(adam, "ROUND", 100)
    monkeypatch.setitem(adam.STEPS, "quick", 300)


def rows_of(count, seed):
    """Inputs and targets with errors that are mostly small and sometimes large."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (count, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_t(2, count)


@pytest.fixture
def fitted(few):
    return GBCM.fit(rows_of(2500, 1), ASKED)


def test_errors_are_those_of_the_committee_without_the_row(few, monkeypatch):
    """Of rows of training; and those of left-out rows of the committee of all of these."""
    found_of, kept = training.training_errors, []

    def noted(shared, likelihood, context, seen, left_out):
        kept.append(
            (shared, likelihood, context, seen, left_out, found_of(shared, likelihood, context, seen, left_out))
        )
        return kept[0][-1]

    monkeypatch.setattr(training, "training_errors", noted)
    model = GBCM.fit(rows_of(600, 1), ASKED)
    shared, likelihood, context, seen, left_out, found = kept[0]
    scaling = load_scaling(context.scaling)

    def scaled(parts):
        rows = [rows for _, rows in read_all(parts)]
        X, obs = (
            [scaling.inputs(one.X) for one in rows],
            [scaling.observations(one.obs, likelihood.units) for one in rows],
        )
        return np.concatenate(X), np.concatenate([one.y for one in obs])

    def standardised(eta, precision, X, y):
        mean, variance = predict_latent(shared, shared.belief(eta, precision), X)
        return (y - mean) / np.sqrt(variance + likelihood.noise_variance)

    (X, y), (Xs, ys) = scaled(seen), scaled(left_out)
    total = expert_message(shared, likelihood, X, unweighted(y))
    np.testing.assert_allclose(found.left_out[1], standardised(total.eta, total.precision, Xs, ys), atol=1e-3)
    for k in range(5):
        own = expert_message(shared, likelihood, X[k : k + 1], unweighted(y[k : k + 1]))
        z = standardised(total.eta - own.eta, total.precision - own.precision, X[k : k + 1], y[k : k + 1])
        assert found.seen[1][k] == pytest.approx(z[0], abs=1e-3)  # they are rounded
    assert model.info()["errors"]["residuals"] == len(y) + len(ys) == 600


def test_the_ratio_is_one_standard_error_lower_than_measured(rng):
    places, z = np.zeros((1000, 3)), rng.standard_normal(1000)
    errors = TrainingErrors((places, z), (places[:400], 2.0 * z[:400]))
    clipped = np.minimum(2.0 * np.abs(z[:400]), 3.0).mean() / np.minimum(np.abs(z), 3.0).mean()
    assert errors.ratio == pytest.approx(clipped * (1.0 - 0.756 / 20.0))
    np.testing.assert_array_equal(errors.residuals().arrays()[1], [*(errors.ratio * z), *(2.0 * z[:400])])
    assert TrainingErrors((places, z), (places[:400], 0.5 * z[:400])).ratio == 1.0
    assert TrainingErrors((places, 0.0 * z), (places, z)).ratio == 1.0


@pytest.mark.slow
def test_intervals_cover_new_rows_of_heavy_tails(fitted):
    X, y = rows_of(4000, 2)
    shaped = fitted.score((X, y))
    latent = fitted.predictive.predictor().predictor.latent(fitted.model.scaling.inputs(X))
    predicted = fitted.predict(X)
    variance = (latent[1] + fitted.model.likelihood.noise_variance[0]) * fitted.model.scaling.y_scale**2
    normal = 0.5 * np.mean((y - predicted["mean"]) ** 2 / variance + np.log(2 * np.pi * variance))
    assert shaped["mnlp"] < normal - 0.2
    for level in (0.5, 0.95):  # within three standard errors of a share of 250 rows
        error = 3.0 * np.sqrt(level * (1.0 - level) / 250)
        assert shaped[f"coverage{100 * level:.0f}"] == pytest.approx(level, abs=error)


def test_few_rows_have_no_distribution(few):
    assert GBCM.fit(rows_of(90, 1), ASKED).info()["errors"] is None


@pytest.mark.slow
def test_the_scale_of_errors_may_vary_with_the_inputs(few):
    """Errors ten times as large on one side; a stored model predicts the same."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (800, 2))
    y = np.sin(2 * X[:, 0]) + np.where(X[:, 1] > 0, 0.5, 0.05) * rng.standard_normal(800)
    model = GBCM.fit((X, y), ASKED)
    errors = model.info()["errors"]
    assert errors["scale"] == "varying"
    assert errors["gain"] > 2.0 * errors["gain_error"] > 0.0
    found = model.predict(np.array([[0.0, 1.0], [0.0, -1.0]]))
    narrow, wide = np.sort(found["upper95"] - found["lower95"])
    assert wide > 3.0 * narrow
    np.testing.assert_array_equal(GBCM.load(model.url).predict(X[:9])["lower95"], model.predict(X[:9])["lower95"])


@pytest.mark.slow
def test_a_cluster_finds_the_same_distribution(few, cluster):
    one = GBCM.fit(rows_of(2500, 1), ASKED)
    other = GBCM.fit(rows_of(2500, 1), ASKED, runtime=cluster)
    trained = [model.snapshot.facts.errors.trained_errors for model in (one, other)]
    np.testing.assert_allclose(trained[1].weights, trained[0].weights, atol=1e-6)
    again = GBCM.load(one.url)
    np.testing.assert_array_equal(again.predict(rows_of(9, 3)[0])["lower95"], one.predict(rows_of(9, 3)[0])["lower95"])


@pytest.mark.parametrize("density", [-np.inf, -5000.0])
def test_processes_whose_training_has_failed_are_not_mixed(few, monkeypatch, density):
    evaluate = DeepObjective.evaluate

    def failed(objective, trained, held):
        found = evaluate(objective, trained, held)
        return replace(found, density=density) if objective.power == 1.0 else found

    monkeypatch.setattr(DeepObjective, "evaluate", failed)
    model = GBCM.fit(rows_of(400, 1), ASKED)
    report = model.info()["deep"]
    assert model.model.shared.kind == "deep"
    assert report["density"] == report["densities"][1]
    assert report["densities"][0] == (None if density == -np.inf else density / report["left_out"])


def test_training_begins_with_noise_however_small_was_learned(few, monkeypatch):
    """Of rows that repeat, the kernel may be learned without noise (left-out rows of wine: log density -18)."""
    begun, noises = training.begun, []

    def noiseless(basis_inputs):
        found = begun(replace(basis_inputs, learned_noise=np.full(1, 1e-8)))
        noises.append(float(np.exp(found.layers[-1].log_noise)))
        return found

    monkeypatch.setattr(training, "begun", noiseless)
    GBCM.fit(rows_of(400, 1), ASKED)
    assert noises == pytest.approx([0.01])

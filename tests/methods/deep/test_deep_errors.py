"""The distribution of the errors of deep processes, from rows left out of training."""

import functools
import operator
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.data.rows import read_all
from bcmdist.methods.deep import adam, training
from bcmdist.methods.deep.objective import DeepObjective
from bcmdist.model.loading import load_scaling
from bcmdist.prediction.errors.scale_mixture import fit_shape, histogram

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


def test_errors_are_those_of_the_mixture_at_left_out_rows(few, monkeypatch):
    expected, found_of = [], training._errors

    def noted(context, each, held, likelihood):
        scaling, z = load_scaling(context.scaling), []
        for part, rows in read_all(held):
            X, obs = scaling.inputs(rows.X), scaling.observations(rows.obs, likelihood.units, rows.X)
            m, v = np.moveaxis([[a[:, 0] for a in one.believed(X)] for one in each], 1, 0)
            v = v + np.exp([[one.layers[-1].log_noise] for one in each])
            variance = np.mean(v + m**2, axis=0) - np.mean(m, axis=0) ** 2
            z.append(histogram((obs.y - np.mean(m, axis=0)) / np.sqrt(variance)))
            assert part.rows == len(X)
        expected.append(fit_shape(functools.reduce(operator.add, z)))
        return found_of(context, each, held, likelihood)

    monkeypatch.setattr(training, "_errors", noted)
    model = GBCM.fit(rows_of(2500, 1), ASKED)
    found = model.snapshot.facts.errors.trained_errors
    np.testing.assert_allclose(found.weights, expected[0].weights, atol=1e-4)  # residuals are rounded
    assert found.rows == model.info()["deep"]["left_out"] == model.info()["errors"]["residuals"] == 250


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


def test_few_left_out_rows_have_no_distribution(few):
    model = GBCM.fit(rows_of(1500, 1), ASKED)
    assert model.info()["deep"]["left_out"] == 150
    assert model.info()["errors"] is None


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

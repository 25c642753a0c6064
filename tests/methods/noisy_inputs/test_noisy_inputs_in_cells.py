"""Noisy inputs with spatial partitions: moments averaged over inputs against dense kriging, and fits."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.data.observations import unweighted
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidData
from bcmdist.experts.evidence import local_evidence
from bcmdist.experts.expert import expert_message
from bcmdist.learning.point import Point, moved, theta_of
from bcmdist.methods.noisy_inputs.averaged import averaged_evidence, averaged_message
from bcmdist.methods.noisy_inputs.posterior import NoisyRows, Process
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import local_expert, predict_local
from bcmdist.prediction.local.uncertain_rows import AtUncertainRows, mean_cross, possible_inputs
from problems import make_kernel, regression_problem

GIVEN = {"kernel.variance": 1.0, "kernel.lengthscale": 0.5, "likelihood.noise_variance": 0.01}
CELLS = Settings(
    partition="spatial",
    noisy_inputs="clean",
    kernel="se",
    rows_per_expert=150,
    query=40,
    effort="quick",
    learn=False,
    set=GIVEN,
)


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    with threadpool_limits(1, user_api="blas"):
        yield


def rows_with_errors(rng, rows=30, scale=0.3):
    p = regression_problem(rng, rows=rows)
    return p, NoisyRows(p.X, scale * rng.standard_normal((rows, 2, 2)), p.obs)


def dense_moments(kernel, X):
    """Covariance of the values of rows, (n, n), by loops over points."""
    n, points = len(X), X.reshape(len(X), -1, 2)
    K = np.array([[kernel.cross(points[i], points[j]).mean() for j in range(n)] for i in range(n)])
    K[np.diag_indices(n)] = [kernel.diagonal(p).mean() for p in points]
    return K


def test_covariances_are_those_of_the_closed_form_as_errors_are_small(rng):
    """Of a se kernel of lengthscale 1 and rows with variances s and t: E k = exp(-r^2 / 2(1+s+t)) / (1+s+t)."""
    X, Z = rng.uniform(-1, 1, (8, 2)), rng.uniform(-1, 1, (5, 2))
    kernel, s = make_kernel("se", variance=1.0, lengthscale=1.0), 0.04
    found = mean_cross(kernel, possible_inputs(X, np.tile(0.2 * np.eye(2), (8, 1, 1))), Z, 2)
    square = ((X[:, None] - Z) ** 2).sum(axis=2)
    # Cubature is exact up to the third power of the errors; the next term is about s^2.
    np.testing.assert_allclose(found, np.exp(-0.5 * square / (1 + s)) / (1 + s), atol=s**2)


@pytest.mark.parametrize("mean", ["zero", "constant"])
def test_with_query_points_or_none_one_cell_is_dense_kriging(rng, mean):
    """Message of all rows and local expert of the same rows: PIC of one partition, exact with any query points."""
    p, noisy = rows_with_errors(rng)
    kernel, likelihood = make_kernel("se"), make_likelihood("gaussian")
    process, shared = Process(kernel, Mean(mean), likelihood), prepare(p.Xq, kernel=kernel, mean=Mean(mean))
    message, X = averaged_message(shared, process, noisy), possible_inputs(noisy.inputs, noisy.root)
    seen = AtUncertainRows(committee_at_rows(shared, shared.belief(message.eta, message.precision)))
    expert = local_expert(seen, likelihood, X, np.asfortranarray(seen.columns(X)), p.obs)
    found = predict_local(seen, expert, p.Xs, seen.columns(p.Xs))
    H, h = Mean(mean).design(p.X), Mean(mean).design(p.Xs)
    K = dense_moments(kernel, X) + H @ H.T + np.diag(likelihood.noise(p.obs))
    k = mean_cross(kernel, X, p.Xs, 2) + H @ h.T
    A = np.linalg.solve(K, k)
    np.testing.assert_allclose(found[0], A.T @ p.obs.y, atol=1e-8)
    prior = kernel.diagonal(p.Xs) + (h**2).sum(axis=1)
    np.testing.assert_allclose(found[1], prior - (k * A).sum(axis=0), atol=1e-8)
    value, _ = averaged_evidence(process, noisy)
    expected = -0.5 * (p.obs.y @ np.linalg.solve(K, p.obs.y) + np.linalg.slogdet(2 * np.pi * K)[1])
    assert value == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("kernel", "name"), [("se", "gaussian"), ("linear + se", "gaussian"), ("matern52", "poisson")])
def test_the_averaged_evidence_has_this_gradient_and_is_the_plain_one_without_errors(rng, kernel, name):
    _, noisy = rows_with_errors(rng, 12)
    noisy = replace(noisy, obs=unweighted(rng.poisson(2.0, 12) * 1.0))
    process, h = Process(make_kernel(kernel), Mean("constant"), make_likelihood(name)), 1e-5
    point = Point("", process.kernel, process.likelihood, 0.0)
    theta, move = theta_of(point), rng.standard_normal(len(theta_of(point)))

    def at(step):
        there = moved(point, theta + step * move)
        return averaged_evidence(replace(process, kernel=there.kernel, likelihood=there.likelihood), noisy)[0]

    assert averaged_evidence(process, noisy)[1] @ move == pytest.approx((at(h) - at(-h)) / (2 * h), rel=1e-6, abs=1e-6)
    exact = replace(noisy, root=np.zeros_like(noisy.root))
    value, gradient = local_evidence(process.kernel, process.mean, process.likelihood, exact.inputs, exact.obs)
    found = averaged_evidence(process, exact)
    assert found[0] == pytest.approx(value, abs=1e-10)
    np.testing.assert_allclose(found[1], gradient, atol=1e-9)
    shared = prepare(rng.uniform(-2, 2, (9, 2)), kernel=process.kernel, mean=process.mean)
    plain, averaged = (
        expert_message(shared, process.likelihood, exact.inputs, exact.obs),
        averaged_message(shared, process, exact),
    )
    np.testing.assert_allclose(averaged.eta, plain.eta, atol=1e-7)
    np.testing.assert_allclose(averaged.precision, plain.precision, atol=1e-7)


# --- Fits ---


def a_field(seed=1, rows=450, deviation=0.3):
    """Measured inputs, targets, variances; new inputs and their truth, of a function of lengthscale 1."""
    rng = np.random.default_rng(seed)
    W, b = rng.standard_normal((2, 200)), rng.uniform(0, 2 * np.pi, 200)
    a = rng.standard_normal(200) * np.sqrt(2 / 200)
    x, new = rng.uniform(0, 7, (rows, 2)), rng.uniform(0.5, 6.5, (300, 2))
    y = np.cos(x @ W + b) @ a + 0.1 * rng.standard_normal(rows)
    u = x + deviation * rng.standard_normal((rows, 2))
    return u, y, {"X_variance": np.full((rows, 2), deviation**2)}, new, np.cos(new @ W + b) @ a


def scores(gbcm, new, truth):
    """Root mean squared error, log density, and shares of f within 50 % and 95 % bands."""
    found = gbcm.predict(new)
    error, variance = truth - found["mean"], found["variance"]
    z = np.abs(error) / np.sqrt(variance)
    density = np.mean(-0.5 * (np.log(2 * np.pi * variance) + z**2))
    return np.sqrt(np.mean(error**2)), density, np.mean(z < 0.6745), np.mean(z < 1.96)


@pytest.mark.slow
def test_a_field_at_uncertain_places_is_learned_better_with_their_errors():
    u, y, errors, new, truth = a_field(seed=3)
    asked = replace(CELLS, learn=True, set={})
    rmse, density, *_ = scores(GBCM.fit(u, y, replace(asked, noisy_inputs="no")), new, truth)
    rmse_clean, density_clean, half, most = scores(GBCM.fit(u, y, asked, companions=errors), new, truth)
    assert rmse_clean < rmse
    assert density_clean > density + 0.3
    assert 0.35 < half < 0.7
    assert most > 0.85


def test_cells_with_errors_predict_jointly_and_forget(tmp_path):
    u, y, errors, new, _ = a_field()
    gbcm = GBCM.fit(u, y, CELLS, companions=errors, model=tmp_path / "model")
    covariances = {"X_variance": errors["X_variance"][:, :, None] * np.eye(2)}
    again = GBCM.fit(u, y, CELLS, companions=covariances)
    np.testing.assert_allclose(again.predict(new)["mean"], gbcm.predict(new)["mean"], atol=1e-8)
    samples = gbcm.sample(new[:6], size=4000, seed=3)
    # Four standard errors of deviations of 4000 samples, 1 / sqrt(8000), are .045.
    np.testing.assert_allclose(samples.std(axis=0), np.sqrt(gbcm.predict(new[:6])["variance"]), rtol=0.06)
    before = gbcm.predict(new[:3], method="committee")["mean"]
    write_dataset(tmp_path / "more.zarr", {"X": u[:60] + 0.1, "y": y[:60], "X_variance": errors["X_variance"][:60]})
    known = {entry.key for entry in gbcm.snapshot.ledger}
    more = gbcm.partial_fit(tmp_path / "more.zarr")
    assert more.info()["rows"] == 510
    back = more.forget([entry.key for entry in more.snapshot.ledger if entry.key not in known])
    np.testing.assert_allclose(back.predict(new[:3], method="committee")["mean"], before, atol=1e-8)
    write_dataset(tmp_path / "silent.zarr", {"X": u[:60], "y": y[:60]})
    with pytest.raises(InvalidData, match="expected an array X_variance"):
        more.partial_fit(tmp_path / "silent.zarr")


@pytest.mark.slow
def test_as_errors_vanish_local_predictions_of_counts_are_the_plain_ones():
    u, y, errors, new, _ = a_field()
    asked = replace(CELLS, likelihood="poisson", set={"kernel.lengthscale": 0.5})
    counts = np.random.default_rng(1).poisson(np.exp(1.0 + y)) * 1.0
    tiny = GBCM.fit(u, counts, asked, companions={"X_variance": 1e-14 * errors["X_variance"]})
    plain = GBCM.fit(u, counts, replace(asked, noisy_inputs="no"))
    np.testing.assert_allclose(tiny.predict(new)["mean"], plain.predict(new)["mean"], atol=1e-5)
    np.testing.assert_allclose(tiny.predict(new)["variance"], plain.predict(new)["variance"], atol=1e-5)

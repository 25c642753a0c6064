"""A kernel that is one class and one line, with a parameter of a name that nobody else has, from learning to ingestion.

Beside a dense Gaussian process: query points at all inputs make the committee exact, however rows are partitioned.
"""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import bcmdist
from bcmdist import GBCM, Settings
from bcmdist.model.kernels import Leaf, metric, parse_kernel
from bcmdist.testing import check_kernel
from oracles import full_gp


@bcmdist.register_kernel
@dataclass(frozen=True)
class Periodic(Leaf):
    """`variance * exp(-2 sum_d sin^2(pi (x_d - z_d) / period) / lengthscale_d^2)`."""

    variance: np.ndarray
    lengthscale: np.ndarray
    period: np.ndarray
    name = "cyclic"
    bounds = Leaf.bounds | {"period": (0.1, 10.0)}

    @classmethod
    def defaults(cls, inputs):
        return super().defaults(inputs) | {"period": np.ones(1)}

    def metric(self, inputs):
        """Near 0 it is a squared exponential of these lengthscales."""
        return np.broadcast_to(self.lengthscale * self.period / (2.0 * np.pi), inputs)

    def cross(self, X, Z):
        sines = np.sin(self._phase(X, Z)) / self.lengthscale
        return np.asfortranarray(self.variance * np.exp(-2.0 * (sines**2).sum(axis=2)))

    def diagonal(self, X):
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X, Z):
        K, phase = self.cross(X, Z), self._phase(X, Z)

        def pullback(G):
            GK = G * K
            lengths = np.einsum("ij,ijd->d", GK, 4.0 * (np.sin(phase) / self.lengthscale) ** 2)
            if len(self.lengthscale) == 1:
                lengths = lengths.sum(keepdims=True)
            period = np.einsum("ij,ijd->", GK, 2.0 * phase * np.sin(2.0 * phase) / self.lengthscale**2)
            return np.concatenate([[GK.sum()], lengths, [period]])

        return K, pullback

    def input_gradient(self, X, Z, G):
        slope = 2.0 * np.sin(2.0 * self._phase(X, Z)) * np.pi / self.period / self.lengthscale**2
        return np.einsum("ij,ijd->jd", G * self.cross(X, Z), slope)

    def _phase(self, X, Z):
        return np.pi * (X[:, None] - Z) / self.period


PERIOD, NOISE = 3.0, 0.3
EXPRESSIONS = ["cyclic", "se+cyclic", "se*cyclic"]


def wave(x, rng):
    return 2.0 * np.sin(2.0 * np.pi * x / PERIOD) + NOISE * rng.standard_normal(len(x))


@pytest.fixture
def rows(rng):
    """Inputs (150, 1) of three periods, in random order, and targets (150,)."""
    x = rng.permutation(np.linspace(0.0, 3.0 * PERIOD, 150))
    return x[:, None], wave(x, rng)


def dense(gbcm, X, y, Xs):
    """Mean and variance of f at Xs in original units, and the log evidence of scaled targets, of a dense process."""
    scaling, query = gbcm.model.scaling, gbcm.model.query
    noise = gbcm.model.likelihood.noise_variance[0]
    mean, covariance, evidence = full_gp(
        query.kernel,
        query.mean.design,
        scaling.inputs(X),
        (y - scaling.y_mean) / scaling.y_scale,
        noise,
        scaling.inputs(Xs),
    )
    return mean * scaling.y_scale + scaling.y_mean, np.diag(covariance) * scaling.y_scale**2, evidence


def assert_dense(gbcm, X, y):
    """Query points whose variance given the others is 1e-8 are left out."""
    Xs = np.linspace(-PERIOD, 4.0 * PERIOD, 41)[:, None]
    found, (mean, variance, evidence) = gbcm.predict(Xs), dense(gbcm, X, y, Xs)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-4)
    np.testing.assert_allclose(found["variance"], variance, atol=1e-5)
    assert gbcm.committee.log_evidence == pytest.approx(evidence, abs=1e-4)


@pytest.mark.parametrize("name", [*EXPRESSIONS, "cyclic-iso"])
def test_derivatives(name, rng):
    kernel = parse_kernel(name, inputs=3)
    kernel = kernel.with_theta(kernel.theta + 0.3 * rng.standard_normal(len(kernel.theta)))
    check_kernel(kernel, rng.standard_normal((5, 3)))


def test_what_it_says_of_itself():
    kernel = parse_kernel("se+cyclic*cyclic", inputs=2)
    assert kernel.expression == "se+cyclic*cyclic"
    assert "cyclic*cyclic.cyclic2.period" in kernel.parameters
    assert kernel.bounds["cyclic*cyclic.cyclic2.period"] == (0.1, 10.0)
    np.testing.assert_allclose(metric(kernel, 2), np.sqrt(2.0) / (2.0 * np.pi))
    again = pickle.loads(pickle.dumps(kernel))
    assert again.expression == kernel.expression
    np.testing.assert_array_equal(again.theta, kernel.theta)


@pytest.mark.parametrize("kernel", EXPRESSIONS)
def test_from_learning_to_ingestion(kernel, rows, make_data, tmp_path, rng, monkeypatch):
    for user in ("errors.error_distribution", "measuring.measurement"):  # errors stay normal: their shape is not fitted
        monkeypatch.setattr(f"bcmdist.prediction.{user}.LEAST", 1000)
    X, y = rows
    path = make_data(X=X, y=y, rows_per_chunk=50)
    settings = Settings(kernel=kernel, query=150, rows_per_expert=50, effort="quick")
    gbcm = GBCM.fit(path, settings, model=tmp_path / "model")
    assert len(gbcm.ledger) == 3
    assert_dense(gbcm, X, y)
    # Learned: the period or twice that, with more evidence than where learning began.
    (name,) = [name for name in gbcm.info()["hyperparameters"] if name.endswith("period")]
    (period,) = gbcm.info()["hyperparameters"][name] * gbcm.model.scaling.x_scale
    assert min(abs(period / PERIOD - 1.0), abs(period / PERIOD - 2.0)) < 0.02
    given = {"likelihood.noise_variance": 0.1}
    plain = GBCM.fit(path, Settings(kernel=kernel, query=150, rows_per_expert=50, learn=False, set=given))
    assert gbcm.committee.log_evidence > plain.committee.log_evidence + 5.0
    # Scored, saved and loaded.
    fresh = np.linspace(4.0 * PERIOD, 5.0 * PERIOD, 30)[:, None]
    truth = wave(fresh[:, 0], rng)
    mean, variance, _ = dense(gbcm, X, y, fresh)
    score = gbcm.score(make_data("fresh.zarr", X=fresh, y=truth))
    assert score["rmse"] == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)), rel=1e-4)
    variance = variance + gbcm.model.likelihood.noise_variance[0] * gbcm.model.scaling.y_scale**2
    nats = 0.5 * (np.log(2 * np.pi * variance) + (truth - mean) ** 2 / variance)
    assert score["mnlp"] == pytest.approx(nats.mean(), abs=1e-4)  # nats may be near 0; means agree to 1e-4
    loaded = GBCM.load(tmp_path / "model")
    assert loaded.info()["kernel"] == kernel
    np.testing.assert_array_equal(loaded.predict(fresh)["mean"], gbcm.predict(fresh)["mean"])
    # Further targets at the inputs, which the query points determine.
    again = X[:40], wave(X[:40, 0], rng)
    more, tally = loaded.ingest(loaded.source(make_data("more.zarr", X=again[0], y=again[1], rows_per_chunk=50)))
    assert tally.rows == 40
    assert_dense(more, np.vstack([X, again[0]]), np.concatenate([y, again[1]]))


@pytest.mark.parametrize("learn", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["given", "learned"])
def test_spatial_cells_in_its_metric(learn, rows, make_data, tmp_path):
    """All rows are near each new point, so that local prediction is exact whatever the query points."""
    X, y = rows
    given = {} if learn else {"kernel.period": 1.15, "likelihood.noise_variance": 0.03}
    settings = Settings(kernel="cyclic", query=10, rows_per_expert=150, partition="spatial", effort="quick")
    settings = replace(settings, learn=learn, set=given)
    gbcm = GBCM.fit(make_data(X=X, y=y, rows_per_chunk=50), settings, model=tmp_path / "model")
    Xs = np.linspace(-PERIOD, 4.0 * PERIOD, 41)[:, None]
    found, (mean, variance, _) = gbcm.predict(Xs, method="local"), dense(gbcm, X, y, Xs)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-8)
    np.testing.assert_allclose(found["variance"], variance, atol=1e-8)


@pytest.mark.parametrize("how", [["--serial"], pytest.param(["--workers", "1"], marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_command_finds_it_as_a_plugin(how, rows, make_data, tmp_path):
    """Neither the command nor its workers import this module themselves."""
    X, y = rows
    info = tmp_path / "cyclic-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: cyclic\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text(f"[bcmdist.plugins]\ncyclic = {__name__}\n")
    here = Path(__file__).parent
    paths = [str(tmp_path), str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "bcmdist", "fit", make_data(X=X, y=y), "--model", str(tmp_path / "model"), *how]
    command += ["--kernel", "se*cyclic", "--no-learn", "--set", "kernel.cyclic.period=0.5"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert GBCM.load(tmp_path / "model").info()["hyperparameters"]["kernel.cyclic.period"] == [0.5]

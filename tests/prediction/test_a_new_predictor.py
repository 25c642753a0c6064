"""A predictor is one class: the exact GP of the rows nearest to each new point, registered as another package would."""

import functools
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from scipy.stats import norm

import bcmdist
from bcmdist import GBCM, Mixture, Settings
from bcmdist.app.cli.main import cli
from bcmdist.committee.absorbed import absorbed_partitions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.rows import read_all
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidOption, MemoryLimit, NotFinite
from bcmdist.model.model import Model, named_parameters
from bcmdist.model.targets import model_rows
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.limits import MemoryNeed
from bcmdist.prediction.predictive_model import PREDICTORS
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.testing import check_predictor
from oracles import full_gp

NEAREST = 12
SETTINGS = Settings(kernel="se", mean="zero", query=10, rows_per_expert=60, learn=False)


@dataclass(frozen=True)
class NearestRows(Predictor):
    """f at x given the `NEAREST` training rows and nothing else: mean = k' (K + Psi)^-1 y, var = k_xx - k' ( )^-1 k."""

    model: Model
    calibration: None
    X: np.ndarray
    """(N, D), scaled"""
    y: np.ndarray
    noise: np.ndarray

    @classmethod
    def refuse(cls, snapshot):
        if not snapshot.model.likelihood.exact:
            raise InvalidOption("method: expected a model of gaussian noise, got another; use --method committee")

    @classmethod
    def memory(cls, snapshot):
        rows = snapshot.committee.total.rows
        return MemoryNeed(8.0 * rows * (snapshot.model.inputs + 2), f"{rows} rows to look among", "use another method")

    @classmethod
    def of_snapshot(cls, snapshot):
        read = [model_rows(snapshot.model, part, rows) for part, rows in read_all(absorbed_partitions(snapshot))]
        rows = [(X, obs.y, snapshot.model.likelihood.noise(obs)) for X, obs in read]
        return cls(snapshot.model, None, *map(np.concatenate, zip(*rows, strict=True)))

    @classmethod
    @functools.cache
    def of_commit(cls, reference):
        return cls.of_snapshot(Snapshot.load(reference.url, commit=reference.number))

    def latent(self, X):
        return tuple(np.array(one) for one in zip(*map(self._at, X), strict=True))

    def _at(self, x):
        near, kernel = np.argsort(((self.X - x) ** 2).sum(axis=1))[:NEAREST], self.model.query.kernel
        k, K = kernel.cross(x[None], self.X[near])[0], kernel.cross(self.X[near], self.X[near])
        solved = np.linalg.solve(K + np.diag(self.noise[near]), np.column_stack([self.y[near], k]))
        return k @ solved[:, 0], kernel.diagonal(x[None])[0] - k @ solved[:, 1]


@dataclass(frozen=True)
class Forgetful(NearestRows):
    """One that loses a number."""

    def latent(self, X):
        mean, variance = super().latent(X)
        return np.where(np.arange(len(mean)) == 3, np.nan, mean), variance


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    """In this process, for one test: tasks carry the predictor, so that workers need not know its name."""
    monkeypatch.setattr(PREDICTORS, "_things", dict(PREDICTORS._things))
    bcmdist.register_predictor("nearest", NearestRows)
    bcmdist.register_predictor("forgetful", Forgetful)


@pytest.fixture
def fitted(wave, tmp_path):
    """A model, new inputs (50, 2), their targets (50,) and path, and what the oracle says of f there."""
    path, X, y = wave
    rng = np.random.default_rng(7)
    new = rng.uniform(-2, 2, (50, 2))
    target = 3.0 + 2.0 * np.sin(2 * new[:, 0]) + new[:, 1] + 0.1 * rng.standard_normal(50)
    write_dataset(tmp_path / "new.zarr", {"X": new, "y": target}, rows_per_chunk=20)
    gbcm = GBCM.fit(path, SETTINGS, model=tmp_path / "model")
    return gbcm, new, target, str(tmp_path / "new.zarr"), by_hand(gbcm.model, X, y, new)


def noise_of(model):
    return named_parameters(model.query.kernel, model.likelihood)["likelihood.noise_variance"]


def zero_mean(X):
    return np.zeros((len(X), 1))


def by_hand(model, X, y, new):
    """Mean and variance (n,) of f in original units: a dense GP of the rows that are nearest to each new one."""
    unit, scale, noise = model.scaling.x_scale, model.scaling.y_scale, noise_of(model)
    found = []
    for x in new:
        near = np.argsort((((X - x) / unit) ** 2).sum(axis=1))[:NEAREST]
        Z, z = model.scaling.inputs(X[near]), (y[near] - model.scaling.y_mean) / scale
        mean, cov, _ = full_gp(model.query.kernel, zero_mean, Z, z, noise, model.scaling.inputs(x[None]))
        found.append((mean[0] * scale + model.scaling.y_mean, cov[0, 0] * scale**2))
    mean, variance = np.array(found).T
    assert mean.shape == variance.shape == (len(new),)
    return mean, variance


@pytest.fixture(params=["serial", "dask"])
def runtime(request):
    return SerialRuntime() if request.param == "serial" else request.getfixturevalue("cluster")


def test_conformance(fitted):
    for name in ("nearest", "committee"):
        check_predictor(PREDICTORS[name], fitted[0].snapshot)


def test_conformance_of_local_predictions(wave, tmp_path):
    gbcm = GBCM.fit(wave[0], replace(SETTINGS, partition="spatial"), model=tmp_path / "cells")
    check_predictor(PREDICTORS["local"], gbcm.snapshot)


def test_it_predicts(fitted):
    gbcm, new, _, _, (mean, variance) = fitted
    for model in (gbcm, GBCM.load(gbcm.url)):
        said = model.predict(new, method="nearest")
        np.testing.assert_allclose(said["mean"], mean, rtol=1e-9)
        np.testing.assert_allclose(said["variance"], variance, rtol=1e-7, atol=1e-12)
    assert np.abs(gbcm.predict(new)["mean"] - mean).max() > 0.01  # the committee says otherwise


@pytest.mark.slow
def test_it_predicts_data_sets(fitted, runtime, tmp_path):
    gbcm, _, _, path, (mean, variance) = fitted
    assert GBCM.load(gbcm.url).predict_zarr(path, tmp_path / "p.zarr", method="nearest", runtime=runtime) == 50
    written = zarr.open_group(tmp_path / "p.zarr", mode="r")
    assert written.attrs["method"] == "nearest"
    np.testing.assert_allclose(written["mean"][:], mean, rtol=1e-9)
    np.testing.assert_allclose(written["variance"][:], variance, rtol=1e-7, atol=1e-12)


def test_it_is_scored(fitted, runtime):
    gbcm, _, target, path, (mean, variance) = fitted
    score = GBCM.load(gbcm.url).score(path, method="nearest", runtime=runtime)
    spread = variance + noise_of(gbcm.model) * gbcm.model.scaling.y_scale**2
    assert score["rmse"] == pytest.approx(np.sqrt(np.mean((target - mean) ** 2)), rel=1e-9)
    assert score["mnlp"] == pytest.approx(-norm.logpdf(target, mean, np.sqrt(spread)).mean(), rel=1e-9)


def test_the_command_line_knows_it(fitted, tmp_path):
    gbcm, _, _, path, (mean, _) = fitted
    out, common = str(tmp_path / "p.zarr"), ["--method", "nearest", "--serial", "--json"]
    done = CliRunner().invoke(cli, ["predict", gbcm.url, path, "--out", out, *common])
    assert (done.exit_code, json.loads(done.stdout)["method"]) == (0, "nearest"), done.output
    np.testing.assert_allclose(zarr.open_group(out, mode="r")["mean"][:], mean, rtol=1e-9)
    done = CliRunner().invoke(cli, ["score", gbcm.url, path, *common])
    assert json.loads(done.stdout)["rmse"] == gbcm.score(path, method="nearest")["rmse"]
    done = CliRunner().invoke(cli, ["score", gbcm.url, path, "--method", "nobody", "--serial"])
    assert done.exit_code == 2
    known = ("committee", "local", "augmented", "augmented_sparse", "nearest", "forgetful")
    assert f"'nobody' is not one of {', '.join(map(repr, known))}" in done.output


# --- What it refuses ---


def test_what_it_needs(fitted, classes, tmp_path):
    gbcm, new, _, path, _ = fitted
    other = GBCM.fit(classes[0], replace(SETTINGS, likelihood="probit"))
    with pytest.raises(InvalidOption, match="expected a model of gaussian noise, got another; use --method committee"):
        other.predict(new, method="nearest")
    small = SerialRuntime(allowed_bytes=1e6)
    with pytest.raises(MemoryLimit, match=r"240 rows to look among: expected .*; use another method"):
        gbcm.predict_zarr(path, tmp_path / "p.zarr", method="nearest", runtime=small)
    with pytest.raises(MemoryLimit, match="240 rows to look among"):
        gbcm.score(path, method="nearest", runtime=small)
    alone, mixed = gbcm.score(path, method="nearest"), Mixture([gbcm]).score(path, method="nearest")
    assert mixed["rmse"] == pytest.approx(alone["rmse"], rel=1e-10)


@pytest.mark.slow
def test_numbers_that_it_loses_are_named(fitted, runtime, tmp_path):
    gbcm, new, _, path, _ = fitted
    with pytest.raises(NotFinite, match="expected numbers, got mean nan at row 3 of 50"):
        gbcm.predict(new, method="forgetful")
    with pytest.raises(NotFinite, match="got mean nan at row 3 of 20"):
        gbcm.predict_zarr(path, tmp_path / "p.zarr", method="forgetful", runtime=runtime)
    with pytest.raises(NotFinite, match="got mean nan at row 3"):
        gbcm.score(path, method="forgetful", runtime=runtime)


def test_names_are_taken_once():
    with pytest.raises(InvalidOption, match="method: expected a name of its own, 'nearest' is that of"):
        bcmdist.register_predictor("nearest", Forgetful)
    bcmdist.register_predictor("nearest", NearestRows)

"""RVM*: relevance vectors with a bump more at each new point, from sums over all rows that were absorbed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Mixture, Settings
from bcmdist.app.cli.main import cli
from bcmdist.app.service.loaded import Loaded
from bcmdist.data.writing import write_dataset
from bcmdist.errors import DataChanged, DataNotFound, InvalidOption, MemoryLimit
from bcmdist.methods.relevance import augmented
from bcmdist.runtime.interface import SerialRuntime

GIVEN = {"kernel.variance": 1.0, "kernel.lengthscale": 0.8, "likelihood.noise_variance": 0.01}
STAR = Settings(expert="rvm_star", kernel="se", learn=False, set=GIVEN, query=150, rows_per_expert=50)


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: where rounding differs, what is learned does too, within what learning leaves open."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(params=["serial", "dask"])
def runtime(request):
    return SerialRuntime() if request.param == "serial" else request.getfixturevalue("cluster")


@pytest.fixture
def fitted(wave, tmp_path):
    return GBCM.fit(wave[0], STAR, model=tmp_path / "model")


@pytest.fixture
def new(rng):
    """Among the rows, and away from them, (40, 2)."""
    return np.vstack([rng.uniform(-2, 2, (25, 2)), rng.uniform(-6, 6, (15, 2))])


def scaled(gbcm, *inputs):
    arrays, _ = gbcm.model.to_arrays()
    return [(A - arrays["x_mean"]) / arrays["x_scale"] for A in inputs]


def bumps(gbcm, A, centres):
    arrays, _ = gbcm.model.to_arrays()
    gaps = (A[:, None] - centres) / arrays["basis_lengthscale"]
    return np.exp(-0.5 * (gaps**2).sum(axis=2))


def columns(gbcm, A):
    arrays, _ = gbcm.model.to_arrays()
    kept = bumps(gbcm, A, arrays["basis_centres"]) * arrays["weight_scale"]
    return np.hstack([kept, gbcm.model.shared.mean.design(A)])


def centralised(gbcm, X, y, new, weight=1.0):
    """Mean and variance of f at each new point, (m,) each: a dense Gaussian process of all bumps, with one around the
    point, of the prior variance of the targets (thesis, section 2.5.1)."""
    noise = float(gbcm.model.likelihood.noise_variance[0])
    scale, mean = gbcm.model.scaling.y_scale, gbcm.model.scaling.y_mean
    Z, Zs = scaled(gbcm, X, new)
    found = []
    for z in Zs:
        F, f = (np.hstack([columns(gbcm, A), bumps(gbcm, A, z[None])]) for A in (Z, z[None]))
        S = F @ F.T + np.diag(noise / np.broadcast_to(weight, len(Z)))
        k = F @ f[0]
        found.append((k @ np.linalg.solve(S, (y - mean) / scale), f[0] @ f[0] - k @ np.linalg.solve(S, k)))
    m, v = np.array(found).T
    return mean + scale * m, scale**2 * v


def test_it_is_the_centralised_process_with_one_basis_function_more(fitted, wave, new):
    _, X, y = wave
    mean, variance = centralised(fitted, X, y, new)
    for model in (fitted, GBCM.load(fitted.url)):
        said = model.predict(new)
        np.testing.assert_allclose(said["mean"], mean, atol=1e-10 * y.std())
        np.testing.assert_allclose(said["variance"], variance, atol=1e-10 * y.var())


def centralised_sparse(gbcm, X, y, new, some):
    """The mean without a bump, and the variance where only the rows `some` inform it (dense joint posterior)."""
    noise = float(gbcm.model.likelihood.noise_variance[0])
    scale, mean = gbcm.model.scaling.y_scale, gbcm.model.scaling.y_mean
    Z, Zs = scaled(gbcm, X, new)
    V, t, found = columns(gbcm, Z), (y - mean) / scale, []
    for z in Zs:
        phi = np.where(some, bumps(gbcm, Z, z[None])[:, 0], 0.0)
        cross = V.T @ phi[:, None] / noise
        precision = np.block([[np.eye(V.shape[1]) + V.T @ V / noise, cross], [cross.T, 1.0 + phi @ phi / noise]])
        f = np.append(columns(gbcm, z[None])[0], 1.0)
        plain = f[:-1] @ np.linalg.solve(precision[:-1, :-1], V.T @ t / noise)
        found.append((plain, f @ np.linalg.solve(precision, f)))
    m, v = np.array(found).T
    return mean + scale * m, scale**2 * v


def test_sparse_bumps_are_informed_by_relevance_vectors_only(fitted, wave, new):
    _, X, y = wave
    vectors = np.isin(np.arange(len(X)), fitted.info()["relevance_vectors"]["rows"])
    assert 0 < vectors.sum() < len(X)
    mean, variance = centralised_sparse(fitted, X, y, new, vectors)
    found = fitted.predict(new, method="augmented_sparse")
    np.testing.assert_allclose(found["mean"], mean, atol=1e-9 * y.std())
    np.testing.assert_allclose(found["variance"], variance, atol=1e-9 * y.var())
    plain = fitted.predict(new, method="committee")
    assert np.all(found["variance"] >= plain["variance"])
    assert np.median(found["variance"] / fitted.predict(new)["variance"]) > 1.0  # fewer rows inform the bump


def test_sparse_bumps_forget_relevance_vectors_and_know_them_from_rows_of_the_same_number(fitted, wave, new, make_data):
    _, X, y = wave
    gone = (np.arange(len(X)) >= 50) & (np.arange(len(X)) < 100)
    kept = fitted.forget([entry.key for entry in fitted.ledger if "[50:100]" in entry.key])
    other = fitted.newest().partial_fit(make_data("other.zarr", X=X + 0.01, y=y))
    vectors = np.isin(np.arange(len(X)), fitted.info()["relevance_vectors"]["rows"])
    assert (vectors & gone).any()
    rows, targets, none = np.vstack([X[~gone], X + 0.01]), np.append(y[~gone], y), np.zeros(len(X), bool)
    for model, which in ((kept, slice(0, 190)), (other, slice(0, 430))):
        some = np.append(vectors[~gone], none)
        mean, variance = centralised_sparse(model, rows[which], targets[which], new, some[which])
        found = model.predict(new, method="augmented_sparse")
        np.testing.assert_allclose(found["mean"], mean, atol=1e-9 * y.std())
        np.testing.assert_allclose(found["variance"], variance, atol=1e-9 * y.var())


def test_sparse_bumps_read_rows_once(fitted, wave, new, runtime, tmp_path):
    path, _, _ = wave
    write_dataset(tmp_path / "new.zarr", {"X": new}, rows_per_chunk=15)
    predictor = fitted.predictive.predictor("augmented_sparse").predictor
    before = predictor.latent(new)
    assert (
        fitted.predict_zarr(tmp_path / "new.zarr", tmp_path / "p.zarr", method="augmented_sparse", runtime=runtime)
        == 40
    )
    shutil.move(path, tmp_path / "away.zarr")
    np.testing.assert_array_equal(predictor.latent(new), before)


def test_the_service_reads_no_rows_for_a_request(fitted, wave, new, tmp_path):
    shutil.move(wave[0], tmp_path / "away.zarr")
    Loaded(fitted).close()
    shutil.move(tmp_path / "away.zarr", wave[0])
    served = Loaded(fitted)
    with pytest.raises(
        InvalidOption, match=r"got augmented; give augmented_sparse or committee, or predict .* by a job"
    ):
        served.predict(new, method=None)
    for method in ("augmented_sparse", "committee"):
        assert served.predict(new, method=method)[0] == method
    served.close()


def test_variances_grow_to_that_of_the_targets_away_from_the_rows(fitted, wave):
    _, X, y = wave
    steps = np.linspace(0.0, 1.0, 9)[:, None]
    far = X.max(axis=0) + 20.0 * steps  # along a ray, at last 20 lengthscales away from all bumps
    star, plain = fitted.predict(far), fitted.predict(far, method="committee")
    left = star["variance"] - plain["variance"]  # of the bumps; the mean has a variance of its own
    assert np.all(np.diff(left) > -1e-10 * y.var())
    assert left[-1] == pytest.approx(y.var(), rel=1e-9)
    assert left[0] < 0.9 * y.var()
    near = fitted.predict(X)["variance"]
    assert np.all(near >= fitted.predict(X, method="committee")["variance"] * (1 - 1e-9))
    assert np.all(near < 0.05 * y.var())
    np.testing.assert_allclose(star["mean"][-1], plain["mean"][-1], rtol=1e-9)


def test_relevance_vectors_are_those_of_rvm(fitted, wave, new):
    plain = GBCM.fit(wave[0], replace(STAR, expert="rvm"))
    info = fitted.info()
    assert (info["expert"], info["method"]) == ("rvm_star", "augmented")
    assert info["relevance_vectors"] == plain.info()["relevance_vectors"]
    assert info["errors"] is None  # those of rows left out are of other predictions
    np.testing.assert_array_equal(fitted.predict(new, method="committee")["mean"], plain.predict(new)["mean"])
    np.testing.assert_allclose(plain.predict(new, method="augmented")["mean"], fitted.predict(new)["mean"], rtol=1e-12)


def test_data_sets_are_predicted_and_scored(fitted, wave, new, runtime, tmp_path):
    target = 3.0 + 2.0 * np.sin(2 * new[:, 0]) + new[:, 1]
    path = tmp_path / "new.zarr"
    write_dataset(path, {"X": new, "y": target}, rows_per_chunk=15)
    assert fitted.predict_zarr(path, tmp_path / "p.zarr", runtime=runtime) == 40
    written, said = zarr.open_group(tmp_path / "p.zarr", mode="r"), fitted.predict(new)
    assert written.attrs["method"] == "augmented"
    for name in ("mean", "variance", "lower95"):
        np.testing.assert_allclose(written[name][:], said[name], rtol=1e-9, atol=1e-12)
    score = fitted.score(path, runtime=runtime)
    variance, gap = said["observation_variance"], target - said["mean"]
    assert score["mnlp"] == pytest.approx(0.5 * np.mean(gap**2 / variance + np.log(2 * np.pi * variance)), rel=1e-9)
    assert score["mnlp"] < fitted.score(path, method="committee", runtime=runtime)["mnlp"]


def test_no_prediction_depends_on_the_others(fitted, new, monkeypatch):
    whole = fitted.predict(new)
    monkeypatch.setattr(augmented, "NEW_ROWS", 7)
    monkeypatch.setattr(augmented, "ROWS", 11)
    pieces = fitted.predict(new)
    for name in whole:
        np.testing.assert_allclose(pieces[name], whole[name], rtol=1e-9, atol=1e-12)
    assert fitted.predict(new[:1])["mean"] == pytest.approx(whole["mean"][0], rel=1e-12)


def test_rows_come_and_go_exactly(fitted, wave, new, make_data, rng):
    _, X, y = wave
    X2 = rng.uniform(-2, 2, (30, 2))
    y2 = 3.0 + 2.0 * np.sin(2 * X2[:, 0]) + X2[:, 1] + 0.1 * rng.standard_normal(30)
    more = make_data("more.zarr", X=X2, y=y2)
    both = fitted.partial_fit(more)
    keep = np.r_[0:50, 100:240]
    kept = fitted.newest().forget([entry.key for entry in both.ledger if "wave.zarr/X[50:100]" in entry.key])
    expected = [(both, X, y), (kept, X[keep], y[keep])]
    for model, rows, targets in expected:
        rows, targets = np.vstack([rows, X2]), np.append(targets, y2)
        mean, variance = centralised(model, rows, targets, new)
        np.testing.assert_allclose(model.predict(new)["mean"], mean, atol=1e-9)
        np.testing.assert_allclose(model.predict(new)["variance"], variance, atol=1e-9)


def test_merged_models_hear_the_rows_of_both(wave, make_data, rng, new, tmp_path):
    path, X, y = wave
    one = GBCM.prepare(path, STAR, model=tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    X2 = rng.uniform(-2, 2, (30, 2))
    y2 = 3.0 + 2.0 * np.sin(2 * X2[:, 0]) + X2[:, 1] + 0.1 * rng.standard_normal(30)
    two = GBCM.load(tmp_path / "two").partial_fit(make_data("more.zarr", X=X2, y=y2))
    both = one.partial_fit(path).merge(two, tmp_path / "both")
    assert both.info()["method"] == "augmented"
    mean, variance = centralised(both, np.vstack([X, X2]), np.append(y, y2), new)
    np.testing.assert_allclose(both.predict(new)["mean"], mean, atol=1e-9)
    np.testing.assert_allclose(both.predict(new)["variance"], variance, atol=1e-9)


def test_partitions_may_count_less(fitted, wave, new):
    _, X, y = wave
    half = fitted.reweight({entry.key: 0.5 for entry in fitted.ledger if "[0:50]" in entry.key})
    mean, variance = centralised(half, X, y, new, weight=np.where(np.arange(240) < 50, 0.5, 1.0))
    np.testing.assert_allclose(half.predict(new)["mean"], mean, atol=1e-9)
    np.testing.assert_allclose(half.predict(new)["variance"], variance, atol=1e-9)


def test_a_model_that_has_heard_nothing_knows_the_prior(wave, new):
    _, _, y = wave
    prepared = GBCM.prepare(wave[0], STAR)
    left = prepared.predict(new)["variance"] - prepared.predict(new, method="committee")["variance"]
    np.testing.assert_allclose(left, y.var(), rtol=1e-9)


# --- What it refuses ---


def test_rows_that_are_gone_or_others(fitted, wave, new, runtime, tmp_path):
    path, X, y = wave
    write_dataset(tmp_path / "new.zarr", {"X": new}, rows_per_chunk=15)
    shutil.move(path, tmp_path / "away.zarr")
    said = "expected the rows that it has absorbed, .* restore them, or give --method committee"
    with pytest.raises(DataNotFound, match=said):
        fitted.predict(new)
    with pytest.raises(DataNotFound, match=said):
        fitted.predict_zarr(tmp_path / "new.zarr", tmp_path / "p.zarr", runtime=runtime)
    assert not Path(tmp_path, "p.zarr").exists()
    assert np.all(np.isfinite(fitted.predict(new, method="committee")["mean"]))
    write_dataset(path, {"X": X, "y": y + 1.0}, rows_per_chunk=50)
    with pytest.raises(DataChanged, match=r"expected the rows that were absorbed .* or give --method committee"):
        fitted.predict_zarr(tmp_path / "new.zarr", tmp_path / "p.zarr", runtime=runtime)


@pytest.mark.slow
def test_models_without_bumps_have_none_to_add(wave, classes, new):
    bcm = GBCM.fit(wave[0], replace(STAR, expert="bcm", query=20))
    with pytest.raises(InvalidOption, match="got the expert bcm with gaussian; use --method committee"):
        bcm.predict(new, method="augmented")
    probit = GBCM.fit(classes[0], Settings(expert="rvm", kernel="se", query=30, effort="quick"))
    with pytest.raises(InvalidOption, match="got the expert rvm with bernoulli; use --method committee"):
        probit.predict(new, method="augmented")
    with pytest.raises(InvalidOption, match="likelihood: expected gaussian with the expert rvm_star, got bernoulli"):
        GBCM.fit(classes[0], replace(STAR, set={}))


REFUSED = [
    ({"likelihood": "probit"}, "likelihood: expected gaussian with the expert rvm_star, got probit"),
    ({"partition": "spatial"}, "expert: expected bcm or fourier with spatial partitions"),
    ({"noise": "varying"}, "noise: expected auto with rvm_star"),
    ({"rvm_classes": "cavity"}, "rvm_classes: expected the expert rvm with it, got rvm_star"),
    ({"query_method": "pivoted"}, "query_method: expected kmeans or random with the expert rvm_star"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_it_cannot_do_is_refused_at_once(settings, message):
    with pytest.raises(InvalidOption, match=message):
        replace(Settings(expert="rvm_star"), **settings)


def test_what_would_not_fit(fitted, new):
    with pytest.raises(MemoryLimit, match="bumps at new points: expected to need at most"):
        fitted.predict_zarr(wave_of(fitted), "nowhere.zarr", runtime=SerialRuntime(allowed_bytes=1e7))


def test_a_mixture_of_one_scores_as_it_does(fitted):
    one, alone = (gbcm.score(wave_of(fitted), method="augmented") for gbcm in (Mixture([fitted]), fitted))
    for name in ("rmse", "mnlp", "coverage95"):
        assert one[name] == pytest.approx(alone[name], rel=1e-6), name


def wave_of(gbcm):
    return gbcm.facts["data"]


def test_the_command_line(wave, tmp_path):
    model, common = str(tmp_path / "m"), ["--serial", "--json"]
    fit = ["fit", wave[0], "--model", model, "--expert", "rvm_star", "--query", "60", "--effort", "quick", *common]
    done = CliRunner().invoke(cli, fit)
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(cli, ["score", model, wave[0], *common])
    assert json.loads(done.stdout)["method"] == "augmented"
    done = CliRunner().invoke(cli, ["score", model, wave[0], "--method", "committee", *common])
    assert json.loads(done.stdout)["method"] == "committee"

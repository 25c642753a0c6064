"""The expert `fourier` whole: it says what dense regression on its waves says, however it has absorbed the rows."""

import itertools
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from fourier_problems import make_fourier

from bcmdist import GBCM, Settings, sample_posterior
from bcmdist.api.plan.plan import plan
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import Observations, unweighted
from bcmdist.data.partition import partitions
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption, MissingExtra, ModelDamaged, ModelsDiffer
from bcmdist.experts.residual import RESIDUALS
from bcmdist.methods.fourier import belief as beliefs
from bcmdist.methods.fourier import frequency_grid, nufft
from bcmdist.methods.fourier import shared as features
from bcmdist.methods.fourier.belief import IterativeBelief
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Bernoulli, Poisson
from bcmdist.model.loading import sound_model
from bcmdist.testing import check_residual
from oracles import independent_rest, laplace_prediction
from problems import assert_same_committee, only

pytest.importorskip("finufft", reason="expert fourier: pip install 'bcmdist[fourier]'")

GIVEN = {"kernel.variance": 1.5, "kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.05}
WAVES = Settings(
    kernel="matern52", learn=False, set=GIVEN, expert="fourier", rows_per_expert=50, tolerance=0.01, mean="constant"
)
OF_KERNEL = {name: value for name, value in GIVEN.items() if name.startswith("kernel")}
CLASSES = replace(WAVES, task="classification", set=OF_KERNEL)


def test_conformance(rng):
    X = rng.uniform(-0.5, 0.5, (7, 2))
    check_residual(RESIDUALS["waves"], make_fourier(parse_kernel("se", inputs=2), 2, tolerance=0.1), X)


@pytest.fixture
def many(monkeypatch):
    """Beliefs by products, as if there were too many weights to factor their precision."""
    monkeypatch.setattr(features, "MAX_FACTORED", 10)
    monkeypatch.setattr(beliefs, "MAX_DENSE", 10)


@pytest.fixture
def fitted(wave, tmp_path):
    """A committee of five partitions, and the path of its data."""
    return GBCM.fit(wave[0], WAVES, model=tmp_path / "model"), wave[0]


@pytest.fixture
def prepared(wave, tmp_path):
    """A committee that has absorbed nothing yet, and the path of its data."""
    return GBCM.prepare(wave[0], WAVES, model=tmp_path / "prepared"), wave[0]


def columns(gbcm, X):
    """Waves and mean at X from what is stored alone, cosines and sines apart, as one would write them down."""
    arrays, facts = gbcm.model.to_arrays()
    assert (facts["shared"], facts["residual"], facts["mean"]) == ("fourier", "waves", "constant")
    scaled = (X - arrays["x_mean"]) / arrays["x_scale"]
    h, most = arrays["fourier_step"], arrays["fourier_most"]
    k = np.stack(np.meshgrid(*[np.arange(-m, m + 1) for m in most], indexing="ij"), -1).reshape(-1, len(h))
    scale = np.sqrt(np.prod(h) * gbcm.model.shared.kernel.spectral_density(h * k))
    angle = 2 * np.pi * scaled @ (h * k).T
    return np.hstack([scale * np.cos(angle), scale * np.sin(angle), np.full((len(X), 1), 5.0)])


def remainder_of(gbcm):
    """Each row's own variance: that of all frequencies on the grid, which is the kernel's with its aliases, less that
    of those in the model."""
    here, h = np.zeros((1, gbcm.model.inputs)), gbcm.model.to_arrays()[0]["fourier_step"]
    numbers = np.array(list(itertools.product(range(-9, 10), repeat=len(h))))
    return gbcm.model.shared.kernel.cross(here, numbers / h).sum() - np.sum(columns(gbcm, here)[:, :-1] ** 2)


def dense(gbcm, X, y, new):
    """Mean and variance of f at new rows, in original units."""
    V, Vs, rest, noise = columns(gbcm, X), columns(gbcm, new), remainder_of(gbcm), GIVEN["likelihood.noise_variance"]
    own, owns = np.full(len(X), rest), np.full(len(new), rest)
    mean, variance, _ = independent_rest(V, own, (y - y.mean()) / y.std(), noise, Vs, owns)
    return y.mean() + y.std() * mean, y.var() * variance


def exact(gbcm, X, y, new):
    """Mean and standard deviation of f by the Gaussian process itself."""
    model = gbcm.model
    k, A, B = model.shared.kernel, model.scaling.inputs(X), model.scaling.inputs(new)
    K = k.cross(A, A) + 25.0 + GIVEN["likelihood.noise_variance"] * np.eye(len(A))
    Ks = k.cross(B, A) + 25.0
    variance = k.diagonal(B) + 25.0 - np.einsum("ij,ji->i", Ks, np.linalg.solve(K, Ks.T))
    return y.mean() + y.std() * (Ks @ np.linalg.solve(K, (y - y.mean()) / y.std())), y.std() * np.sqrt(variance)


def test_predictions_are_those_of_dense_regression(fitted, wave, rng):
    gbcm, (_, X, y) = fitted[0], wave
    new = rng.uniform(-2, 2, (40, 2))
    mean, variance = dense(gbcm, X, y, new)
    assert remainder_of(gbcm) > 1e-3
    found = gbcm.predict(new)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-8)
    np.testing.assert_allclose(found["variance"], variance, atol=1e-8)
    np.testing.assert_allclose(found["observation_variance"], variance + 0.05 * y.var(), atol=1e-8)
    joint = gbcm.predict_joint(new)
    np.testing.assert_allclose(joint[0], mean, atol=1e-8)
    np.testing.assert_allclose(np.diag(joint[1]), variance, atol=1e-8)
    assert gbcm.sample(new, size=3).shape == (3, 40)
    assert "waves" in gbcm.info()


@pytest.mark.parametrize(("kernel", "tolerance", "most"), [("matern52", 1e-3, 0.05), ("se", 1e-6, 2e-3)])
def test_predictions_come_near_those_of_the_gaussian_process(wave, rng, kernel, tolerance, most):
    """To a share of their standard deviations, which falls with the tolerance."""
    path, X, y = wave
    new = rng.uniform(-2, 2, (40, 2))
    gbcm = GBCM.fit(path, replace(WAVES, kernel=kernel, tolerance=tolerance))
    mean, sd = exact(gbcm, X, y, new)
    found = gbcm.predict(new)
    assert np.abs(found["mean"] - mean).max() <= most * sd.min()
    assert gbcm.model.shared.size <= features.MAX_FACTORED  # so that variances are no estimates
    np.testing.assert_allclose(np.sqrt(found["variance"]), sd, rtol=2 * most)


def test_of_many_weights_means_and_variances_are_solved_for(wave, many, rng):
    path, X, y = wave
    gbcm, new = GBCM.fit(path, WAVES), rng.uniform(-2, 2, (40, 2))
    assert isinstance(gbcm.committee.posterior, IterativeBelief)
    mean, variance = dense(gbcm, X, y, new)
    sd, found, told = np.sqrt(variance), gbcm.predict(new), gbcm.info()["waves"]
    assert told["mean_error"] <= 1.1e-4
    assert np.all(np.abs(found["mean"] - mean) <= told["mean_error"] * sd + 1e-8)
    assert told["variance_error"] <= 0.01
    assert np.abs(found["variance"] / sd**2 - 1.0).max() <= told["variance_error"]
    assert gbcm.score(path)["rmse"] == pytest.approx(np.sqrt(np.mean((dense(gbcm, X, y, X)[0] - y) ** 2)), abs=1e-4)
    for ask in (lambda: gbcm.predict_joint(new), lambda: gbcm.sample(new, size=2)):
        with pytest.raises(InvalidOption, match=r"fewer weights for a factor .* without covariances"):
            ask()


def test_info_of_many_weights_agrees_with_a_factor(fitted, many):
    one, other = fitted[0].info(), GBCM.load(fitted[0].url).info()
    assert one["log_evidence"] == pytest.approx(
        other["log_evidence"], abs=5.0 * other["waves"]["log_evidence_error"] + 1
    )
    assert one["p_eff"] == pytest.approx(other["p_eff"], rel=0.1)


def test_info_says_what_it_is(fitted, wave):
    found, shared = fitted[0].info(), fitted[0].model.shared
    waves, X = found["waves"], wave[1]
    assert (found["expert"], found["query"], found["jitter"]) == ("fourier", shared.functions, 0.0)
    assert np.prod(waves["waves"]) == found["query"]
    assert waves["tolerance"] == 0.01
    low, high = np.array(waves["box"])
    extent = np.ptp(X, axis=0)
    np.testing.assert_allclose(low, X.min(axis=0) - 0.05 * extent, rtol=1e-9)
    np.testing.assert_allclose(high, X.max(axis=0) + 0.05 * extent, rtol=1e-9)
    message = fitted[0].committee.total
    assert waves["message_bytes"] == message.eta.nbytes + message.precision.nbytes
    assert "effective degrees of freedom" in found["advice"]
    assert "--query" not in found["advice"]


def test_log_evidence_is_that_of_the_waves(fitted, wave):
    gbcm, (_, X, y) = fitted[0], wave
    V = columns(gbcm, X)
    S = V @ V.T + (0.05 + remainder_of(gbcm)) * np.eye(len(y))
    z = (y - y.mean()) / y.std()
    evidence = -0.5 * (z @ np.linalg.solve(S, z) + np.linalg.slogdet(S)[1] + len(y) * np.log(2 * np.pi))
    assert gbcm.info()["log_evidence"] == pytest.approx(evidence - len(y) * np.log(y.std()), abs=1e-6)


def test_degrees_of_freedom_are_counted(fitted, wave):
    V = columns(fitted[0], wave[1])
    K = V @ V.T + remainder_of(fitted[0]) * np.eye(240)
    expected = np.trace(K @ np.linalg.inv(K + 0.05 * np.eye(240)))
    assert fitted[0].effective_parameters()["data"] == pytest.approx(expected, abs=1e-6)


def test_a_stored_model_is_the_same(fitted, rng):
    gbcm, new = fitted[0], rng.uniform(-2, 2, (9, 2))
    again = GBCM.load(gbcm.url)
    assert again.model.shared.kind == "fourier"
    for name, value in gbcm.predict(new).items():
        np.testing.assert_array_equal(again.predict(new)[name], value)


def test_a_cluster_says_the_same(fitted, wave, cluster, tmp_path):
    gbcm = GBCM.fit(wave[0], WAVES, model=tmp_path / "dask", runtime=cluster)
    assert_same_committee(gbcm.committee, fitted[0].committee, 1e-9)
    assert gbcm.score(wave[0], runtime=cluster)["rmse"] == pytest.approx(fitted[0].score(wave[0])["rmse"], abs=1e-9)


def test_hearing_a_source_is_fitting(prepared, fitted):
    gbcm, path = prepared
    absorbed, report = gbcm.ingest(gbcm.source(path))
    assert report.partitions == 5
    assert_same_committee(absorbed.committee, fitted[0].committee)


def test_forgetting_is_never_having_heard(prepared, fitted, tmp_path):
    gbcm, path = fitted
    gone = [entry.key for entry in gbcm.ledger if "[50:" in entry.key or "[200:" in entry.key]
    after = gbcm.forget(gone)
    assert_same_committee(after.committee, only(*prepared, [0, 2, 3], tmp_path / "rest").committee, 1e-8)
    back = after.absorb(partitions(open_data(path), 50)).reweight({gone[0]: 2.0}).reweight({gone[0]: 1.0})
    assert_same_committee(back.committee, gbcm.committee, 1e-8)
    assert np.abs(gbcm.forget([entry.key for entry in gbcm.ledger]).committee.total.precision).max() == 0.0


def test_merging_is_hearing_both(prepared, fitted, tmp_path):
    one, other = only(*prepared, [0, 3], tmp_path / "one"), only(*prepared, [1, 2, 4], tmp_path / "other")
    assert_same_committee(one.merge(other, tmp_path / "both").committee, fitted[0].committee, 1e-8)


def test_a_window_is_hearing_its_rows_only(prepared, wave, tmp_path):
    gbcm, path = only(*prepared, [3, 4], tmp_path / "rest"), prepared[1]
    late, _ = prepared[0].ingest(prepared[0].source(path), IngestOptions(window=90))
    assert [entry.key for entry in late.ledger] == [entry.key for entry in gbcm.ledger]
    assert_same_committee(late.committee, gbcm.committee, 1e-8)


def test_old_rows_fade(prepared, wave):
    late, _ = prepared[0].ingest(prepared[0].source(prepared[1]), IngestOptions(half_life=100.0))
    counts = np.repeat([late.weights[entry.key] for entry in late.ledger], [entry.rows for entry in late.ledger])
    _, X, _ = wave
    V = late.model.shared.design(late.model.scaling.inputs(X))
    expected = (V.T * (counts / (0.05 + remainder_of(late)))) @ V
    operator = late.model.shared.operator(late.committee.total.precision)
    assert np.abs(operator.without_prior() - expected).max() <= 1e-8 * np.abs(expected).max()


def test_different_waves_cannot_be_merged(prepared, fitted, tmp_path):
    other = GBCM.prepare(fitted[1], replace(WAVES, tolerance=0.02), model=tmp_path / "other")
    with pytest.raises(ModelsDiffer, match="they differ in fourier_step, fourier_most, tolerance"):
        fitted[0].merge(other, tmp_path / "both")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [240, 60])
@pytest.mark.parametrize("weights", ["few", "many"])
def test_classes_are_those_of_the_dense_laplace_approximation(classes, rng, rows, weights, monkeypatch):
    """In one pass where one expert absorbs all, else in the limit of the passes."""
    if weights == "many":
        monkeypatch.setattr("bcmdist.methods.fourier.messages.MAX_FACTORED", 10)
    path, X, y = classes
    new = rng.uniform(-2, 2, (40, 2))
    gbcm = GBCM.fit(path, replace(CLASSES, rows_per_expert=rows, passes="1"))
    if rows < 240:
        gbcm = gbcm.refine(tolerance=1e-9)
        assert len(gbcm.info()["passes"]) > 2
    V, Vs, rest = columns(gbcm, X), columns(gbcm, new), remainder_of(gbcm)
    obs = unweighted(y.astype(float))
    K, prior = V @ V.T + rest * np.eye(len(y)), (Vs**2).sum(axis=1) + rest
    mean, variance = laplace_prediction(K, Vs @ V.T, prior, Bernoulli(), obs)
    found = gbcm.predict(new)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-6)
    np.testing.assert_allclose(found["variance"], variance, atol=1e-6)


def test_counts_are_those_of_the_dense_laplace_approximation(make_data, rng):
    X = rng.uniform(-2, 2, (200, 1))
    exposure = rng.uniform(0.5, 3.0, 200)
    y = rng.poisson(exposure * np.exp(1.0 + np.sin(2 * X[:, 0])))
    path, new = make_data(X=X, y=y, exposure=exposure), rng.uniform(-2, 2, (20, 1))
    gbcm = GBCM.fit(
        path, replace(CLASSES, task="counts", likelihood="poisson", passes="auto", rows_per_expert=70)
    ).refine(tolerance=1e-9)
    V, Vs, rest = columns(gbcm, X), columns(gbcm, new), remainder_of(gbcm)
    obs = gbcm.model.scaling.observations(
        Observations(y.astype(float), np.ones(200), exposure), gbcm.model.likelihood.units
    )
    assert isinstance(gbcm.model.likelihood, Poisson)
    K, prior = V @ V.T + rest * np.eye(len(y)), (Vs**2).sum(axis=1) + rest
    mean, variance = laplace_prediction(K, Vs @ V.T, prior, gbcm.model.likelihood, obs)
    found = gbcm.predict(new)
    shift = gbcm.model.scaling.original("mean", np.zeros(1), gbcm.model.likelihood.units)
    np.testing.assert_allclose(found["mean"], shift + mean, atol=1e-6)
    np.testing.assert_allclose(found["variance"], variance, atol=1e-6)


def test_three_classes_share_a_precision(make_data, rng, many):
    X = rng.uniform(-2, 2, (150, 2))
    y = (X[:, 0] > -0.7) * 1 + (X[:, 1] > 0.5)
    path = make_data(X=X, y=y)
    gbcm = GBCM.fit(path, replace(CLASSES, set=GIVEN))
    assert gbcm.model.likelihood.name == "onehot"
    assert gbcm.score(path)["accuracy"] > 0.85


@pytest.mark.slow
def test_hyperparameters_are_learned_as_for_bcm(wave):
    learned = Settings(kernel="matern52", rows_per_expert=50, effort="quick")
    one = GBCM.prepare(wave[0], replace(learned, expert="fourier"))
    other = GBCM.prepare(wave[0], replace(learned, query=30))
    assert one.info()["hyperparameters"] == other.info()["hyperparameters"]


def test_kernels_that_waves_cannot_afford_are_left_out(wave, monkeypatch):
    """Before anything is decided, and named."""
    monkeypatch.setattr(frequency_grid, "MAX_WEIGHTS", 3000)
    learned = Settings(rows_per_expert=50, effort="quick", expert="fourier")
    with pytest.warns(BcmdistWarning, match=r"kernel: matern12.* left out, .*for a tolerance of 0.001; raise"):
        gbcm = GBCM.prepare(wave[0], learned)
    found = gbcm.info()
    assert found["waves"]["tolerance"] == 0.001
    assert found["query"] <= 3000
    assert "matern12" in found["kernels_tried"]
    assert found["kernel"] != "matern12"
    assert all(decision["taken"] != "matern12" for decision in found["decisions"])


def test_nothing_is_refused_once_it_is_learned(wave, monkeypatch):
    """A kernel that was asked for is had at a larger error, with a warning; given hyper-parameters are refused."""
    monkeypatch.setattr(frequency_grid, "MAX_WEIGHTS", 1000)
    rough = Settings(kernel="matern12", rows_per_expert=50, effort="quick", expert="fourier", tolerance=0.01)
    with pytest.warns(BcmdistWarning, match=r"more than 1000 weights at a tolerance of 0\.01; used 0\.\d+"):
        gbcm = GBCM.prepare(wave[0], rough)
    assert 0.01 < gbcm.info()["waves"]["tolerance"] <= 0.5
    assert gbcm.info()["query"] <= 1000
    with pytest.raises(InvalidOption, match=r"expected at most 1000 weights, .*raise --tolerance"):
        GBCM.prepare(wave[0], replace(WAVES, kernel="matern12"))


def test_rows_outside_the_box_are_refused(fitted, make_data, tmp_path):
    gbcm = fitted[0]
    beyond = make_data("beyond.zarr", X=np.array([[0.0, 0.0], [0.0, 9.0]]), y=np.zeros(2))
    for ask in (
        lambda: gbcm.partial_fit(beyond),
        lambda: gbcm.predict(np.array([[9.0, 0.0]])),
        lambda: gbcm.predict_zarr(beyond, tmp_path / "out.zarr"),
    ):
        with pytest.raises(InvalidData, match=r"in the box that the model was made for, column \d from"):
            ask()
    assert GBCM.load(gbcm.url).commit == gbcm.commit


@pytest.mark.parametrize("weights", ["few", "many"])
def test_draws_outside_the_box_have_the_prior(wave, weights, monkeypatch):
    """Those about a row of the user inside, which is predicted as by quadrature over the two parts of its error."""
    if weights == "many":
        monkeypatch.setattr(features, "MAX_FACTORED", 10)
        monkeypatch.setattr(beliefs, "MAX_DENSE", 10)
    gbcm = GBCM.fit(wave[0], WAVES)
    shared, scaling, belief = gbcm.model.shared, gbcm.model.scaling, gbcm.committee.posterior
    edge = scaling.x_mean + scaling.x_scale * np.array([shared.high[0] - 0.02, 0.0])
    spread = scaling.x_scale * np.array([0.1, 0.0])
    found = gbcm.predict(edge[None], X_variance=spread[None] ** 2)
    offsets = np.linspace(-6.0, 6.0, 4001)
    weight = np.exp(-0.5 * offsets**2) / np.exp(-0.5 * offsets**2).sum()
    X = edge + offsets[:, None] * spread
    inside = scaling.inputs(X)[:, 0] <= shared.high[0]
    said = gbcm.predict(X[inside][::10])
    some = weight[inside][::10] * weight[inside].sum() / weight[inside][::10].sum()
    prior = only_mean_of(shared, belief)
    mean = some @ said["mean"] + weight[~inside].sum() * (scaling.y_mean + scaling.y_scale * prior[0])
    second = some @ (said["variance"] + said["mean"] ** 2) + weight[~inside].sum() * (
        scaling.y_scale**2 * prior[1] + (scaling.y_mean + scaling.y_scale * prior[0]) ** 2
    )
    assert 0.3 < weight[~inside].sum() < 0.5
    np.testing.assert_allclose(found["mean"][0], mean, atol=0.02 * np.sqrt(second - mean**2))
    np.testing.assert_allclose(found["variance"][0], second - mean**2, rtol=0.03)
    with pytest.raises(InvalidData, match="in the box that the model was made for"):
        gbcm.predict(edge[None] + scaling.x_scale, X_variance=spread[None] ** 2)


def only_mean_of(shared, belief):
    """Mean and variance of f where rows say nothing but of its constant."""
    if isinstance(belief, IterativeBelief):
        precision = np.eye(shared.size) + belief.precision.without_prior()
    else:
        precision = belief.factor @ belief.factor.T
    b = np.zeros(shared.size)
    b[-1] = 5.0
    return 5.0 * belief.mean[-1], GIVEN["kernel.variance"] + b @ np.linalg.solve(precision, b)


def test_data_far_from_the_origin_are_predicted(make_data, tmp_path, rng):
    import zarr

    X = np.array([1e4, -5e3]) + rng.uniform(-2, 2, (120, 2))
    path = make_data(X=X, y=np.sin(X[:, 0]))
    gbcm = GBCM.fit(path, WAVES)
    assert gbcm.predict_zarr(path, tmp_path / "out.zarr") == 120
    np.testing.assert_allclose(zarr.open_group(tmp_path / "out.zarr")["mean"][:], gbcm.predict(X)["mean"], rtol=1e-10)


REFUSED = [
    ({"approximation": "ep", "task": "classification"}, "approximation: expected .*; take --approximation laplace"),
    ({"likelihood": "softmax", "task": "classification"}, "likelihood softmax: .*; take --likelihood onehot"),
    ({"objective": "committee", "learn": True, "set": {}}, "expected bcm with the objective committee, .*--objective"),
    ({"query": 100}, "query: expected --tolerance with fourier, .* got 100; give that instead"),
    ({"precision": "mixed"}, "precision: expected double"),
    ({"kernel": "rq"}, "kernel: expected one with a spectral density .*, got rq; give another --kernel"),
    ({"query_method": "random"}, "query_method: expected kmeans with the expert fourier, which .*, got random"),
    ({"query_from": "new.zarr"}, "query_from: expected an expert that shares values at query points, got fourier"),
    ({"tolerance": 0.0}, "tolerance: expected a share of the variance from 1e-09 to 1, got 0"),
    ({"expert": "sor"}, "tolerance: expected the expert fourier with it, got sor; leave it out"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_it_cannot_do_is_refused_at_once(settings, message):
    with pytest.raises(InvalidOption, match=message):
        replace(WAVES, **settings)


def test_what_a_fitted_one_cannot_do_is_refused(fitted, tmp_path):
    gbcm, path = fitted
    for ask in (gbcm.evidence_gradient, gbcm.calibration):
        with pytest.raises(InvalidOption, match=r"model: expected values at query points .* fit with the expert bcm"):
            ask()
    with pytest.raises(InvalidOption, match="hmc: expected the expert bcm, fitc or sor, whose evidence has a gradient"):
        sample_posterior(path, Settings(kernel="se", expert="fourier"), model=tmp_path / "chains")


def test_a_fit_is_planned(wave):
    planned = plan(wave[0], WAVES)
    assert planned.projected_seconds["experts"] > 0
    assert np.isfinite(planned.projected_peak_megabytes)


def test_four_inputs_are_refused_before_anything_is_read(make_data, rng, tmp_path):
    path = make_data(X=rng.standard_normal((60, 4)), y=np.zeros(60))
    with pytest.raises(InvalidOption, match=r"expected at most 3 inputs, got 4, which would take about .* weights"):
        GBCM.fit(path, Settings(expert="fourier"), model=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_partitions_are_large_unless_asked_otherwise():
    assert Settings(expert="fourier").rows_per_expert == 250_000
    assert Settings().rows_per_expert == 1000
    assert Settings(expert="fourier", rows_per_expert=70).rows_per_expert == 70


def test_a_missing_package_is_said(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "finufft", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[fourier\]'"):
        nufft.sums_over_rows([np.zeros(1)], np.ones(1, complex), [2])


DAMAGES = [
    (lambda a, f: ({n: x for n, x in a.items() if n != "fourier_step"}, f), "expected an array fourier_step"),
    (lambda a, f: (a | {"fourier_step": -a["fourier_step"]}, f), "positive numbers in fourier_step"),
    (lambda a, f: (a | {"fourier_step": 2 * a["fourier_step"]}, f), "fourier_step"),
    (lambda a, f: (a | {"fourier_most": a["fourier_most"] // 4}, f), "waves with the variance"),
    (lambda a, f: (a, f | {"tolerance": "none"}), "tolerance"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGES)
def test_a_model_that_cannot_be_is_refused(prepared, change, message):
    arrays, facts = prepared[0].model.to_arrays()
    arrays, facts = change(arrays, json.loads(json.dumps(facts)))
    with pytest.raises(ModelDamaged, match=message):
        sound_model(arrays, facts, "model: commit 1")


def test_without_its_package_it_is_refused_before_data_are_read(fitted, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "finufft", None)
    with pytest.raises(MissingExtra, match=r"expected the package finufft.*pip install 'bcmdist\[fourier\]'"):
        GBCM.fit(fitted[1], Settings(expert="fourier"), model=tmp_path / "other")
    assert not (tmp_path / "other").exists()

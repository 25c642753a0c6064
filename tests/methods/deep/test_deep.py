"""Deep Gaussian processes as an expert, one command after the other."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.api.plan.plan import plan
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import partitions
from bcmdist.errors import InvalidOption, ModelsDiffer
from bcmdist.experts.expert import expert_message
from bcmdist.methods.deep import adam
from bcmdist.methods.deep.objective import noisy
from bcmdist.methods.deep.rows import through
from problems import assert_refused_as_changed, assert_same_committee

ASKED = Settings(expert="dgp", units=2, query=12, rows_per_expert=50, effort="quick")
UNTRAINED = replace(ASKED, learn=False, set={"kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.05})


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: where rounding differs, what is learned does too, within what learning leaves open."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def briefly(monkeypatch):
    """A few iterations are enough to compare."""
    shorten(monkeypatch)


def shorten(monkeypatch):
    monkeypatch.setattr(adam, "ROUND", 4)
    monkeypatch.setitem(adam.STEPS, "quick", 8)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A deep process of a step with a slope, fitted to weighted rows; the path of its data, X and y."""
    from bcmdist.data.writing import write_dataset

    rng = np.random.default_rng(5)
    X, weight = rng.uniform(-2, 2, (240, 2)), rng.uniform(0.5, 2.0, 240)
    y = 3.0 + 4.0 * (X[:, 0] > 0.3) + X[:, 1] + 0.1 * rng.standard_normal(240)
    folder = tmp_path_factory.mktemp("deep")
    write_dataset(str(folder / "data.zarr"), {"X": X, "y": y, "weight": weight}, rows_per_chunk=50)
    return GBCM.fit(str(folder / "data.zarr"), ASKED, model=folder / "model"), str(folder / "data.zarr"), X, y


@pytest.fixture(scope="module")
def brief(trained):
    """Two rounds of a few iterations, in one process."""
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        return GBCM.fit(trained[1], ASKED)


@pytest.mark.slow
def test_training_predicts_new_rows_better(trained, brief, rng):
    new = rng.uniform(-2, 2, (400, 2))
    truth = 3.0 + 4.0 * (new[:, 0] > 0.3) + new[:, 1]
    errors = [np.mean((one.predict(new)["mean"] - truth) ** 2) for one in (trained[0], brief)]
    assert errors[0] < 0.05 * np.var(truth)
    assert errors[0] < errors[1]
    assert trained[0].info()["deep"]["density"] > brief.info()["deep"]["density"]


def moments(shared, belief, X):
    """Mean and variance of an observation by all layers, with a belief in the last one."""
    told = belief.factor @ belief.factor.T - np.eye(shared.functions)
    last = replace(shared.layers[-1], mean=belief.mean[None], root=np.linalg.cholesky(told)[None])
    rows = through([one.stage() for one in (*shared.layers[:-1], last)], X)[-1]
    return rows.mean[:, 0], rows.variance[:, 0]


def known_moments(shared, belief, X):
    """Variance of an observation: that of all layers as trained, but the belief of now in what centres explain."""
    b = np.empty((len(X), shared.functions))
    shared.fill(X, b)
    trained, now = shared.layers[-1].share(1.0).covariance[0], np.linalg.inv(belief.factor @ belief.factor.T)
    rows = through([one.stage() for one in shared.layers], X)[-1]
    return rows.variance[:, 0] + np.einsum("ij,jk,ik->i", b, now - trained, b)


def test_predictions_are_the_moments_of_all_layers(trained, rng):
    """With the belief of the committee in the last one of each process, which the stored arrays say (SYSTEMS D8)."""
    gbcm, *_ = trained
    shared, belief, scaling = gbcm.model.shared, gbcm.committee.posterior, gbcm.model.scaling
    new = rng.uniform(-2, 2, (9, 2))
    each = [moments(one, belief[k], scaling.inputs(new)) for k, one in enumerate(shared.each)]
    means, variances = (np.stack(parts) for parts in zip(*each, strict=True))
    mean = means.mean(axis=0)
    found, unit = gbcm.predict(new), scaling.y_scale
    np.testing.assert_allclose(found["mean"], scaling.y_mean + unit * mean, rtol=1e-9)
    # The belief that the last layer was trained with is of nine of ten rows, and stands for the committee's in part.
    variance = (variances + means**2).mean(axis=0) - mean**2
    assert np.median(np.abs(found["observation_variance"] / (unit**2 * variance) - 1.0)) < 0.1
    known = [known_moments(one, belief[k], scaling.inputs(new)) for k, one in enumerate(shared.each)]
    variance = (np.stack(known) + means**2).mean(axis=0) - mean**2
    np.testing.assert_allclose(found["observation_variance"], unit**2 * variance, rtol=1e-8)


def test_each_process_hears_rows_with_its_own_noise(trained):
    """Its message is that of the process on its own."""
    gbcm, _, X, y = trained
    model = gbcm.model
    X, obs = model.scaling.inputs(X), model.scaling.observations(unweighted(y), model.likelihood.units)
    both = expert_message(model.shared, model.likelihood, X, obs)
    for k, one in enumerate(model.shared.each):
        alone = expert_message(one, noisy(model.likelihood, one.layers[-1]), X, obs)
        # The noise came by way of the mean and a share of it.
        np.testing.assert_allclose(both.precision[k], alone.precision, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(both.eta[k], alone.eta, rtol=1e-9, atol=1e-9)


def test_info_says_what_it_is(trained):
    info = trained[0].info()
    assert (info["expert"], info["query"], info["kernel"], info["mean"]) == ("dgp", 12, "se", "zero")
    assert [(one["units"], one["centres"]) for one in info["layers"]] == 2 * [(2, 12), (1, 12)]
    assert [one["process"] for one in info["layers"]] == [1, 1, 2, 2]
    assert info["deep"]["powers"] == [1.0, 0.5]
    assert (info["deep"]["rows"], info["deep"]["left_out"]) == (216, 24)
    assert info["deep"]["evaluations"] > 0
    assert "centres of the last layer" in info["advice"]


def test_a_stored_model_is_the_same(trained, rng):
    gbcm, new = trained[0], rng.uniform(-2, 2, (9, 2))
    again = GBCM.load(gbcm.url)
    for name, value in gbcm.predict(new).items():
        np.testing.assert_array_equal(again.predict(new)[name], value)


@pytest.mark.slow
def test_the_cluster_trains_the_same_layers(trained, brief, cluster, rng, briefly):
    new, other = rng.uniform(-2, 2, (9, 2)), GBCM.fit(trained[1], ASKED, runtime=cluster)
    np.testing.assert_allclose(other.predict(new)["mean"], brief.predict(new)["mean"], rtol=1e-10)
    assert other.info()["deep"]["evaluations"] == brief.info()["deep"]["evaluations"]


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "units"), [(1, None), pytest.param(2, 1, marks=pytest.mark.nightly), (3, 2)])
def test_other_depths(wave, briefly, monkeypatch, layers, units):
    """A layer, a warped process, and two hidden layers, of whose mixture both are to have learned something."""
    monkeypatch.setitem(adam.STEPS, "quick", 200)
    gbcm = GBCM.fit(wave[0], replace(ASKED, layers=layers, units=units))
    assert len(gbcm.info()["layers"]) in (layers, 2 * layers)  # of each power, but one that predicts far worse
    assert gbcm.score(wave[0])["nmse"] < 0.5


def test_a_mixture_forgets_rows_and_hears_them_again(trained, tmp_path):
    """In the last layer of each process, as any committee does."""
    copied = GBCM.load(shutil.copytree(trained[0].url, tmp_path / "model"))
    gone = [copied.ledger[0].key]
    after = copied.forget(gone)
    back = after.absorb(partitions(open_data(trained[1]), 50))
    assert after.committee.total.rows == 190
    assert_same_committee(back.committee, trained[0].committee)


# --- Classes and counts ---


@pytest.fixture(scope="module")
def classes():
    """Rows (200, 2) of a chessboard of two by two, of which one in twenty is of the other class."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (200, 2))
    return X, ((X.prod(axis=1) > 0) ^ (rng.uniform(size=200) < 0.05)) * 1.0


@pytest.fixture(scope="module")
def classifier(classes):
    """A round of each power is enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adam, "ROUND", 100)
        patch.setitem(adam.STEPS, "quick", 400)
        return GBCM.fit(classes, replace(ASKED, task="classification", likelihood="probit"))


def drawn(gbcm, X, draws, rng):
    """P(y = 1) at one row of scaled inputs, by draws of hidden units, of the last layer and of what that leaves."""
    first, last = gbcm.model.shared.layers
    belief = gbcm.committee.posterior
    hidden = through([first.stage()], X)[-1]
    h = hidden.mean + np.sqrt(hidden.variance) * rng.standard_normal((draws, first.units))
    scaled = (h[:, None] - last.centres) / np.exp(last.log_lengthscale)
    K = np.exp(last.log_variance - 0.5 * (scaled**2).sum(axis=2))
    b = np.linalg.solve(last.factor, K.T).T
    v = belief.mean + np.linalg.solve(belief.factor.T, rng.standard_normal((len(belief.mean), draws))).T
    left = np.exp(last.log_variance) - (b**2).sum(axis=1)
    f = (b * v).sum(axis=1) + np.sqrt(np.maximum(left, 0)) * rng.standard_normal(draws)
    return norm.cdf(f).mean()


@pytest.mark.slow
def test_probabilities_are_those_of_draws(classifier, rng):
    new = rng.uniform(-1, 1, (12, 2))
    found = classifier.predict(new)["probability"][:, 1]
    expected = [drawn(classifier, row[None], 20_000, rng) for row in classifier.model.scaling.inputs(new)]
    # f is taken for normal, and the belief of training stands for the committee's in part of its variance.
    np.testing.assert_allclose(found, expected, atol=0.04)


def test_classes_that_no_plane_parts_are_learned(classifier, rng):
    new = rng.uniform(-1, 1, (400, 2))
    found = classifier.predict(new)
    assert np.mean(found["label"] == (new.prod(axis=1) > 0)) > 0.9
    assert classifier.info()["deep"]["density"] > np.log(0.5)


@pytest.mark.slow
def test_counts_are_learned(rng, briefly, monkeypatch):
    monkeypatch.setitem(adam.STEPS, "quick", 200)
    X = rng.uniform(-2, 2, (200, 1))
    y = rng.poisson(np.exp(1.0 + np.sin(2 * X[:, 0]))).astype(float)
    gbcm = GBCM.fit((X, y), replace(ASKED, task="counts", likelihood="poisson"))
    rate = np.exp(1.0 + np.sin(2 * X[:, 0]))
    assert np.corrcoef(gbcm.predict(X)["observation_mean"], rate)[0, 1] > 0.9


@pytest.mark.slow
def test_the_cluster_learns_the_same_classes(classes, cluster, rng, briefly, tmp_path):
    from bcmdist.data.writing import write_dataset

    path, new = str(tmp_path / "data.zarr"), rng.uniform(-1, 1, (9, 2))
    write_dataset(path, {"X": classes[0], "y": classes[1]}, rows_per_chunk=50)
    asked = replace(ASKED, task="classification")
    one, other = GBCM.fit(path, asked), GBCM.fit(path, asked, runtime=cluster)
    np.testing.assert_allclose(other.predict(new)["probability"], one.predict(new)["probability"], rtol=1e-8)


# --- A committee's life: the last layer's messages add ---


@pytest.fixture
def prepared(wave, tmp_path):
    return GBCM.prepare(wave[0], UNTRAINED, model=tmp_path / "prepared"), wave[0]


@pytest.fixture
def fitted(wave, tmp_path):
    return GBCM.fit(wave[0], UNTRAINED, model=tmp_path / "fitted"), wave[0]


def test_other_layers_cannot_be_merged(prepared, tmp_path):
    gbcm, path = prepared
    other = GBCM.prepare(path, replace(UNTRAINED, seed=1), model=tmp_path / "other")
    with pytest.raises(ModelsDiffer, match="they differ in layer"):
        gbcm.merge(other, tmp_path / "both")


@pytest.mark.slow
def test_training_is_planned(wave):
    planned = [plan(wave[0], one).to_json()["projected_seconds"] for one in (ASKED, UNTRAINED)]
    assert planned[0]["train"] > 0
    assert "train" not in planned[1]


# --- What is refused ---

REFUSED = [
    ({"expert": "bcm", "units": 3}, "units: expected the expert dgp or mnn or mnnmix with it, got bcm; leave it out"),
    ({"expert": "fitc", "layers": 3}, "layers: expected the expert dgp with it, got fitc; leave it out"),
    ({"layers": 0}, "layers: expected at least 1, got 0"),
    ({"units": 1.5}, "units: expected a whole number, got 1.5"),
    ({"kernel": "matern32"}, "kernel: expected se or se-iso with the expert dgp, got matern32"),
    ({"mean": "linear"}, "mean: expected auto or zero with the expert dgp, got linear; leave it out"),
    ({"likelihood": "onehot"}, "likelihood: expected gaussian or bernoulli or .* got onehot; .*--expert bcm"),
    ({"likelihood": "gamma"}, "likelihood: expected gaussian or bernoulli or .* got gamma; .*--expert bcm"),
    ({"noise": "varying"}, "noise: expected auto with dgp, whose errors .*, got varying; leave it"),
    ({"linearise": "running"}, "linearise: expected own with dgp, got running"),
    ({"partition": "spatial"}, "expert: expected bcm or fourier with spatial partitions, .*--partition chunks"),
    ({"objective": "committee"}, "expected bcm with the objective committee, .*--objective"),
    ({"query_method": "pivoted"}, "query_method: expected kmeans or random with the expert dgp"),
    ({"query_from": "new.zarr"}, "query_from: expected an expert that shares values at query points, got dgp"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_it_cannot_do_is_refused_at_once(settings, message):
    with pytest.raises(InvalidOption, match=message):
        replace(ASKED, **({"units": None} | settings))


def test_uncertain_inputs_have_no_exact_averages(fitted):
    X = np.zeros((2, fitted[0].model.inputs))
    with pytest.raises(InvalidOption, match=r"inputs: expected .* --inputs montecarlo or taylor"):
        fitted[0].predict(X, X_variance=np.ones_like(X), inputs="exact")
    assert fitted[0].predict(X, X_variance=np.ones_like(X), inputs="montecarlo")["variance"].shape == (2,)


DAMAGES = [
    (lambda a: {n: v for n, v in a.items() if n != "layer2_root"}, "expected an array layer2_root, found none"),
    (lambda a: {n: v for n, v in a.items() if n != "layer1_centres"}, "expected an array layer1_centres, found none"),
    (lambda a: a | {"layer1_centres": a["layer1_centres"][0]}, "centres and units in layer 1"),
    (lambda a: a | {"layer2_mean": a["layer2_mean"][:, 1:].copy()}, r"shape \(1, 12\) in layer2_mean"),
    (lambda a: a | {"layer1_root": np.ones_like(a["layer1_root"])}, "lower triangles in layer1_root"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGES)
def test_a_model_that_cannot_be_is_refused(prepared, change, message):
    assert_refused_as_changed(prepared[0].model, change, message)


MIXTURE_DAMAGES = [
    (lambda a: {n: v for n, v in a.items() if n != "deep_noise"}, "shares of processes in an array deep_noise"),
    (lambda a: a | {"deep_noise": 2.0 * a["deep_noise"]}, "shares of 1 in the mean in deep_noise"),
    (lambda a: a | {"deep_noise": np.append(a["deep_noise"], 1.0)}, "deep3_: expected an array layer1_centres"),
    (lambda a: {n: v for n, v in a.items() if n != "deep2_layer2_root"}, "deep2_: expected an array layer2_root"),
]


@pytest.mark.parametrize(("change", "message"), MIXTURE_DAMAGES)
def test_a_mixture_that_cannot_be_is_refused(trained, change, message):
    assert_refused_as_changed(trained[0].model, change, message)

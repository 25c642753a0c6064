"""Marginalised networks and their mixture, one command after the other, against dense formulas of their paper."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, SerialRuntime, Settings, sample_posterior
from bcmdist.api.plan.plan import plan
from bcmdist.api.plan.steps import _training
from bcmdist.api.plan.trial import CLIENT
from bcmdist.data.dataset import open_data
from bcmdist.errors import InvalidOption, ModelsDiffer
from bcmdist.learning.first_commit import _job
from bcmdist.learning.prepare import fit_context, survey
from bcmdist.methods.networks.ascent import EVALUATIONS, MEASURED, STEPS
from bcmdist.methods.networks.shared import Units
from bcmdist.testing import check_basis
from oracles import marginalised_network, mixture_of_networks, network_columns
from problems import assert_refused_as_changed

ASKED = Settings(expert="mnnmix", units=12, networks=3, rows_per_expert=50, effort="quick")
UNTRAINED = replace(ASKED, learn=False, set={"kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.05})


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: where rounding differs, what is learned does too, within what learning leaves open."""
    with threadpool_limits(1, user_api="blas"):
        yield


def test_conformance(rng):
    check_basis(Units(rng.standard_normal((5, 4))))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A mixture fitted to five partitions of weighted rows, the path of its data, X, y and weights."""
    from bcmdist.data.writing import write_dataset

    rng = np.random.default_rng(5)
    X, weight = rng.uniform(-2, 2, (240, 2)), rng.uniform(0.5, 2.0, 240)
    y = 3.0 + 2.0 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(240)
    folder = tmp_path_factory.mktemp("networks")
    write_dataset(str(folder / "data.zarr"), {"X": X, "y": y, "weight": weight}, rows_per_chunk=50)
    gbcm = GBCM.fit(str(folder / "data.zarr"), ASKED, model=folder / "model")
    return gbcm, str(folder / "data.zarr"), X, y, weight


def dense(gbcm, X, y, weight, new):
    """Of each network, by dense formulas from the stored arrays alone: (b, Sigma, columns), its noise, its evidence."""
    arrays, facts = gbcm.model.to_arrays()
    noises = facts["likelihood_parameters"]["noise_variance"][0] * arrays["network_noise"]
    (Z, Zs), unit = [(one - arrays["x_mean"]) / arrays["x_scale"] for one in (X, new)], facts["y_scale"]
    # A row of weight w is sqrt(w) times a row of weight 1, but for what its density is multiplied by.
    root, found = np.sqrt(weight), []
    for U, scale, noise in zip(arrays["network_inner"], arrays["network_scale"], noises, strict=True):
        Phi, Phis = (np.hstack([network_columns(U, scale, one), np.full((len(one), 1), 5.0)]) for one in (Z, Zs))
        targets = (y - facts["y_mean"]) / unit
        b, covariance, evidence = marginalised_network(root[:, None] * Phi, noise, root * targets)
        found.append(((b, covariance, Phis), noise, evidence + np.log(root).sum() - len(y) * np.log(unit)))
    return found


def test_predictions_are_the_mixture_of_the_dense_networks(trained, rng):
    gbcm, _, *rows = trained
    new, facts = rng.uniform(-3, 3, (30, 2)), gbcm.model.to_arrays()[1]
    networks = dense(gbcm, *rows, new)
    means = np.array([Phis @ b for (b, _, Phis), _, _ in networks])
    variances = np.array([noise + np.einsum("ij,jk,ik->i", P, S, P) for (_, S, P), noise, _ in networks])
    mean = means.mean(axis=0)
    variance = (means**2 + variances).mean(axis=0) - mean**2  # eq. 10b
    found = gbcm.predict(new)
    np.testing.assert_allclose(found["mean"], facts["y_mean"] + facts["y_scale"] * mean, atol=1e-10)
    np.testing.assert_allclose(found["observation_variance"], facts["y_scale"] ** 2 * variance, atol=1e-10)
    assert len({noise for _, noise, _ in networks}) == 3  # each its own


def test_the_joint_form_is_one_gaussian_process(trained, rng):
    gbcm, _, *rows = trained
    new, facts = rng.uniform(-3, 3, (12, 2)), gbcm.model.to_arrays()[1]
    mean, covariance = mixture_of_networks([one[0] for one in dense(gbcm, *rows, new)])
    found = gbcm.predict_joint(new)
    np.testing.assert_allclose(found[0], facts["y_mean"] + facts["y_scale"] * mean, atol=1e-10)
    np.testing.assert_allclose(found[1], facts["y_scale"] ** 2 * covariance, atol=1e-10)
    np.testing.assert_allclose(np.diag(found[1]), gbcm.predict(new)["variance"], rtol=1e-10)
    assert gbcm.sample(new, size=3).shape == (3, 12)


def test_the_evidence_is_the_mean_over_networks(trained):
    gbcm, _, *rows = trained
    evidences = [evidence for *_, evidence in dense(gbcm, *rows, np.zeros((1, 2)))]
    assert gbcm.info()["log_evidence"] == pytest.approx(np.mean(evidences), abs=1e-7)
    # All rows were trained on, so what training has found is what the committee says.
    scaled = np.array(gbcm.info()["networks"]["log_evidence"]) - 240 * np.log(rows[1].std())
    np.testing.assert_allclose(scaled, evidences, atol=1e-6)


def test_training_raises_the_evidence(trained):
    gbcm, path, *_ = trained
    drawn = GBCM.fit(path, replace(ASKED, learn=False, set=_learned(gbcm)))
    assert gbcm.info()["log_evidence"] > drawn.info()["log_evidence"] + 50
    assert gbcm.score(path)["rmse"] < 0.15


def _learned(gbcm):
    named = {f"kernel.{name}": value.tolist() for name, value in gbcm.model.shared.kernel.parameters.items()}
    return named | {"likelihood.noise_variance": 0.05}


def test_info_says_what_it_is(trained):
    info = trained[0].info()
    assert (info["expert"], info["query"], info["kernel"], info["mean"]) == ("mnnmix", 12, "arcsine", "constant")
    assert (info["networks"]["count"], info["networks"]["rows"]) == (3, 240)
    assert len(set(info["networks"]["log_evidence"])) == 3
    assert 0 < info["p_eff"] <= 13
    assert "12 hidden units of a network limit the fit" in info["advice"]
    assert "set --units to" in info["advice"]


def test_degrees_of_freedom_are_the_mean_over_networks(trained):
    gbcm, _, X, y, weight = trained
    degrees = []
    for (b, S, _), noise, _ in dense(gbcm, X, y, weight, X[:1]):
        degrees.append(len(b) - np.trace(S))  # whitened: the prior covariance is I
        assert noise > 0
    assert gbcm.info()["p_eff"] == pytest.approx(np.mean(degrees), abs=1e-8)
    assert gbcm.effective_parameters()["data"] == pytest.approx(np.mean(degrees), abs=1e-8)


def test_a_stored_model_is_the_same(trained, rng):
    gbcm, new = trained[0], rng.uniform(-2, 2, (9, 2))
    again = GBCM.load(gbcm.url)
    for name, value in gbcm.predict(new).items():
        np.testing.assert_array_equal(again.predict(new)[name], value)
    assert again.committee.total.precision.shape == (3, 13, 13)


@pytest.mark.slow
def test_a_single_network(wave, rng):
    path, *_ = wave
    gbcm = GBCM.fit(path, replace(ASKED, expert="mnn", networks=4))
    assert gbcm.info()["networks"]["count"] == 1
    assert gbcm.score(path)["rmse"] < 0.3


@pytest.mark.slow
def test_the_cluster_trains_the_same_networks(trained, cluster, rng):
    path, new = trained[1], rng.uniform(-2, 2, (9, 2))
    other = GBCM.fit(path, replace(ASKED, networks=1), runtime=cluster)
    one = GBCM.fit(path, replace(ASKED, networks=1))
    np.testing.assert_allclose(other.predict(new)["mean"], one.predict(new)["mean"], rtol=1e-9)
    assert other.info()["networks"]["evaluations"] == one.info()["networks"]["evaluations"]


# --- A committee's life ---


@pytest.fixture
def prepared(wave, tmp_path):
    return GBCM.prepare(wave[0], UNTRAINED, model=tmp_path / "prepared"), wave[0]


@pytest.fixture
def fitted(wave, tmp_path):
    return GBCM.fit(wave[0], UNTRAINED, model=tmp_path / "fitted"), wave[0]


def test_other_networks_cannot_be_merged(prepared, tmp_path):
    gbcm, path = prepared
    other = GBCM.prepare(path, replace(UNTRAINED, seed=1), model=tmp_path / "other")
    with pytest.raises(ModelsDiffer, match="they differ in network_inner"):
        gbcm.merge(other, tmp_path / "both")


def test_rows_left_out_are_left_out_of_each_network(fitted, wave):
    """Standardised residuals of the ledger are those of refits without the row."""
    from bcmdist.data.observations import unweighted
    from bcmdist.prediction.leave_one_out import left_out_of_committee

    (gbcm, _), (_, X, y) = fitted, wave
    model, some = gbcm.model, np.array([3, 17])
    scaled, obs = model.scaling.inputs(X), unweighted((y - y.mean()) / y.std())
    rows = (scaled[:50], obs[np.arange(50)])
    mean, variance = left_out_of_committee(model.shared, model.likelihood, gbcm.committee.posterior, *rows, some)
    for k, row in enumerate(some):
        kept = np.delete(np.arange(len(X)), row)
        networks = dense(gbcm, X[kept], y[kept], np.ones(len(kept)), X[[row]])
        # Targets of the fewer rows are scaled as those of all, by what the model has stored.
        joint = mixture_of_networks([one[0] for one in networks])
        np.testing.assert_allclose([mean[k], variance[k]], [joint[0][0], joint[1][0, 0]], atol=1e-10)


@pytest.mark.slow
def test_the_scale_of_errors_is_measured(make_data, rng):
    X = rng.uniform(-2, 2, (1500, 2))
    y = np.sin(2 * X[:, 0]) + np.where(X[:, 1] > 0, 0.5, 0.05) * rng.standard_normal(1500)
    gbcm = GBCM.fit(make_data(X=X, y=y, rows_per_chunk=500), replace(UNTRAINED, units=30, noise="auto"))
    assert gbcm.info()["errors"]["scale"] == "varying"
    wide, narrow = gbcm.predict(np.array([[0.0, 1.0], [0.0, -1.0]]))["observation_variance"]
    assert wide > 4 * narrow


@pytest.mark.slow
@pytest.mark.parametrize("varies", [False, True])
def test_errors_are_those_of_networks_without_the_rows_left_out(make_data, rng, varies):
    """Intervals hold their share of new rows on both sides, of which one may have errors ten times as large."""

    def rows(count):
        X = rng.uniform(-2, 2, (count, 2))
        scale = np.where(X[:, 1] > 0, 0.5, 0.05) if varies else 0.1
        return X, np.sin(2 * X[:, 0]) + scale * rng.standard_normal(count)

    X, y = rows(1500)
    gbcm = GBCM.fit(make_data(X=X, y=y, rows_per_chunk=500), replace(ASKED, rows_per_expert=500))
    errors = gbcm.info()["errors"]
    assert (errors["scale"], errors["residuals"]) == ("varying" if varies else "constant", 1500)
    new, seen = rows(2000)
    found = gbcm.predict(new)
    inside = (found["lower95"] < seen) & (seen < found["upper95"])
    for side in (new[:, 1] > 0.1, new[:, 1] < -0.1):
        assert 0.915 < inside[side].mean() < 0.985  # of some 950 rows: five standard errors
    np.testing.assert_allclose(GBCM.load(gbcm.url).predict(new[:9])["lower95"], found["lower95"][:9], rtol=1e-12)


def test_training_is_planned(wave):
    planned = [plan(wave[0], one).to_json()["projected_seconds"] for one in (ASKED, UNTRAINED)]
    assert planned[0]["train"] > 0
    assert "train" not in planned[1]


def test_networks_that_a_worker_can_hold_are_planned_in_whole(wave, monkeypatch):
    """As one round of a task each; by rounds over partitions where they are too large."""
    data = open_data(wave[0])
    case = fit_context(data, survey(data, ASKED, SerialRuntime()), ASKED, SerialRuntime())

    def training():
        times = {("train", "train"): np.array([0.6, 3.0]), ("train", CLIENT): np.array([0.1, 1.0])}
        return [(step.each, step.tasks, step.rounds) for step in _training(case, times, data.rows)]

    evaluations = STEPS["quick"] * EVALUATIONS / MEASURED
    assert training() == [(pytest.approx(0.2 * evaluations), 3.0, 1.0), (0.1, 0.0, 1.0)]
    monkeypatch.setattr("bcmdist.methods.networks.ascent.LARGEST_BYTES", 0)
    assert training() == [(pytest.approx(0.2), 3.0, pytest.approx(evaluations)), (0.1, 0.0, pytest.approx(evaluations))]


def test_training_ends_after_the_seconds_given(wave):
    gbcm = GBCM.fit(wave[0], replace(ASKED, seconds=0.01))
    assert "training of networks" in gbcm.info()["advice"]
    assert max(gbcm.info()["networks"]["evaluations"]) < 20


# --- What is refused ---

REFUSED = [
    ({"expert": "bcm"}, "units: expected the expert dgp or mnn or mnnmix with it, got bcm; leave it out"),
    ({"expert": "mnn"}, "networks: expected the expert mnnmix with it, got mnn; leave it out, or take --expert mnnmix"),
    ({"query": 7}, "query: expected --units with mnnmix, which has no query points, got 7"),
    ({"units": 0}, "units: expected at least 1, got 0"),
    ({"networks": 1.5}, "networks: expected a whole number, got 1.5"),
    (
        {"likelihood": "poisson"},
        "likelihood: expected gaussian with the expert mnnmix, got poisson; .*--expert bcm",
    ),
    (
        {"likelihood": "bernoulli"},
        "likelihood: expected gaussian with the expert mnnmix, got bernoulli; .*--expert bcm",
    ),
    ({"noise": "varying"}, "noise: expected auto with mnnmix, whose errors .*, got varying; leave it"),
    ({"linearise": "running"}, "linearise: expected own with mnnmix, got running"),
    ({"approximation": "ep"}, "approximation: expected an expert that couples .*; take --approximation laplace"),
    (
        {"partition": "spatial"},
        "expert: expected bcm or fourier with spatial partitions, .*; give --partition chunks",
    ),
    ({"objective": "committee"}, "expected bcm with the objective committee, .*--objective"),
    ({"precision": "mixed"}, "precision: expected double with residual none, got mixed"),
    ({"query_method": "pivoted"}, "query_method: expected kmeans with the expert mnnmix, which .*, got pivoted"),
    ({"query_from": "new.zarr"}, "query_from: expected an expert that shares values at query points, got mnnmix"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_it_cannot_do_is_refused_at_once(settings, message):
    with pytest.raises(InvalidOption, match=message):
        replace(ASKED, **settings)


def test_classes_are_refused_once_they_are_seen(classes, tmp_path):
    with pytest.raises(InvalidOption, match="likelihood: expected gaussian with the expert mnnmix, got bernoulli"):
        GBCM.fit(classes[0], ASKED, model=tmp_path / "model")
    assert not (tmp_path / "model").exists() or not list((tmp_path / "model").rglob("*.json"))


def test_what_a_fitted_one_cannot_do_is_refused(fitted, wave, tmp_path):
    gbcm, path = fitted
    for ask in (gbcm.evidence_gradient, gbcm.calibration):
        with pytest.raises(InvalidOption, match=r"model: expected values at query points .* fit with the expert bcm"):
            ask()
    with pytest.raises(InvalidOption, match="hmc: expected the expert bcm, fitc or sor, whose evidence has a gradient"):
        sample_posterior(path, Settings(kernel="se", expert="mnnmix"), model=tmp_path / "chains")


DAMAGES = [
    (lambda a: {n: v for n, v in a.items() if n != "network_scale"}, "expected an array network_scale, found none"),
    (lambda a: a | {"network_inner": a["network_inner"][0]}, "networks with units in network_inner"),
    (lambda a: a | {"network_inner": a["network_inner"][:, :, :2].copy()}, r"shape \(3, 12, 3\) in network_inner"),
    (lambda a: a | {"network_noise": -a["network_noise"]}, "positive numbers in network_noise"),
    (lambda a: a | {"network_noise": 2 * a["network_noise"]}, "shares of 1 in the mean in network_noise"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGES)
def test_a_model_that_cannot_be_is_refused(prepared, change, message):
    assert_refused_as_changed(prepared[0].model, change, message)


def test_a_job_without_its_options_has_the_hash_it_had(wave):
    """Of before they were there: they are left out where they are not given."""
    data = open_data(wave[0])
    assert _job(data, Settings(expert="mnnmix")) != _job(data, Settings(expert="mnnmix", units=12))
    assert _job(data, Settings()) == _job(data, Settings(units=None, networks=4))

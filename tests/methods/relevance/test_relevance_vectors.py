"""The relevance vector machine as an expert: learned before the first message, from then on as any weights."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.api.fit import prepare
from bcmdist.api.plan import plan as plan_module
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import partitions
from bcmdist.errors import InvalidOption, ModelsDiffer
from bcmdist.learning import first_commit
from bcmdist.methods.relevance import learners
from bcmdist.methods.relevance.classes import NOTHING, Marginals, Weighed, site_sums, sites
from bcmdist.methods.relevance.dictionaries import Radial
from bcmdist.methods.relevance.learners import Problem, State, posterior
from bcmdist.methods.relevance.sequential import UPDATES
from bcmdist.methods.relevance.sums import sums_of
from bcmdist.methods.relevance.training import dictionary
from bcmdist.model.likelihoods import Bernoulli
from bcmdist.runtime.interface import SerialRuntime
from oracles import independent_rest
from problems import assert_same_committee

GIVEN = {"kernel.variance": 1.0, "kernel.lengthscale": 0.8, "likelihood.noise_variance": 0.01}
GIVEN_ONES = Settings(expert="rvm", kernel="se", learn=False, set=GIVEN, query=150, rows_per_expert=50)
LEARNED = Settings(expert="rvm", query=150, rows_per_expert=50, effort="quick")


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: where rounding differs, what is learned does too, within what learning leaves open."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(params=[GIVEN_ONES, LEARNED], ids=["given", "learned"])
def settings(request):
    return request.param


@pytest.fixture
def fitted(wave, settings, tmp_path):
    return GBCM.fit(wave[0], settings, model=tmp_path / "model")


def scaled(gbcm, X, y):
    scaling = gbcm.model.scaling
    return scaling.inputs(X), (y - scaling.y_mean) / scaling.y_scale


def columns(gbcm, X):
    """Of the stored functions times their prior scales, and of the mean."""
    arrays, _ = gbcm.model.to_arrays()
    Z = (X - arrays["x_mean"]) / arrays["x_scale"]
    gaps = (Z[:, None] - arrays["basis_centres"]) / arrays["basis_lengthscale"]
    bumps = np.exp(-0.5 * (gaps**2).sum(axis=2)) * arrays["weight_scale"]
    return np.hstack([bumps, gbcm.model.shared.mean.design(Z)])


def test_predictions_are_those_of_dense_regression(fitted, wave, rng):
    _, X, y = wave
    new, noise = rng.uniform(-4, 4, (30, 2)), float(fitted.model.likelihood.noise_variance[0])
    V, Vs, t = columns(fitted, X), columns(fitted, new), scaled(fitted, X, y)[1]
    mean, variance, evidence = independent_rest(V, np.zeros(240), t, noise, Vs, np.zeros(30))
    found = fitted.predict(new)
    np.testing.assert_allclose(found["mean"], y.mean() + y.std() * mean, atol=1e-8)
    np.testing.assert_allclose(found["variance"], y.var() * variance, atol=1e-8)
    assert fitted.info()["log_evidence"] == pytest.approx(evidence - 240 * np.log(y.std()), abs=1e-7)


def test_few_functions_explain_the_rows(fitted, wave, rng):
    found = fitted.info()
    assert found["expert"] == "rvm"
    assert 3 <= found["query"] <= 40
    new = rng.uniform(-2, 2, (200, 2))
    truth = 3.0 + 2.0 * np.sin(2 * new[:, 0]) + new[:, 1]
    assert np.sqrt(np.mean((fitted.predict(new)["mean"] - truth) ** 2)) < 0.1
    assert "basis functions, which the evidence prefers to all 150, suffice for" in found["advice"]


def test_what_is_heard_is_a_block_of_the_sums_of_the_whole_dictionary(fitted, wave, settings):
    _, X, y = wave
    Z, t = scaled(fitted, X, y)
    vectors = fitted.info()["relevance_vectors"]["rows"]
    whole = Radial(Z, fitted.model.shared.basis.lengthscale, np.arange(240.0))
    shared, noise = fitted.model.shared, float(fitted.model.likelihood.noise_variance[0])
    Phi = np.hstack([whole.features(Z), shared.mean.design(Z)])
    which = np.array([*vectors, *range(240, Phi.shape[1])])
    sums, scale = sums_of(Phi, t, np.ones(240)).some(which), np.append(shared.scale, np.ones(len(which) - len(vectors)))
    total = fitted.committee.total
    size = np.abs(total.precision).max()
    np.testing.assert_allclose(total.precision / size, np.outer(scale, scale) * sums.gram / noise / size, atol=1e-10)
    np.testing.assert_allclose(total.eta / size, scale * sums.cross / noise / size, atol=1e-10)


def test_what_is_learned_is_learned_from_all_rows(wave, tmp_path):
    path, X, y = wave
    gbcm = GBCM.fit(path, GIVEN_ONES, model=tmp_path / "model")
    Z, t = scaled(gbcm, X, y)
    _, data = prepare(path, GIVEN_ONES, tmp_path / "model", SerialRuntime())
    sample = first_commit.survey(data, GIVEN_ONES, SerialRuntime()).sample
    basis, _ = dictionary((sample.X - X.mean(axis=0)) / X.std(axis=0), sample.row, gbcm.model.shared.kernel, 150)
    np.testing.assert_allclose(basis.centres, Z[basis.rows.astype(int)], atol=1e-13)
    Phi = np.hstack([basis.features(Z), np.full((240, 1), 5.0)])
    problem = Problem(sums_of(Phi, t, np.ones(240)), permanent=1, keep_noise=True)
    state = UPDATES["fast"](problem, 0.01)
    vectors = gbcm.info()["relevance_vectors"]
    assert vectors["rows"] == basis.rows[state.active[:-1]].astype(int).tolist()
    np.testing.assert_allclose(vectors["weights"], posterior(problem.sums, state).mean[:-1], rtol=1e-5)


def test_relevance_vectors_are_listed(fitted, wave):
    _, X, y = wave
    vectors = json.loads(json.dumps(fitted.info()))["relevance_vectors"]
    assert vectors["number"] == len(vectors["rows"]) == len(vectors["weights"]) == fitted.info()["query"]
    Z = scaled(fitted, X, y)[0]
    np.testing.assert_allclose(fitted.model.shared.basis.centres, Z[vectors["rows"]], atol=1e-13)
    mean = fitted.committee.posterior.mean[: vectors["number"]]
    np.testing.assert_array_equal(vectors["weights"], fitted.model.shared.scale * mean)
    assert "relevance_vectors" not in GBCM.fit(wave[0], replace(GIVEN_ONES, expert="sor")).info()


@pytest.mark.slow
@pytest.mark.parametrize("update", UPDATES)
def test_all_updates_by_name(wave, update):
    gbcm = GBCM.fit(wave[0], replace(LEARNED, rvm_update=update))
    assert gbcm.score(wave[0])["rmse"] < 0.15
    assert gbcm.info()["query"] < 30


@pytest.mark.slow
def test_noise_is_learned_again_unless_it_is_given(wave):
    noise = [
        GBCM.prepare(wave[0], one).info()["hyperparameters"]["likelihood.noise_variance"][0]
        for one in (GIVEN_ONES, LEARNED, replace(LEARNED, expert="bcm", kernel="se"))
    ]
    assert noise[0] == 0.01
    assert noise[1] != noise[2]
    assert noise[1] == pytest.approx(0.1**2 / wave[2].var(), rel=0.3)


@pytest.mark.slow
def test_a_cluster_gives_the_same(wave, fitted, settings, cluster, tmp_path):
    other = GBCM.fit(wave[0], settings, model=tmp_path / "cluster", runtime=cluster)
    assert other.info()["relevance_vectors"]["rows"] == fitted.info()["relevance_vectors"]["rows"]
    np.testing.assert_allclose(other.model.shared.scale, fitted.model.shared.scale, rtol=1e-8)
    assert_same_committee(other.committee, fitted.committee, 1e-8)


@pytest.mark.slow
def test_a_fit_that_was_cut_off_goes_on_with_what_it_had_learned(wave, fitted, settings, tmp_path, monkeypatch):
    GBCM.prepare(wave[0], settings, model=tmp_path / "again")
    monkeypatch.setitem(UPDATES, "fast", None)  # would fail if it learned again
    again = GBCM.fit(wave[0], settings, model=tmp_path / "again")
    assert_same_committee(again.committee, fitted.committee)
    with pytest.raises(Exception, match="got a fit of other data or settings"):
        GBCM.fit(wave[0], replace(settings, rvm_update="em"), model=tmp_path / "again")


@pytest.mark.slow
def test_a_prepared_model_hears_a_source(wave, fitted, settings, tmp_path):
    gbcm = GBCM.prepare(wave[0], settings, model=tmp_path / "prepared")
    assert gbcm.info()["rows"] == 0
    assert gbcm.info()["relevance_vectors"]["weights"] == [0.0] * fitted.info()["query"]
    absorbed, report = gbcm.ingest(gbcm.source(wave[0]))
    assert report.partitions == 5
    assert_same_committee(absorbed.committee, fitted.committee)


def only(path, model, keep, place):
    shutil.copytree(model, place)
    return GBCM.load(place).absorb([partitions(open_data(path), 50)[k] for k in keep])


@pytest.mark.slow
def test_forgetting_and_merging_are_exact(wave, fitted, settings, tmp_path):
    path, prepared = wave[0], tmp_path / "prepared"
    GBCM.prepare(path, settings, model=prepared)
    gone = [entry.key for entry in fitted.ledger if "[50:" in entry.key or "[200:" in entry.key]
    rest = only(path, prepared, [0, 2, 3], tmp_path / "rest")
    assert_same_committee(fitted.forget(gone).committee, rest.committee)
    other = only(path, prepared, [1, 4], tmp_path / "other")
    assert_same_committee(rest.merge(other, tmp_path / "both").committee, fitted.committee)
    alien = GBCM.prepare(path, replace(settings, seed=1), model=tmp_path / "alien")
    with pytest.raises(ModelsDiffer, match=r"they differ in .*basis_centres"):
        alien.merge(other, tmp_path / "none")


def test_targets_that_do_not_vary(make_data, rng):
    path = make_data("flat.zarr", X=rng.uniform(-1, 1, (60, 2)), y=np.full(60, 4.0))
    with pytest.warns(UserWarning, match="all targets"):
        gbcm = GBCM.fit(path, replace(GIVEN_ONES, query=20, task="regression"))
    np.testing.assert_allclose(gbcm.predict(np.zeros((1, 2)))["mean"], 4.0, atol=1e-6)


REFUSED = [
    ({"kernel": "matern32"}, "kernel: expected se or se-iso with the expert rvm, got matern32"),
    (
        {"task": "counts", "likelihood": "poisson"},
        "likelihood: expected gaussian or bernoulli or probit or one_against_rest with the expert rvm, got",
    ),
    ({"rvm_update": "slow"}, "rvm_update: expected one of fast, em, mackay, direct, got 'slow'"),
    ({"partition": "spatial"}, "expert: expected bcm or fourier with spatial partitions"),
    ({"likelihood": "gaussian", "rvm_classes": "cavity"}, "rvm_classes: expected classes with cavity, got .* gaussian"),
    ({"rvm_classes": "tap"}, "rvm_classes: expected one of laplace, naive, cavity, got 'tap'"),
    ({"query_method": "pivoted"}, "query_method: expected kmeans or random with the expert rvm, .*, got pivoted"),
    ({"query_from": "new.zarr"}, "query_from: expected an expert that shares values at query points, got rvm"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_it_cannot_do_is_refused_at_once(settings, message):
    with pytest.raises(InvalidOption, match=message):
        replace(Settings(expert="rvm"), **settings)


def test_what_the_data_do_not_allow_is_refused(classes, wave):
    with pytest.raises(InvalidOption, match="rvm_lengthscale: expected measurements with adapted, got the"):
        GBCM.fit(classes[0], replace(LEARNED, rvm_lengthscale="adapted"))
    with pytest.raises(InvalidOption, match="with the expert rvm, got onehot"):
        GBCM.fit(wave[0], replace(LEARNED, task="classification", likelihood="onehot"))
    with pytest.raises(InvalidOption, match="rvm_classes: expected classes with naive, got the likelihood gaussian"):
        GBCM.fit(wave[0], replace(LEARNED, rvm_classes="naive"))


def test_jobs_of_before_are_the_same_jobs(wave):
    data = open_data(wave[0])
    assert first_commit._job(data, Settings()) == first_commit._job(data, replace(Settings(), rvm_update="fast"))
    assert first_commit._job(data, LEARNED) != first_commit._job(data, replace(LEARNED, rvm_update="em"))


def evidence_of(gbcm):
    return gbcm.info()["log_evidence"]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["se", "se-iso"])
def test_lengthscales_adapt_to_the_evidence(wave, kernel, cluster, tmp_path):
    asked = replace(LEARNED, kernel=kernel, mean="constant")
    as_learned, adapted = (GBCM.fit(wave[0], replace(asked, rvm_lengthscale=how)) for how in ("kernel", "adapted"))
    assert evidence_of(adapted) > evidence_of(as_learned)
    theta, shown = adapted.model.shared.basis.lengthscale, adapted.info()["hyperparameters"]["kernel.lengthscale"]
    np.testing.assert_array_equal(shown, theta[: len(shown)])
    assert np.any(theta != as_learned.model.shared.basis.lengthscale)
    if kernel == "se-iso":
        assert theta[0] == theta[1]
    on_workers = GBCM.fit(wave[0], replace(asked, rvm_lengthscale="adapted"), model=tmp_path / "c", runtime=cluster)
    np.testing.assert_allclose(on_workers.model.shared.basis.lengthscale, theta, rtol=1e-3)
    assert evidence_of(on_workers) == pytest.approx(evidence_of(adapted), abs=1e-2)


def test_lengthscales_adapt_where_hyperparameters_are_learned():
    with pytest.raises(InvalidOption, match="rvm_lengthscale: expected learning with adapted, got no-learn"):
        replace(GIVEN_ONES, rvm_lengthscale="adapted")


def test_a_dictionary_may_be_tried_in_blocks(wave, tmp_path):
    """A block and what is kept of those before, each time by a pass of sums as small as that."""
    path, X, y = wave
    gbcm = GBCM.fit(path, replace(GIVEN_ONES, query=20, rvm_dictionary=60), model=tmp_path / "model")
    whole = GBCM.prepare(path, replace(GIVEN_ONES, query=60)).model.shared
    again = replace(GIVEN_ONES, query=20, rvm_dictionary=60)
    Z, t = scaled(gbcm, X, y)
    _, data = prepare(path, again, tmp_path / "model", SerialRuntime())
    sample = first_commit.survey(data, again, SerialRuntime()).sample
    basis, _ = dictionary((sample.X - X.mean(axis=0)) / X.std(axis=0), sample.row, gbcm.model.shared.kernel, 60)
    Phi = np.hstack([basis.features(Z), np.full((240, 1), 5.0)])
    kept, start, values = np.arange(0), None, []
    for block in np.split(np.arange(60), 3):
        names = np.sort([*kept, *block])
        problem = Problem(sums_of(Phi[:, [*names, 60]], t, np.ones(240)), permanent=1, keep_noise=True)
        if start is not None:
            start = replace(start, active=np.append(np.searchsorted(names, kept), len(names)))
        start = UPDATES["fast"](problem, 0.01, start)
        kept = names[start.active[:-1]]
        values.append(posterior(problem.sums, start).evidence)
    assert gbcm.info()["relevance_vectors"]["rows"] == basis.rows[kept].astype(int).tolist()
    np.testing.assert_allclose(gbcm.model.shared.scale, 1 / np.sqrt(start.alpha[:-1]), rtol=1e-6)
    assert values == sorted(values)
    assert set(gbcm.info()["relevance_vectors"]["rows"]) != set(whole.basis.rows)
    assert np.any(kept >= 20)


@pytest.mark.slow
@pytest.mark.parametrize("update", UPDATES)
def test_blocks_do_for_all_updates(wave, update):
    asked = replace(GIVEN_ONES, query=30, rvm_dictionary=90, rvm_update=update)
    blocks, first = GBCM.fit(wave[0], asked), GBCM.fit(wave[0], replace(asked, rvm_dictionary=30))
    assert evidence_of(blocks) > evidence_of(first) + 1.0
    assert blocks.info()["query"] < 30


@pytest.mark.parametrize(
    ("option", "value"), [("rvm_update", "em"), ("rvm_dictionary", 9), ("rvm_lengthscale", "adapted")]
)
def test_options_of_its_own_are_refused_with_others(option, value):
    with pytest.raises(InvalidOption, match=f"{option}: expected the expert rvm.* with it, got bcm"):
        Settings(**{option: value})
    with pytest.raises(InvalidOption, match="rvm_dictionary: expected at least 1, got 0"):
        Settings(expert="rvm", rvm_dictionary=0)


CLASSES = Settings(expert="rvm", kernel="se", query=100, rows_per_expert=50, effort="quick", passes="auto")


@pytest.mark.slow
@pytest.mark.parametrize("update", UPDATES)
def test_classes_are_at_the_joint_mode_of_all_rows(classes, update):
    """Precisions, and the mode under them, of dense regression on rows that are linearised there."""
    path, X, y = classes
    likelihood, rows = Bernoulli(), unweighted(y.astype(float))
    gbcm = GBCM.fit(path, replace(CLASSES, rvm_update=update))
    V = columns(gbcm, X)
    v = gbcm.refine(tolerance=1e-9).committee.posterior.mean
    np.testing.assert_allclose(V.T @ likelihood.score(rows, V @ v), v, atol=1e-6)  # of L in the whitened weights
    B = gbcm.model.shared.functions
    assert B < 25
    h = likelihood.curvature(rows, V @ v)
    Sigma = np.linalg.inv(V.T @ (h[:, None] * V) + np.eye(V.shape[1]))
    s, q = (1.0 / np.diag(Sigma) - 1.0)[:B], (v / np.diag(Sigma))[:B]
    best = learners.best_alpha(s, q)  # of weights whose precision is 1 as they are scaled
    assert np.all(learners.share(best, s, q) - learners.share(1.0, s, q) < 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["naive", "cavity"])
def test_classes_by_other_forms_stand_still(classes, form, cluster, tmp_path):
    """No precision of the functions kept gains where the sites of all rows stand still (as above, of these sites)."""
    path, X, y = classes
    settings = replace(CLASSES, likelihood="probit", rvm_classes=form)
    gbcm = GBCM.prepare(path, settings)
    Phi, rows = columns(gbcm, X), unweighted(y.astype(float))
    whole, weighed = State(np.arange(Phi.shape[1]), np.ones(Phi.shape[1]), 1.0), NOTHING
    for _ in range(60):
        found = posterior(site_sums(Phi, *sites(form, gbcm.model.likelihood, rows, weighed.marginals(Phi))), whole)
        weighed = Weighed(whole.active, found.mean, np.ones(Phi.shape[1]), found.covariance)
    B = gbcm.model.shared.functions
    assert B < 25
    s, q = (1.0 / found.variance - 1.0)[:B], (found.mean / found.variance)[:B]
    assert np.all(learners.share(learners.best_alpha(s, q), s, q) - learners.share(1.0, s, q) < 0.01)
    on_workers = GBCM.prepare(path, settings, model=tmp_path / "c", runtime=cluster)
    assert on_workers.info()["relevance_vectors"]["rows"] == gbcm.info()["relevance_vectors"]["rows"]
    np.testing.assert_allclose(on_workers.model.shared.scale, gbcm.model.shared.scale, rtol=1e-4)
    plain = GBCM.prepare(path, replace(settings, rvm_classes="laplace"))
    assert plain.model.shared.scale.shape != gbcm.model.shared.scale.shape or np.any(
        plain.model.shared.scale != gbcm.model.shared.scale
    )


@pytest.mark.slow
def test_classes_are_told_apart(classes, rng, cluster, tmp_path):
    path = classes[0]
    gbcm = GBCM.fit(path, CLASSES)
    new = rng.uniform(-2, 2, (500, 2))
    truth = np.sin(2 * new[:, 0]) + 0.5 * new[:, 1] > 0
    found = gbcm.predict(new)
    assert np.mean(found["label"] == truth) > 0.9
    assert gbcm.score(path)["log_loss"] < 0.4
    on_workers = GBCM.fit(path, CLASSES, model=tmp_path / "c", runtime=cluster)
    assert on_workers.info()["relevance_vectors"]["rows"] == gbcm.info()["relevance_vectors"]["rows"]
    np.testing.assert_allclose(on_workers.predict(new)["mean"], found["mean"], atol=1e-4)
    probit = GBCM.fit(path, replace(CLASSES, likelihood="probit"))
    assert np.mean(probit.predict(new)["label"] == found["label"]) > 0.95


@pytest.mark.slow
def test_classes_by_any_names(make_data, classes):
    _, X, y = classes
    named = make_data("named.zarr", X=X, y=np.where(y, 7, 3))
    one, other = (GBCM.fit(path, replace(CLASSES, task="classification")) for path in (named, classes[0]))
    assert one.info()["relevance_vectors"]["rows"] == other.info()["relevance_vectors"]["rows"]
    assert set(one.predict(X)["label"]) == {3, 7}


def test_sums_at_a_mode_are_those_of_weighted_rows(rng):
    Phi, f, obs = rng.standard_normal((40, 5)), rng.standard_normal(40), unweighted((rng.random(40) > 0.5) * 1.0)
    likelihood = Bernoulli()
    h = likelihood.curvature(obs, f)
    expected = sums_of(Phi, f + likelihood.score(obs, f) / h, h)
    found = site_sums(Phi, h, h * f + likelihood.score(obs, f))
    for name in ("gram", "cross", "square", "rows", "log_weight"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-10, atol=1e-12)
    far = Marginals(800.0 * np.ones(40), np.ones(40), np.ones(40))
    saturated = site_sums(Phi, *sites("laplace", likelihood, obs, far))
    assert np.all(np.isfinite(saturated.cross))
    assert np.isfinite(saturated.square)


@pytest.mark.slow
def test_a_plan_offers_fewer_functions_by_the_option_that_says_how_many(wave, monkeypatch):
    monkeypatch.setattr(plan_module, "WORTHWHILE", -1e9)
    monkeypatch.setattr(plan_module, "WORDS", 9)
    said = plan_module.plan(wave[0], replace(LEARNED, query=30, rvm_lengthscale="adapted")).advice
    assert "--query 15" in said
    assert "--rvm" not in said

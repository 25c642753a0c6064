"""Estimators: scikit-learn's own checks, and what it does not check."""

import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from bcmdist import (
    GBCM,
    GBCMClassifier,
    GBCMCountRegressor,
    GBCMLifetimeRegressor,
    GBCMRegressor,
    Settings,
)
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption, ModelDamaged, UnsupportedTarget

KINDS = [GBCMRegressor, GBCMClassifier, GBCMCountRegressor, GBCMLifetimeRegressor]
QUICK = {"kernel": "se-iso", "mean": "constant", "noise": "constant", "effort": "quick"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS[1:])])
@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")  # of constant columns and targets, say
def test_check_estimator(kind):
    """No failure, and none that was declared; what is skipped asks for another environment.

    One by its defaults: the others differ from it in targets, not in how long they learn.
    """
    estimator = kind() if kind is GBCMRegressor else kind(**QUICK)
    found = check_estimator(estimator, on_fail=None, on_skip=None)
    bad = {one["check_name"]: one["exception"] for one in found if one["status"] not in ("passed", "skipped")}
    assert bad == {}
    assert not any(one["expected_to_fail"] for one in found)
    assert {one["check_name"] for one in found if one["status"] == "skipped"} <= {"check_array_api_input"}
    assert len(found) > 50


@pytest.fixture
def rows(rng):
    """X (120, 2) and a smooth function of it, (120,)."""
    X = rng.uniform(-2, 2, (120, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    assert f.shape == (120,)
    return X, f


def targets(kind, f, rng):
    """Targets that fit a kind of estimator, of a function f (n,)."""
    if kind is GBCMClassifier:
        return np.where(f + 0.1 * rng.standard_normal(len(f)) > 0, "above", "below")
    if kind is GBCMCountRegressor:
        return rng.poisson(np.exp(f + 1))
    if kind is GBCMLifetimeRegressor:
        return np.exp(f) * rng.exponential(size=len(f))
    return f + 0.1 * rng.standard_normal(len(f))


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def fitted(request, rows, rng):
    """An estimator that was fitted, with its rows."""
    X, f = rows
    y = targets(request.param, f, rng)
    return request.param(**QUICK).fit(X, y), X, y


@pytest.mark.slow
def test_estimators_are_the_facade(rows, rng):
    """As the facade predicts that has absorbed the same rows."""
    X, f = rows
    y = targets(GBCMRegressor, f, rng)
    order = np.lexsort((y, X[:, 1], X[:, 0]))  # of the rows of one expert, which have no order
    gbcm = GBCM.fit(X[order], y[order], Settings(task="regression", **QUICK))
    estimator, found = GBCMRegressor(**QUICK).fit(X, y), gbcm.predict(X)
    mean, deviation = estimator.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, found["observation_mean"])
    np.testing.assert_array_equal(deviation, np.sqrt(found["observation_variance"]))
    lower, upper = estimator.predict_interval(X).T
    np.testing.assert_allclose(lower, found["lower95"], rtol=1e-6)  # 1.96 for the quantile, where these are rounded
    np.testing.assert_allclose(upper, found["upper95"], rtol=1e-6)
    np.testing.assert_array_equal(estimator.predict(X, quantiles=[0.5]).shape, (120, 1))


def test_the_covariance_has_the_deviations_on_its_diagonal(rows, rng):
    X, f = rows
    estimator = GBCMRegressor(**QUICK).fit(X, targets(GBCMRegressor, f, rng))
    mean, covariance = estimator.predict(X[:20], return_cov=True)
    same, deviation = estimator.predict(X[:20], return_std=True)
    np.testing.assert_array_equal(mean, same)
    # One sum of Q products against another, of variances around the noise.
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), deviation, rtol=1e-8)
    drawn = estimator.sample_y(X[:20], 4000, random_state=1)
    assert drawn.shape == (20, 4000)
    # Of 4000 draws: the standard error of a mean is deviation / 63, of a covariance about deviation^2 / 45.
    assert np.max(np.abs(drawn.mean(axis=1) - mean) / deviation) < 5 / np.sqrt(4000)
    scale = np.outer(deviation, deviation)
    assert np.max(np.abs(np.cov(drawn) - covariance) / scale) < 5 * np.sqrt(2 / 4000)


@pytest.mark.slow
@pytest.mark.parametrize("carry", ["pickle", "joblib"])
def test_a_fitted_estimator_carries_its_model(fitted, tmp_path, carry, rng):
    estimator, X, y = fitted
    before = estimator.predict(X)
    if carry == "joblib":
        joblib.dump(estimator, tmp_path / "estimator")
        data = (tmp_path / "estimator").read_bytes()
        again = joblib.load(tmp_path / "estimator")
    else:
        data = pickle.dumps(estimator)
        again = pickle.loads(data)
    for place in (estimator.gbcm_.url, "/tmp", "bcmdist-"):
        assert place.encode() not in data
    del estimator
    np.testing.assert_array_equal(again.predict(X), before)
    more = again.partial_fit(X + 1e-3 * rng.standard_normal(X.shape), y)
    assert more.gbcm_.info()["rows"] == 240
    assert pickle.loads(pickle.dumps(more)).gbcm_.info()["rows"] == 240


@pytest.mark.slow
def test_local_predictions_travel(rows, rng):
    X, f = rows
    estimator = GBCMRegressor(partition="spatial", **QUICK).fit(X, targets(GBCMRegressor, f, rng))
    assert estimator.gbcm_.chosen_method() == "local"
    data = pickle.dumps(estimator)
    assert b"bcmdist-" not in data
    np.testing.assert_array_equal(pickle.loads(data).predict(X), estimator.predict(X))
    mean, covariance = estimator.predict(X[:20], return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), estimator.predict(X[:20], return_std=True)[1], rtol=1e-8)
    drawn = estimator.sample_y(X[:20], 4000, random_state=1)
    deviation = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(drawn.mean(axis=1) - mean) / deviation) < 5 / np.sqrt(4000)
    assert np.max(np.abs(np.cov(drawn) - covariance) / np.outer(deviation, deviation)) < 5 * np.sqrt(2 / 4000)


def test_files_of_a_pickle_stay_in_their_directory(fitted, tmp_path):
    estimator, *_ = fitted
    state = estimator.__getstate__()
    for name in ("../escaped", f"{tmp_path}/escaped", "a\\..\\b"):
        bad = state | {"gbcm_": state["gbcm_"] | {name: b""}}
        with pytest.raises(ModelDamaged, match=r"expected names of files in a model directory"):
            clone(estimator).__setstate__(bad)
    assert not (tmp_path / "escaped").exists()


def test_a_saved_committee_is_the_same(fitted, tmp_path):
    estimator, X, _ = fitted
    saved = estimator.gbcm_.save(tmp_path / "model")
    assert saved.commit == 1
    for name, values in GBCM.load(tmp_path / "model").predict(X).items():
        np.testing.assert_array_equal(values, estimator.gbcm_.predict(X)[name])


def test_clones_are_not_fitted(fitted):
    estimator, X, _ = fitted
    other = clone(estimator)
    assert other.get_params() == estimator.get_params()
    with pytest.raises(NotFittedError):
        other.predict(X)


def test_hearing_in_parts_adds_up(rows, rng):
    """Messages add: the second half is absorbed under what the first one has settled."""
    X, f = rows
    y = targets(GBCMRegressor, f, rng)
    estimator = GBCMRegressor(**QUICK).partial_fit(X[:60], y[:60])
    first = pickle.loads(pickle.dumps(estimator)).gbcm_
    estimator.partial_fit(X[60:], y[60:])
    assert estimator.gbcm_.info()["rows"] == 120
    assert first.info()["rows"] == 60
    second = first.partial_fit(X[60:], y[60:])
    np.testing.assert_array_equal(estimator.gbcm_.committee.total.eta, second.committee.total.eta)


@pytest.mark.slow
def test_weights_are_repeats(rows, rng):
    X, f = rows
    X, y = X[:40], targets(GBCMRegressor, f, rng)[:40]
    weight = rng.integers(0, 4, 40)
    one = GBCMRegressor(**QUICK).fit(X, y, sample_weight=weight)
    other = GBCMRegressor(**QUICK).fit(X.repeat(weight, axis=0), y.repeat(weight))
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    halves = GBCMRegressor(**QUICK).fit(X, y, sample_weight=np.full(40, 0.5))
    assert halves.gbcm_.info()["rows"] == 40
    assert halves.predict(X, return_std=True)[1].mean() > 0


@pytest.mark.slow
def test_exposures(rows, rng):
    X, f = rows
    exposure = rng.uniform(1, 20, len(f))
    y = rng.poisson(exposure * np.exp(f))
    estimator = GBCMCountRegressor(**QUICK).fit(X, y, exposure=exposure)
    np.testing.assert_allclose(estimator.predict(X, exposure=2.0), 2.0 * estimator.predict(X), rtol=1e-12)
    assert np.corrcoef(estimator.predict(X), np.exp(f))[0, 1] > 0.95
    explained = estimator.score(X, y, exposure=exposure)
    assert 0.7 < explained < 1
    drawn = estimator.sample_y(X, 200, exposure=exposure)
    assert np.all(drawn == np.floor(drawn))
    assert estimator.predict_interval(X, exposure=exposure).shape == (120, 2)


def test_counts_between_whole_numbers_are_shared_out(rows):
    """Of Poisson rows with the same inputs, 1.25 is as informative in f as three 1 and one 2, a quarter each."""
    X, _ = rows
    settings = QUICK | {"likelihood": "poisson", "options": {"learn": False}}
    with pytest.warns(BcmdistWarning, match=r"120 counts are no whole numbers, the first at row 0"):
        between = GBCMCountRegressor(**settings).fit(X, np.full(120, 1.25))
    parts = np.repeat(X, 2, axis=0), np.tile([1, 2], 120), np.tile([0.75, 0.25], 120)
    whole = GBCMCountRegressor(**settings).fit(parts[0], parts[1], sample_weight=parts[2])
    np.testing.assert_allclose(between.predict(X), whole.predict(X), rtol=1e-8)  # the mode is found to 1e-10 or so
    with pytest.raises(UnsupportedTarget, match=r"expected counts 0, 1, 2, ..., got -1"):
        GBCMCountRegressor().fit(X, np.full(120, -1))


@pytest.mark.slow
def test_lifetimes_may_be_censored(rows, rng):
    X, f = rows
    life = np.exp(f) * rng.exponential(size=len(f))
    seen = np.minimum(life, 1.0)
    event = (life <= 1.0).astype(int)
    estimator = GBCMLifetimeRegressor(**QUICK).fit(X, seen, event=event)
    ignorant = GBCMLifetimeRegressor(**QUICK).fit(X, seen)
    assert estimator.predict(X).mean() > ignorant.predict(X).mean()  # who went on lived longer than he was seen
    assert 0.6 < estimator.score(X, seen, event=event) < 1
    with pytest.raises(InvalidData, match=r"event: expected 1 where a lifetime ended and 0 where not"):
        estimator.fit(X, seen, event=2 * event)


@pytest.mark.slow
def test_classes_keep_their_labels(rows, rng):
    X, f = rows
    for y in (np.digitize(f, [-0.5, 0.5]) * 10, np.array(["c", "a", "b"])[np.digitize(f, [-0.5, 0.5])], f > 0):
        estimator = GBCMClassifier(**QUICK).fit(X, y)
        np.testing.assert_array_equal(estimator.classes_, np.unique(y))
        assert estimator.score(X, y) > 0.85
        probability = estimator.predict_proba(X)
        assert probability.shape == (120, len(estimator.classes_))
        np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-12)


def test_classes_that_are_missing_are_said(rows):
    X, f = rows
    y = np.digitize(f, [-0.5, 0.5])
    with pytest.raises(InvalidData, match=r"at least two classes, got one class \(1\)"):
        GBCMClassifier().fit(X, np.ones(120, int))
    with pytest.raises(InvalidData, match=r"rows of all classes in the first call, which learns, got none of 7"):
        GBCMClassifier().partial_fit(X, y, classes=[0, 1, 2, 7])
    with pytest.raises(InvalidData, match=r"expected classes among 0, 1, 2, got 9 at row 0"):
        GBCMClassifier(**QUICK).fit(X, y).partial_fit(X, np.full(120, 9))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"options": {"kernels": "se"}}, r"expected further fields of bcmdist.Settings, got 'kernels'"),
        ({"options": {"kernel": "se"}}, r"or give it as a parameter"),
        ({"kernel": "nonsense"}, r"kernel: expected a combination of"),
        ({"likelihood": "poisson"}, r"likelihood: expected one of gaussian"),
        ({"runtime": 3}, r"runtime: expected None, a Dask client"),
    ],
)
def test_parameters_are_checked_when_fitted(options, match, rows):
    with pytest.raises(InvalidOption, match=match):
        GBCMRegressor(**options).fit(*rows)


@pytest.mark.slow
def test_a_pipeline_is_searched(rows, rng):
    X, f = rows
    y = targets(GBCMRegressor, f, rng)
    pipeline = make_pipeline(StandardScaler(), GBCMRegressor(**QUICK))
    search = GridSearchCV(pipeline, {"gbcmregressor__kernel": ["se-iso", "linear"]}, cv=2).fit(X, y)
    assert search.best_params_ == {"gbcmregressor__kernel": "se-iso"}
    mean, deviation = search.best_estimator_.predict(X, return_std=True)
    assert mean.shape == deviation.shape == (120,)


def test_exposures_go_through_a_pipeline_by_routing(rows, rng):
    from sklearn import config_context

    X, f = rows
    exposure = rng.uniform(1, 20, len(f))
    y = rng.poisson(exposure * np.exp(f))
    with config_context(enable_metadata_routing=True):
        estimator = GBCMCountRegressor(**QUICK).set_fit_request(exposure=True).set_score_request(exposure=True)
        estimator.set_predict_request(exposure=True)
        scores = cross_val_score(
            make_pipeline(StandardScaler(), estimator), X, y, cv=2, params={"exposure": exposure}, error_score="raise"
        )
    assert np.all(scores > 0.5)


def test_a_notebook_sees_the_health_of_a_fit(fitted):
    estimator, *_ = fitted
    assert "degrees of freedom" in estimator._repr_html_()
    assert repr(estimator.gbcm_).startswith("GBCM(rows=120, expert='bcm', kernel='se-iso', ")
    assert len(repr(estimator.gbcm_)) < 120
    assert "degrees of freedom" not in clone(estimator)._repr_html_()


@pytest.mark.slow
def test_scripts_need_no_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\nfrom bcmdist import GBCMRegressor\n"
        "X = np.linspace(0, 1, 50)[:, None]\n"
        "print(GBCMRegressor(kernel='se').fit(X, X[:, 0] ** 2).score(X, X[:, 0] ** 2) > 0.9)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.slow
def test_importing_them_takes_little_but_scikit_learn():
    """What a fit needs comes with the first one."""
    code = "import sys; from bcmdist import GBCMRegressor; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    assert "sklearn.base" in loaded
    assert loaded & {"zarr", "distributed", "bcmdist.api.gbcm", "bcmdist.model.kernels"} == set()


def test_without_scikit_learn_one_is_told_what_to_install():
    code = "import sys; sys.modules['sklearn.base'] = None\nfrom bcmdist import GBCMRegressor"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtra: estimators: expected scikit-learn 1.7 or newer" in done.stderr
    assert "pip install 'bcmdist[sklearn]'" in done.stderr

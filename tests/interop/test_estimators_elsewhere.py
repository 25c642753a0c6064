"""Estimators in the hands of packages that know estimators only: MAPIE, skops, joblib, SHAP."""

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.7", reason="estimators: pip install 'bcmdist[interop]'")
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bcmdist import GBCMClassifier, GBCMRegressor

QUICK = {"kernel": "se", "mean": "zero", "query": 20, "noise": "constant", "options": {"learn": False}}
NEEDED = "pip install 'bcmdist[interop]'"


@pytest.fixture(scope="module")
def sine_rows():
    rng = np.random.default_rng(8)
    X = rng.uniform(-2, 2, (300, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(300)
    return X, y


@pytest.fixture(scope="module")
def fitted(sine_rows):
    X, y = sine_rows
    return GBCMRegressor(**QUICK).fit(X[:150], y[:150])


# --- MAPIE: conformal intervals ---


def test_split_conformal_intervals(sine_rows, fitted):
    """Of split conformal prediction by definition: the ceil((n + 1) .9)-th smallest of n absolute errors."""
    regression = pytest.importorskip("mapie.regression", reason=NEEDED)
    X, y = sine_rows
    wrapped = regression.SplitConformalRegressor(fitted, confidence_level=0.9, prefit=True)
    wrapped.conformalize(X[150:250], y[150:250])
    mean, intervals = wrapped.predict_interval(X[250:])
    errors = np.sort(np.abs(y[150:250] - fitted.predict(X[150:250])))
    width = errors[int(np.ceil(101 * 0.9)) - 1]
    np.testing.assert_allclose(mean, fitted.predict(X[250:]), rtol=1e-12)
    np.testing.assert_allclose(intervals[:, :, 0], np.column_stack([mean - width, mean + width]), rtol=1e-12)


def test_cross_conformal_intervals(sine_rows):
    """Estimators are cloned and fitted for each fold; coverage of 150 rows is above the 1 - 2 alpha that is proven."""
    regression = pytest.importorskip("mapie.regression", reason=NEEDED)
    X, y = sine_rows
    wrapped = regression.CrossConformalRegressor(GBCMRegressor(**QUICK), confidence_level=0.9, cv=3)
    wrapped.fit_conformalize(X[:150], y[:150])
    _, intervals = wrapped.predict_interval(X[150:])
    low, high = intervals[:, 0, 0], intervals[:, 1, 0]
    assert np.mean((low <= y[150:]) & (y[150:] <= high)) > 0.8


def test_conformal_sets_of_classes(sine_rows):
    classification = pytest.importorskip("mapie.classification", reason=NEEDED)
    X, y = sine_rows
    labels = np.digitize(y, [-0.7, 0.7])
    model = GBCMClassifier(**QUICK).fit(X[:150], labels[:150])
    wrapped = classification.SplitConformalClassifier(model, confidence_level=0.9, prefit=True)
    wrapped.conformalize(X[150:250], labels[150:250])
    said, sets = wrapped.predict_set(X[250:])
    np.testing.assert_array_equal(said, model.predict(X[250:]))
    # By definition (LAC): the classes of a probability above 1 - the ceil((n + 1) .9)-th smallest of 1 - p(truth).
    p = model.predict_proba(X[150:250])
    scores = np.sort(1.0 - p[np.arange(100), labels[150:250]])
    level = scores[int(np.ceil(101 * 0.9)) - 1]
    np.testing.assert_array_equal(sets[:, :, 0], 1.0 - model.predict_proba(X[250:]) <= level)


# --- Serialisers ---


@pytest.mark.parametrize("kind", [GBCMRegressor, GBCMClassifier])
def test_skops_asks_for_the_class_alone(kind, sine_rows):
    io = pytest.importorskip("skops.io", reason=NEEDED)
    X, y = sine_rows
    model = kind(**QUICK).fit(X, y if kind is GBCMRegressor else np.where(y > 0, "up", "down"))
    data = io.dumps(make_pipeline(StandardScaler(), model))
    trusted = io.get_untrusted_types(data=data)
    assert trusted == [f"{kind.__module__}.{kind.__name__}"]
    with pytest.raises(io.exceptions.UntrustedTypesFoundException):
        io.loads(data)
    loaded = io.loads(data, trusted=trusted)[-1]
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize("compress", [0, 3])
def test_joblib(compress, sine_rows, fitted, tmp_path):
    joblib = pytest.importorskip("joblib", reason=NEEDED)
    X, _ = sine_rows
    joblib.dump(fitted, tmp_path / "model.joblib", compress=compress)
    loaded = joblib.load(tmp_path / "model.joblib")
    for told, said in zip(loaded.predict(X, return_std=True), fitted.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(told, said)


# --- SHAP ---


@pytest.mark.slow  # numba compiles
@pytest.mark.filterwarnings("ignore")  # of SHAP and numba, about each other's next versions
def test_shapley_values_of_a_pipeline(sine_rows):
    """They sum up to predictions, exactly of all subsets of three inputs; and one that nothing depends on has none."""
    shap = pytest.importorskip("shap", reason=NEEDED)
    X, y = sine_rows
    settings = QUICK | {"options": {"learn": False, "set": {"kernel.lengthscale": [1.0, 1.0, 1e3]}}}
    pipeline = make_pipeline(StandardScaler(), GBCMRegressor(**settings)).fit(X, y)
    found = shap.explainers.Exact(pipeline.predict, shap.maskers.Independent(X, max_samples=20))(X[:5])
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, pipeline.predict(X[:5]), rtol=1e-9)
    assert np.abs(found.values[:, 2]).max() < 1e-3 * np.abs(found.values[:, 0]).max()

"""X_std of estimators: as the facade averages over errors of inputs, by place and by name, and what is refused."""

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn import config_context
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bcmdist import GBCMClassifier, GBCMCountRegressor, GBCMLifetimeRegressor, GBCMRegressor
from bcmdist.api.estimators.rows import variances
from bcmdist.errors import InvalidData, InvalidOption, UnsupportedTarget

pandas = pytest.importorskip("pandas", reason="data frames: pip install 'bcmdist[tables]'")
QUICK = {"kernel": "se-iso", "mean": "constant", "noise": "constant", "effort": "quick"}
STD = np.array([0.3, 0.2])
TARGETS = {
    GBCMRegressor: lambda f, rng: f + 0.1 * rng.standard_normal(len(f)),
    GBCMClassifier: lambda f, rng: np.where(f + 0.1 * rng.standard_normal(len(f)) > 0, "above", "below"),
    GBCMCountRegressor: lambda f, rng: rng.poisson(np.exp(f + 1)),
    GBCMLifetimeRegressor: lambda f, rng: np.exp(f) * rng.exponential(size=len(f)),
}


@pytest.fixture(scope="module", params=TARGETS, ids=lambda kind: kind.__name__)
def fitted(request):
    """An estimator that was fitted to a frame with columns a and b, (120, 2), which are rows, and its targets."""
    rng = np.random.default_rng(7)
    X = pandas.DataFrame(rng.uniform(-2, 2, (120, 2)), columns=["a", "b"])
    y = TARGETS[request.param](np.sin(2 * X["a"]).to_numpy() + 0.5 * X["b"].to_numpy(), rng)
    return request.param(**QUICK).fit(X, y), X, y


def said_of(estimator, X, **how):
    """What an estimator says of rows, of whatever kind."""
    ask = estimator.predict_proba if isinstance(estimator, GBCMClassifier) else estimator.predict
    return ask(X, **how)


def test_estimators_average_as_the_facade_does(fitted):
    estimator, X, _ = fitted
    rows = X[:9]
    found = estimator.gbcm_.predict(
        rows, X_variance=np.tile(STD**2, (9, 1)), quantiles=() if _classes(fitted) else (0.9,)
    )
    if _classes(fitted):
        p = estimator.predict_proba(rows, X_std=STD)
        np.testing.assert_array_equal(p, found["probability"])
        np.testing.assert_array_equal(estimator.predict(rows, X_std=STD), estimator.classes_[p.argmax(axis=1)])
        return
    mean, deviation = estimator.predict(rows, return_std=True, X_std=STD)
    np.testing.assert_array_equal(mean, found["observation_mean"])
    np.testing.assert_array_equal(deviation, np.sqrt(found["observation_variance"]))
    np.testing.assert_array_equal(estimator.predict(rows, quantiles=[0.9], X_std=STD)[:, 0], found["quantile0.9"])
    upper = estimator.predict_interval(rows, coverage=0.8, X_std=STD)[:, 1]
    np.testing.assert_allclose(upper, found["quantile0.9"], rtol=1e-12)  # .9 and 1 - .1


def _classes(fitted):
    return isinstance(fitted[0], GBCMClassifier)


def test_ways_to_say_the_same(fitted):
    estimator, X, _ = fitted
    rows = X[:9]
    expected = said_of(estimator, rows, X_std=np.tile(STD, (9, 1)))
    frame = pandas.DataFrame(np.tile(STD[::-1], (9, 1)), columns=["b", "a"])  # whose order does not matter
    for same in (STD, STD.tolist(), frame, {"a": 0.3, "b": np.full(9, 0.2)}, pandas.Series({"b": 0.2, "a": 0.3})):
        np.testing.assert_array_equal(said_of(estimator, rows, X_std=same), expected)
    unlabelled = pandas.DataFrame(np.tile(STD, (9, 1)))  # columns that only count are by place
    np.testing.assert_array_equal(said_of(estimator, rows, X_std=unlabelled), expected)
    other = said_of(estimator, rows, X_std={"a": 0.3})  # b is exact
    np.testing.assert_array_equal(other, said_of(estimator, rows, X_std=[0.3, 0.0]))
    assert np.abs(other - expected).max() > 1e-6


def test_inputs_without_errors_are_predicted_as_ever(fitted):
    """Exact moments and draws alike differ from plain ones by rounding."""
    estimator, X, _ = fitted
    np.testing.assert_allclose(said_of(estimator, X, X_std={}), said_of(estimator, X), rtol=1e-8)


def test_scores_are_of_averaged_predictions(fitted):
    estimator, X, y = fitted
    weight = np.linspace(0.5, 2.0, len(y))
    if isinstance(estimator, GBCMLifetimeRegressor):
        # Concordance is that of the order of the rows' medians: a pair at a time, no lifetime being censored.
        median = estimator.predict(X, X_std=STD, quantiles=[0.5])[:, 0]
        longer, larger = np.sign(y[:, None] - y), np.sign(median[:, None] - median)
        expected = (0.5 * (1 + longer * larger))[longer > 0].mean()
        assert estimator.score(X, y, X_std=STD) == pytest.approx(expected, abs=1e-9)
    elif isinstance(estimator, GBCMCountRegressor):
        assert estimator.score(X, y, weight, X_std=STD) < estimator.score(X, y, weight)
    else:
        score = accuracy_score if _classes(fitted) else r2_score
        for std in (None, STD):
            expected = score(y, estimator.predict(X, X_std=std), sample_weight=weight)
            assert estimator.score(X, y, weight, X_std=std) == expected


def test_probabilities_are_those_of_draws():
    """Of one class on each side of a plane: the latent mean is linear, so the average over x of the probit is one, too.

    f ~ N(m, v) with x ~ N(u, S) moves m along by a variance b'Sb: what the classifier says is the average over draws.
    """
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (300, 2))
    y = X @ [1.0, -0.5] + 0.3 * rng.standard_normal(300) > 0
    estimator = GBCMClassifier(**QUICK | {"kernel": "linear"}, likelihood="probit").fit(X, y)
    found = estimator.predict_proba(X[:5], X_std=STD)[:, 1]
    draws = (X[:5, None] + STD * rng.standard_normal((5, 40000, 2))).reshape(-1, 2)
    said = estimator.gbcm_.predict(draws)
    moments = said["mean"] / np.sqrt(1.0 + said["variance"])
    if estimator.gbcm_.facts.get("recalibration") is None:  # else probabilities are of a temperature, too
        np.testing.assert_allclose(said["probability"][:, 1], ndtr(moments), atol=1e-6)
    # 40000 draws of probabilities: a standard error of at most .0025; the variance of f changes little along errors.
    np.testing.assert_allclose(found, said["probability"][:, 1].reshape(5, -1).mean(axis=1), atol=0.01)


def test_errors_travel_by_metadata_routing(fitted):
    estimator, X, _ = fitted
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(FunctionTransformer(), estimator.set_predict_request(X_std=True))
        np.testing.assert_array_equal(pipeline.predict(X, X_std=STD), estimator.predict(X, X_std=STD))


# --- What is refused ---


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (np.ones((3, 2)), r"X_std: expected standard deviations, .*\(9, 2\) or \(2,\), got shape \(3, 2\)"),
        (0.1, r"got shape \(\)"),
        (-np.ones((9, 2)), r"finite and 0 or more, .* got -1 at \(0, 0\)"),
        ([0.1, np.nan], r"got nan at \(1,\)"),
        ([0.1, np.inf], r"got inf at \(1,\)"),
        (["a", "b"], "X_std: expected numbers, got others"),
        ({"a": 0.1, "c": 0.1}, r"names of inputs that are numbers \('a', 'b'\), as in training, got 'c'"),
        ({"a": np.ones(3)}, r"X_std: 'a': expected .* of an input, \(9,\) or \(\), got shape \(3,\)"),
        (pandas.DataFrame({"a": np.r_[np.ones(8), np.nan]}), r"X_std: 'a': .* got nan at \(8,\)"),
    ],
)
def test_what_are_no_standard_deviations(fitted, bad, said):
    estimator, X, _ = fitted
    with pytest.raises(InvalidData, match=said):
        estimator.predict(X[:9], X_std=bad)


def test_names_where_there_were_none():
    with pytest.raises(InvalidData, match="expected no names, as in training, got 'a'"):
        variances({"a": 0.1}, (9, 2))


def test_columns_that_were_coded_take_theirs_by_name():
    rng = np.random.default_rng(1)
    X = pandas.DataFrame({"kind": rng.choice(["u", "v"], 60), "depth": rng.uniform(-2, 2, 60)})
    y = np.sin(2 * X["depth"].to_numpy()) + (X["kind"] == "u")
    estimator = GBCMRegressor(**QUICK).fit(X, y)
    found = estimator.predict(X[:5], return_std=True, X_std={"depth": 0.3})
    frame = estimator._new(X[:5])  # kind=u, kind=v, depth
    said = estimator.gbcm_.predict(frame, X_variance=np.tile([0.0, 0.0, 0.09], (5, 1)))
    np.testing.assert_array_equal(found, [said["observation_mean"], np.sqrt(said["observation_variance"])])
    with pytest.raises(InvalidData, match=r"numbers \('depth'\), as in training, got 'kind'"):
        estimator.predict(X[:5], X_std={"kind": 0.3})
    with pytest.raises(
        InvalidData, match="by the names of columns, some of which were no numbers in training, got list"
    ):
        estimator.predict(X[:5], X_std=[0.3, 0.1])


def test_what_does_not_go_together(fitted):
    estimator, X, _ = fitted
    array = pytest.importorskip("dask.array", reason="dask collections")
    lazy = array.from_array(X.to_numpy(), chunks=(50, 2))
    plain = type(estimator)(**QUICK)
    plain.__dict__.update({name: value for name, value in vars(estimator).items() if name != "feature_names_in_"})
    with pytest.raises(InvalidOption, match="a dask collection"):
        plain.predict(lazy, X_std=STD)
    if isinstance(estimator, GBCMRegressor):
        with pytest.raises(InvalidOption, match="return_cov and X_std"):
            estimator.predict(X, return_cov=True, X_std=STD)


@pytest.fixture
def measured_inputs(rng):
    """Rows of a sine whose inputs have errors of sd .3: X as measured, true inputs, y."""
    true = rng.uniform(-3, 3, (300, 1))
    return true + 0.3 * rng.standard_normal(true.shape), true, np.sin(2 * true[:, 0]) + 0.05 * rng.standard_normal(300)


def test_a_fit_learns_from_inputs_with_errors(measured_inputs):
    X, _, y = measured_inputs
    new = np.linspace(-2.8, 2.8, 100)[:, None]
    plain = GBCMRegressor(effort="quick", query=40, kernel="se").fit(X, y)
    aware = GBCMRegressor(effort="quick", query=40, kernel="se").fit(X, y, X_std=[0.3])
    error, aware_error = (np.sqrt(np.mean((one.predict(new) - np.sin(2 * new[:, 0])) ** 2)) for one in (plain, aware))
    assert aware_error < error
    noise, aware_noise = (one.gbcm_.info()["hyperparameters"]["likelihood.noise_variance"][0] for one in (plain, aware))
    assert aware_noise < 0.5 * noise, "what looks like noise are errors of X"
    more = aware.partial_fit(X[:20] + 0.01, y[:20], X_std=[0.3])
    assert more.gbcm_.committee.total.rows == 320
    named = GBCMRegressor(effort="quick", query=40, kernel="se").fit(
        pandas.DataFrame(X, columns=["a"]), y, X_std={"a": 0.3}
    )
    np.testing.assert_allclose(named.predict(pandas.DataFrame(new, columns=["a"])), aware.predict(new), atol=0.2)


def test_a_fit_refuses_errors_of_inputs_that_it_cannot_learn_from(measured_inputs):
    X, _, y = measured_inputs
    with pytest.raises(InvalidOption, match="X_std: expected the expert bcm, which learns from inputs with errors"):
        GBCMRegressor(expert="fitc").fit(X, y, X_std=[0.3])
    with pytest.raises(InvalidData, match="X_std: expected standard deviations, finite and 0 or more"):
        GBCMRegressor().fit(X, y, X_std=[-0.3])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        GBCMClassifier,
        pytest.param(GBCMCountRegressor, marks=pytest.mark.nightly),
        pytest.param(GBCMLifetimeRegressor, marks=pytest.mark.nightly),
    ],
)
def test_other_estimators_learn_from_inputs_with_errors(kind, rng):
    """Closer to what an estimator that knows the inputs says than one that takes the measured ones for exact."""
    true = rng.uniform(-3, 3, (150, 1))
    X, y = true + 0.4 * rng.standard_normal(true.shape), TARGETS[kind](2 * np.sin(2 * true[:, 0]), rng)
    new, settings = np.linspace(-2.8, 2.8, 60)[:, None], {"effort": "quick", "query": 25, "kernel": "se"}
    exact, plain = (said_of(kind(**settings).fit(rows, y), new) for rows in (true, X))
    aware = kind(**settings).fit(X, y, X_std=[0.4])
    error, aware_error = (np.mean(np.abs(one - exact)) for one in (plain, said_of(aware, new)))
    assert aware_error < error
    aware.partial_fit(X[:20] + 0.01, y[:20], X_std=[0.4])
    assert aware.gbcm_.committee.total.rows == 170


def test_errors_of_inputs_are_refused_where_several_processes_or_parts_of_counts_are_learned(measured_inputs):
    X, _, y = measured_inputs
    with pytest.raises(InvalidOption, match="onehot"):
        GBCMClassifier().fit(X, np.digitize(y, [-0.5, 0.5]), X_std=[0.3])
    counts = np.r_[np.round(np.exp(y))[1:], 2.5]
    with pytest.raises(UnsupportedTarget, match=r"y: expected whole counts beside X_std, got 2\.5 in row 299"):
        GBCMCountRegressor().fit(X, counts, X_std=[0.3])

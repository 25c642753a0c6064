"""What the facade and the estimators take: arrays, data frames, dask collections; a loop here, or a Dask client."""

import pickle
import re
from dataclasses import replace

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import cross_val_score

from bcmdist import GBCM, DaskRuntime, GBCMClassifier, GBCMRegressor, SerialRuntime, Settings
from bcmdist.api import running
from bcmdist.data.tables.importing import import_file
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidDtype, InvalidOption
from problems import GIVEN, GIVEN_CLASSES

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
QUICK = {"kernel": "se-iso", "mean": "constant", "noise": "constant", "effort": "quick"}


@pytest.fixture(autouse=True)
def _no_threads():
    """Those that dask would start stay."""
    with dask.config.set(scheduler="synchronous"):
        yield


def refuses(*args, **kwargs):
    """A scheduler for what must not be computed."""
    raise AssertionError("computed")


@pytest.mark.slow
def test_arrays_are_taken_everywhere(wave, make_data):
    _, X, y = wave
    path = make_data("one_chunk.zarr", rows_per_chunk=4096, X=X, y=y)  # as rows in memory are cut
    by_path, given = GBCM.fit(path, GIVEN), GBCM.fit(X, y, GIVEN)
    for name, values in by_path.predict(X).items():
        np.testing.assert_array_equal(given.predict(X)[name], values)
    assert given.score(X, y) == given.score(path)
    more = given.partial_fit(X + 1e-3, y)
    assert more.info()["rows"] == 480
    assert GBCM.fit((X, y), GIVEN).info()["rows"] == 240


def test_companions_stand_beside_them(wave):
    _, X, y = wave
    count = np.round(np.exp(y / 2))
    gbcm = GBCM.fit(X, count, Settings(task="counts", learn=False), companions={"exposure": np.full(240, 2.0)})
    assert gbcm.facts["companions"] == ["exposure"]
    with pytest.raises(InvalidOption, match=r"trials, event, target_variance, X_variance, got 'weights'"):
        GBCM.fit(X, y, GIVEN, companions={"weights": y})
    with pytest.raises(InvalidOption, match=r"expected rows X and y that they stand beside, got a place"):
        GBCM.fit("somewhere.zarr", GIVEN, companions={"weight": y})


def test_rows_that_do_not_match_are_refused(wave):
    _, X, y = wave
    with pytest.raises(InvalidData, match=r"expected as many of each, got \{'X': 240, 'y': 239\}"):
        GBCM.fit(X, y[1:], GIVEN)
    with pytest.raises(InvalidDtype, match=r"expected real numbers, got y of complex128"):
        GBCM.fit(X, y + 0j, GIVEN)


@pytest.mark.slow
def test_names_of_a_frame_stay(wave):
    _, X, y = wave
    frame = pd.DataFrame(X, columns=["east", "north"])
    estimator = GBCMRegressor(**QUICK).fit(frame, y)
    assert list(estimator.feature_names_in_) == ["east", "north"]
    assert estimator.gbcm_.info()["columns"] == ["east", "north"]
    other = frame[["north", "east"]]
    with pytest.raises(ValueError, match="same order"):  # as scikit-learn has it
        estimator.predict(other)
    np.testing.assert_array_equal(estimator.gbcm_.predict(other)["mean"], estimator.predict(frame))  # by name


def fit_given(X, y):
    return GBCM.fit(X, y, Settings(kernel="se", learn=False))


def test_what_is_no_number_is_named(wave):
    _, X, y = wave
    frame = pd.DataFrame({"town": [f"town {k}" for k in range(240)]})
    named = r"expected numbers, dates or categories of few levels, got texts in 'town' \(all cells.*'town': 'category'"
    for fit in (GBCMRegressor().fit, GBCM.fit):
        with pytest.raises(InvalidDtype, match=named):
            fit(frame, y)
    with pytest.raises(TypeError, match=r"dense data is required. Use '.toarray\(\)'"):
        GBCMRegressor().fit(sparse.csr_array(X), y)


@pytest.mark.parametrize("fit", [GBCMRegressor(kernel="se", options={"learn": False}).fit, fit_given])
def test_frames_are_used_as_far_as_they_can_be(wave, fit):
    """Gaps are filled and marked, texts without levels left out; new rows may have gaps and other levels, too."""
    _, X, y = wave
    frame = pd.DataFrame(X, columns=["east", "north"]).assign(soil=np.where(X[:, 1] > 0, "clay", "loam"))
    frame.loc[frame.index[::7], "east"] = np.nan
    frame.loc[5, "soil"] = None
    named = frame.assign(town=[f"town {k}" for k in range(240)])
    with pytest.warns(BcmdistWarning) as seen:
        fitted = fit(named, y)
    texts = "\n".join(str(one.message) for one in seen)
    assert re.search(r"X: 'town' not used: texts in 'town' .*astype\(\{'town': 'category'\}\)", texts)
    assert re.search(r"X: gaps are filled .* in 'east' \(35\), 'soil' \(1\)", texts)
    model = getattr(fitted, "gbcm_", fitted).model
    assert model.schema.columns == ("east", "east missing", "north", "soil=clay", "soil=loam", "soil missing")
    new = pd.DataFrame({"soil": ["rock", None, "clay"], "north": [0.5, -0.5, 1.0], "east": [np.nan, 0.3, 0.1]})
    new = new.assign(town="a new one")[named.columns]  # as scikit-learn wants them
    with pytest.warns(BcmdistWarning, match="the level of 'soil' in 1 row is not in the training data"):
        found = fitted.predict(new)
    assert np.all(np.isfinite(found["mean"] if isinstance(found, dict) else found))
    with pytest.raises(ValueError, match=r"'north'|NaN"):  # no gaps in training
        fitted.predict(new.assign(soil="clay", north=[np.nan, 0.0, 0.0]))


def test_rare_levels_and_gaps_in_cross_validation(rng):
    frame = pd.DataFrame({"east": rng.uniform(-2, 2, 90), "soil": rng.choice(["clay", "loam"], 90)})
    frame.loc[[3, 50], "soil"] = ["peat", "marl"]
    frame.loc[frame.index[::9], "east"] = np.nan
    y = np.sin(frame.east.fillna(0.0)) + (frame.soil == "clay")
    unknown = pytest.warns(BcmdistWarning, match="the level of 'soil' in 1 row is not in the training data")
    with pytest.warns(BcmdistWarning, match="gaps are filled"), unknown:
        scores = cross_val_score(GBCMRegressor(kernel="se", options={"learn": False}), frame, y, cv=3)
    assert np.all(np.isfinite(scores))


@pytest.fixture(scope="module")
def frame():
    """A data frame with levels, texts and dates, and targets."""
    rng = np.random.default_rng(7)
    soil, east = rng.choice(["clay", "loam", "sand"], 150), rng.uniform(-2, 2, 150)
    made = pd.DataFrame({"east": east, "soil": pd.Categorical(soil), "kind": rng.choice(["a", "b"], 150)})
    made["day"] = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(rng.integers(0, 300, 150), unit="D")
    assert made.shape == (150, 4)
    return made, np.sin(2 * east) + (soil == "clay") + 0.1 * rng.standard_normal(150)


INPUTS = ["east", "soil=clay", "soil=loam", "soil=sand", "kind=a", "kind=b", "day"]


@pytest.mark.slow
def test_a_frame_with_levels_is_coded_as_a_file(frame, tmp_path):
    X, y = frame
    gbcm = GBCM.fit(X, y, replace(GIVEN, query=150, set={}))
    assert gbcm.info()["columns"] == INPUTS
    assert gbcm.info()["coded"]["soil"] == "category of 3 levels"
    X.assign(y=y).to_parquet(tmp_path / "a.parquet")
    import_file(tmp_path / "a.parquet", tmp_path / "a.zarr")
    by_file = GBCM.fit(tmp_path / "a.zarr", replace(GIVEN, query=150, set={}))
    said = gbcm.predict(X)
    np.testing.assert_allclose(said["mean"], by_file.predict(X)["mean"], rtol=1e-9)  # of other chunks
    assert gbcm.score(X, y) == gbcm.score((X, y))
    # Some rows, of which one level is missing, mean what they meant in training; so do columns of another order.
    some = X.soil != "clay"
    more = gbcm.partial_fit(X[some].astype({"soil": str})[["day", "kind", "soil", "east"]], y[some.to_numpy()])
    assert more.info()["rows"] == 150 + int(some.sum())
    assert gbcm.score(X[some], y[some.to_numpy()])["rows"] == int(some.sum())
    # A level that training lacks is a random one of those that it has.
    with pytest.warns(BcmdistWarning, match="levels of 'soil' in 150 rows are not in the training data"):
        assert np.all(gbcm.predict(X.assign(soil="peat"))["variance"] > said["variance"])
    gap = X.astype({"soil": object}).assign(soil=[None, *X.soil[1:]])
    with pytest.raises(InvalidData, match=r"expected a number, a level or a date in each row of 'soil', none at"):
        gbcm.predict(gap)
    with pytest.warns(BcmdistWarning, match=r"gaps are filled .* in 'soil' \(1\)"):
        assert "soil missing" in GBCM.fit(gap, y, GIVEN).info()["columns"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GBCMRegressor, GBCMClassifier])
def test_estimators_take_frames_with_levels(kind, frame):
    X, y = frame
    y = y if kind is GBCMRegressor else np.where(y > 0.3, "high", "low")
    estimator = kind(**QUICK).fit(X, y)
    assert list(estimator.feature_names_in_) == list(X.columns)
    assert estimator.n_features_in_ == 4
    assert estimator.gbcm_.info()["columns"] == INPUTS
    assert estimator.score(X, y) > 0.8
    travelled = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(travelled.predict(X), estimator.predict(X.astype({"soil": str})))
    assert estimator.partial_fit(X[:30], y[:30]).gbcm_.info()["rows"] == 180
    with pytest.warns(BcmdistWarning, match="levels of 'kind' in 150 rows are not in the training data"):
        assert len(estimator.predict(X.assign(kind="z"))) == 150
    with pytest.raises(InvalidDtype, match=r"X: expected a data frame with the columns of training \('east', 'soil'"):
        estimator.predict(np.zeros((1, 4)))
    numbers = estimator.fit(X[["east"]], y)
    assert numbers.gbcm_.info()["coded"] is None
    assert numbers.predict(X[["east"]]).shape == (150,)


@pytest.mark.slow
def test_dask_arrays_stay_lazy(wave):
    _, X, y = wave
    lazy, target = da.from_array(X, chunks=(100, 1)), da.from_array(y, chunks=70)
    estimator = GBCMRegressor(**QUICK).fit(lazy, target)
    assert estimator.gbcm_.info()["rows"] == 240
    with dask.config.set(scheduler=refuses):
        found = estimator.predict(lazy)
    assert found.shape == (240,)
    # Blocks are multiplied with other shapes than the whole.
    np.testing.assert_allclose(found.compute(), estimator.predict(X), rtol=1e-10)
    same = GBCM.fit(X, y, GIVEN).predict(X)["mean"]
    np.testing.assert_array_equal(GBCM.fit(lazy, target, GIVEN).predict(X)["mean"], same)
    with pytest.raises(InvalidOption, match=r"expected means only of a dask collection"):
        estimator.predict(lazy, return_std=True)
    with pytest.raises(InvalidData, match=r"y: expected 100 rows in block 0, as in X, got 70"):
        GBCM.fit(lazy, target[:70], GIVEN)


@pytest.mark.slow
def test_dask_frames_keep_names_and_labels(classes):
    dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    _, X, y = classes
    frame, labels = pd.DataFrame(X, columns=["a", "b"]), pd.Series(np.where(y > 0, "yes", "no"))
    lazy = dd.from_pandas(frame, npartitions=3)
    estimator = GBCMClassifier(**QUICK).fit(lazy, dd.from_pandas(labels, npartitions=3))
    assert list(estimator.feature_names_in_) == ["a", "b"]
    with dask.config.set(scheduler=refuses):
        probability, label = estimator.predict_proba(lazy), estimator.predict(lazy)
    np.testing.assert_allclose(probability.compute(), estimator.predict_proba(frame), rtol=1e-10)
    np.testing.assert_array_equal(label.compute(), estimator.predict(frame))


@pytest.mark.slow
def test_a_client_is_a_runtime(wave, cluster, one_blas_thread):
    from sklearn.base import clone

    _, X, y = wave
    client = cluster._client
    estimator = clone(GBCMRegressor(runtime=client, **QUICK))
    assert estimator.runtime is client
    np.testing.assert_allclose(estimator.fit(X, y).predict(X), GBCMRegressor(**QUICK).fit(X, y).predict(X), rtol=1e-6)
    assert estimator.__getstate__()["runtime"] == client.scheduler.address
    assert client.status == "running"
    a = GBCM.fit(X, y, GIVEN, runtime=client.scheduler.address).predict(X)
    np.testing.assert_allclose(a["mean"], GBCM.fit(X, y, GIVEN).predict(X)["mean"], rtol=1e-9)


@pytest.fixture
def one_blas_thread():
    """Of this process, as workers have."""
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        yield


def test_a_cluster_of_its_own_is_for_many_rows_at_a_prompt(monkeypatch):
    assert not running.worth_a_cluster(10**7)  # this is a script
    monkeypatch.delattr("__main__.__file__", raising=False)
    monkeypatch.setattr(running.os, "cpu_count", lambda: 4)
    assert running.worth_a_cluster(running.WORTH_ROWS)
    assert not running.worth_a_cluster(running.WORTH_ROWS - 1)
    monkeypatch.setattr(running.os, "cpu_count", lambda: 1)
    assert not running.worth_a_cluster(10**7)


def test_the_active_dask_client_of_a_notebook_is_used(cluster, wave, monkeypatch):
    path, X, _ = wave
    address, used = cluster._client.scheduler.address, []
    fit = lambda: GBCM.fit(path, GIVEN)  # noqa: E731
    expected = fit().predict(X)["mean"]
    monkeypatch.setattr(DaskRuntime, "sum", lambda *args, do=DaskRuntime.sum, **how: used.append(1) or do(*args, **how))
    with distributed.Client(address) as client:
        fit()
        assert not used  # this is a script
        monkeypatch.delattr("__main__.__file__", raising=False)
        np.testing.assert_allclose(fit().predict(X)["mean"], expected, rtol=1e-9)
        assert used
        with running.running_for(None, 10**7) as runtime:
            assert runtime._client.scheduler.address == address
        far = {"workers": {"tcp://10.9.8.7:1234": {"host": "10.9.8.7"}}}
        monkeypatch.setattr(client, "scheduler_info", lambda **_: far)  # workers cannot read what is in memory here
        with running.running_for(None, 100) as runtime:
            assert isinstance(runtime, SerialRuntime)
        assert client.status == "running"
    used.clear()
    fit()
    assert not used  # the client was closed


def test_classes_of_arrays_are_scored(classes):
    path, X, y = classes
    gbcm = GBCM.fit(X, y, GIVEN_CLASSES)
    assert gbcm.score(X, y)["accuracy"] == gbcm.score(path)["accuracy"]

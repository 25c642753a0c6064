"""The facade: from a Zarr store to predictions, on every runtime."""

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.checks.checked_store import recorded
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import Observations
from bcmdist.data.partition import partitions
from bcmdist.errors import (
    BcmdistWarning,
    DataChanged,
    DataExists,
    InvalidData,
    InvalidOption,
    MemoryLimit,
    ModelExists,
    ModelNotFound,
    UnsupportedTarget,
)
from bcmdist.learning.survey import Sample
from problems import GIVEN, GIVEN_CLASSES, assert_same_committee


@pytest.fixture(params=["serial", "dask"])
def runtime(request):
    """Everything a runtime promises is tested on each."""
    return SerialRuntime() if request.param == "serial" else request.getfixturevalue("cluster")


@pytest.mark.slow
def test_regression(wave, tmp_path, runtime, rng):
    path, *_ = wave
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model", runtime=runtime)
    X = rng.uniform(-1.8, 1.8, (50, 2))
    p = gbcm.predict(X)
    truth = 3.0 + 2.0 * np.sin(2 * X[:, 0]) + X[:, 1]
    assert np.sqrt(np.mean((p["mean"] - truth) ** 2)) < 0.15  # noise 0.1, targets spread over 1.9
    assert np.mean((p["lower95"] < truth) & (truth < p["upper95"])) > 0.9
    np.testing.assert_allclose(p["observation_variance"] - p["variance"], 0.01 * gbcm.model.scaling.y_scale**2)
    assert gbcm.info()["rows"] == 240
    assert gbcm.info()["partitions"] == 5
    assert {e.rows for e in gbcm.ledger} == {50, 40}
    score = gbcm.score(path, runtime=runtime)
    assert score["rows"] == 240
    assert score["nmse"] < 0.03  # 40 query points limit it; noise alone gives 0.003


@pytest.mark.slow
def test_classification(classes, tmp_path, runtime):
    path, _, y = classes
    gbcm = GBCM.fit(path, GIVEN_CLASSES, model=tmp_path / "model", runtime=runtime)
    assert gbcm.model.likelihood.name == "bernoulli"  # inferred: the targets are 0 and 1
    score = gbcm.score(path, runtime=runtime)
    assert score["accuracy"] > max(y.mean(), 1 - y.mean()) + 0.2
    assert score["log_loss"] < 0.5
    assert gbcm.predict_zarr(path, tmp_path / "p.zarr", runtime=runtime) == 240
    written = zarr.open_group(tmp_path / "p.zarr", mode="r")
    assert written["probability"].shape == (240, 2)
    assert written.attrs["method"] == "committee"
    assert np.mean(written["label"][:] == y) == pytest.approx(score["accuracy"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wave", "classes"])
def test_dask_equals_serial(kind, request, tmp_path, cluster):
    path, *_ = request.getfixturevalue(kind)
    settings = GIVEN if kind == "wave" else GIVEN_CLASSES
    a = GBCM.fit(path, settings, model=tmp_path / "a", runtime=SerialRuntime())
    b = GBCM.fit(path, settings, model=tmp_path / "b", runtime=cluster)
    np.testing.assert_array_equal(a.model.query.points, b.model.query.points)
    assert_same_committee(a.committee, b.committee)
    assert a.ledger == b.ledger


@pytest.mark.slow
def test_learning_is_the_same_on_both_runtimes(wave, tmp_path, cluster):
    path, *_ = wave
    settings = Settings(kernel="se-iso", query=30, rows_per_expert=60, effort="quick")
    a = GBCM.prepare(path, settings, runtime=SerialRuntime()).info()
    b = GBCM.prepare(path, settings, runtime=cluster).info()
    for name, value in a["hyperparameters"].items():
        np.testing.assert_allclose(value, b["hyperparameters"][name], rtol=1e-4)  # optimiser tolerance
    assert a["hyperparameters"]["likelihood.noise_variance"][0] < 0.02


def test_predictions_in_xarray_s_terms(wave, tmp_path):
    path, X, _ = wave
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    group = zarr.open_group(tmp_path / "new.zarr", mode="w", attributes={"coordinates": "site"})
    group.create_array("X", data=X[:60], chunks=(16, 2), dimension_names=["time", "feature"])
    group.create_array("time", data=np.arange(60), chunks=(16,), dimension_names=["time"])
    group.create_array("site", data=np.arange(60.0), chunks=(60,), dimension_names=["time"])
    gbcm.predict_zarr(tmp_path / "new.zarr", tmp_path / "p.zarr")
    out = zarr.open_group(tmp_path / "p.zarr", mode="r")
    assert out["mean"].metadata.dimension_names == ("time",)
    np.testing.assert_array_equal(out["time"][:], np.arange(60))
    np.testing.assert_array_equal(out["site"][:], np.arange(60.0))
    np.testing.assert_allclose(out["mean"][:], gbcm.predict(X[:60])["mean"], rtol=1e-10)
    with pytest.raises(DataExists, match=r"expected a new path, .*p.zarr exists; choose another path or remove it"):
        gbcm.predict_zarr(tmp_path / "new.zarr", tmp_path / "p.zarr")


def test_batches_do_not_matter(wave, rng):
    _, X, y = wave
    gbcm = GBCM.fit((X, y), GIVEN)
    Xs = rng.uniform(-2, 2, (9, 2))
    whole = gbcm.predict(Xs)
    for k in range(9):
        for name, value in gbcm.predict(Xs[k : k + 1]).items():
            np.testing.assert_allclose(value, whole[name][k : k + 1], rtol=1e-10)


@pytest.mark.slow
def test_reload_in_a_new_process_is_bit_identical(classes, tmp_path):
    path, X, _ = classes
    gbcm = GBCM.load(GBCM.fit(path, GIVEN_CLASSES, model=tmp_path / "model").url)
    np.save(tmp_path / "X.npy", X[:20])
    (tmp_path / "classes.zarr").rename(tmp_path / "gone.zarr")  # the training data are not needed
    code = (
        "import sys, numpy; from bcmdist import GBCM; p = GBCM.load(sys.argv[1]).predict(numpy.load(sys.argv[2]))\n"
        "print({n: v.tobytes().hex() for n, v in sorted(p.items())})"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model"), str(tmp_path / "X.npy")]
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    here = {n: v.tobytes().hex() for n, v in sorted(gbcm.predict(X[:20]).items())}
    assert other.strip() == str(here)


@pytest.mark.slow
def test_absorbing_in_steps_is_one_fit(wave, tmp_path):
    path, *_ = wave
    once = GBCM.fit(path, GIVEN, model=tmp_path / "once")
    steps = GBCM.prepare(path, GIVEN, model=tmp_path / "steps")
    assert steps.info()["rows"] == 0
    parts = partitions(open_data(path), 50)
    steps = steps.absorb(parts[3:]).absorb(parts[:2]).absorb(parts)  # the last call absorbs the rest only
    assert steps.commit == 4
    assert_same_committee(steps.committee, once.committee)
    assert sorted(e.key for e in steps.ledger) == sorted(e.key for e in once.ledger)
    assert GBCM.load(tmp_path / "steps", commit=2).info()["rows"] == 90
    np.testing.assert_array_equal(GBCM.load(tmp_path / "steps").committee.total.eta, steps.committee.total.eta)


def test_an_unfinished_fit_is_continued_and_another_refused(wave, tmp_path):
    path, *_ = wave
    GBCM.prepare(path, GIVEN, model=tmp_path / "model")
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    assert GBCM.fit(path, GIVEN, model=tmp_path / "model").commit == gbcm.commit  # nothing left to do
    with pytest.raises(ModelExists, match="got a fit of other data or settings; choose another --model"):
        GBCM.fit(path, Settings(query=7), model=tmp_path / "model")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with pytest.raises(ModelExists, match="new or empty directory, got one with other files"):
        GBCM.fit(path, GIVEN, model=tmp_path / "other")


def test_sample_does_not_depend_on_the_partitioning(rng):
    X, priority = rng.standard_normal((30, 2)), rng.random(30)
    obs = Observations(X[:, 0], X[:, 1] ** 2, exposure=np.arange(30.0))

    def sample(rows):
        return Sample(10, X[rows], obs[rows], priority[rows], 100 + np.arange(30)[rows])

    whole = sample(slice(0, 30)) + sample(slice(0, 0))
    parts = sample(slice(20, 30)) + (sample(slice(0, 4)) + sample(slice(4, 20)))
    np.testing.assert_array_equal(whole.X, parts.X)
    np.testing.assert_array_equal(np.sort(priority)[:10], parts.priority)
    np.testing.assert_array_equal(X[parts.row - 100], parts.X)
    np.testing.assert_array_equal(parts.obs.y, parts.X[:, 0])  # rows stay whole
    np.testing.assert_array_equal(parts.obs.exposure, whole.obs.exposure)


# --- Metamorphic laws ---


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_units_and_order_of_columns_do_not_matter(wave, shift):
    """The query set is all rows, so that nothing but arithmetic differs."""
    _, X, y = wave
    settings = Settings(kernel="matern32", learn=False, query=240, rows_per_expert=50)
    plain = GBCM.fit((X, y), settings).predict(X[:9])
    other = GBCM.fit((1e3 * X[:, ::-1] + shift, 5.0 * y - 7.0), settings).predict(1e3 * X[:9, ::-1] + shift)
    # Rounding, amplified by the condition number of Kqq (1e5).
    np.testing.assert_allclose(other["mean"], 5.0 * plain["mean"] - 7.0, rtol=1e-8)
    np.testing.assert_allclose(other["observation_variance"], 25.0 * plain["observation_variance"], rtol=1e-8)


@pytest.mark.slow
def test_float32_data_equal_their_float64_copy(wave):
    _, X, y = wave
    X, y = X.astype("f4"), y.astype("f4")
    a, b = GBCM.fit((X, y), GIVEN), GBCM.fit((X.astype("f8"), y.astype("f8")), GIVEN)
    np.testing.assert_array_equal(a.committee.total.precision, b.committee.total.precision)


# --- Awkward data: works, or is refused before anything is written ---


@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")  # constant columns, few rows
def test_one_row():
    gbcm = GBCM.fit((np.array([[1.0, 2.0]]), np.array([3.0])), GIVEN)
    p = gbcm.predict(np.array([[1.0, 2.0]]))
    assert np.isfinite(p["mean"]).all()
    assert gbcm.info()["query"] == 1


def test_constant_column_and_constant_targets_warn(rng):
    X = np.column_stack([rng.standard_normal(30), np.full(30, 7.0)])
    with pytest.warns(BcmdistWarning, match="column 1 of X is constant"):
        gbcm = GBCM.fit((X, rng.standard_normal(30)), Settings(query=10, learn=False))
    assert gbcm.model.scaling.x_scale[1] == 1.0
    with pytest.warns(BcmdistWarning, match="all targets in y equal 2"):
        GBCM.fit((X[:, :1], np.full(30, 2.0)), Settings(query=10, learn=False, task="regression"))


def test_duplicate_rows_and_more_queries_than_rows(rng):
    X = np.repeat(rng.standard_normal((6, 2)), 5, axis=0)
    with pytest.warns(BcmdistWarning, match="20 query points were asked for, the data hold 6 distinct rows"):
        gbcm = GBCM.fit((X, rng.standard_normal(30)), Settings(query=20, learn=False))
    assert np.isfinite(gbcm.predict(X)["variance"]).all()


def test_one_class_only(rng):
    with pytest.warns(BcmdistWarning, match="all targets"):
        gbcm = GBCM.fit((rng.standard_normal((30, 1)), np.ones(30)), Settings(query=5, learn=False))
    assert np.all(gbcm.predict(np.zeros((1, 1)))["probability"][:, 1] > 0.8)


def test_outliers_stay_finite(rng):
    X, y = rng.standard_normal((60, 2)), rng.standard_normal(60)
    X[0, 0], y[0] = 1e12, 1e12
    gbcm = GBCM.fit((X, y), Settings(query=10, learn=False))
    assert np.isfinite(gbcm.predict(X)["variance"]).all()


def test_labels_outside_the_support(make_data, rng, tmp_path):
    y = (rng.uniform(size=100) > 0.5) * 1
    y[[57, 60]] = 2
    path = make_data(X=rng.standard_normal((100, 2)), y=y)
    with pytest.raises(
        UnsupportedTarget,
        match=r"expected the two class labels 0 and 1 in y for the likelihood bernoulli, got 2 at row 57 \(2 such",
    ):
        GBCM.fit(path, Settings(likelihood="bernoulli"), model=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_bad_rows_are_found_before_anything_is_written(make_data, tmp_path):
    X = np.ones((100, 2))
    X[99, 0] = np.nan
    with pytest.raises(InvalidData, match="row 99, column 0"):
        GBCM.fit(make_data(X=X, y=np.ones(100)), GIVEN, model=tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_nothing_is_left_of_a_preparation_that_fails(wave, tmp_path, monkeypatch):
    path, *_ = wave
    import bcmdist.learning.experts as module

    def fail(*args, **kwargs):
        raise InvalidOption("not today")

    monkeypatch.setattr(module, "select_points", fail)
    with pytest.raises(InvalidOption, match="not today"):
        GBCM.fit(path, Settings(query=10, effort="quick", rows_per_expert=60), model=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_data_that_change_during_a_fit(wave, tmp_path, monkeypatch):
    path, *_ = wave
    import bcmdist.learning.experts as module

    original = module.prepare

    def meddle(*args, **kwargs):
        with recorded(path) as group:
            group["y"][0] = 100.0
        return original(*args, **kwargs)

    monkeypatch.setattr(module, "prepare", meddle)
    with pytest.raises(DataChanged, match=r"X\[0:50\]: expected the rows that were surveyed .*: fit a new --model"):
        GBCM.fit(path, GIVEN, model=tmp_path / "model")
    assert GBCM.load(tmp_path / "model").info()["rows"] == 0
    with pytest.raises(DataChanged, match=r"X\[0:50\]"):  # and so is continuing it later
        GBCM.fit(path, GIVEN, model=tmp_path / "model")


def test_a_finished_fit_of_data_that_changed_is_not_taken_for_the_new_one(wave, tmp_path):
    path, *_ = wave
    GBCM.fit(path, GIVEN, model=tmp_path / "model")
    with recorded(path) as group:
        group["y"][:] = -group["y"][:]
    with pytest.raises(DataChanged, match="expected the rows that were surveyed"):
        GBCM.fit(path, GIVEN, model=tmp_path / "model")


@pytest.mark.slow
def test_rows_are_never_heard_twice(wave, tmp_path):
    path, *_ = wave
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    for again in (partitions(open_data(path), 25), partitions(open_data(f"file://{path}"), 120)):
        with pytest.raises(InvalidData, match=r"expected rows that were not absorbed yet, .*X\[\d+:\d+\] holds some"):
            gbcm.absorb(again)
    assert gbcm.absorb(2 * partitions(open_data(path), 50)).commit == gbcm.commit
    empty = GBCM.prepare(path, GIVEN, model=tmp_path / "empty")
    assert empty.absorb(2 * partitions(open_data(path), 50)).info()["rows"] == 240


def test_partitions_that_do_not_fit_the_model(classes, make_data, tmp_path):
    path, *_ = classes
    gbcm = GBCM.prepare(path, GIVEN_CLASSES, model=tmp_path / "model")
    narrow = make_data("narrow.zarr", X=np.ones((9, 1)), y=np.ones(9))
    with pytest.raises(InvalidData, match="expected 2 columns in X, as in training, got 1"):
        gbcm.absorb(partitions(open_data(narrow), 9))
    labels = make_data("labels.zarr", X=np.ones((9, 2)), y=np.full(9, 2.0))
    with pytest.raises(UnsupportedTarget, match="got 2 at row 0"):
        gbcm.absorb(partitions(open_data(labels), 9))
    assert GBCM.load(tmp_path / "model").commit == 1


def test_half_written_predictions_are_removed(wave, make_data, tmp_path):
    path, X, _ = wave
    X = X.copy()
    X[-1, 0] = np.nan
    bad = make_data("bad.zarr", X=X)
    gbcm = GBCM.fit(path, GIVEN)
    with pytest.raises(InvalidData, match="row 239, column 0"):
        gbcm.predict_zarr(bad, tmp_path / "p.zarr")
    assert not (tmp_path / "p.zarr").exists()


def test_a_kernel_that_is_zero_everywhere():
    with pytest.warns(BcmdistWarning, match="constant"), pytest.raises(InvalidOption, match="got zero at all"):
        GBCM.fit((np.ones((9, 1)), np.arange(9.0)), Settings(kernel="linear", query=1, learn=False))


def test_memory_is_refused_before_running_with_both_numbers(wave, tmp_path):
    path, *_ = wave
    runtime = SerialRuntime(allowed_bytes=2.5e8)
    with pytest.raises(MemoryLimit, match=r"at most 0.25 GB per worker thread, would need [0-9.]+ GB; lower"):
        GBCM.fit(path, GIVEN, model=tmp_path / "model", runtime=runtime)
    assert not (tmp_path / "model").exists()


def test_new_points_must_look_like_the_old(wave, make_data):
    path, *_ = wave
    gbcm = GBCM.fit(path, GIVEN)
    with pytest.raises(InvalidData, match=r"expected shape \(n, 2\), as in training, got \(3, 5\)"):
        gbcm.predict(np.ones((3, 5)))
    with pytest.raises(InvalidData, match="got nan at row 1, column 0"):
        gbcm.predict(np.array([[0.0, 0.0], [np.nan, 0.0]]))
    with pytest.raises(InvalidData, match="expected 2 columns in X, as in training, got 3"):
        gbcm.score(make_data("wide.zarr", X=np.ones((4, 3)), y=np.ones(4)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"task": "ranking"}, "task: expected one of regression, classification, counts, lifetimes, binomial, got"),
        ({"query": 0}, "query: expected at least 1, got 0"),
        ({"kernel": "rbf"}, "expected a combination of se"),
        ({"seed": -1}, "seed: expected at least 0, got -1; give a number from 0 to 4294967295"),
        ({"seed": 10**30}, "seed: expected at most 4294967295, got 10{30}; give a number from 0 to 4294967295"),
        ({"seed": 1.5}, "seed: expected a whole number, got 1.5; give one"),
        ({"rows_per_expert": True}, "rows_per_expert: expected a whole number, got True"),
        ({"query": 10.0}, "query: expected a whole number, got 10.0"),
        (
            {"task": "regression", "likelihood": "bernoulli"},
            "expected one of gaussian, .* for regression, got bernoulli",
        ),
        ({"effort": "heroic"}, "effort: expected one of quick, normal, thorough"),
        ({"set": {"kernel.variance": 1.0}}, "--no-learn"),
    ],
)
def test_settings_are_checked_at_once(options, text):
    with pytest.raises(InvalidOption, match=text):
        Settings(**options)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"kernel.length": 1.0},
            "expected one of kernel.variance, kernel.lengthscale, likelihood.noise_variance, got 'kernel.length'",
        ),
        ({"kernel.variance": -1.0}, "expected one positive number"),
        ({"kernel.lengthscale": [1.0, 2.0, 3.0]}, "or 2 of them"),
    ],
)
def test_given_hyperparameters_are_checked(wave, given, text):
    path, *_ = wave
    with pytest.raises(InvalidOption, match=text):
        GBCM.fit(path, Settings(learn=False, set=given, query=40))


def test_no_model(tmp_path):
    with pytest.raises(ModelNotFound, match="expected a model directory"):
        GBCM.load(tmp_path)


def test_info_is_json(wave):
    path, *_ = wave
    info = json.loads(json.dumps(GBCM.fit(path, GIVEN).info()))
    assert f"{info['p_eff']:.0f} effective degrees of freedom" in info["advice"]

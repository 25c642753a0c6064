"""A merged committee is calibrated as one that was fitted to all rows, whichever of the two is named first."""

import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api import merging
from bcmdist.api.carry_out import carry_out
from bcmdist.api.requests import MergeRequest
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import BcmdistWarning, ModelExists, SchedulerLost
from problems import assert_same_committee

ROWS, EACH = 360, 60
GIVEN = Settings(kernel="se", learn=False, query=20, rows_per_expert=EACH)
CALIBRATED = ("onehot", "svm", "bernoulli", "probit")


def separated(rng):
    """Classes that a line separates but for a few rows: a kernel of variance 1 is too cautious."""
    X = rng.uniform(-2, 2, (ROWS, 2))
    return X, (X[:, 0] + 0.05 * rng.standard_normal(ROWS) > 0).astype(np.uint8)


def heavy_tailed(rng):
    """Errors of a scale that differs fourfold along the first column, with heavy tails."""
    X = rng.uniform(-2, 2, (ROWS, 2))
    return X, np.sin(2 * X[:, 0]) + 0.2 * np.where(X[:, 0] > 0, 1.0, 0.25) * rng.standard_t(3, ROWS)


def halves(make_data, data, settings, tmp_path, split):
    """The fit to all rows, and the same prepared model in two copies that absorb some partitions each.

    The rows of each are in a data set of their own.
    """
    X, y = data
    paths = [
        make_data("a.zarr", X=X[: EACH * split], y=y[: EACH * split], rows_per_chunk=EACH),
        make_data("b.zarr", X=X[EACH * split :], y=y[EACH * split :], rows_per_chunk=EACH),
    ]
    whole = make_data("all.zarr", X=X, y=y, rows_per_chunk=EACH)
    GBCM.prepare(whole, settings, model=tmp_path / "prepared")

    def absorbed(name, *data):
        shutil.copytree(tmp_path / "prepared", tmp_path / name)
        parts = [part for path in data for part in partitions(open_data(path), EACH)]
        return GBCM.load(tmp_path / name).absorb(parts, same_rows="allow")

    return absorbed("fit", *paths), absorbed("one", paths[0]), absorbed("other", paths[1])


def without(fact, *names):
    return {name: value for name, value in fact.items() if name not in names}


@pytest.mark.parametrize("likelihood", CALIBRATED)
@pytest.mark.parametrize("split", [1, 4])
def test_probabilities_are_those_of_one_fit_in_either_order(likelihood, split, make_data, rng, tmp_path):
    settings = replace(GIVEN, task="classification", likelihood=likelihood)
    X, y = separated(rng)
    fit, one, other = halves(make_data, (X, y), settings, tmp_path, split)
    name = "calibration" if fit.model.likelihood.needs_calibration else "recalibration"
    assert fit.facts[name]["rows"] == ROWS
    assert one.facts.get(name) != other.facts.get(name)
    for number, (first, second) in enumerate([(one, other), (other, one)]):
        both = first.merge(second, tmp_path / f"both{number}")
        assert_same_committee(both.committee, fit.committee)
        assert both.facts[name]["rows"] == ROWS
        np.testing.assert_allclose(both.predict(X)["probability"], fit.predict(X)["probability"], atol=1e-6)
        assert GBCM.load(both.url).commit == both.commit


def test_what_only_the_first_was_corrected_by_goes(make_data, rng, tmp_path):
    """A correction of one of them that all rows do not ask for."""
    X, y = separated(rng)
    f = 2.0 * np.sin(2 * X[:, 1])
    y = np.where(np.arange(ROWS) < 4 * EACH, y, rng.uniform(size=ROWS) < 1 / (1 + np.exp(-f))).astype(np.uint8)
    settings = replace(GIVEN, task="classification", likelihood="bernoulli")
    fit, one, other = halves(make_data, (X, y), settings, tmp_path, 4)
    assert "recalibration" in one.facts
    assert "recalibration" not in fit.facts
    assert "recalibration" not in one.merge(other, tmp_path / "both").facts


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
@pytest.mark.parametrize("split", [1, 4])
def test_errors_are_distributed_as_in_one_fit_in_either_order(likelihood, split, make_data, rng, tmp_path):
    settings = replace(GIVEN, likelihood=likelihood, noise="varying")
    X, y = heavy_tailed(rng)
    fit, one, other = halves(make_data, (X, y), settings, tmp_path, split)
    assert fit.facts["spread"]["process"]
    said = fit.predict(X, quantiles=(0.01, 0.9))
    for number, (first, second) in enumerate([(one, other), (other, one)]):
        both = first.merge(second, tmp_path / f"both{number}")
        assert both.facts["spread"]["rows"] == ROWS
        for name, values in both.predict(X, quantiles=(0.01, 0.9)).items():
            np.testing.assert_allclose(values, said[name], rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("likelihood", ["onehot", "bernoulli", "gaussian"])
def test_rows_that_cannot_be_read_are_counted_in_a_warning(likelihood, make_data, rng, tmp_path):
    classes = likelihood != "gaussian"
    settings = replace(GIVEN, task="classification" if classes else "regression", likelihood=likelihood)
    data = separated(rng) if classes else heavy_tailed(rng)
    _, one, other = halves(make_data, data, settings, tmp_path, 1)
    shutil.rmtree(tmp_path / "a.zarr")
    with pytest.warns(BcmdistWarning, match="300 of 360 rows can be read"):
        first = one.merge(other, tmp_path / "first")
    with pytest.warns(BcmdistWarning, match="300 of 360 rows can be read"):
        second = other.merge(one, tmp_path / "second")
    shutil.rmtree(tmp_path / "b.zarr")
    with pytest.warns(BcmdistWarning, match="none of 360 rows can be read"):
        third = one.merge(other, tmp_path / "third")
    with pytest.warns(BcmdistWarning, match="none of 360 rows can be read"):
        fourth = other.merge(one, tmp_path / "fourth")
    for pair in ((first, second), (third, fourth)):
        (a, b) = (model.predict(data[0], quantiles=() if classes else (0.1,)) for model in pair)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name) if name == "label" else (
                np.testing.assert_allclose(a[name], b[name], rtol=1e-9, atol=1e-9, err_msg=name)
            )


def test_changed_rows_are_named_in_a_warning(make_data, rng, tmp_path):
    settings = replace(GIVEN, task="classification", likelihood="onehot")
    X, y = separated(rng)
    _, one, other = halves(make_data, (X, y), settings, tmp_path, 4)
    shutil.rmtree(tmp_path / "a.zarr")
    make_data("a.zarr", X=X[: 4 * EACH] + 1.0, y=y[: 4 * EACH], rows_per_chunk=EACH)
    with pytest.warns(BcmdistWarning, match=r"stay those of .*one \(240 of 360 rows\).*expected the rows"):
        both = one.merge(other, tmp_path / "both")
    assert without(both.facts["calibration"], "rows") == without(GBCM.load(one.url).facts["calibration"], "rows")


def test_nothing_is_said_where_nothing_is_calibrated(make_data, rng, tmp_path):
    settings = replace(GIVEN, task="classification", likelihood="softmax")
    _, one, other = halves(make_data, separated(rng), settings, tmp_path, 4)
    shutil.rmtree(tmp_path / "a.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = one.merge(other, tmp_path / "both")
        assert other.merge(one, tmp_path / "both").commit == both.commit  # it is complete


def test_a_killed_merge_is_continued_and_a_finished_one_returned(make_data, rng, tmp_path, monkeypatch):
    settings = replace(GIVEN, task="regression", likelihood="gaussian")
    X, y = heavy_tailed(rng)
    _, one, other = halves(make_data, (X, y), settings, tmp_path, 3)
    expected = one.merge(other, tmp_path / "calm").predict(X, quantiles=(0.01, 0.9))
    request = MergeRequest(str(one.url), str(other.url), model=str(tmp_path / "both"))

    def merged():
        return carry_out(request, SerialRuntime)

    with monkeypatch.context() as killed:
        killed.setattr(merging, "measured_anew", interrupted)
        with pytest.raises(KeyboardInterrupt):
            merged()
    assert "spread" not in GBCM.load(tmp_path / "both").facts  # the sum is committed, and nothing is calibrated yet
    assert merged()["resumed"] == "continued"
    both = other.merge(one, tmp_path / "both")
    assert (both.commit, both.ledger.rows) == (2, ROWS)
    for name, values in both.predict(X, quantiles=(0.01, 0.9)).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
    assert merged()["resumed"] == "finished"
    at = one.commit
    one.partial_fit(X + 9.0, y)
    for changed in (GBCM.load(one.url), GBCM.load(tmp_path / "prepared")):  # other commits
        with pytest.raises(ModelExists, match="expected a new or empty directory"):
            changed.merge(other, tmp_path / "both")
    one = GBCM.load(one.url, commit=at)
    assert one.merge(other, tmp_path / "both").commit == 2
    both.reweight({both.ledger[0].key: 2.0})
    with pytest.raises(ModelExists, match="expected a new or empty directory"):
        one.merge(other, tmp_path / "both")


def test_a_merge_whose_cluster_is_lost_is_not_taken_for_complete(make_data, rng, tmp_path, monkeypatch):
    _, one, other = halves(make_data, heavy_tailed(rng), GIVEN, tmp_path, 3)

    def lost(*_):
        raise SchedulerLost("errors: the scheduler does not answer")

    with monkeypatch.context() as without_scheduler:
        without_scheduler.setattr(merging, "measured_anew", lost)
        with pytest.raises(SchedulerLost):
            one.merge(other, tmp_path / "both")
    assert "spread" in one.merge(other, tmp_path / "both").facts


def interrupted(*_):
    raise KeyboardInterrupt


def test_rows_in_memory_stay_for_as_long_as_a_merged_model(rng, tmp_path):
    X, y = separated(rng)
    settings = replace(GIVEN, task="classification", likelihood="bernoulli")
    one = GBCM.prepare(X, y, settings, model=tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    other = GBCM.load(tmp_path / "other").partial_fit(X[:180], y[:180])
    both = one.partial_fit(X[180:], y[180:]).merge(other, tmp_path / "both")
    del one, other
    assert both.forget([both.ledger[0].key]).committee.total.rows < ROWS

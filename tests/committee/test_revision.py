"""Forgetting, weighing and joining against committees that were fitted that way from the start."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.data.checks.checked_store import recorded
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import DataChanged, InvalidOption, ModelExists, ModelsDiffer
from problems import assert_same_committee

REGRESSION = Settings(partition="chunks", kernel="se", learn=False, query=20, rows_per_expert=50)
CLASSES = replace(REGRESSION, task="classification")


@pytest.fixture(params=["regression", "classification"])
def fitted(request, wave, classes, tmp_path):
    """A committee of five partitions, and the path of its data."""
    path, *_ = wave if request.param == "regression" else classes
    settings = REGRESSION if request.param == "regression" else CLASSES
    return GBCM.fit(path, settings, model=tmp_path / "model"), path


def key(gbcm, number):
    """Key of a partition by its place in the data; the ledger is sorted by key."""
    return next(entry.key for entry in gbcm.ledger if f"[{50 * number}:" in entry.key)


def only(gbcm, path, keep, tmp_path):
    """The same prepared model in another directory, which absorbs some partitions only."""
    other = tmp_path / f"only-{'-'.join(map(str, sorted(keep)))}"
    shutil.copytree(gbcm.url, other)
    for file in [*(other / "commits").iterdir(), *(other / "acknowledged").iterdir()]:
        if file.stem != "00000001":
            file.unlink()
    parts = partitions(open_data(path), 50)
    return GBCM.load(other).absorb([parts[k] for k in keep])


def test_forgetting_equals_never_having_heard(fitted, tmp_path):
    gbcm, path = fitted
    after = gbcm.forget([key(gbcm, 1), key(gbcm, 3)])
    without = only(gbcm, path, [0, 2, 4], tmp_path)
    assert_same_committee(after.committee, without.committee)
    assert {e.key for e in after.ledger} == {e.key for e in gbcm.ledger} - {key(gbcm, 1), key(gbcm, 3)}
    looked_again = "recalibration" in gbcm.facts  # how likely classes are is corrected again, in a commit of its own
    assert GBCM.load(gbcm.url).commit == gbcm.commit + 1 + looked_again
    again = after.absorb(partitions(open_data(path), 50))
    assert_same_committee(again.committee, gbcm.committee)


def test_everything_can_be_forgotten(fitted):
    gbcm, _ = fitted
    empty = gbcm.forget([e.key for e in gbcm.ledger])
    assert empty.ledger == ()
    assert not empty.committee.total.precision.any()
    assert empty.committee.total.rows == 0


def test_changed_rows_cannot_be_forgotten(fitted):
    gbcm, path = fitted
    with recorded(path) as group:
        group["X"][0, 0] += 1.0
    with pytest.raises(DataChanged, match="expected the rows that were surveyed"):
        gbcm.forget([next(e.key for e in gbcm.ledger if "[0:" in e.key)])
    assert GBCM.load(gbcm.url).commit == gbcm.commit


def test_unknown_keys_are_refused(fitted):
    gbcm, _ = fitted
    with pytest.raises(InvalidOption, match=r"expected keys of partitions it has absorbed .*got \['nothing'\]"):
        gbcm.forget(["nothing"])


def test_refined_committees_forget_by_one_more_pass(classes, tmp_path):
    path, *_ = classes
    gbcm = GBCM.fit(path, replace(CLASSES, passes="auto"), model=tmp_path / "model")
    after = gbcm.forget([key(gbcm, 2)])
    without = only(gbcm, path, [0, 1, 3, 4], tmp_path).refine()
    assert 0 < after.facts["withdrawn_error"] < 0.5  # what subtraction alone was off by
    belief = without.committee.posterior
    error = np.linalg.norm((after.committee.posterior.mean - belief.mean) @ belief.factor)
    assert error < 0.05 * after.facts["withdrawn_error"]


def test_weight_is_that_of_as_many_copies(fitted, tmp_path):
    gbcm, path = fitted
    first = key(gbcm, 0)
    after = gbcm.reweight({first: 3.0})
    thrice = only(gbcm, path, [1, 2, 3, 4], tmp_path).committee
    message = gbcm.committee.total - thrice.total
    for _ in range(3):
        thrice = thrice.absorb(message)
    np.testing.assert_allclose(after.committee.total.precision, thrice.total.precision, atol=1e-9)
    np.testing.assert_allclose(after.committee.total.eta, thrice.total.eta, atol=1e-9)
    assert after.committee.total.rows == gbcm.committee.total.rows
    forgotten = after.forget([first])
    assert_same_committee(forgotten.committee, only(gbcm, path, [1, 2, 3, 4], tmp_path / "again").committee)
    back = forgotten.absorb(partitions(open_data(path), 50))
    assert_same_committee(back.reweight({first: 2.0}).reweight({first: 1.0}).committee, gbcm.committee)
    assert next(e.weight for e in GBCM.load(gbcm.url, commit=after.commit).ledger if e.key == first) == 3.0


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_weights_must_be_positive(fitted, weight):
    gbcm, _ = fitted
    with pytest.raises(InvalidOption, match="expected a positive weight"):
        gbcm.reweight({gbcm.ledger[0].key: weight})


def test_merging_is_hearing_both(fitted, tmp_path):
    gbcm, path = fitted
    one, other = only(gbcm, path, [0, 3], tmp_path), only(gbcm, path, [1, 2, 4], tmp_path)
    both = one.merge(other, tmp_path / "both")
    assert_same_committee(both.committee, gbcm.committee)
    assert {e.key for e in both.ledger} == {e.key for e in gbcm.ledger}
    assert_same_committee(GBCM.load(tmp_path / "both").committee, gbcm.committee)
    assert one.merge(other, tmp_path / "both").commit == both.commit  # it is complete
    with pytest.raises(ModelExists, match="expected a new or empty directory"):
        only(gbcm, path, [0], tmp_path).merge(other, tmp_path / "both")


def test_what_both_have_heard_cannot_be_merged(fitted, tmp_path):
    gbcm, path = fitted
    with pytest.raises(ModelsDiffer, match=r"both have absorbed .*forget it in one of them"):
        gbcm.merge(only(gbcm, path, [2], tmp_path), tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_different_models_cannot_be_merged(fitted, tmp_path):
    gbcm, path = fitted
    settings = replace(REGRESSION if gbcm.model.likelihood.exact else CLASSES, query=10, kernel="matern32")
    other = GBCM.fit(path, settings, model=tmp_path / "other")
    with pytest.raises(ModelsDiffer, match="they differ in kernel;"):
        gbcm.merge(other, tmp_path / "both")


def test_partial_fit_hears_once(wave, make_data, tmp_path):
    path, X, y = wave
    new = make_data("new.zarr", X=X[:100] + 0.01, y=y[:100])
    gbcm = GBCM.fit(path, REGRESSION, model=tmp_path / "model")
    more = gbcm.partial_fit(new)
    assert len(more.ledger) == len(gbcm.ledger) + 2
    assert more.partial_fit(new).commit == more.commit
    assert_same_committee(more.forget([e.key for e in more.ledger[-2:]]).committee, gbcm.committee)


@pytest.mark.slow
def test_merged_sites_can_be_refined_and_forgotten(classes, tmp_path):
    path, *_ = classes
    ep = replace(CLASSES, approximation="ep")
    gbcm = GBCM.fit(path, ep, model=tmp_path / "model")
    both = only(gbcm, path, [0, 3], tmp_path).merge(only(gbcm, path, [1, 2, 4], tmp_path), tmp_path / "both")
    shutil.rmtree(gbcm.url)
    assert_same_committee(both.committee, gbcm.committee)
    laplace = GBCM.prepare(path, CLASSES, model=tmp_path / "laplace")
    with pytest.raises(ModelsDiffer, match="they differ in approximation;"):
        both.merge(laplace, tmp_path / "mixed")
    assert both.forget([key(both, 1)]).refine().committee.total.rows == 190

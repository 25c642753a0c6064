"""Models that are the same in original units, but scale inputs and targets differently, are merged."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.committee import Committee
from bcmdist.errors import BcmdistWarning, ModelsDiffer
from bcmdist.experts.message import zero_message
from bcmdist.model.shared.query import prepare
from bcmdist.storage.commits import open_store
from problems import assert_as_in_its_ledger, assert_same_committee

# In original units: lengthscales of the columns, variance of f, noise variance.
LENGTHS, VARIANCE, NOISE = np.array([0.8, 30.0]), 4.0, 0.09


def made(make_data, tmp_path, rng, name, *, low, rows, likelihood="gaussian", mean="zero", lengths=LENGTHS, **other):
    """A model of rows from `low` on, whose hyper-parameters are those above in original units; its path."""
    X = np.column_stack([rng.uniform(low, low + 2.0, rows), rng.uniform(-50, 10 * rows, rows)])
    f = 2.0 * np.sin(2 * X[:, 0]) + 0.01 * X[:, 1]
    y = f + 0.3 * rng.standard_normal(rows)
    if likelihood == "bernoulli":
        y = (y > y.mean()).astype(float)
    elif mean == "constant":
        y = (y - y.mean()) / y.std()
    else:
        y = y - y.mean()
    unit = 1.0 if likelihood == "bernoulli" else y.std()
    values = {"kernel.lengthscale": list(lengths / X.std(axis=0)), "kernel.variance": VARIANCE / unit**2}
    if likelihood != "bernoulli":
        values["likelihood.noise_variance"] = NOISE / unit**2
    settings = Settings(kernel="matern32", learn=False, mean=mean, likelihood=likelihood, rows_per_expert=30,
                        partition="chunks", set=values, **{"query": 12} | other)  # fmt: skip
    path = make_data(f"{name}.zarr", rows_per_chunk=30, X=X, y=y)
    return GBCM.fit(path, settings, model=tmp_path / name), path


KINDS = [{}, {"likelihood": "student_t"}, {"likelihood": "bernoulli", "mean": "constant"}, {"mean": "constant"}]


@pytest.fixture(params=KINDS, ids=lambda kind: "-".join(kind.values()) or "zero")
def pair(request, make_data, tmp_path, rng):
    """A larger and a smaller model, the same in original units, and the path of the rows of the smaller one."""
    west, _ = made(make_data, tmp_path, rng, "west", low=-2.0, rows=120, **request.param)
    east, path = made(make_data, tmp_path, rng, "east", low=0.0, rows=90, **request.param)
    return west, east, path


def scaled_as(gbcm, like, path, model):
    """A committee of the rows at a path with the query points of one model, by the scaling and kernel of another."""
    shared, scaling = gbcm.model.shared, like.model.scaling
    points = scaling.inputs(gbcm.model.scaling.original_inputs(shared.points))
    query = prepare(points, kernel=like.model.shared.kernel, mean=shared.mean)
    store, empty = open_store(model), Committee(zero_message(query, like.model.likelihood), query.belief)
    facts = like.snapshot.facts.changed(surveyed=store.put_segment([]), chunks=None)
    begun = replace(like.snapshot, model=replace(like.model, shared=query))
    return GBCM(begun.written(store, empty, [], facts)).partial_fit(path)


def test_a_merger_is_one_committee_of_both(pair, tmp_path, rng):
    west, east, path = pair
    assert not np.allclose(west.model.scaling.x_scale, east.model.scaling.x_scale, rtol=0.05)
    merged = west.merge(east, tmp_path / "merged")
    expected = west.merge(scaled_as(east, west, path, tmp_path / "like"), tmp_path / "expected")
    assert_same_committee(merged.committee, expected.committee, tolerance=1e-9)
    assert merged.info()["log_evidence"] == pytest.approx(expected.info()["log_evidence"], rel=1e-9)
    assert_as_in_its_ledger(merged)
    new = np.column_stack([rng.uniform(-2, 2, 40), rng.uniform(0, 500, 40)])
    for name in ("mean", "variance"):
        np.testing.assert_allclose(merged.predict(new)[name], expected.predict(new)[name], rtol=1e-8, atol=1e-8)


def test_what_was_merged_is_forgotten_and_absorbed_again(pair, tmp_path):
    west, east, path = pair
    merged = east.merge(west, tmp_path / "merged")
    without = merged.forget([entry.key for entry in merged.ledger if entry.key.startswith(path)])
    assert_as_in_its_ledger(without)
    assert without.committee.log_evidence == pytest.approx(west.committee.log_evidence, rel=1e-9)
    back = without.partial_fit(path)  # now about the points of both
    assert_as_in_its_ledger(back)
    assert back.committee.total.rows == merged.committee.total.rows


def test_earlier_query_sets_are_converted(make_data, tmp_path, rng):
    west, _ = made(make_data, tmp_path, rng, "west", low=-2.0, rows=240)
    east, _ = made(make_data, tmp_path, rng, "east", low=0.0, rows=90, grow=True, grow_share=0.3, query=4)
    assert len(east.model.earlier) >= 1
    merged = west.merge(east, tmp_path / "merged")
    assert_as_in_its_ledger(merged)
    south, _ = made(make_data, tmp_path, rng, "south", low=-4.0, rows=900)
    everything = merged.merge(south, tmp_path / "everything")
    assert_as_in_its_ledger(everything)
    np.testing.assert_array_equal(everything.model.scaling.x_mean, south.model.scaling.x_mean)
    keys = [entry.key for entry in everything.ledger if "east" in entry.key]
    assert_as_in_its_ledger(everything.forget(keys[:1]))


def test_query_points_that_both_have_are_one(make_data, tmp_path, rng):
    """Though their scaled values differ in the last digits."""
    west, _ = made(make_data, tmp_path, rng, "west", low=-2.0, rows=120)
    east, path = made(make_data, tmp_path, rng, "east", low=0.0, rows=90)
    moved = scaled_as(west, east, path, tmp_path / "moved")
    merged = west.merge(moved, tmp_path / "merged")
    assert merged.model.shared.functions == 12
    assert_same_committee(merged.committee, west.partial_fit(path).committee, tolerance=1e-9)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"lengths": LENGTHS * [1.0, 2.0]}, r"kernel: lengthscale of X\[1\] 30 and 60 \(original units\); fit one of"),
        ({"lengths": LENGTHS * [1.001, 1]}, r"kernel: lengthscale of X\[0\] 0.8 and 0.801 \(original units\); fit"),
        ({"likelihood": "student_t"}, r"differ in .*likelihood.*; fit one of them with --like the other"),
    ],
)
def test_errors_compare_other_models_in_original_units(make_data, tmp_path, rng, other, message):
    west, _ = made(make_data, tmp_path, rng, "west", low=-2.0, rows=120)
    east, _ = made(make_data, tmp_path, rng, "east", low=0.0, rows=90, **other)
    with pytest.raises(ModelsDiffer, match=message):
        west.merge(east, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_errors_name_units_of_a_prior_mean(make_data, tmp_path, rng):
    """Weights of a constant mean have a deviation of five scaled units, whatever these are."""
    X = rng.uniform(-2, 2, (120, 1))
    y = np.sin(X[:, 0])
    settings = Settings(kernel="se", mean="constant", query=5, learn=False, partition="chunks")
    one, other = (
        GBCM.fit(make_data(f"{k}.zarr", X=X[k::2], y=(1.0 + k) * y[k::2] + k), settings, model=tmp_path / str(k))
        for k in range(2)
    )
    with pytest.raises(
        ModelsDiffer, match=r"origin of targets .* \(original units\), unit of the weights of the prior"
    ):
        one.merge(other, tmp_path / "merged")


def test_residuals_of_rows_that_are_gone_are_converted(make_data, tmp_path, rng):
    west, _ = made(make_data, tmp_path, rng, "west", low=-2.0, rows=400)
    east, path = made(make_data, tmp_path, rng, "east", low=0.0, rows=300)
    shutil.rmtree(path)
    with pytest.warns(BcmdistWarning, match="400 of 700 rows can be read"):
        merged = west.merge(east, tmp_path / "merged")
    a, b = east.model.scaling, west.model.scaling
    pairs = [(merged.snapshot.absorbed[e.key].residuals, e.residuals) for e in east.ledger if e.residuals]
    assert pairs
    for found, before in pairs:
        expected = b.inputs(a.original_inputs(before.places[:, :-1]))
        np.testing.assert_allclose(found.places[:, :-1], expected, rtol=1e-10, atol=1e-10)
        ratio = np.exp(0.5 * (found.places[:, -1] - before.places[:, -1]))  # of deviations in the units of each
        np.testing.assert_allclose(ratio, a.y_scale / b.y_scale, rtol=1e-10)
        np.testing.assert_array_equal(found.committee, before.committee)

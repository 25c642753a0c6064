"""Committees of one kernel with different query points are merged, whatever the points and the order."""

import csv
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption, ModelsDiffer, UnsupportedTarget
from oracles import through_query_sets
from problems import assert_as_in_its_ledger

GIVEN = Settings(
    kernel="matern32",
    learn=False,
    query=12,
    rows_per_expert=30,
    partition="chunks",
    set={"kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.05},
)


@pytest.fixture
def halves(make_data, rng, tmp_path):
    """Two models of one scaling and kernel, of rows in the west and in the east; inputs and targets of each."""
    made, rows = [], []
    for name, low in (("west", -2.0), ("east", 0.0)):
        X = np.column_stack([rng.uniform(low, low + 2.0, 120), rng.uniform(-1, 1, 120)])
        y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(120)
        path = make_data(f"{name}.zarr", rows_per_chunk=30, X=X, y=y)
        settings = GIVEN if not made else Settings(query=9, rows_per_expert=30, partition="chunks", like=made[0].url)
        made.append(GBCM.fit(path, settings, model=tmp_path / name))
        rows.append((path, X, y))
    return made, rows


def test_a_merged_committee_is_that_of_the_dense_model(halves, tmp_path, rng):
    (west, east), rows = halves
    merged = west.merge(east, tmp_path / "merged")
    model, scaling = merged.model, west.model.scaling
    assert model.shared.functions == 21
    places = {tuple(point): k for k, point in enumerate(model.shared.points)}
    parts = []
    for one, (path, X, y) in zip((west, east), rows, strict=True):
        seen = np.array([places[tuple(point)] for point in one.model.shared.points])
        for part in partitions(open_data(path), 30):
            some = slice(part.start, part.stop)
            parts.append((seen, scaling.inputs(X[some]), (y[some] - scaling.y_mean) / scaling.y_scale))
    new = rng.uniform(-2, 2, (40, 2))
    how = (model.shared.kernel, model.shared.mean, 0.05, model.shared.points, parts)
    mean, variance = through_query_sets(*how, scaling.inputs(new))
    found = merged.predict(new)
    np.testing.assert_allclose(found["mean"], mean * scaling.y_scale + scaling.y_mean, atol=1e-10)
    np.testing.assert_allclose(found["variance"], variance * scaling.y_scale**2, atol=1e-10)
    assert_as_in_its_ledger(merged)


def test_the_order_of_the_models_does_not_matter(halves, tmp_path, rng):
    (west, east), _ = halves
    one, other = west.merge(east, tmp_path / "one"), east.merge(west, tmp_path / "other")
    new = rng.uniform(-2, 2, (40, 2))
    for name in ("mean", "variance", "lower95"):
        np.testing.assert_allclose(one.predict(new)[name], other.predict(new)[name], atol=1e-9)


def test_a_merged_committee_knows_both_places(halves, tmp_path, rng):
    (west, east), _ = halves
    merged = west.merge(east, tmp_path / "merged")
    new = np.column_stack([rng.uniform(-2, 2, 300), rng.uniform(-1, 1, 300)])
    truth = np.sin(2 * new[:, 0]) + new[:, 1]
    errors = [np.sqrt(np.mean((one.predict(new)["mean"] - truth) ** 2)) for one in (west, east, merged)]
    assert errors[2] < 0.5 * min(errors[:2])


def test_what_was_merged_is_forgotten_merged_and_ingested_again(halves, make_data, rng, tmp_path):
    (west, east), _ = halves
    merged = west.merge(east, tmp_path / "merged")
    gone = [merged.ledger[0].key, merged.ledger[-1].key]
    forgotten = merged.forget(gone)
    assert_as_in_its_ledger(forgotten)
    X = np.column_stack([rng.uniform(2, 4, 60), rng.uniform(-1, 1, 60)])
    path = make_data("north.zarr", rows_per_chunk=30, X=X, y=np.sin(2 * X[:, 0]))
    grown, _ = forgotten.ingest(forgotten.source(path), IngestOptions(grow=True, grow_share=0.1))
    assert grown.model.shared.functions > 21
    assert_as_in_its_ledger(grown)
    south = make_data("south.zarr", rows_per_chunk=30, X=X - np.array([0.0, 2.0]), y=np.cos(X[:, 1]))
    third = GBCM.fit(south, Settings(query=5, partition="chunks", like=west.url), model=tmp_path / "third")
    everything = third.merge(grown, tmp_path / "everything")
    assert everything.committee.total.rows == grown.committee.total.rows + 60
    assert_as_in_its_ledger(everything)
    assert_as_in_its_ledger(GBCM.load(tmp_path / "everything").forget([everything.ledger[2].key]))


def test_advice_on_more_points_of_a_merger(halves, tmp_path):
    (west, east), _ = halves
    advice = west.merge(east, tmp_path / "merged").info()["advice"]
    assert "21 query points limit the fit" in advice
    assert "add some with --grow of ingest, or refit the model" in advice


def test_the_number_of_points_of_a_merger(halves, tmp_path):
    (west, east), _ = halves
    assert west.merge(east, tmp_path / "merged", query_most=15).model.shared.functions == 15
    with pytest.raises(InvalidOption, match=r"--query-most: expected at least \d+, the number of query points of"):
        west.merge(east, tmp_path / "other", query_most=5)
    assert not (tmp_path / "other").exists()


def test_classes_of_two_places(make_data, rng, tmp_path):
    def rows(low):
        X = np.column_stack([rng.uniform(low, low + 2.0, 150), rng.uniform(-1, 1, 150)])
        return {"X": X, "y": (np.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(np.uint8)}

    settings = Settings(query=15, effort="quick", partition="chunks", rows_per_expert=50)
    west = GBCM.fit(make_data("west.zarr", **rows(-2.0)), settings, model=tmp_path / "west")
    like = Settings(query=15, partition="chunks", rows_per_expert=50, like=west.url)
    east = GBCM.fit(make_data("east.zarr", **rows(0.0)), like, model=tmp_path / "east")
    merged = west.merge(east, tmp_path / "merged")
    assert merged.model.shared.functions > 15
    assert_as_in_its_ledger(merged)
    refined = merged.refine()
    assert {entry.query for entry in refined.ledger} == {len(refined.model.earlier)}


def test_models_of_other_kernels_say_how_to_fit_again(halves, make_data, rng, tmp_path):
    (west, _), _ = halves
    X = rng.uniform(-2, 2, (60, 2))
    settings = Settings(kernel="se", learn=False, query=10, partition="chunks")
    other = GBCM.fit(make_data("other.zarr", X=X, y=X[:, 0]), settings, model=tmp_path / "other")
    with pytest.raises(ModelsDiffer, match=r"they differ in .*kernel.*; fit one of them with --like the other"):
        west.merge(other, tmp_path / "merged")


@pytest.mark.parametrize("setting", [{"kernel": "se"}, {"likelihood": "student_t"}, {"mean": "zero"}, {"warp": "log"}])
def test_settings_that_the_model_decides(halves, tmp_path, setting):
    (west, _), ((path, _, _), _) = halves
    with pytest.raises(
        InvalidOption, match=f"--like: expected no --{next(iter(setting))}, which .* determines; leave out --"
    ):
        GBCM.fit(path, Settings(like=west.url, **setting), model=tmp_path / "other")


@pytest.mark.parametrize("options", [{"precision": "mixed"}, {"expert": "fitc"}, {"expert": "sor"}])
def test_other_experts_and_precisions_are_merged(make_data, rng, tmp_path, options):
    X = rng.uniform(-2, 2, (120, 2))
    data = [make_data(f"{k}.zarr", rows_per_chunk=30, X=X[k::2], y=X[k::2, 0]) for k in range(2)]
    one = GBCM.fit(data[0], replace(GIVEN, **options), model=tmp_path / "one")
    like = Settings(query=8, rows_per_expert=30, partition="chunks", like=one.url)
    merged = one.merge(GBCM.fit(data[1], like, model=tmp_path / "other"), tmp_path / "merged")
    assert merged.model.shared.functions > 12
    assert_as_in_its_ledger(merged)


def test_rows_that_do_not_suit_the_model_are_refused(halves, make_data, rng, tmp_path):
    (west, _), _ = halves
    like = Settings(partition="chunks", like=west.url)
    data = make_data("three.zarr", X=rng.normal(size=(60, 3)), y=rng.normal(size=60))
    with pytest.raises(InvalidData, match=r"expected 2 columns in X, as in .*, got 3; give the same columns"):
        GBCM.fit(data, like, model=tmp_path / "other")
    X = rng.normal(size=(90, 2))
    settings = Settings(query=8, learn=False, partition="chunks", task="classification")
    classes = GBCM.fit(make_data("c.zarr", X=X, y=np.arange(90) % 3), settings, model=tmp_path / "classes")
    more = make_data("more.zarr", X=X, y=np.arange(90) % 4)
    with pytest.raises(
        UnsupportedTarget,
        match=r"expected the classes of the model of --like, 0, 1, 2, got 3 too; leave out",
    ):
        GBCM.fit(more, replace(like, like=classes.url), model=tmp_path / "other")
    assert not (tmp_path / "other" / "commits").exists()


def test_a_model_that_others_cannot_be_merged_with(classes, tmp_path):
    path, _, _ = classes
    settings = Settings(learn=False, query=8, approximation="ep", partition="chunks")
    ep = GBCM.fit(path, settings, model=tmp_path / "ep")
    with pytest.raises(
        InvalidOption, match=r"--like: expected a model that others can be merged with, .*expectation prop"
    ):
        GBCM.fit(path, Settings(like=ep.url), model=tmp_path / "other")


def test_query_points_that_cannot_be_brought_together(classes, tmp_path):
    path, _, _ = classes
    settings = Settings(learn=False, query=8, approximation="ep", partition="chunks")
    one, other = (GBCM.fit(path, replace(settings, seed=k), model=tmp_path / str(k)) for k in range(2))
    with pytest.raises(
        ModelsDiffer, match=r"differ in query_points.*; which cannot be brought together, as its messages"
    ):
        one.merge(other, tmp_path / "merged")


def test_frames_are_coded_as_the_model_that_they_are_fitted_like(rng, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pip install 'bcmdist[tables]'")

    def frame(low, levels, gaps):
        size = rng.uniform(low, low + 3, 120)
        size[:gaps] = np.nan
        soil = rng.choice(levels, 120)
        found = pandas.DataFrame({"size": size, "soil": soil})
        return found, np.nan_to_num(size, nan=1.0) + (soil == "clay")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # of gaps, and of levels that training lacks
        settings = Settings(query=15, effort="quick", partition="chunks", rows_per_expert=40)
        west = GBCM.fit(*frame(0.0, ["clay", "loam", "sand"], 12), settings, model=tmp_path / "west")
        for k, (levels, gaps) in enumerate([(["clay", "loam"], 0), (["clay", "loam", "sand", "peat"], 5)]):
            X, y = frame(3.0, levels, gaps)
            east = GBCM.fit(X, y, Settings(query=10, like=west.url), model=tmp_path / f"east{k}")
            assert east.model.schema == west.model.schema
            assert east.model.cells is None
            merged = west.merge(east, tmp_path / f"merged{k}")
            assert merged.committee.total.rows == 240


def run(*arguments):
    found = CliRunner().invoke(cli, [*map(str, arguments), "--serial", "--json", "--quiet"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_tables_of_two_places(tmp_path, rng):
    for name, low in (("west", 0.0), ("east", 3.0)):
        size, soil = rng.uniform(low, low + 3.0, 120), rng.choice(["clay", "loam", "sand"], 120)
        y = np.sin(size) + (soil == "clay") + 0.1 * rng.standard_normal(120)
        lines = [f"{a:.4f},{b},{c:.4f}" for a, b, c in zip(size, soil, y, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["size,soil,yield", *lines]) + "\n")
    west, east = tmp_path / "west", tmp_path / "east"
    common = ("--partition", "chunks", "--query", 15)
    run("fit", tmp_path / "west.csv", "--y", "yield", "--model", west, *common, "--effort", "quick")
    run("fit", tmp_path / "east.csv", "--model", east, "--like", west, *common)
    found = run("merge", west, east, "--model", tmp_path / "both", "--query-most", 28)
    assert found["rows"] == 240
    assert found["capacity"]["points"] <= 28
    (tmp_path / "new.csv").write_text("size,soil\n1.0,clay\n4.5,sand\n")
    run("predict", tmp_path / "both", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        values = [float(line["observation_mean"]) for line in csv.DictReader(file)]
    np.testing.assert_allclose(values, [np.sin(1.0) + 1.0, np.sin(4.5)], atol=0.3)

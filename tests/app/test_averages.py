"""Averages by the command line: over a column, over polygons, and over grids of points in polygons."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bcmdist.api.gbcm import GBCM
from bcmdist.app.cli.main import cli
from bcmdist.data.tables.polygons import read_regions
from bcmdist.errors import DataNotFound, InvalidData
from bcmdist.learning.settings import Settings

GIVEN = {"kernel": "matern32", "learn": False, "query": 20, "rows_per_expert": 100, "partition": "spatial"}


def square(x0, y0, x1, y1):
    return [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]]


def feature(kind, coordinates, **properties):
    return {"type": "Feature", "properties": properties, "geometry": {"type": kind, "coordinates": coordinates}}


@pytest.fixture
def places(tmp_path, rng):
    """A model, new rows and polygons: a square with a hole, two squares of one name, and one far away."""
    X = rng.uniform(-2, 2, (400, 2))
    table = pd.DataFrame({"lon": X[:, 0], "lat": X[:, 1], "y": X[:, 0] + 0.1 * rng.standard_normal(400)})
    table[:300].to_csv(tmp_path / "train.csv", index=False)
    GBCM.fit(table[["lon", "lat"]][:300], table.y[:300], Settings(**GIVEN), model=tmp_path / "model")
    new = table[300:][["lat", "lon"]].assign(region=np.where(table.lon[300:] > 0, "east", "west"))
    new.assign(area=rng.uniform(1, 2, 100), gap=["a", "", *["b"] * 98]).to_csv(tmp_path / "new.csv", index=False)
    features = [
        feature("Polygon", [square(0, 0, 2, 2), square(0.5, 0.5, 1, 1)], name="ring"),
        feature("MultiPolygon", [[square(-2, -2, -1, 0)], [square(-1, -2, 0, 0)]], name="two"),
        feature("Polygon", [square(8, 8, 9, 9)]),
    ]
    text = json.dumps({"type": "FeatureCollection", "features": features})
    (tmp_path / "regions.geojson").write_text(text)
    return tmp_path


def ran(places, *words, code=0):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(cli, ["predict", str(places / "model"), *map(str, words), "--serial", "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if not code else {"message": done.stderr}


def test_over_a_column(places):
    new = pd.read_csv(places / "new.csv")
    how = ["--over", "region", "--weight", "area", "--above", "0.5", "--above", "1"]
    figures = ran(places, places / "new.csv", "--out", places / "a.csv", *how)
    assert (figures["rows"], figures["groups"], figures["method"]) == (100, 2, "local")
    found, gbcm = pd.read_csv(places / "a.csv"), GBCM.load(places / "model")
    assert list(found) == ["region", "points", "mean", "sd", "lower95", "upper95", "above0.5", "above1"]
    expected = gbcm.predict_average(new[["lon", "lat"]], new.region, weights=new.area, above=[0.5])
    assert found.region.tolist() == ["east", "west"]
    np.testing.assert_allclose(found["sd"], expected["sd"], rtol=1e-8)
    np.testing.assert_allclose(found["above0.5"], expected["above0.5"], rtol=1e-8)
    ran(places, places / "new.csv", "--out", places / "new.zarr", "--id", "region")


def test_over_polygons(places):
    new = pd.read_csv(places / "new.csv")
    ring = (new.lon > 0) & (new.lat > 0) & ~new.lon.between(0.5, 1) | (new.lon > 0) & (new.lat > 0) & ~new.lat.between(
        0.5, 1
    )
    figures = ran(places, places / "new.csv", "--out", places / "a.csv", "--over", places / "regions.geojson")
    found = pd.read_csv(places / "a.csv").set_index("region")
    assert found.points.to_dict() == {"ring": ring.sum(), "two": ((new.lon < 0) & (new.lat < 0)).sum()}
    assert figures["outside"] == 100 - found.points.sum()
    expected = GBCM.load(places / "model").predict_average(new[["lon", "lat"]][ring], np.zeros(ring.sum()))
    assert found["sd"]["ring"] == pytest.approx(expected["sd"][0], rel=1e-8)
    ran(places, places / "regions.geojson", "--out", places / "b.csv", "--spacing", "0.25")
    grid = pd.read_csv(places / "b.csv").set_index("region")
    assert grid.points.to_dict() == {"ring": 60, "two": 64, "3": 16}
    assert grid["sd"]["3"] > 5 * grid["sd"]["ring"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--over", "nowhere"], "expected a column 'nowhere', found lat, lon, region, area, gap"),
        (["--over", "gap"], "--over gap: expected a group for each point, got none at row 1 (1 such rows)"),
        (["--over", "region", "--weight", "region"], "--weight: expected numbers in 'region', got texts"),
        (["--over", "region", "--terms"], "--over: expected averages over rows, got --terms"),
        (["--weight", "area"], "--weight: expected --over with it"),
        (["--of", "observations"], "--of: expected --over or --draws with it"),
        (["--above", "nan"], "--above: expected a number"),
        (["--over", "missing.geojson"], "missing.geojson: expected a GeoJSON file, found none"),
        (["--over", "regions.geojson", "--coordinates", "lon,up"], "--coordinates: expected two inputs, x and y"),
    ],
)
def test_what_is_wrong_is_said(places, monkeypatch, words, message):
    monkeypatch.chdir(places)
    assert message in ran(places, "new.csv", "--out", "a.csv", *words, code=1)["message"]
    assert not (places / "a.csv").exists()


def test_samples_and_probabilities_beside_predictions(places):
    ran(places, places / "new.csv", "--out", places / "p.csv", "--draws", "3", "--above", "0.5", "--seed", "4")
    found, new = pd.read_csv(places / "p.csv"), pd.read_csv(places / "new.csv")
    gbcm = GBCM.load(places / "model")
    samples = gbcm.sample(new[["lon", "lat"]], size=3, seed=4)
    np.testing.assert_allclose(found[["sample_0", "sample_1", "sample_2"]].T, samples, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found["above0.5"], gbcm.predict(new[["lon", "lat"]], above=[0.5])["above0.5"], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected GeoJSON, it cannot be read"),
        ("[]", "expected features with polygons, got the type None"),
        ('{"type": "Feature", "geometry": {"type": "Point", "coordinates": [0, 0]}}', "in feature 1, got 'Point'"),
        ('{"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}', "rings of at least three corners"),
        ('{"type": "Polygon", "coordinates": [[[0, 0], [1, "a"], [2, 2]]]}', "rings of at least three corners"),
        ('{"type": "Polygon", "coordinates": null}', "rings of at least three corners"),
        ('{"type": "FeatureCollection", "features": []}', "found no feature"),
    ],
)
def test_files_of_polygons_are_checked(tmp_path, text, message):
    (tmp_path / "r.geojson").write_text(text)
    with pytest.raises(InvalidData, match=message):
        read_regions(tmp_path / "r.geojson")
    with pytest.raises(DataNotFound):
        read_regions(tmp_path / "none.geojson")

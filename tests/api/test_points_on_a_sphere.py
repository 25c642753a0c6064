"""A field across the date line from columns of degrees: a model takes longitude and latitude wherever it takes rows."""

import json
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, GBCMRegressor, Settings
from bcmdist.app.cli.main import cli
from bcmdist.app.service.form import fields_of
from bcmdist.app.service.records import inputs_of
from bcmdist.data.tables.sphere import points
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption
from oracles import full_gp

ROWS = 240
FIXED = {"kernel.variance": 2.0, "kernel.lengthscale": 0.8, "likelihood.noise_variance": 0.02}
HOW = ["--kernel", "matern32", "--mean", "zero", "--query", "60", "--no-learn", "--serial"]


def field(lon, lat):
    x, y, z = points(lon, lat).T
    return 3 * x + np.sin(8 * y) + np.cos(5 * z)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    lon, lat = (rng.uniform(165, 205, ROWS) + 180) % 360 - 180, rng.uniform(-25, 15, ROWS)
    y = field(lon, lat) + 0.1 * rng.standard_normal(ROWS)
    return pd.DataFrame({"lat": lat, "lon": lon, "sst": y})


@pytest.fixture(scope="module")
def new():
    return pd.DataFrame({"lon": [179.9999999, -179.9999999, 180.0, -180.0, 170.0], "lat": [0.0, 0.0, 0.0, 0.0, 10.0]})


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    place = tmp_path_factory.mktemp("sphere")
    table.to_csv(place / "sites.csv", index=False)
    table.iloc[:40].to_csv(place / "more.csv", index=False)
    found = run("fit", place / "sites.csv", "--y", "sst", "--sphere", "lon,lat", "--model", place / "model", *HOW)
    assert found.exit_code == 0, found.output
    return place


def run(*words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)


def test_the_whole_gp_is_that_of_inputs_made_by_hand(table, new):
    """With all rows as query points the committee is a dense GP, here of chords computed by hand."""
    how = Settings(kernel="matern32", mean="zero", learn=False, set=FIXED, query=ROWS, rows_per_expert=80)
    gbcm = GBCM.fit(table[["lat", "lon"]], table.sst, how, sphere=("lon", "lat"))
    found, scaling = gbcm.predict(new), gbcm.model.scaling
    X, Xs, length = points(table.lon, table.lat), points(new.lon, new.lat), 0.8 * scaling.x_scale[0]

    def cross(A, B):
        r = np.sqrt(3.0) * np.linalg.norm(A[:, None] - B[None], axis=-1) / length
        return 2.0 * (1.0 + r) * np.exp(-r)

    kernel = SimpleNamespace(cross=cross, diagonal=lambda A: np.full(len(A), 2.0))
    y = (table.sst.to_numpy() - scaling.y_mean) / scaling.y_scale
    mean, covariance, _ = full_gp(kernel, lambda A: np.empty((len(A), 0)), X, y, 0.02, Xs)
    assert np.abs((found["mean"] - scaling.y_mean) / scaling.y_scale - mean).max() <= 1e-9
    assert np.abs(found["variance"] / scaling.y_scale**2 - np.diag(covariance)).max() <= 1e-9
    assert np.ptp(found["mean"][:4]) < 1e-6  # on both sides of the date line
    by_hand = gbcm.predict(Xs)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(by_hand[name], found[name], rtol=1e-10)


def test_the_command_line_and_python_agree(folder, table, new):
    new.to_csv(folder / "new.csv", index=False)
    assert run("predict", folder / "model", folder / "new.csv", "--out", folder / "out.csv", "--serial").exit_code == 0
    found = pd.read_csv(folder / "out.csv")
    gbcm = GBCM.load(folder / "model")
    np.testing.assert_allclose(found["mean"], gbcm.predict(new)["mean"], rtol=1e-10)
    assert np.ptp(found["mean"][:4]) < 1e-6
    assert np.abs(gbcm.predict(table)["mean"] - field(table.lon, table.lat)).std() < 0.2
    assert gbcm.info()["coded"]["lon, lat"].startswith("longitude and latitude")
    settings = Settings(kernel="matern32", mean="zero", query=60, learn=False)
    of_frame = GBCM.fit(table[["lat", "lon"]], table.sst, settings, sphere=("lon", "lat"))
    assert of_frame.model.schema.columns == gbcm.model.schema.columns


def test_a_request_and_its_form_have_degrees(folder, new):
    model = GBCM.load(folder / "model").model
    records = new.to_dict("records")
    np.testing.assert_allclose(inputs_of(model, records), points(new.lon, new.lat), atol=1e-15)
    fields = [
        {"kind": "number", "gaps": False, "name": n, "low": -m, "high": m} for n, m in (("lon", 180), ("lat", 90))
    ]
    assert fields_of(model, []) == [fields[0] | {"period": 360.0}, fields[1]]
    with pytest.raises(InvalidData, match="latitude from -90 to 90 in 'lat', got 99 at row 0"):
        inputs_of(model, [{"lon": 1.0, "lat": 99.0}])
    with pytest.raises(InvalidData, match="expected the column 'lat'"):
        inputs_of(model, [{"lon": 1.0}])


def test_more_rows_scores_blocks_and_pictures(folder):
    model, sites = folder / "streamed", folder / "sites.csv"
    stored = folder / "sites.zarr"
    assert run("import", sites, stored, "--y", "sst", "--sphere", "lon,lat").exit_code == 0
    assert run("fit", stored, "--model", model, *HOW, "--partition", "chunks").exit_code == 0
    assert run("score", model, stored, "--serial").exit_code == 0
    before = GBCM.load(model).info()["rows"]
    more = folder / "others.csv"
    (pd.read_csv(sites).assign(lat=lambda table: table.lat + 0.5)).to_csv(more, index=False)
    done = run("ingest", model, more, "--serial")
    assert done.exit_code == 0, done.output
    assert GBCM.load(model).info()["rows"] == before + ROWS
    done = run("score", folder / "model", sites, "--blocks", "4", "--coordinates", "lon,lat", "--serial")
    assert done.exit_code == 0, done.output
    for what in ("map", "relevance", "variogram"):
        done = run(
            "plot", folder / "model", "--what", what, "--data", sites, "--out", folder / f"{what}.svg", "--serial"
        )
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("columns", "words", "text"),
    [
        ({}, ["--sphere", "lng,lat"], "expected a column 'lng', found"),
        ({}, ["--sphere", "lon,lon"], "two different columns"),
        ({}, ["--sphere", "lon"], "two different columns, LON,LAT, got 'lon'"),
        ({}, ["--sphere", "lon,lat", "--sphere", "lon,lat"], "each once, got 'lon' twice"),
        ({}, ["--sphere", "lon,lat", "--category", "lat"], "got 'lat' twice"),
        ({}, ["--sphere", "lon,sst"], "got 'sst' for several"),
        ({"lat": 95.0}, ["--sphere", "lon,lat"], "latitude from -90 to 90 in 'lat', got 95 at row 0"),
        ({"lon": 4.6e5}, ["--sphere", "lon,lat"], "longitude from -360 to 360 in 'lon', got 460000 at row 0"),
        ({"lat": np.nan}, ["--sphere", "lon,lat"], "each row of 'lon, lat', got nan at row 0 .* or say --missing drop"),
        ({"lat": "north"}, ["--sphere", "lon,lat"], "expected numbers in the inputs, got texts in 'lat'"),
    ],
)
def test_bad_columns_are_refused_before_anything_is_written(columns, words, text, table, tmp_path):
    table = table.astype(object)
    for name, value in columns.items():
        table.loc[0, name] = value
    table.to_csv(tmp_path / "sites.csv", index=False)
    for command in (["import", tmp_path / "sites.csv", tmp_path / "data.zarr"], ["fit", tmp_path / "sites.csv"]):
        how = [] if command[0] == "import" else ["--model", tmp_path / "model", "--serial", "--query", 30]
        done = run(*command, "--y", "sst", *words, *how)
        assert done.exit_code == 1
        assert re.search(text, " ".join(done.output.split())), done.output
        assert [one.name for one in tmp_path.iterdir()] == ["sites.csv"]


def test_rows_without_a_place_can_be_left_out(table, tmp_path):
    table = table.copy()
    table.loc[[3, 5], "lon"] = np.nan
    table.to_csv(tmp_path / "sites.csv", index=False)
    words = ["--y", "sst", "--sphere", "lon,lat", "--missing", "drop", "--json"]
    done = CliRunner().invoke(cli, ["import", str(tmp_path / "sites.csv"), str(tmp_path / "data.zarr"), *words])
    assert "2 rows left out: they have gaps" in done.output  # a warning, which is an error here


def test_estimators_take_columns_of_degrees(table, new):
    X = table[["lat", "lon"]]
    how = {"kernel": "matern32", "query": 60, "options": {"learn": False}}
    model = GBCMRegressor(sphere=("lon", "lat"), **how).fit(X, table.sst)
    assert np.ptp(model.predict(new[["lat", "lon"]])[:4]) < 1e-6
    with pytest.raises(InvalidData, match="latitude from -90 to 90"):
        model.predict(new[["lat", "lon"]].assign(lat=100.0))
    with pytest.raises(InvalidData, match="each row of 'lat', none at row 2"):
        model.predict(new[["lat", "lon"]].assign(lat=[0.0, 0.0, np.nan, 0.0, 0.0]))
    with pytest.raises(DataNotFound, match="sphere: expected a data frame with a column 'x'"):
        GBCMRegressor(sphere=("x", "lat"), **how).fit(X, table.sst)
    with pytest.raises(DataNotFound, match="found none with a name"):
        GBCM.fit(X.to_numpy(), table.sst.to_numpy(), Settings(learn=False), sphere=("lon", "lat"))
    with pytest.raises(InvalidOption, match="got a path or URL; give --sphere"):
        GBCM.fit("sites.zarr", Settings(), sphere=("lon", "lat"))


def test_fields_across_the_date_line():
    xr = pytest.importorskip("xarray", reason="maps: pip install 'bcmdist[grids]'")
    import bcmdist.xarray  # noqa: F401  # adds ds.bcm

    lon, lat = np.arange(150.0, 211.0, 4.0), np.arange(-20.0, 21.0, 4.0)
    ds = xr.Dataset(coords={"lon": lon, "lat": lat})
    x, y = np.meshgrid(lon, lat, indexing="ij")
    ds["sst"] = (("lon", "lat"), field(x.ravel(), y.ravel()).reshape(x.shape))
    model = ds.bcm.fit("sst", ["lon", "lat"], Settings(kernel="se", query=100, effort="quick"), sphere=("lon", "lat"))
    west = ds.assign_coords(lon=(lon + 180) % 360 - 180)
    np.testing.assert_allclose(ds.bcm.predict(model).sst.values, west.bcm.predict(model).sst.values, rtol=1e-9)
    above = ds.bcm.predict(model, above=[-2.5])
    assert set(np.round(above["sst_above-2.5"].values.ravel(), 1)) >= {0.0, 1.0}


def test_polygons_of_degrees_east_of_the_date_line(folder):
    corners = [[190, -5], [200, -5], [200, 5], [190, 5]]
    shape = {
        "type": "Feature",
        "properties": {"name": "east"},
        "geometry": {"type": "Polygon", "coordinates": [corners]},
    }
    file = folder / "regions.geojson"
    file.write_text(json.dumps(shape))
    for data, more in ((folder / "sites.csv", ["--over", file]), (file, [])):
        out = folder / f"averages{len(more)}.csv"
        assert run("predict", folder / "model", data, *more, "--coordinates", "lon,lat", "--out", out).exit_code == 0
        lon, lat = np.meshgrid(np.linspace(190, 200, 20), np.linspace(-5, 5, 20))
        assert pd.read_csv(out)["mean"][0] == pytest.approx(field(lon.ravel(), lat.ravel()).mean(), abs=0.3)

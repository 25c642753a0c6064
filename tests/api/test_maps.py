"""Fields of xarray data sets: what is learned of them, and predicted on them, eagerly, lazily and region by region."""

import dataclasses
import pickle
import runpy
import sys
import warnings

import dask
import numpy as np
import pytest
import zarr

from bcmdist import GBCM, Settings
from bcmdist.data.tables.roles import Roles
from bcmdist.errors import (
    DataExists,
    DataNotFound,
    InvalidData,
    InvalidDtype,
    InvalidOption,
    MissingExtra,
    NotFinite,
)

xr = pytest.importorskip("xarray", reason="grids: pip install 'bcmdist[grids]'")
pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")

import bcmdist.xarray  # noqa: E402
from bcmdist.api.maps.cells import Cells  # noqa: E402
from bcmdist.api.maps.predicted import BlockPredictor  # noqa: E402

TIMES, LATS, LONS = 6, 7, 8
INPUTS = ["lon", "lat", "time", "height"]
QUICK = Settings(query=30, kernel="se", learn=False)


@pytest.fixture(autouse=True)
def _no_threads():
    """Those that dask would start stay."""
    with dask.config.set(scheduler="synchronous"):
        yield


def refuses(*args, **kwargs):
    """A scheduler for what must not be computed."""
    raise AssertionError("computed")


def field(rng):
    """A field with gaps, on a grid of which everything has attributes."""
    lon, lat = np.linspace(5, 8, LONS), np.linspace(50, 52, LATS)
    height = rng.uniform(0, 1, (LATS, LONS))
    height[0, 0] = np.nan
    t2m = np.sin(lon) + np.cos(3 * lat)[:, None] + 0.3 * np.arange(TIMES)[:, None, None]
    t2m += np.nan_to_num(height) + 0.05 * rng.standard_normal((TIMES, LATS, LONS))
    t2m[rng.uniform(size=t2m.shape) < 0.2] = np.nan
    said = {"standard_name": "air_temperature", "units": "degC", "long_name": "of the air", "grid_mapping": "crs"}
    data = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), t2m, said | {"actual_range": [-9.0, 9.0]}),
            "height": (("lat", "lon"), height, {"units": "km"}),
            "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
            "lat_bnds": (("lat", "side"), np.stack([lat - 0.2, lat + 0.2], axis=1)),
            "other": (("lat",), lat),
        },
        coords={
            "time": np.datetime64("2026-01-01T06", "ns") + np.arange(TIMES) * np.timedelta64(6, "h"),
            "lat": ("lat", lat, {"units": "degrees_north", "bounds": "lat_bnds"}),
            "lon": ("lon", lon, {"units": "degrees_east"}),
            "region": (("lat", "lon"), np.ones((LATS, LONS)), {"long_name": "number of a region"}),
        },
        attrs={"title": "a field", "history": "made"},
    )
    assert dict(data.t2m.sizes) == {"time": TIMES, "lat": LATS, "lon": LONS}
    return data


@pytest.fixture(scope="module")
def fitted():
    data = field(np.random.default_rng(3))
    return data, data.bcm.fit("t2m", INPUTS, QUICK)


def cells(data):
    """All cells as a data frame, in the order of the memory; times as days since 1970."""
    frame = data.drop_vars(["lat_bnds", "crs"]).to_dataframe(dim_order=["time", "lat", "lon"]).reset_index()
    frame["time"] = (frame.time - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    return frame


def same(found, wanted):
    """Blocks of other sizes are other products of matrices: their sums differ in the last digits."""
    for name in wanted.data_vars:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-9, atol=1e-10)


# --- Learning ---


def test_cells_without_gaps_are_what_is_learned(fitted):
    """Against the same rows of a data frame."""
    data, gbcm = fitted
    frame = cells(data)
    known = frame.dropna()
    assert len(frame) > len(known) > 100
    again = GBCM.fit(known[INPUTS], known.t2m.to_numpy(), QUICK)
    assert gbcm.info()["rows"] == len(known)
    X = frame.dropna(subset=INPUTS)[INPUTS]
    for name, values in again.predict(X).items():
        np.testing.assert_array_equal(gbcm.predict(X)[name], values)
    assert gbcm.model.schema.columns == tuple(INPUTS)


def rows_of(data):
    """Inputs and targets that are learned, in the order of the inputs."""
    kept, url = Cells.of(data, Roles("t2m", inputs=tuple(INPUTS), missing="drop")).written()
    group = zarr.open_group(url, mode="r")
    rows = np.column_stack([group["X"][...], group["y"][...]])
    del kept
    return rows[np.lexsort(rows.T[:3])]


@pytest.mark.slow
def test_a_lazy_field_is_learned_chunk_by_chunk(fitted):
    data, gbcm = fitted
    shapes = []

    def noted(block):
        shapes.append(block.shape)
        return block

    lazy = data.chunk(time=2, lat=4, lon=-1)
    lazy["t2m"] = lazy.t2m.copy(data=lazy.t2m.data.map_blocks(noted, meta=np.empty((0, 0, 0))))
    again = bcmdist.xarray.fit(lazy, "t2m", INPUTS, QUICK)
    assert again.info()["rows"] == gbcm.info()["rows"]
    np.testing.assert_array_equal(rows_of(lazy), rows_of(data))
    shapes = shapes[: len(shapes) // 2]  # of `fit`; `rows_of` computes as much
    assert sorted(shapes) == sorted(2 * TIMES // 2 * [(2, 4, LONS), (2, 3, LONS)])  # once a look, once the rows


@pytest.mark.slow
def test_times_go_round_and_texts_are_categories(rng):
    data = field(rng)
    data["ground"] = ("lat", np.where(np.arange(LATS) % 2, "sea", "land").astype(object))
    gbcm = data.bcm.fit("t2m", ["lon", "time", "ground"], QUICK, cyclic={"time": ["day"]})
    names = ("lon", "time", "time:day_sin", "time:day_cos", "ground=land", "ground=sea")
    assert gbcm.model.schema.columns == names
    assert not np.isnan(data.bcm.predict(gbcm).t2m).any()
    data["ground"][0] = "ice"
    with pytest.raises(InvalidData, match=r"expected a level of training in 'ground' \('land', 'sea'\), got 'ice'"):
        data.bcm.predict(gbcm)


@pytest.mark.slow
def test_weights_stand_on_the_grid(fitted):
    data, _ = fitted
    weighted = data.assign(w=("lat", np.linspace(1.0, 3.0, LATS)))
    twice = weighted.bcm.fit("t2m", INPUTS, QUICK, companions={"weight": "w"})
    assert twice.facts["companions"] == ["weight"]
    known = cells(weighted).dropna()
    again = GBCM.fit(known[INPUTS], known.t2m.to_numpy(), QUICK, companions={"weight": known.w.to_numpy()})
    for name, values in again.predict(known[INPUTS]).items():
        np.testing.assert_array_equal(twice.predict(known[INPUTS])[name], values)


# --- Predicting ---


def test_every_cell_is_predicted(fitted):
    """Against predictions of a data frame; nan where an input is missing, and nowhere else."""
    data, gbcm = fitted
    said, frame = data.bcm.predict(gbcm, quantiles=(0.9,)), cells(data)
    there = frame.height.notna().to_numpy()
    wanted = gbcm.predict(frame[there][INPUTS], quantiles=(0.9,))
    deviation = np.sqrt(wanted["observation_variance"])
    found = {"t2m": wanted["mean"], "t2m_standard_error": deviation, "t2m_quantile0.9": wanted["quantile0.9"]}
    for name, values in found.items():
        # The two predict blocks of other sizes, whose products are summed in another order.
        np.testing.assert_allclose(said[name].to_numpy().ravel()[there], values, rtol=1e-12, atol=1e-12)
        assert np.isnan(said[name].to_numpy().ravel()[~there]).all()
    assert not there.all()


def test_the_field_without_noise_is_predicted_too(fitted, tmp_path):
    data, gbcm = fitted
    said, frame = data.bcm.predict(gbcm, latent=True), cells(data)
    there = frame.height.notna().to_numpy()
    wanted = gbcm.predict(frame[there][INPUTS])
    np.testing.assert_allclose(said.t2m_latent.to_numpy().ravel()[there], wanted["mean"], rtol=1e-12, atol=1e-12)
    error = said.t2m_latent_standard_error.to_numpy().ravel()[there]
    np.testing.assert_allclose(error, np.sqrt(wanted["variance"]), rtol=1e-9)
    assert np.all(error <= said.t2m_standard_error.to_numpy().ravel()[there] * (1.0 + 1e-12))
    assert said.t2m_latent_standard_error.attrs["standard_name"] == "air_temperature standard_error"
    assert "noise-free" in said.t2m_latent_standard_error.attrs["long_name"]
    data.bcm.predict_to_zarr(gbcm, tmp_path / "map.zarr", latent=True)
    same(xr.open_zarr(tmp_path / "map.zarr").drop_vars("crs"), said.drop_vars("crs"))
    positive = data.assign(t2m=np.exp(data.t2m))
    logs = positive.bcm.fit("t2m", INPUTS, dataclasses.replace(QUICK, target_transform="log"))
    with pytest.raises(InvalidOption, match="latent: expected a field in units of its measurements"):
        positive.bcm.predict(logs, latent=True)


def test_what_describes_the_field_is_kept(fitted):
    data, gbcm = fitted
    before = data.copy(deep=True)
    said = data.bcm.predict(gbcm)
    xr.testing.assert_identical(data, before)
    assert said.t2m.dims == said.t2m_standard_error.dims == ("time", "lat", "lon")
    assert said.attrs == {"Conventions": "CF-1.11", "title": "a field", "history": "made"}
    for name in ("time", "lat", "lon", "region"):
        xr.testing.assert_identical(said[name].variable, data[name].variable)
    assert set(said.data_vars) == {"t2m", "t2m_standard_error", "crs", "lat_bnds"}
    mean = dict(said.t2m.attrs)
    assert mean.pop("source").startswith("bcmdist ")
    assert mean == {
        "standard_name": "air_temperature",
        "units": "degC",
        "long_name": "of the air",
        "grid_mapping": "crs",
        "ancillary_variables": "t2m_standard_error",
    }
    assert said.t2m_standard_error.attrs == {
        "standard_name": "air_temperature standard_error",
        "units": "degC",
        "units_metadata": "temperature: difference",
        "long_name": "standard deviation of a new t2m",
        "grid_mapping": "crs",
    }


def test_gaps_are_filled(fitted):
    data, gbcm = fitted
    whole, said = data.bcm.fill(gbcm), data.bcm.predict(gbcm)
    measured = data.t2m.notnull().to_numpy()
    np.testing.assert_array_equal(whole.t2m.to_numpy()[measured], data.t2m.to_numpy()[measured])
    assert np.isnan(whole.t2m_standard_error.to_numpy()[measured]).all()
    for name in ("t2m", "t2m_standard_error"):
        np.testing.assert_allclose(whole[name].to_numpy()[~measured], said[name].to_numpy()[~measured], rtol=1e-9)
    assert whole.t2m.attrs == said.t2m.attrs


@pytest.mark.parametrize("chunks", [{"time": 2}, {"time": -1, "lat": 3, "lon": 5}])
def test_lazy_fields_stay_lazy(fitted, chunks):
    data, gbcm = fitted
    with dask.config.set(scheduler=refuses):
        lazy = data.chunk(chunks)
        said, whole = lazy.bcm.predict(gbcm), lazy.bcm.fill(gbcm)
        with pytest.raises(AssertionError, match="computed"):
            said.t2m.compute()
    assert said.t2m.chunks == whole.t2m_standard_error.chunks == lazy.t2m.chunks
    same(said.compute(), data.bcm.predict(gbcm))
    same(whole.compute(), data.bcm.fill(gbcm))


def test_a_new_grid_needs_no_target(fitted):
    data, gbcm = fitted
    fine = data.drop_vars(["t2m", "other"]).interp(lon=np.linspace(5, 8, 15))
    said = fine.bcm.predict(gbcm, attrs=data.t2m.attrs)
    assert dict(said.t2m.sizes) == {"time": TIMES, "lat": LATS, "lon": 15}
    np.testing.assert_allclose(said.t2m[:, 1:, ::2], data.bcm.predict(gbcm).t2m[:, 1:], rtol=1e-6, equal_nan=True)
    assert said.t2m_standard_error.attrs["standard_name"] == "air_temperature standard_error"
    with dask.config.set(scheduler=refuses):
        lazy = fine.bcm.predict(gbcm, chunks={"time": 4})
    assert lazy.t2m.chunksizes["time"] == (4, 2)
    same(lazy.compute(), fine.bcm.predict(gbcm))
    one = fine.isel(time=2)
    same(one.bcm.predict(gbcm), said.isel(time=2).drop_vars("time"))


@pytest.mark.slow
def test_a_grid_of_coordinates_alone_is_written_too(fitted, tmp_path, monkeypatch):
    data, _ = fitted
    monkeypatch.setattr("bcmdist.api.maps.maps.REGION_CELLS", 2 * LONS)
    gbcm = data.bcm.fit("t2m", ["lon", "lat"], QUICK)
    grid = xr.Dataset(coords={"lat": data.lat, "lon": data.lon})
    assert grid.bcm.predict_to_zarr(gbcm, tmp_path / "out.zarr") == LATS * LONS
    same(opened(tmp_path / "out.zarr"), grid.bcm.predict(gbcm))
    assert not np.isnan(grid.bcm.predict(gbcm).t2m).any()


def test_blocks_travel_to_other_processes(fitted):
    _, gbcm = fitted
    task = BlockPredictor(gbcm.snapshot, "committee")
    values = [np.array([value]) for value in (6.0, 51.0, np.datetime64("2026-01-01T09", "ns"), 0.5)]
    here, there = task(np.ones(1, bool), *values), pickle.loads(pickle.dumps(task))(np.ones(1, bool), *values)
    np.testing.assert_array_equal(here, there)
    assert np.isfinite(here).all()


# --- Region by region ---


def opened(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Zarr, about consolidated metadata
        return xr.open_zarr(path, chunks=None).load()


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [{"time": 4, "lat": 3}, None])
def test_zarr_is_written_region_by_region(fitted, tmp_path, monkeypatch, chunks):
    data, gbcm = fitted
    monkeypatch.setattr("bcmdist.api.maps.maps.REGION_CELLS", 2 * LONS)
    sizes, predict = [], BlockPredictor.__call__

    def noted(task, wanted, *values):
        sizes.append(wanted.size)
        return predict(task, wanted, *values)

    wanted = data.bcm.predict(gbcm)
    monkeypatch.setattr(BlockPredictor, "__call__", noted)
    out = tmp_path / "out.zarr"
    assert data.bcm.predict_to_zarr(gbcm, out, chunks=chunks) == sum(sizes) == TIMES * LATS * LONS
    assert max(sizes) == (4 * 3 * LONS if chunks else 2 * LONS)
    found = opened(out)
    same(found, wanted)
    assert [type(codec).__name__ for codec in found.t2m.encoding["compressors"]] == ["ZstdCodec", "Crc32cCodec"]
    assert found.t2m.attrs == wanted.t2m.attrs
    assert found.attrs == wanted.attrs
    np.testing.assert_array_equal(found.time, data.time)
    assert set(found.coords) == {"time", "lat", "lon", "region"}
    with pytest.raises(DataExists):
        data.bcm.predict_to_zarr(gbcm, out)


def test_nothing_is_left_of_a_map_that_failed(fitted, tmp_path, monkeypatch):
    data, gbcm = fitted

    def fails(task, wanted, *values):
        raise NotFinite("a block")

    monkeypatch.setattr(BlockPredictor, "__call__", fails)
    with pytest.raises(NotFinite):
        data.bcm.predict_to_zarr(gbcm, tmp_path / "out.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [2, 3])
def test_packed_files_are_read_lazily_and_give_whole_numbers(fitted, tmp_path, version):
    """Of a target of 16 bits, predictions are not."""
    data, gbcm = fitted
    packing = {"t2m": {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -9999}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Zarr, about consolidated metadata
        data.chunk(time=3).to_zarr(tmp_path / "in.zarr", encoding=packing, zarr_format=version)
        stored = xr.open_zarr(tmp_path / "in.zarr")
    stored.bcm.predict_to_zarr(gbcm, tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")
    same(found, data.bcm.predict(gbcm))
    assert found.t2m.encoding["dtype"] == np.float64


# --- Classes and counts ---


@pytest.mark.slow
def test_classes_have_flags_and_probabilities(fitted, tmp_path):
    data, _ = fitted
    wet = xr.where(data.t2m > data.t2m.mean(), "wet ground", "dry").where(data.t2m.notnull(), "")
    known = data.assign(ground=wet.astype(object))
    task = Settings(query=30, kernel="se", learn=False, task="classification")
    gbcm = known.bcm.fit("ground", ["lon", "lat", "time", "height"], task)
    said = known.bcm.predict(gbcm)
    assert said.ground_probability.dims == ("time", "lat", "lon", "class")
    assert list(said["class"].to_numpy()) == ["dry", "wet ground"]
    assert said.ground.attrs["flag_meanings"] == "dry wet_ground"
    assert said.ground.attrs["ancillary_variables"] == "ground_probability"
    there = said.ground_probability.notnull().all("class").to_numpy()
    best = said.ground_probability.to_numpy()[there].argmax(axis=1)
    np.testing.assert_array_equal(said.ground.to_numpy()[there], best)
    assert (said.ground.to_numpy()[~there] == said.ground.encoding["_FillValue"]).all()
    assert not there.all()
    known.bcm.predict_to_zarr(gbcm, tmp_path / "out.zarr", chunks={"time": 2})
    found = opened(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found.ground.to_numpy()[there], best)
    assert np.isnan(found.ground.to_numpy()[~there]).all()
    assert list(found["class"].to_numpy()) == ["dry", "wet ground"]
    with pytest.raises(InvalidOption, match="expected a model of numbers, got one of classes"):
        known.bcm.fill(gbcm)


@pytest.mark.slow
def test_counts_are_those_of_the_exposure_of_a_cell(fitted):
    data, _ = fitted
    area = np.linspace(1.0, 2.0, LATS)
    known = data.assign(count=np.floor(np.abs(data.t2m) * 3), area=("lat", area))
    settings = Settings(query=30, kernel="se", learn=False, task="counts")
    gbcm = known.bcm.fit("count", ["lon", "time"], settings, companions={"exposure": "area"})
    said = known.bcm.predict(gbcm)["count"]
    np.testing.assert_allclose(said / known.area, (said / known.area).isel(lat=[0]).to_numpy() + 0 * said, rtol=1e-10)


# --- Longitudes ---


def test_a_sphere_has_no_seam(rng):
    """Places on both sides of a meridian are as near to each other as anywhere, by whatever numbers it is called."""
    data = xr.Dataset(coords={"lon": [-1.0, 1.0, 359.0, 181.0, 179.0], "lat": [0.0, 60.0]})
    known = data.bcm.on_sphere()
    place = np.stack([one.transpose("lon", "lat") for one in xr.broadcast(known.x, known.y, known.z)], axis=-1)
    np.testing.assert_allclose((place**2).sum(axis=-1), 1.0, rtol=1e-14)
    assert "units" in known.x.attrs
    apart = np.linalg.norm(place[0] - place[1], axis=-1)
    np.testing.assert_allclose(apart, 2 * np.sin(np.deg2rad(1)) * np.cos(np.deg2rad([0, 60])), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(place[3] - place[4], axis=-1), apart, rtol=1e-12)
    np.testing.assert_allclose(place[0], place[2], atol=1e-14)
    with pytest.raises(DataNotFound, match="found no 'longitude'"):
        data.bcm.on_sphere(lon="longitude")


# --- Refusals ---


def test_what_does_not_fit_is_refused_before_anything_is_read(fitted, tmp_path):
    data, gbcm = fitted
    lazy = data.chunk(time=2)
    unnamed = GBCM.fit(np.arange(40.0)[:, None], np.arange(40.0), QUICK)
    with dask.config.set(scheduler=refuses):
        for inputs, error, text in [
            ("lon", InvalidOption, r"expected a list of names, got 'lon'"),
            ([], InvalidOption, r"expected a list of names"),
            (["lon", "nothing"], DataNotFound, r"expected a variable 'nothing', found"),
            (["lon", "lat_bnds"], InvalidData, r"expected 'lat_bnds' along dimensions of t2m .* got 'side' too"),
            (["lon", "t2m"], InvalidOption, r"one role for a column, got 't2m'"),
        ]:
            with pytest.raises(error, match=text):
                lazy.bcm.fit("t2m", inputs, QUICK)
        with pytest.raises(InvalidOption, match=r"cyclic: expected day, week, year of inputs"):
            lazy.bcm.fit("t2m", ["lon"], cyclic={"time": ["month"]})
        with pytest.raises(InvalidOption, match=r"companions among .* got 'weights'"):
            lazy.bcm.fit("t2m", ["lon"], companions={"weights": "height"})
        with pytest.raises(DataNotFound, match=r"expected the inputs of training, found no 'height' among"):
            lazy.drop_vars("height").bcm.predict(gbcm)
        with pytest.raises(
            InvalidData, match=r"expected inputs along dimensions of 't2m' \(time, lat\), got 'lon' too"
        ):
            lazy.assign(t2m=lazy.t2m.isel(lon=0, drop=True)).bcm.predict(gbcm)
        with pytest.raises(InvalidOption, match=r"expected one whose inputs have names"):
            lazy.bcm.predict(unnamed)
        with pytest.raises(InvalidOption, match=r"quantiles: expected levels between 0 and 1"):
            lazy.bcm.predict(gbcm, quantiles=(1.5,))
        with pytest.raises(DataNotFound, match=r"expected a variable 't2m' with gaps, found none; use `predict`"):
            lazy.drop_vars("t2m").bcm.fill(gbcm)
        with pytest.raises(InvalidDtype, match=r"expected numbers in the inputs, got dates in 'height'"):
            lazy.assign(height=lazy.time).bcm.predict_to_zarr(gbcm, tmp_path / "out.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_field_of_gaps_has_nothing_to_learn_from(fitted):
    data, _ = fitted
    with pytest.raises(InvalidData, match=r"expected cells where 't2m' and all inputs are there, found none"):
        data.assign(t2m=data.t2m * np.nan).bcm.fit("t2m", ["lon"], QUICK)


def test_without_xarray_there_is_a_way_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    monkeypatch.delitem(sys.modules, "bcmdist.api.maps.fields")
    with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[grids\]'"):
        runpy.run_module("bcmdist.api.maps.fields")

"""NetCDF and Zarr of separate variables or a grid, as tables: a row for each cell, whatever is read at a time."""

import warnings

import dask
import numpy as np
import pytest
import zarr

from bcmdist.data.dataset import read_schema
from bcmdist.data.tables import tables
from bcmdist.data.tables.grids import blocks
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.roles import Roles
from bcmdist.errors import BcmdistWarning, DataNotFound, InvalidData, InvalidOption

xr = pytest.importorskip("xarray", reason="grids: pip install 'bcmdist[grids]'")
TIMES, LATS, LONS = 5, 3, 4


@pytest.fixture
def field(rng):
    """A gridded field with two gaps, packed as numbers of 16 bits, and a height that time has no part in."""
    values = rng.uniform(270, 300, (TIMES, LATS, LONS)).round(2)
    values[1, 2, 3] = values[4, 0, 0] = np.nan
    data = xr.Dataset(
        {"t2m": (("time", "lat", "lon"), values), "height": (("lon", "lat"), rng.uniform(0, 9, (LONS, LATS)))},
        coords={
            "time": np.datetime64("2026-01-01T06") + np.arange(TIMES) * np.timedelta64(6, "h"),
            "lat": np.linspace(50, 52, LATS),
            "lon": np.linspace(5, 8, LONS),
        },
    )
    assert dict(data.sizes) == {"time": TIMES, "lat": LATS, "lon": LONS}
    return data


def stored(data, path):
    encoding = {"t2m": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -9999}}
    with warnings.catch_warnings(), dask.config.set(scheduler="synchronous"):  # another test's cluster may be gone
        warnings.simplefilter("ignore")  # of Zarr, about consolidated metadata
        data.to_zarr(path, encoding=encoding) if path.suffix == ".zarr" else data.to_netcdf(path, encoding=encoding)
    return path


def imported(file, out, **roles):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # of zones and gaps
        figures = import_file(file, out, roles=Roles("t2m", **roles))
    group = zarr.open_group(out, mode="r")
    return figures, {name: group[name][...] for name in group.array_keys()}


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
@pytest.mark.parametrize("rows", [1, 7, 12, 1000])
def test_each_cell_is_a_row(field, tmp_path, suffix, rows, monkeypatch):
    """Against xarray's own table of the same field."""
    monkeypatch.setattr(tables.Named.pieces, "__defaults__", (rows,))
    file = stored(field, tmp_path / f"a.{suffix}")
    names = ("lon", "lat", "time", "height")
    figures, found = imported(file, tmp_path / "out.zarr", inputs=names, missing="drop")
    assert (figures["rows"], figures["dropped"]) == (TIMES * LATS * LONS - 2, 2)
    frame = field.to_dataframe(dim_order=["time", "lat", "lon"]).reset_index()
    frame["time"] = (frame["time"] - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    frame = frame[frame.t2m.notna()]
    np.testing.assert_allclose(found["X"], frame[list(names)], rtol=1e-12)  # of days in units of nanoseconds
    np.testing.assert_allclose(found["y"], frame.t2m, rtol=1e-12)  # packed to hundredths, which they are
    np.testing.assert_array_equal(found["row"], frame.index)
    assert read_schema(tmp_path / "out.zarr").coordinates == ("lon", "lat", "time")


def test_separate_variables(tmp_path, rng):
    """Along one dimension, some of them texts."""
    x, kind = rng.standard_normal(12), np.array(["sea", "land"] * 6)
    data = xr.Dataset({"x": ("row", x), "kind": ("row", kind), "t2m": ("row", 2 * x)})
    figures, found = imported(stored(data, tmp_path / "a.zarr"), tmp_path / "out.zarr", inputs=("x", "kind"))
    assert figures["columns"] == ["x", "kind=land", "kind=sea"]
    np.testing.assert_array_equal(found["X"], np.column_stack([x, kind == "land", kind == "sea"]))


@pytest.mark.parametrize(("shape", "rows"), [((5, 3, 4), 1), ((5, 3, 4), 7), ((5, 3, 4), 100), ((6,), 4), ((0, 3), 2)])
def test_blocks_are_the_cells_in_order(shape, rows):
    numbers = np.arange(np.prod(shape)).reshape(shape)
    found = [numbers[block].ravel() for block in blocks(shape, rows)]
    assert np.concatenate([[], *found]).tolist() == numbers.ravel().tolist()
    assert all(len(one) <= rows for one in found)


@pytest.mark.parametrize(
    ("roles", "error", "text"),
    [
        ({}, InvalidOption, "expected --x with the variables that are inputs, .* found t2m, height, time, "),
        ({"inputs": ("lon", "no")}, DataNotFound, "expected a variable 'no', found"),
        ({"y": "height", "inputs": ("lon", "time")}, InvalidData, "'time' along dimensions of height .lon, lat., got"),
        ({"inputs": ("lon", "lat")}, InvalidData, "each row of 't2m', got nan at row 23 "),
    ],
)
def test_what_is_no_grid_is_named(roles, error, text, field, tmp_path):
    file = stored(field, tmp_path / "a.nc")
    with pytest.raises(error, match=text):
        import_file(file, tmp_path / "out.zarr", roles=Roles(**{"y": "t2m", **roles}))
    assert not (tmp_path / "out.zarr").exists()

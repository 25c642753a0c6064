"""Gaps of a gridded field filled in, with uncertainty: xarray data sets, fitted and predicted by names.

    python 12_maps.py [--quick] [PICTURE.png]

Clouds hide parts of a sea-surface temperature for some days. What is measured says what is beneath them, the more
certainly the sooner the sky was clear; how well it knows itself is judged where the truth is hidden. Predictions of all
cells are written to Zarr region by region, as they are of fields that do not fit into memory.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

import bcmdist.xarray  # the methods of ds.bcm
from bcmdist import Settings

NOISE = 0.1


def sea(days, lats, lons, rng) -> tuple[xr.Dataset, xr.DataArray]:
    """Temperatures with clouds before them, and what these hide."""
    coords = {
        "time": ("time", np.datetime64("2026-06-01", "ns") + np.arange(days) * np.timedelta64(1, "D")),
        "lat": ("lat", np.linspace(36, 44, lats), {"standard_name": "latitude", "units": "degrees_north"}),
        "lon": ("lon", np.linspace(0, 12, lons), {"standard_name": "longitude", "units": "degrees_east"}),
    }
    grid = xr.Dataset(coords=coords)
    day = (grid.time - grid.time[0]) / np.timedelta64(1, "D")
    eddies = np.sin(grid.lon - 0.3 * day) * np.cos(1.3 * grid.lat + 0.2 * day) + 0.6 * np.cos(0.7 * grid.lon + grid.lat)
    field = (20.0 - 0.5 * (grid.lat - 40) + 0.05 * day + eddies).transpose("time", "lat", "lon")
    truth = field + NOISE * rng.standard_normal(field.shape)
    clear = xr.ones_like(field, dtype=bool)
    for _ in range(2 * days):  # clouds of some degrees, each for some days
        lon, lat, start = rng.uniform(0, 12), rng.uniform(36, 44), rng.uniform(-2, days)
        inside = (grid.lon - lon) ** 2 / 4 + (grid.lat - lat) ** 2 < rng.uniform(0.5, 3)
        clear &= ~(inside & (abs(day - start) < 2))
    said = {"standard_name": "sea_surface_temperature", "units": "degC"}
    return grid.assign(sst=truth.where(clear).assign_attrs(said)), truth


def draw(path, data, whole, day):
    """What was measured on a day, what was filled in, and how certainly."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.6), layout="constrained")
    low, high = float(data.sst.min()), float(data.sst.max())
    for axes, (title, field, how) in zip(
        figure.subplots(1, 3),
        [
            ("measured", data.sst, {"vmin": low, "vmax": high}),
            ("gaps filled", whole.sst, {"vmin": low, "vmax": high}),
            ("standard error of what was filled in", whole.sst_standard_error, {"cmap": "magma", "vmin": 0}),
        ],
        strict=True,
    ):
        field.isel(time=day).plot.pcolormesh(ax=axes, cbar_kwargs={"label": "degC"}, **how)
        axes.set(title=title, xlabel="longitude, degrees east", ylabel="latitude, degrees north")
    figure.suptitle(f"Sea-surface temperature, {str(data.time.values[day])[:10]}")
    figure.savefig(path, dpi=120)


def main(days, lats, lons, query, picture) -> None:
    data, truth = sea(days, lats, lons, np.random.default_rng(0))
    hidden = data.sst.isnull()
    print(f"{data.sst.size} cells, {float(hidden.mean()):.0%} of them behind clouds")
    gbcm = data.bcm.fit(
        "sst", ["lon", "lat", "time"], Settings(query=query, kernel="se", mean="constant", effort="quick")
    )

    whole = data.bcm.fill(gbcm)
    error = (whole.sst - truth).where(hidden)
    inside = abs(error) < 1.96 * whole.sst_standard_error
    print(f"rms error there {float(np.sqrt((error**2).mean())):.3f} degC (the noise has {NOISE}),", end=" ")
    print(f"95 % intervals hold {float(inside.where(hidden).mean()):.3f}")
    print("units and name of the error:", whole.sst_standard_error.units, "-", whole.sst_standard_error.standard_name)

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Zarr, about consolidated metadata
        out = Path(folder, "sst.zarr")
        cells = bcmdist.xarray.predict_to_zarr(data, gbcm, out, chunks={"time": 5})
        print(f"{cells} cells written,", dict(xr.open_zarr(out).sst.chunksizes))
    if picture:
        draw(picture, data, whole, days // 2)
        print("a map:", picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller grid")
    parser.add_argument("picture", nargs="?", help="where to draw a map (matplotlib)")
    asked = parser.parse_args()
    main(*((10, 14, 21, 150) if asked.quick else (30, 48, 72, 600)), asked.picture)

"""The relief of the earth, 9.36 million cells, absorbed by Fourier experts and by experts of spatial cells.

    python tests/benchmarks/relief.py [--quick] [--every N] [--spatial] [--workers W] [--kernel K] [--tolerance T]
        [--write]

Heights above sea level are those of the package itur; with --quick they are a small field made here. Cells of every
20th tile of 5 degrees are left out of the fit and scored: RMSE, coverage of 95 % intervals, MNLP, CRPS. Tiles are
large beside what correlates in a relief, so some cells among those of the fit are left out and scored, too. --every N
keeps every N-th row and column. --write keeps the result for the page of benchmarks.
"""

import argparse
import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from billion_rows import held_out, one_in

import records
from bcmdist import GBCM, DaskRuntime, SerialRuntime, Settings
from bcmdist.data.writing import append_rows
from measurement import Watched, arguments_without, conditions

CHUNK = 250_000
SCORED = 20_000  # rows of each kind
NEAR_SHARE = 200  # one in so many rows outside the tiles is left out, too


def relief(options):
    """Longitude, latitude and height of all cells, (n,) each, north to south."""
    if options.quick:
        lat, lon = np.meshgrid(np.linspace(60.0, -60.0, 40), np.linspace(-180.0, 179.0, 80), indexing="ij")
        height = 1000.0 * np.sin(lon / 20.0) * np.cos(lat / 30.0)
        return lon.ravel(), lat.ravel(), (height + 50.0 * np.random.default_rng(0).standard_normal(lon.shape)).ravel()
    folder = Path(find_spec("itur").origin).parent / "data" / "1511"
    step = options.every
    grids = [np.load(folder / f"v2_{name}.npz") for name in ("lon", "lat", "topo")]
    lon, lat, height = (grid[grid.files[0]][::step, ::step].astype(float).ravel() for grid in grids)
    inside = (np.abs(lat) < 90.0) & (np.abs(lon) < 180.0)  # the grid goes on beyond the poles, and all around
    return lon[inside], lat[inside], height[inside]


def divided(lon, lat, height):
    """X (n, 2) and y (n,) of the rows to fit, of tiles, and of some rows near others."""
    X, tile = np.column_stack([lon, lat]), held_out(lon, lat)
    near = ~tile & one_in(NEAR_SHARE, np.arange(len(X)))
    return [(X[some], height[some]) for some in (~tile & ~near, tile, near)]


def scores(gbcm, X, y):
    """Of at most `SCORED` rows."""
    some = np.random.default_rng(0).permutation(len(X))[:SCORED]
    found = gbcm.score((X[some], y[some]))
    return {name: found[name] for name in ("rmse", "coverage95", "mnlp", "crps")}


def fitted(data, settings, tests, options, folder):
    """Seconds and scores of a fit."""
    with DaskRuntime(workers=options.workers) if options.workers else SerialRuntime() as runtime:
        begun = time.perf_counter()
        gbcm = GBCM.fit(data, settings, model=folder, runtime=runtime)
        seconds = time.perf_counter() - begun
    info = gbcm.info()
    found = {name: info[name] for name in ("rows", "kernel", "hyperparameters", "p_eff")} | {"seconds": seconds}
    return found | {name: scores(gbcm, *rows) for name, rows in tests.items()}


def main(options):
    """All figures, in metres."""
    with tempfile.TemporaryDirectory() as name:
        train, tile, near = divided(*relief(options))
        for a in range(0, len(train[1]), CHUNK):
            append_rows(f"{name}/relief.zarr", train[0][a : a + CHUNK], train[1][a : a + CHUNK], rows_per_chunk=CHUNK)
        tests, effort = {"tiles": tile, "near": near}, "quick" if options.quick else "normal"
        common = {"kernel": options.kernel, "effort": effort, "noise": "constant"}
        found = {
            "rows": len(train[1]),
            "sd": float(np.std(tile[1])),
            "fourier": fitted(
                f"{name}/relief.zarr",
                Settings(expert="fourier", tolerance=options.tolerance, **common),
                *(tests, options, f"{name}/fourier"),
            ),
        }
        if options.spatial or options.quick:
            settings = Settings(partition="spatial", **common)
            found["spatial"] = fitted(f"{name}/relief.zarr", settings, tests, options, f"{name}/spatial")
        return found


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--spatial", action="store_true")
    parser.add_argument("--workers", type=int, default=2, help="0: one process")
    parser.add_argument("--kernel", default="matern32")
    parser.add_argument("--tolerance", type=float, default=0.01)
    parser.add_argument("--write", action="store_true", help="keep the result in results/relief.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    if options.write and (options.quick or options.every > 1):
        raise SystemExit("--write: expected a whole run; leave out --quick and --every")
    if not options.quick and find_spec("itur") is None:
        raise SystemExit("expected the package itur, found none; pip install --no-deps itur, or give --quick")
    about = conditions() | {"options": arguments_without("--write")}
    with Watched() as watched:
        found = about | main(options)
    found["others"] = round(watched.others, 2)
    print(json.dumps(found, indent=1))
    if options.write:
        records.keep_trial("relief", found)

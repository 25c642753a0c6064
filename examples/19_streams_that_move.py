"""A stream whose inputs move: query points are added where rows come from new places.

A survey vessel measures along its way. The model begins with the first rows; each later partition that the query
points do not explain adds some of its rows to them before it is absorbed. Then a second vessel's model, with the same
kernel and query points of its own, is merged with it.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from bcmdist import GBCM, IngestOptions, Settings, append_rows
from bcmdist.errors import BcmdistWarning


def depth(X):
    return np.sin(X[:, 0]) + np.cos(1.3 * X[:, 1])


def rows(rng, count, *, start, way):
    """Measurements along a way: places (count, 2) near a point that moves from `start` by `way`, and depths."""
    X = np.asarray(start) + np.linspace(0, 1, count)[:, None] * np.asarray(way) + rng.uniform(-1, 1, (count, 2))
    return X, depth(X) + 0.1 * rng.standard_normal(count)


def error(gbcm, X):
    return np.sqrt(np.mean((gbcm.predict(X)["mean"] - depth(X)) ** 2))


def main(count):
    warnings.simplefilter("default", BcmdistWarning)  # of drift, where query points are fixed
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        append_rows(folder / "way.zarr", *rows(rng, 1000, start=(0, 0), way=(1, 0)), rows_per_chunk=250)
        settings = Settings(partition="chunks", kernel="se", query=30, rows_per_expert=250, effort="quick")
        fixed = GBCM.fit(folder / "way.zarr", settings, model=folder / "fixed")
        moving = GBCM.fit(folder / "way.zarr", settings, model=folder / "moving")

        append_rows(folder / "way.zarr", *rows(rng, count, start=(1, 0), way=(8, 0)))
        fixed, _ = fixed.ingest(fixed.source(folder / "way.zarr"), IngestOptions(grow=False))
        moving, _ = moving.ingest(moving.source(folder / "way.zarr"), IngestOptions(grow=True))
        along, _ = rows(rng, 500, start=(1, 0), way=(8, 0))
        print(f"error along the way: {error(fixed, along):.3f} with the first query points, {error(moving, along):.3f}")
        print("with those that were added:", moving.info()["capacity"])

        like = Settings(partition="chunks", query=60, rows_per_expert=250, like=str(folder / "moving"))
        other = GBCM.fit(*rows(rng, count, start=(0, 4), way=(8, 0)), like, model=folder / "other")
        both = moving.merge(other, folder / "both")
        across, _ = rows(rng, 500, start=(0, 4), way=(8, 0))
        print(f"error of both merged: {error(both, along):.3f} and {error(both, across):.3f}")


if __name__ == "__main__":
    main(3000 if "--quick" in sys.argv else 20_000)

"""One prepared model, two places that absorb different data, one committee; and data taken back.

Messages add: what two committees of one model have absorbed is summed, and a partition is forgotten by
subtracting what its rows, read again, have said.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from bcmdist import GBCM, Settings, write_dataset


def write_store(path, rows, seed, *, wrong=0.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(rows) + wrong
    write_dataset(path, {"X": X, "y": y}, rows_per_chunk=500)


def main(rows):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_store(folder / "north.zarr", rows, seed=1)
        write_store(folder / "south.zarr", rows, seed=2)
        write_store(folder / "broken.zarr", 500, seed=3, wrong=5.0)  # a sensor that was off for a while
        write_store(folder / "test.zarr", 2000, seed=4)

        settings = Settings(partition="chunks", kernel="se", query=100, rows_per_expert=500, effort="quick")
        GBCM.prepare(folder / "north.zarr", settings, model=folder / "north")
        shutil.copytree(folder / "north", folder / "south")  # the same model in another place
        north = GBCM.load(folder / "north").partial_fit(folder / "north.zarr")
        south = GBCM.load(folder / "south").partial_fit(folder / "south.zarr").partial_fit(folder / "broken.zarr")

        both = north.merge(south, folder / "both")
        print(f"merged: {both.info()['rows']} rows, NMSE {both.score(folder / 'test.zarr')['nmse']:.4f}")
        broken = [entry.key for entry in both.ledger if "broken" in entry.key]
        clean = both.forget(broken)
        print(f"forgotten: {clean.info()['rows']} rows, NMSE {clean.score(folder / 'test.zarr')['nmse']:.4f}")
        faint = clean.reweight({clean.ledger[0].key: 0.1})
        print(f"one partition at a tenth of its weight: {faint.info()['p_eff']:.1f} degrees of freedom")

        X = np.array([[0.5, 0.5], [0.5, 0.6], [-1.0, 1.0]])
        mean, covariance = clean.predict_joint(X)
        print("three points jointly:", mean.round(2), "correlation of the first two", end=" ")
        print((covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])).round(3))
        print("a sample of f there:", clean.sample(X, size=1, seed=0)[0].round(2))


if __name__ == "__main__":
    main(1500 if "--quick" in sys.argv else 20_000)

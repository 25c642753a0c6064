"""Regression on one machine: a Zarr store, a local cluster, predictions with intervals."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import zarr

from bcmdist import GBCM, DaskRuntime, Settings


def write_store(path, rows, seed):
    """A surface with noise, chunked along rows as any Zarr store would be."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (rows, 2))
    group = zarr.open_group(path, mode="w")
    group.create_array("X", data=X, chunks=(2000, 2))
    group.create_array("y", data=np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(rows), chunks=(2000,))


def main(rows):
    with tempfile.TemporaryDirectory() as folder:
        train, test, model = (Path(folder, name) for name in ("train.zarr", "test.zarr", "model"))
        write_store(train, rows, seed=1)
        write_store(test, 2000, seed=2)
        with DaskRuntime(workers=2) as runtime:
            gbcm = GBCM.fit(train, Settings(query=300), model=model, runtime=runtime)
            scores = gbcm.score(test, runtime=runtime)
            print({name: round(scores[name], 4) for name in ("rmse", "nmse", "mnlp", "coverage95")})
        print(gbcm.info()["advice"])

        again = GBCM.load(model)  # in another process, without the training data
        prediction = again.predict(np.array([[0.5, 1.0], [2.9, -2.9]]))
        for mean, low, high in zip(*(prediction[n] for n in ("mean", "lower95", "upper95")), strict=True):
            print(f"{mean:.3f}, an observation between {low:.3f} and {high:.3f} with probability 0.95")


if __name__ == "__main__":  # workers are processes that import this file
    main(4000 if "--quick" in sys.argv else 40_000)

"""Local detail: a rough surface that no query set of this size can follow, with the rows around each new point.

python examples/07_local_detail.py [--quick]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import zarr

from bcmdist import GBCM, DaskRuntime, Settings


def surface(X):
    """Waves of two lengths, (n, 2) -> (n,)."""
    return np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.3 * np.sin(25 * X[:, 0] + 10 * X[:, 1])


def write(path, rows, rng):
    """A data set of rows scattered over a square."""
    X = rng.uniform(-1, 1, (rows, 2))
    group = zarr.open_group(path, mode="w")
    group.create_array("X", data=X, chunks=(1000, 2))
    group.create_array("y", data=surface(X) + 0.05 * rng.standard_normal(rows), chunks=(1000,))


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as directory, DaskRuntime(workers=2) as runtime:
        train, test, model = (Path(directory, name) for name in ("train.zarr", "test.zarr", "model"))
        write(train, 3000 if quick else 30_000, rng)
        write(test, 1000 if quick else 5000, rng)
        settings = Settings(query=50 if quick else 100, partition="spatial", effort="quick" if quick else "normal")
        gbcm = GBCM.fit(train, settings, model=model, runtime=runtime)
        for method in ("committee", "local"):
            scores = gbcm.score(test, method=method, runtime=runtime)
            print(f"{method:10} RMSE {scores['rmse']:.3f}, 95 % intervals cover {scores['coverage95']:.3f}")
        info = gbcm.info()
        print(f"{info['cells']['count']} cells, jump at borders {info['cells']['border_jump']:.2f} standard deviations")

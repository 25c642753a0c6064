"""Two classes: probabilities that mean what they say, checked on rows the model has not seen.

A committee on the whole training store, then the same committee after each part of it: partitions
can be absorbed as they arrive, and every state is a commit that can be loaded again.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from bcmdist import GBCM, SerialRuntime, Settings, open_data, partitions, write_dataset


def write_store(path, rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    chance = 1.0 / (1.0 + np.exp(-4.0 * np.sin(2 * X[:, 0]) - 2.0 * X[:, 1]))
    write_dataset(path, {"X": X, "y": (rng.uniform(size=rows) < chance).astype(np.uint8)}, rows_per_chunk=500)


def main(rows):
    with tempfile.TemporaryDirectory() as folder:
        train, test, model = (Path(folder, name) for name in ("train.zarr", "test.zarr", "model"))
        write_store(train, rows, seed=4)
        write_store(test, 4000, seed=5)
        settings = Settings(task="classification", kernel="se", query=150, rows_per_expert=500, effort="quick")
        runtime = SerialRuntime()  # no cluster: everything in this process
        gbcm = GBCM.prepare(train, settings, model=model, runtime=runtime)
        parts = partitions(open_data(train), settings.rows_per_expert)
        for seen in (1, len(parts) // 2, len(parts)):
            gbcm = gbcm.absorb(parts[:seen], runtime=runtime)
            s = gbcm.score(test, runtime=runtime)
            figures = f"log loss {s['log_loss']:.4f}, calibration error {s['ece']:.4f}, area under curve {s['auc']:.4f}"
            print(f"commit {gbcm.commit}: {gbcm.info()['rows']} rows, {figures}")
        p = gbcm.predict(np.array([[0.8, 0.0], [-0.8, 0.0], [0.0, 0.0]]))
        print("probability of class 1 at three points:", p["probability"][:, 1].round(3))
        print("commit 2 again:", GBCM.load(model, commit=2).info()["rows"], "rows")


if __name__ == "__main__":
    main(2000 if "--quick" in sys.argv else 20_000)

"""Counts with exposure and censored lifetimes: predictive intervals of observations, not only of f.

Arrays named `exposure` and `event` beside `y` are found by their names. One pass is the committee as
published; further passes remove its approximation, and say how far each still moved.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from bcmdist import GBCM, Settings, write_dataset


def wave(X):
    return np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


def counts(rows, rng):
    X, exposure = rng.uniform(-2, 2, (rows, 2)), rng.uniform(0.2, 2.0, rows)
    rate = 3.0 * np.exp(wave(X)) * rng.gamma(4.0, 0.25, rows)  # more spread than Poisson
    return {"X": X, "y": rng.poisson(exposure * rate), "exposure": exposure}


def lifetimes(rows, rng):
    X = rng.uniform(-2, 2, (rows, 2))
    life, end = 500 * np.exp(wave(X)) * rng.weibull(1.5, rows), 500 * rng.exponential(3.0, rows)
    return {"X": X, "y": np.minimum(life, end), "event": (life <= end).astype(np.uint8)}


def main(rows):
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as folder:
        for task, draw in [("counts", counts), ("lifetimes", lifetimes)]:
            train, test = Path(folder, f"{task}.zarr"), Path(folder, f"{task}-test.zarr")
            write_dataset(train, draw(rows, rng), rows_per_chunk=500)
            write_dataset(test, draw(2000, rng), rows_per_chunk=500)
            settings = Settings(task=task, kernel="se", query=100, rows_per_expert=500, effort="quick")
            gbcm = GBCM.fit(train, settings)
            print(f"{task}: {gbcm.info()['likelihood']}, learned {gbcm.info()['hyperparameters']}")
            for committee in (gbcm, gbcm.refine()):
                s = committee.score(test)
                moves = [f"{p['change']:.1e}" for p in committee.info()["passes"][1:]]
                figures = f"mnlp {s['mnlp']:.4f}, coverage {s['coverage95']:.3f}, concordance {s['concordance']:.3f}"
                print(f"  {len(moves) + 1} passes (moves {', '.join(moves) or 'none'}): {figures}")
            told = gbcm.predict(np.array([[0.8, 0.0]]))
            print(f"  at one point: between {told['lower95'][0]:.1f} and {told['upper95'][0]:.1f}")


if __name__ == "__main__":
    main(1500 if "--quick" in sys.argv else 20_000)

"""Several outputs with some missing: a metal in soil where others are known, beside a Gaussian process of it alone.

    BCMDIST_DATA=... python tests/benchmarks/outputs.py [--metal cadmium] [--seeds N] [--quick]

155 places on the flood plain of the Meuse with four metals each (Pebesma's data set `meuse`), by coordinates alone.
Logarithms of one metal are left out at a third of the places: at random ones, or at those nearest to a random one, a
block of space. The other metals are known everywhere. Both models get the same partition (all rows as one, with all as
query points: exact Gaussian processes), effort and options. Scores are of the metal at these places: the RMSE of means
and the mean of -log p, in units of the logarithm.
"""

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bcmdist import GBCM, Settings
from bcmdist.errors import BcmdistWarning

METALS = ("cadmium", "copper", "lead", "zinc")
SHARE = 1.0 / 3.0
SEEDS, QUICK_SEEDS = 5, 1
WHOLE = {"partition": "chunks", "rows_per_expert": 1000, "query": 1000}


def meuse() -> pd.DataFrame:
    """One row a place and metal: east, north (km), metal, value (log ppm), place."""
    with np.load(Path(os.environ["BCMDIST_DATA"], "meuse.npz")) as arrays:
        X, Y = arrays["X"].astype(float), np.log(arrays["y"].astype(float))
    wide = pd.DataFrame({"place": np.arange(len(X)), "east": X[:, 0] / 1e3, "north": X[:, 1] / 1e3})
    wide[list(METALS)] = Y
    return wide.melt(["place", "east", "north"], list(METALS), "metal", "value")


def left_out(rows: pd.DataFrame, metal: str, how: str, seed: int) -> np.ndarray:
    """Whether each row is left out: those of a metal at a third of the places, at "random" or in a "block"."""
    rng, places = np.random.default_rng(seed), rows[["place", "east", "north"]].drop_duplicates()
    order = rng.permutation(len(places))
    if how == "block":
        centre = places.iloc[order[0]]
        order = np.argsort(np.hypot(places.east - centre.east, places.north - centre.north).to_numpy())
    chosen = places.place.to_numpy()[order[: round(SHARE * len(places))]]
    return ((rows.metal == metal) & rows.place.isin(chosen)).to_numpy()


@dataclass(frozen=True)
class Score:
    """At the rows left out."""

    rmse: float
    mnlp: float
    kernel: str
    seconds: float


def scored(rows: pd.DataFrame, out: np.ndarray, metal: str, *, together: bool, effort="normal") -> Score:
    """Fit all metals together, or one alone, and predict the rows left out."""
    train, test, started = rows[~out], rows[out], time.perf_counter()
    columns = ["east", "north", "metal"] if together else ["east", "north"]
    train = train if together else train[train.metal == metal]
    settings = Settings(output="metal" if together else None, effort=effort, **WHOLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # more query points than rows: each place at each metal
        fitted = GBCM.fit(train[columns], train["value"].to_numpy(), settings)
    found = fitted.score(test[columns], test["value"].to_numpy())
    return Score(found["rmse"], found["mnlp"], fitted.info()["kernel"], time.perf_counter() - started)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metal", choices=METALS, default="cadmium")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    rows = meuse()
    print("| left out | seed | RMSE together | alone | MNLP together | alone | kernel | s together | alone |")
    print("| --- | --: | --: | --: | --: | --: | --- | --: | --: |")
    for how in ("random", "block"):
        each = []
        for seed in range(QUICK_SEEDS if asked.quick else asked.seeds):
            out = left_out(rows, asked.metal, how, seed)
            effort = "quick" if asked.quick else "normal"
            a, b = (scored(rows, out, asked.metal, together=one, effort=effort) for one in (True, False))
            each.append([a.rmse, b.rmse, a.mnlp, b.mnlp])
            print(f"| {how} | {seed} | {' | '.join(f'{v:.3f}' for v in each[-1])} | {a.kernel} | ", end="")
            print(f"{a.seconds:.1f} | {b.seconds:.1f} |", flush=True)
        print(f"| {how} | mean | {' | '.join(f'{v:.3f}' for v in np.mean(each, axis=0))} | | | |", flush=True)


if __name__ == "__main__":
    main()

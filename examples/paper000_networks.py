"""Figures 1 and 2 of Lazaro-Gredilla & Figueiras-Vidal, "Marginalized Neural Network Mixtures" (2010), as tables.

    BCMDIST_DATA=FOLDER python paper000_networks.py [--quick] [--out DIRECTORY] [--sets kin40k,pol] [--sizes 50,250]
        [--full] [--minutes 60]

Errors and log densities of test rows against m: inducing inputs of FITC, or twice the hidden units of each of four
networks, which cost as much to predict with. The paper draws its results and prints none; what it says of them in words
stands above the first table. Not as there: one run in place of ten, but for `--full`, and the elevators data in their
raw form, of which the first 8,752 rows of a random order are learned from. The exact Gaussian process of the paper (two
days) is stood in for by committees of spatial cells. With `--quick` data are made: Friedman's function. `--full` keeps
the figures of ten runs in results/paper000_networks.json and goes on from there, one process a core, beginning none
after so many minutes.
"""

import tempfile
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from paper001 import picture

from bcmdist import GBCM, Settings
from bcmdist.data.writing import write_dataset
from published.results import Experiment, data
from published.tables import Column, Table, options, show

SIZES = (50, 100, 250, 500)
NETWORKS = 4
SETS = {  # what the paper says
    "kin40k": "the mixture beats FITC by far, and the full GP from m = 300 on",
    "elevators_raw": "the mixture has the best errors, and densities as FITC with the network kernel",
    "pumadyn32nm": "the mixture is best, FITC with the network kernel close",
    "pol": "the mixture has the best errors; FITC with the network kernel slightly better densities from m = 50 on",
}
ELEVATORS = 8752
CELLS = "cells"  # does not depend on m
MADE = "friedman"
RUNS = 10


def methods(m, quick) -> dict[str, Settings]:
    """Settings by name, at m basis functions."""
    fitc = {"expert": "fitc", "query": m, "query_method": "optimised", "objective": "committee"}
    effort = {"effort": "quick"} if quick else {}
    return {
        "FITC": Settings(partition="chunks", kernel="se", **fitc, **effort),
        "FITC, network": Settings(partition="chunks", kernel="arcsine", **fitc, **effort),
        "mixture": Settings(expert="mnnmix", units=m // 2, networks=NETWORKS, **effort),
    }


def load(name):
    """X, y to learn from and X, y to test on of a set in BCMDIST_DATA, or made; None where it is not there."""
    if name == MADE:
        return made(400, np.random.default_rng(0))
    if not (path := data(name)):
        return None
    with np.load(path) as file:
        if "X_train" in file:
            return tuple(file[key].astype(float) for key in ("X_train", "y_train", "X_test", "y_test"))
        X, y = file["X"].astype(float), file["y"].astype(float)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:ELEVATORS], order[ELEVATORS:]
    return X[train], y[train], X[test], y[test]


def made(rows, rng):
    """Friedman's function of ten inputs, five of which say nothing, with noise of a fifth of its deviation."""
    X = rng.uniform(0, 1, (2 * rows, 10))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    y = f + rng.standard_normal(2 * rows)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def named(method, m) -> str:
    """Name of a method with m basis functions among the results."""
    return method if method == CELLS else f"{method}, m = {m}"


def settings_of(name, quick=False) -> Settings:
    """Settings by the result of `named`."""
    if name == CELLS:
        return Settings(partition="spatial", effort="quick" if quick else "normal")
    method, m = name.split(", m = ")
    return methods(int(m), quick)[method]


def computed(experiment: Experiment, quick=False) -> dict[str, float]:
    """NMSE and MNLP of the test rows of one run of a set by one method."""
    warnings.simplefilter("ignore")
    X, y, Xs, ys = load(experiment.set)
    settings = replace(settings_of(experiment.method, quick), seed=experiment.split)
    with tempfile.TemporaryDirectory() as folder:
        write_dataset(f"{folder}/test.zarr", {"X": Xs, "y": ys}, rows_per_chunk=5000)
        found = GBCM.fit((X, y), settings).score(f"{folder}/test.zarr")
    return {"nmse": found["nmse"], "mnlp": found["mnlp"]}


CLAIMS = "The paper draws these: " + "; ".join(f"{name}: {claim}" for name, claim in SETS.items()) + "."
TABLES = tuple(
    Table(
        f"Networks, m = {m}",
        (*(named(method, m) for method in methods(m, quick=False)), CELLS),
        (*SETS, MADE),
        (Column("nmse", "NMSE", form=".4f"), Column("mnlp", "MNLP")),
        words=CLAIMS if m == SIZES[0] else "",
    )
    for m in SIZES
)


def draw(figure, results, names, sizes):
    """NMSE above MNLP, a column for each set."""
    axes = figure.subplots(2, len(names), squeeze=False)
    for column, name in zip(axes.T, names, strict=True):
        for method in (*methods(sizes[0], quick=False), CELLS):
            means = [results.means(name, named(method, m)) for m in sizes]
            there = [(m, one) for m, one in zip(sizes, means, strict=True) if one]
            for axis, figure in zip(column, ("nmse", "mnlp"), strict=True):
                axis.plot([m for m, _ in there], [one[figure] for _, one in there], marker="o", label=method)
                axis.set(xscale="log", xlabel="m", ylabel=figure.upper())
        column[0].set(yscale="log", title=name)
    axes[0, 0].legend()


def main():
    parser = options(__doc__, "made data, in seconds")
    parser.add_argument("--out", default=".", help="directory of the picture; none with --quick")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    args = parser.parse_args()
    names, sizes, runs = [name for name in args.sets.split(",") if load(name)], args.sizes.split(","), 1
    if args.quick:
        names, sizes = [MADE], [SIZES[0]]
    elif args.full:
        runs = RUNS
    sizes = tuple(map(int, sizes))
    every = [named(method, m) for m in sizes for method in methods(m, quick=False)] + [CELLS]
    each = [Experiment(run, name, one) for run in range(runs) for one in every for name in names]
    results = show(args, "paper000_networks", each, partial(computed, quick=args.quick), TABLES)
    if names and not args.quick:
        how = {"size": (4 * len(names), 7)}
        picture(Path(args.out) / "paper000.png", lambda figure: draw(figure, results, names, sizes), **how)


if __name__ == "__main__":
    main()

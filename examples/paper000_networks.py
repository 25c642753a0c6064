"""Figures 1 and 2 of Lazaro-Gredilla & Figueiras-Vidal, "Marginalized Neural Network Mixtures" (2010), as tables.

    BCMDIST_DATA=FOLDER python paper000_networks.py [--quick] [--out DIRECTORY] [--sets kin40k,pol] [--sizes 50,250]
        [--full] [--minutes 60]

Errors and log densities of test rows against m: inducing inputs of FITC, or twice the hidden units of each of four
networks, which cost as much to predict with. The paper draws its results and prints none; what it says of them in words
stands beside each set. Not as there: one run in place of ten, but for `--full`, and the elevators data in their raw
form, of which the first 8,752 rows of a random order are learned from. The exact Gaussian process of the paper (two
days) is stood in for by committees of spatial cells. Without the files in FOLDER, or with `--quick`, data are made:
Friedman's function. `--full` keeps the figures of ten runs in results/paper000_networks.json and goes on from there,
one process a core, beginning none after so many minutes.
"""

import argparse
import os
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from paper001 import picture

from bcmdist import GBCM, Settings
from bcmdist.data.writing import write_dataset
from published.results import Experiment, Results, add_options, completed
from published.tables import Column, Table, text

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
    """X, y to learn from and X, y to test on of a set in BCMDIST_DATA; None where it is not there."""
    path = Path(os.environ.get("BCMDIST_DATA", ".")) / f"{name}.npz"
    if not path.exists():
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


def scored(data, settings) -> tuple[float, float]:
    """NMSE and MNLP at the test rows."""
    X, y, Xs, ys = data
    with tempfile.TemporaryDirectory() as folder:
        write_dataset(f"{folder}/test.zarr", {"X": Xs, "y": ys}, rows_per_chunk=5000)
        found = GBCM.fit((X, y), settings).score(f"{folder}/test.zarr")
    return found["nmse"], found["mnlp"]


def run(name, data, sizes, quick) -> dict[str, dict[int, tuple[float, float]]]:
    """Figures by method and m, printed as they come."""
    rows, inputs = data[0].shape
    print(f"\n{name}: {rows} rows, {inputs} inputs, {len(data[3])} test rows; {SETS.get(name, 'made')}")
    print(f"{'method':<16}" + "".join(f"{f'm = {m}':>18}" for m in sizes), "  (NMSE, MNLP)")
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for method in methods(sizes[0], quick):
        found[method] = {m: scored(data, methods(m, quick)[method]) for m in sizes}
        told = "".join(f"{nmse:10.4f} {mnlp:7.3f}" for nmse, mnlp in found[method].values())
        print(f"{method:<16}{told}", flush=True)
    cells = scored(data, Settings(partition="spatial", **({"effort": "quick"} if quick else {})))
    found[CELLS] = dict.fromkeys(sizes, cells)
    print(f"{CELLS:<16}{cells[0]:10.4f} {cells[1]:7.3f}")
    return found


def named(method, m) -> str:
    """Name of a method with m basis functions among the results."""
    return method if method == CELLS else f"{method}, m = {m}"


def settings_of(name) -> Settings:
    """Settings by the result of `named`."""
    if name == CELLS:
        return Settings(partition="spatial")
    method, m = name.split(", m = ")
    return methods(int(m), quick=False)[method]


def computed(experiment: Experiment) -> dict[str, float]:
    """Figures of one run of a set by one method."""
    warnings.simplefilter("ignore")
    nmse, mnlp = scored(load(experiment.set), replace(settings_of(experiment.method), seed=experiment.split))
    return {"nmse": nmse, "mnlp": mnlp}


CLAIMS = "The paper draws these: " + "; ".join(f"{name}: {said}" for name, said in SETS.items()) + "."
TABLES = tuple(
    Table(
        f"Networks, m = {m}",
        (*(named(method, m) for method in methods(m, quick=False)), CELLS),
        SETS,
        (Column("nmse", "NMSE", form=".4f"), Column("mnlp", "MNLP")),
        words=CLAIMS if m == SIZES[0] else "",
    )
    for m in SIZES
)


def full(names, sizes, minutes):
    """Compute what is left, and show all that there is."""
    results = Results("paper000_networks")
    every = [named(method, m) for m in sizes for method in methods(m, quick=False)] + [CELLS]
    there = [name for name in names if load(name)]
    experiments = [Experiment(run, name, one) for run in range(RUNS) for one in every for name in there]
    completed(results, experiments, computed, minutes=minutes)
    print(text(TABLES, results))


def draw(figure, found):
    """NMSE above MNLP, a column for each set."""
    axes = figure.subplots(2, len(found), squeeze=False)
    for column, (name, of_set) in zip(axes.T, found.items(), strict=True):
        for k, (axis, label) in enumerate(zip(column, ("NMSE", "MNLP"), strict=True)):
            for method, points in of_set.items():
                axis.plot(list(points), [point[k] for point in points.values()], marker="o", label=method)
            axis.set(xscale="log", xlabel="m", ylabel=label, title=name if k == 0 else None)
        column[0].set_yscale("log")
    axes[0, 0].legend()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="made data, in seconds")
    parser.add_argument("--out", default=".", help="directory of the picture; none with --quick")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    add_options(parser)
    args = parser.parse_args()
    sizes = (20,) if args.quick else tuple(map(int, args.sizes.split(",")))
    if args.full:
        full(args.sets.split(","), sizes, args.minutes)
        return
    loaded = {} if args.quick else {name: load(name) for name in args.sets.split(",")}
    there = {name: data for name, data in loaded.items() if data} or {"friedman": made(400, np.random.default_rng(0))}
    found = {name: run(name, data, sizes, args.quick) for name, data in there.items()}
    if not args.quick:
        picture(Path(args.out) / "paper000.png", lambda figure: draw(figure, found), size=(4 * len(found), 7))


if __name__ == "__main__":
    main()

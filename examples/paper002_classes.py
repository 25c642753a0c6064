"""Deep Gaussian processes of classes: Bui et al., "Deep Gaussian processes by approximate EP" (2016), appendix tables.

    BCMDIST_DATA=FOLDER python paper002_classes.py [--quick] [--sets glass,wine] [--splits 20] [--effort normal]
        [--full] [--minutes 60]

Mean log probabilities of the classes of test rows, with standard errors over splits into 90 and 10 %, beside the
paper's: one layer (GP D-K), and two with 1, 2 and 3 hidden units (DGP D-1-K ...), 50 centres in each. Two classes are a
probit of one process, as there; more have a process each, and a softmax, here averaged without draws. Not as there:
the best round by one row of ten that is left out; the energy of the paper and that of power 1/2, of which these rows
choose one; the last layer is absorbed again by messages; and the splits, which the paper does not tell. Inputs are
scaled, nothing else is done to them. Sets that are not in FOLDER are skipped. With `--quick` a split of new_thyroid,
one layer and two, few steps and centres. `--full` keeps the figures of each split in results/paper002_classes.json and
goes on from there, one process a core, beginning no split after so many minutes.
"""

import argparse
import os
import warnings
from pathlib import Path

import numpy as np

from bcmdist import GBCM, Settings
from published.results import Experiment, Results, add_options, completed, mean_and_error
from published.tables import Column, Table, by_method, text

# Log probabilities in the paper: GP D-K, DGP D-1-K, D-2-K, D-3-K; of several classes, then of two.
PAPER = {
    "glass": (-0.79, -0.71, -0.72, -0.71),
    "new_thyroid": (-0.05, -0.05, -0.05, -0.04),
    "svmguide2": (-0.54, -0.53, -0.52, -0.51),
    "wine": (-0.10, -0.07, -0.07, -0.07),
    "australian": (-0.51, -0.51, -0.51, -0.53),
    "breast_wisconsin": (-0.05, -0.04, -0.04, -0.04),
    "crabs": (-0.03, -0.10, -0.03, -0.03),
    "ionosphere": (-0.17, -0.17, -0.16, -0.16),
    "pima": (-0.40, -0.39, -0.40, -0.39),
    "sonar": (-0.32, -0.29, -0.30, -0.31),
}
CENTRES, TESTED = 50, 0.1
UNITS = (None, 1, 2, 3)  # hidden ones, in the order of the paper; None where there is one layer


def method(units, classes) -> tuple[str, dict]:
    """Name in the paper, of K classes or two, and settings."""
    if units is None:
        return "GP D-K", {"layers": 1} | likelihood(classes)
    return f"DGP D-{units}-K", {"layers": 2, "units": units} | likelihood(classes)


def likelihood(classes):
    return {"likelihood": "probit" if classes == 2 else "softmax"}


def load(name):
    """X and y, 0 to K - 1; None where they are not there."""
    path = Path(os.environ.get("BCMDIST_DATA", ".")) / f"{name}.npz"
    if not path.exists():
        print(f"{name}: skipped, there is no {path.name} in the folder BCMDIST_DATA")
        return None
    with np.load(path) as file:
        return file["X"].astype(float), np.unique(file["y"], return_inverse=True)[1]


def tested(rows, split) -> np.ndarray:
    """Rows that are tested on, (rows,): a tenth, by the number of the split."""
    chosen = np.zeros(rows, dtype=bool)
    chosen[np.random.default_rng(split).permutation(rows)[: round(TESTED * rows)]] = True
    return chosen


def scored(X, y, test, settings) -> float:
    """Mean log probability of the classes of the rows that are tested on; all classes are among the others."""
    found = GBCM.fit((X[~test], y[~test]), settings).predict(X[test])["probability"]
    return float(np.log(found[np.arange(test.sum()), y[test]]).mean())


def computed(experiment: Experiment) -> dict[str, float]:
    """Figures of one split of a set by one method."""
    warnings.simplefilter("ignore")
    X, y = load(experiment.set)
    own = dict(method(units, int(y.max()) + 1) for units in UNITS)[experiment.method]
    settings = Settings(expert="dgp", task="classification", query=CENTRES, **own)
    return {"density": scored(X, y, tested(len(y), experiment.split), settings)}


def has_all_classes(y, split) -> bool:
    """Whether all classes are among the rows that are learned from."""
    return len(np.unique(y[~tested(len(y), split)])) == y.max() + 1


def run(name, data, splits, effort, centres=CENTRES, hidden=UNITS):
    """Figures of a set, printed as they come."""
    X, y = data
    classes = int(y.max()) + 1
    tests = [tested(len(y), split) for split in range(splits) if has_all_classes(y, split)]
    print(f"\n{name}: {len(y)} rows, {X.shape[1]} inputs, {classes} classes, {len(tests)} splits")
    for units, paper in zip(hidden, PAPER[name], strict=False):
        called, own = method(units, classes)
        settings = Settings(expert="dgp", task="classification", query=centres, effort=effort, **own)
        show(called, [scored(X, y, test, settings) for test in tests], paper)


def show(called, found, paper):
    mean, error = mean_and_error(found)
    print(f"{called:<10}{mean:8.3f} +- {error:5.3f}    paper {paper:6.2f}", flush=True)


METHODS = tuple(method(units, 2)[0] for units in UNITS)
DENSITY = Column("density", "mean log probability", by_method(METHODS, PAPER), "higher")
TABLES = (Table("Deep processes of classes", METHODS, PAPER, (DENSITY,)),)


def full(names, splits, minutes):
    """Compute what is left, and show all that there is."""
    targets = {name: data[1] for name in names if (data := load(name))}
    called = {name: [method(units, int(y.max()) + 1)[0] for units in UNITS] for name, y in targets.items()}
    results = Results("paper002_classes")
    experiments = [
        Experiment(split, name, one)
        for split in range(splits)
        for name, y in targets.items()
        if has_all_classes(y, split)
        for one in called[name]
    ]
    completed(results, experiments, computed, minutes=minutes)
    print(text(TABLES, results))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one split of new_thyroid, few iterations")
    add_options(parser)
    parser.add_argument("--sets", default=",".join(PAPER))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--effort", default="normal")
    args = parser.parse_args()
    if args.full:
        full(args.sets.split(","), args.splits, args.minutes)
        return
    how = {"splits": args.splits, "effort": args.effort}
    if args.quick:
        args.sets, how = "new_thyroid", {"splits": 1, "effort": "quick", "centres": 10, "hidden": UNITS[:2]}
    for name in args.sets.split(","):
        if data := load(name):
            run(name, data, **how)


if __name__ == "__main__":
    main()

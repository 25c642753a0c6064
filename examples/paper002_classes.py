"""Deep Gaussian processes of classes: Bui et al., "Deep Gaussian processes by approximate EP" (2016), appendix tables.

    BCMDIST_DATA=FOLDER python paper002_classes.py [--quick] [--sets glass,wine] [--splits 20]
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

import warnings
from functools import partial

import numpy as np

from bcmdist import GBCM, Settings
from published.results import Experiment, data
from published.tables import Column, Table, by_method, options, show

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
    if path := data(name):
        with np.load(path) as file:
            return file["X"].astype(float), np.unique(file["y"], return_inverse=True)[1]
    return None


def tested(rows, split) -> np.ndarray:
    """Rows that are tested on, (rows,): a tenth, by the number of the split."""
    chosen = np.zeros(rows, dtype=bool)
    chosen[np.random.default_rng(split).permutation(rows)[: round(TESTED * rows)]] = True
    return chosen


def computed(experiment: Experiment, quick=False) -> dict[str, float]:
    """Mean log probability of the classes of the tested rows of one split; all classes are among the others."""
    warnings.simplefilter("ignore")
    X, y = load(experiment.set)
    own = dict(method(units, int(y.max()) + 1) for units in UNITS)[experiment.method]
    how = {"query": 10, "effort": "quick"} if quick else {"query": CENTRES}
    test = tested(len(y), experiment.split)
    gbcm = GBCM.fit((X[~test], y[~test]), Settings(expert="dgp", task="classification", **how, **own))
    found = gbcm.predict(X[test])["probability"]
    return {"density": float(np.log(found[np.arange(test.sum()), y[test]]).mean())}


def has_all_classes(y, split) -> bool:
    """Whether all classes are among the rows that are learned from."""
    return len(np.unique(y[~tested(len(y), split)])) == y.max() + 1


METHODS = tuple(method(units, 2)[0] for units in UNITS)
DENSITY = Column("density", "mean log probability", by_method(METHODS, PAPER), "higher")
TABLES = (Table("Deep processes of classes", METHODS, PAPER, (DENSITY,)),)


def main():
    parser = options(__doc__, "one split of new_thyroid, one layer and two, few iterations and centres")
    parser.add_argument("--sets", default=",".join(PAPER))
    parser.add_argument("--splits", type=int, default=20)
    args = parser.parse_args()
    names, splits, asked = args.sets.split(","), args.splits, METHODS
    if args.quick:
        names, splits, asked = ["new_thyroid"], 1, METHODS[:2]
    targets = {name: loaded[1] for name in names if (loaded := load(name))}
    each = [
        Experiment(split, name, one)
        for split in range(splits)
        for name, y in targets.items()
        if has_all_classes(y, split)
        for one in asked
    ]
    show(args, "paper002_classes", each, partial(computed, quick=args.quick), TABLES)


if __name__ == "__main__":
    main()

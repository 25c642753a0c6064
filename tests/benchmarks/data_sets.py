"""Data sets of `python -m benchmarks`: where rows come from, how they are split, and what is known of the truth.

Each is a file of $BCMDIST_DATA. Splits are those of the file, or random rows of a seed; nothing is tuned to test rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import linalg, optimize, special
from scipy.spatial import KDTree

from commands import bcmdist
from families import write_digits

HOLDOUT, EVENT_HOLDOUT = 0.1, 0.3333
NEIGHBOURS = 60  # of kriging: with more the error of kaust_smooth falls by less than 1 %
PATCHES, PATCH_ROWS = 20, 400  # of training rows, for the nugget
BLOCK = 1000


@dataclass(frozen=True)
class Reference:
    """Predictions that are better informed than any method's, or stored with the data."""

    title: str
    predict: Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]
    """mean and variance of observations at the test rows, from the arrays of the file `import` takes"""


@dataclass(frozen=True)
class DataSet:
    """A file, its task and its split."""

    name: str
    task: str
    """as of `bcmdist fit`"""
    split: str
    """own: the file brings it; mask: rows of its test_mask; holdout: random rows of a seed"""
    splits: int = 1
    """of which `--repeat` takes one after the other"""
    share: float = HOLDOUT
    """of rows in the test part of a holdout"""
    field: bool = False
    """whether inputs are two coordinates"""
    target: str = "y"
    file: str = ""
    """where it is not named as the set"""
    rewrite: Callable[[Path, Path], Path | None] | None = None
    """of a file that `import` does not take as it is: writes one that it takes and names it, or both parts"""
    reference: Reference | None = None
    source: str = ""
    """where the data are from"""

    def path(self, data: Path) -> Path:
        """The file in the folder of data sets."""
        return data / f"{self.file or self.name}.npz"

    def write_parts(self, data: Path, folder: Path, split: int) -> Path:
        """Write train.zarr and test.zarr; the file from which they were imported."""
        source = self.rewrite(self.path(data), folder) if self.rewrite else self.path(data)
        number = split % self.splits
        options = {
            "own": (),
            "mask": ("--mask", "test_mask", "--mask-row", number),
            "holdout": ("--holdout", self.share, "--seed", number),
        }[self.split]
        for part in ("train", "test"):
            if source:
                bcmdist("import", source, folder / f"{part}.zarr", "--y", self.target, "--part", part, *options)
        return source or self.path(data)

    @property
    def split_text(self) -> str:
        """The split in words."""
        random = f"{100 * self.share:.0f} % of rows at random, seed 0"
        return {"own": "the split of the file", "mask": "the first split of the file", "holdout": random}[self.split]


# --- House prices, beside a stored exact Gaussian process ---


def houses(part: int):
    """Writes prices with the rows of one part (1 between, 2 beyond training rows) as the test rows."""

    def rewrite(file: Path, folder: Path) -> Path:
        with np.load(file) as arrays:
            rows = {"train": arrays["part"] == 0, "test": arrays["part"] == part}
            names = ("X", "y", "exact_mean", "exact_var")
            columns = {f"{n}_{which}": arrays[n][own] for n in names for which, own in rows.items()}
        kept = {name: values for name, values in columns.items() if not name.startswith("exact") or "test" in name}
        np.savez(folder / "houses.npz", **kept)
        return folder / "houses.npz"

    return rewrite


def stored_exact(arrays):
    return arrays["exact_mean_test"], arrays["exact_var_test"]


EXACT = Reference("exact GP, stored", stored_exact)

# --- A field of which some training rows are left out ---


def some_rows_of_field(rows: int):
    """Writes the simulated field of the satellite competition with that many random training rows."""

    def rewrite(file: Path, folder: Path) -> Path:
        with np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        kept = np.sort(np.random.default_rng(0).choice(len(arrays["y_train"]), rows, replace=False))
        arrays |= {name: arrays[name][kept] for name in ("X_train", "y_train")}
        np.savez(folder / "subset.npz", **arrays)
        return folder / "subset.npz"

    return rewrite


# --- Simulated fields, beside kriging with the parameters that made them ---


@dataclass(frozen=True)
class Matern:
    """Covariance variance 2^(1 - s) / Gamma(s) (r / range)^s K_s(r / range), for smoothness s."""

    variance: float
    range: float
    smoothness: float

    def __call__(self, distance):
        scaled = np.maximum(distance / self.range, 1e-10)  # at 0 the limit, to 1e-10
        s = self.smoothness
        return self.variance * 2.0 ** (1.0 - s) / special.gamma(s) * scaled**s * special.kv(s, scaled)


def kriging(matern: Matern, *, nugget: bool):
    """Predictions from the nearest rows with known parameters; a nugget is the likeliest of the training rows."""

    def predict(arrays):
        X, y, Xs = arrays["X_train"], arrays["y_train"], arrays["X_test"]
        tree = KDTree(X)
        noise = likeliest_nugget(matern, tree, y) if nugget else 0.0
        mean, variance = np.empty(len(Xs)), np.empty(len(Xs))
        for start in range(0, len(Xs), BLOCK):
            block = slice(start, start + BLOCK)
            distance, near = tree.query(Xs[block], NEIGHBOURS)
            K = matern(np.linalg.norm(X[near][:, :, None] - X[near][:, None], axis=-1))
            K += noise * np.eye(NEIGHBOURS)
            k = matern(distance)
            weights = np.linalg.solve(K, k[..., None])[..., 0]
            mean[block] = np.einsum("nk,nk->n", weights, y[near])
            variance[block] = matern.variance + noise - np.einsum("nk,nk->n", weights, k)
        return mean, variance

    return predict


def likeliest_nugget(matern, tree, y):
    """By the likelihood of patches of training rows, with a mean of 0."""
    seeds = np.random.default_rng(0).choice(len(y), PATCHES, replace=False)
    patches = [tree.query(tree.data[seed], PATCH_ROWS)[1] for seed in seeds]
    parts = [np.linalg.eigh(matern(pairwise(tree.data[rows]))) for rows in patches]
    squares = [(vectors.T @ y[rows]) ** 2 for (_, vectors), rows in zip(parts, patches, strict=True)]

    def loss(log_nugget):
        total = [np.maximum(values, 0.0) + np.exp(log_nugget) for values, _ in parts]
        return sum((np.log(t) + square / t).sum() for t, square in zip(total, squares, strict=True))

    return float(np.exp(optimize.minimize_scalar(loss, bounds=(-12.0, 1.0), method="bounded").x))


def pairwise(X):
    return linalg.norm(X[:, None] - X[None], axis=-1)


SMOOTH = Reference("kriging, true parameters", kriging(Matern(1.5, 0.017526, 2.3), nugget=False))
NUGGET = Reference("kriging, true parameters", kriging(Matern(1.5, 0.06324, 1.5), nugget=True))

# --- All of them ---

FOLDS = 20
UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "winered", "yacht")
SUBSETS = {f"heaton_{rows}": rows for rows in (1000, 3000, 10_000, 30_000)}
GROWTH = (*SUBSETS, "heaton_simulated")
"""The sets of the picture of growth with rows."""
NGUYEN = "Nguyen & Bonilla 2014"
TORGO = "regression data sets of L. Torgo"
GAL = "UCI repository, splits of Hernandez-Lobato & Adams 2015"
HEATON = "Heaton et al. 2019"
HOUSES = "R package spData, with an exact GP by Rambelli & Sigrist 2024"
KAUST = "KAUST competition of 2021 (Huang et al. 2021)"
UCI_TEXT = "UCI repository"
ALL = (
    DataSet("kin40k", "regression", "own", source=NGUYEN),
    DataSet("pol", "regression", "own", source=NGUYEN),
    DataSet("uci_protein", "regression", "mask", splits=5, source=GAL),
    DataSet("elevators_raw", "regression", "holdout", splits=FOLDS, source=TORGO),
    DataSet("cal_housing", "regression", "holdout", splits=FOLDS, source=TORGO),
    *(DataSet(f"uci_{name}", "regression", "mask", splits=FOLDS, source=GAL) for name in UCI),
    DataSet("lucas_house", "regression", "own", rewrite=houses(1), reference=EXACT, source=HOUSES),
    DataSet(
        "lucas_house_beyond",
        "regression",
        "own",
        file="lucas_house",
        rewrite=houses(2),
        reference=EXACT,
        source=HOUSES,
    ),
    DataSet("heaton_small", "regression", "own", field=True, source=HEATON),
    DataSet("heaton_simulated", "regression", "own", field=True, source=HEATON),
    *(
        DataSet(
            name,
            "regression",
            "own",
            field=True,
            file="heaton_simulated",
            rewrite=some_rows_of_field(rows),
            source=HEATON,
        )
        for name, rows in SUBSETS.items()
    ),
    DataSet("kaust_smooth", "regression", "own", field=True, reference=SMOOTH, source=KAUST),
    DataSet("kaust_nugget", "regression", "own", field=True, reference=NUGGET, source=KAUST),
    DataSet("magic", "classification", "mask", source=UCI_TEXT),
    DataSet("letter", "classification", "own", source=UCI_TEXT),
    DataSet("ijcnn1", "classification", "own", source="challenge of IJCNN 2001, as in LIBSVM's collection"),
    DataSet("mnist", "classification", "own", rewrite=write_digits, source="LeCun et al. 1998"),
    DataSet("bike_hourly_counts", "counts", "holdout", splits=FOLDS, share=EVENT_HOLDOUT, source="UCI, Bike Sharing"),
    DataSet(
        "claims_car",
        "counts",
        "holdout",
        splits=FOLDS,
        share=EVENT_HOLDOUT,
        source="R package insuranceData, dataCar",
    ),
    DataSet(
        "flchain",
        "lifetimes",
        "holdout",
        splits=FOLDS,
        share=EVENT_HOLDOUT,
        target="time",
        source="R package survival",
    ),
)
SETS = {one.name: one for one in ALL}

"""Estimators by their defaults on data frames, beside boosted trees and scikit-learn's own Gaussian process.

    BCMDIST_DATA=... python tests/benchmarks/estimators.py [--sets A,B] [--methods A,B] [--rows N] [--quick]

    bcmdist      GBCMRegressor() or GBCMCountRegressor()
    lightgbm     LGBMRegressor(), of counts with objective="poisson" (extra `benchmark`)
    sklearn_gp   GaussianProcessRegressor of a squared exponential for each input and noise, on 2,000 rows

A third of the rows, drawn by a fixed seed, is for testing; nothing is chosen by it, and each row of the table is one
run. The first score is the RMSE, of counts Poisson's mean deviance; then the mean of -log p of an observation, the
share of rows in their 95 % intervals, and CPU seconds of learning and predicting. Trees have no errors of their own:
those of numbers are normal with the variance that a tenth of the training rows shows, left out of a fit for it; counts
are Poisson. A count under the Gaussian process has the mass of the unit about it.
"""

import argparse
import importlib.util
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import mean_poisson_deviance

from bcmdist import GBCMCountRegressor, GBCMRegressor

HOLDOUT = 1.0 / 3.0
LEFT_OUT = 0.1  # of the rows that trees learn from, for the variance of their errors
GP_ROWS = 2000
QUICK_ROWS, QUICK_GP_ROWS = 500, 60
LEAST_MEAN = 1e-6  # of a count, where a Gaussian process says less
LEVEL = 0.95


@dataclass(frozen=True)
class Rows:
    """A data frame with targets."""

    X: pandas.DataFrame
    y: np.ndarray
    exposure: np.ndarray | None = None
    counts: bool = False

    def __getitem__(self, rows):
        exposure = None if self.exposure is None else self.exposure[rows]
        return Rows(self.X.iloc[rows].reset_index(drop=True), self.y[rows], exposure, self.counts)

    @property
    def exposed(self) -> dict[str, np.ndarray]:
        """The exposure as an argument, where there is one."""
        return {} if self.exposure is None else {"exposure": self.exposure}

    @property
    def time(self) -> np.ndarray:
        return np.ones(len(self.y)) if self.exposure is None else self.exposure


# --- Tables ---


def _read(name):
    with np.load(Path(os.environ["BCMDIST_DATA"], f"{name}.npz")) as arrays:
        return dict(arrays)


def housing() -> Rows:
    """House values of Californian districts."""
    arrays = _read("cal_housing")
    names = [f"x{k}" for k in range(arrays["X"].shape[1])]
    return Rows(pandas.DataFrame(arrays["X"].astype(float), columns=names), arrays["y"].astype(float))


def bike() -> Rows:
    """Hourly rentals; months, days of the week and weather are categories."""
    arrays = _read("bike_hourly_counts")
    X = pandas.DataFrame(arrays["X"].astype(float), columns=arrays["feature_names"].tolist())
    levels = {name: X[name].astype(int).astype(str).astype("category") for name in ("month", "weekday", "weather")}
    return Rows(X.assign(**levels), arrays["y"].astype(float), counts=True)


def claims() -> Rows:
    """Car claims with exposure; bodies, areas and gender, one column a level, are categories again."""
    arrays = _read("claims_car")
    columns: dict[str, np.ndarray] = {}
    for name, values in zip(arrays["feature_names"].tolist(), arrays["X"].T.astype(float), strict=True):
        column, _, level = name.partition("=")
        if level:
            columns.setdefault(column, np.full(len(values), "other", dtype="<U8"))[values == 1.0] = level
        else:
            columns[column] = values
    X = pandas.DataFrame(columns)
    texts = {name: X[name].astype("category") for name, values in columns.items() if values.dtype.kind == "U"}
    return Rows(X.assign(**texts), arrays["y"].astype(float), arrays["exposure"].astype(float), counts=True)


TABLES: dict[str, Callable[[], Rows]] = {"cal_housing": housing, "bike_hourly_counts": bike, "claims_car": claims}


# --- Methods ---


@dataclass(frozen=True)
class Predictions:
    """Of the test rows: means, negative log densities, lower and upper ends of 95 % intervals, (n,) each."""

    mean: np.ndarray
    loss: np.ndarray
    low: np.ndarray
    high: np.ndarray
    note: str = ""


@dataclass(frozen=True)
class How:
    """What a quick run does with less."""

    gp_rows: int = GP_ROWS
    ours: dict[str, Any] = field(default_factory=dict)


def of_bcmdist(train: Rows, test: Rows, how: How) -> Predictions:
    """By defaults."""
    kind = GBCMCountRegressor if train.counts else GBCMRegressor
    estimator = kind(**how.ours).fit(train.X, train.y, **train.exposed)
    low, high = estimator.predict_interval(test.X, LEVEL, **test.exposed).T
    mean, gbcm = estimator.predict(test.X, **test.exposed), estimator.gbcm_
    loss = gbcm.score(test.X, test.y, companions=test.exposed)["mnlp"]
    return Predictions(
        mean, np.full(len(mean), loss), low, high, f"{gbcm.model.kernel_name}, Q {gbcm.model.shared.functions}"
    )


def of_lightgbm(train: Rows, test: Rows, how: How) -> Predictions:
    """By defaults; rates of counts are weighted by their exposures, which makes their likelihood that of the counts."""
    from lightgbm import LGBMRegressor

    def fitted(rows):
        kind = {"objective": "poisson"} if rows.counts else {}
        trees = LGBMRegressor(random_state=0, n_jobs=1, verbosity=-1, **kind)
        weight = None if rows.exposure is None else rows.exposure
        return trees.fit(rows.X, rows.y / rows.time, sample_weight=weight)

    mean = fitted(train).predict(test.X) * test.time
    if train.counts:
        law = stats.poisson(mean)
        return Predictions(mean, -law.logpmf(test.y), *law.interval(LEVEL))
    out, kept = _split(len(train.y), LEFT_OUT, seed=1)
    errors = fitted(train[kept]).predict(train.X.iloc[out]) - train.y[out]
    law = stats.norm(mean, np.sqrt(np.mean(errors**2)))
    return Predictions(mean, -law.logpdf(test.y), *law.interval(LEVEL))


def of_sklearn_gp(train: Rows, test: Rows, how: How) -> Predictions:
    """One of some rows, by the largest evidence from one start; levels as one-hot inputs, all standardised."""
    some = train[np.random.default_rng(2).permutation(len(train.y))[: how.gp_rows]]
    columns = pandas.get_dummies(train.X).columns
    X, new = (pandas.get_dummies(rows.X).reindex(columns=columns, fill_value=0).astype(float) for rows in (some, test))
    centre, scale = X.mean(), X.std().replace(0.0, 1.0)
    kernel = ConstantKernel() * RBF(np.ones(len(columns))) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # lengthscales of what says nothing are at their bounds
        process.fit((X - centre) / scale, some.y / some.time)
    mean, deviation = process.predict((new - centre) / scale, return_std=True)
    mean, deviation = mean * test.time, deviation * test.time
    law = stats.norm(mean, deviation)
    if not train.counts:
        return Predictions(mean, -law.logpdf(test.y), *law.interval(LEVEL), note=f"{len(some.y)} rows")
    below = np.where(test.y > 0, law.cdf(test.y - 0.5), 0.0)
    mass = np.maximum(law.cdf(test.y + 0.5) - below, np.finfo(float).tiny)
    low, high = law.interval(LEVEL)
    means = np.maximum(mean, LEAST_MEAN)
    return Predictions(means, -np.log(mass), np.round(low), np.round(high), note=f"{len(some.y)} rows")


METHODS: dict[str, Callable[[Rows, Rows, How], Predictions]] = {
    "bcmdist": of_bcmdist,
    "lightgbm": of_lightgbm,
    "sklearn_gp": of_sklearn_gp,
}


# --- The table ---


def _split(count, share, *, seed):
    """Rows in a random order, the first `share` of them and the rest."""
    return np.split(np.random.default_rng(seed).permutation(count), [int(share * count)])


def line(name, method, train: Rows, test: Rows, how: How) -> str:
    """A row of the table."""
    begun = time.process_time()
    predicted = METHODS[method](train, test, how)
    spent = time.process_time() - begun
    score = (
        mean_poisson_deviance(test.y, predicted.mean)
        if test.counts
        else np.sqrt(np.mean((predicted.mean - test.y) ** 2))
    )
    held = np.mean((predicted.low <= test.y) & (test.y <= predicted.high))
    kind = "deviance" if test.counts else "RMSE"
    figures = f"{kind} {score:.4g} | {predicted.loss.mean():.4f} | {held:.3f} | {spent:.1f} | {predicted.note} |"
    return f"| {name} | {len(train.y)} | {method} | {figures}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(TABLES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rows", type=int, help="to learn from, at most")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    if "BCMDIST_DATA" not in os.environ:
        print("skipped: BCMDIST_DATA names no directory with data sets")
        return
    most = chosen.rows or (QUICK_ROWS if chosen.quick else None)
    how = How(QUICK_GP_ROWS, {"effort": "quick", "query": 100, "kernel": "se"}) if chosen.quick else How()
    print("| set | rows | method | score | -log p | in 95 % | CPU s | note |\n|---|--:|---|--:|--:|--:|--:|---|")
    for name in chosen.sets.split(","):
        table = TABLES[name]()
        out, kept = _split(len(table.y), HOLDOUT, seed=0)
        train, test = table[kept[:most]], table[out[:most]]
        for method in chosen.methods.split(","):
            if method == "lightgbm" and importlib.util.find_spec("lightgbm") is None:
                print(f"| {name} | {len(train.y)} | {method} | skipped: pip install '.[benchmark]' |")
                continue
            print(line(name, method, train, test, how), flush=True)


if __name__ == "__main__":
    main()

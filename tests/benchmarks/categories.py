"""Categories: one lengthscale a column, its levels equally far apart, beside plain one-hot inputs and boosted trees.

    BCMDIST_DATA=... python tests/benchmarks/categories.py [--sets A,B] [--methods A,B] [--splits N] [--rows N]
                                                           [--validate] [--quick]

    category    as a table is imported: the inputs of a category stay as long as they are and share a lengthscale
    onehot      the same inputs as plain numbers: each is standardised and has a lengthscale of its own
    lightgbm    boosted trees that know which columns are categories (extra `benchmark`)

Learned and absorbed by the defaults of `bcmdist fit`, in this process, on the same rows. The score is the mean of -log
p over held-out rows, and the RMSE of means, in the units of the targets that are learned; of lightgbm with the
variance, or the Poisson rates, that rows held out of its training show. With `--validate` a third of the training rows
stands for the test rows, which are not looked at.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from bcmdist import GBCM, Settings
from bcmdist.data.schema import Schema
from bcmdist.data.tables.coding import Category, Coding, Number
from bcmdist.data.tables.column import of_numpy
from bcmdist.data.writing import write_dataset

HOLDOUT = 1.0 / 3.0
HELD_OUT = 0.1  # of the rows that trees see, for when to stop
TREES, PATIENCE = 1000, 20
QUICK_ROWS = 3000


@dataclass(frozen=True)
class Table:
    """Columns by name, (N,) each: levels as texts, or numbers."""

    columns: dict[str, np.ndarray]
    y: np.ndarray
    exposure: np.ndarray | None = None

    def __getitem__(self, rows):
        columns = {name: values[rows] for name, values in self.columns.items()}
        return Table(columns, self.y[rows], None if self.exposure is None else self.exposure[rows])

    @property
    def coding(self) -> Coding:
        return Coding(tuple(_code(name, values) for name, values in self.columns.items()))

    def inputs(self, coding) -> np.ndarray:
        return coding.numbers({name: of_numpy(name, values) for name, values in self.columns.items()}, "rows")


def _code(name, values):
    return Number(name) if values.dtype.kind == "f" else Category(name, tuple(sorted(set(values.tolist()))))


# --- Tables ---


def _read(name):
    with np.load(Path(os.environ["BCMDIST_DATA"], f"{name}.npz")) as arrays:
        return dict(arrays)


def _levels(values):
    return np.array([f"{value:g}" for value in values])


def bike():
    """Hourly rentals on a log scale; months, days of the week and weather as levels."""
    arrays = _read("bike_hourly_counts")
    levels = ("month", "weekday", "weather")
    named = zip(arrays["feature_names"].tolist(), arrays["X"].T.astype(float), strict=True)
    return Table({n: _levels(v) if n in levels else v for n, v in named}, np.log1p(arrays["y"]))


def claims():
    """Car claims with exposure; bodies, areas and gender as levels."""
    arrays = _read("claims_car")
    columns: dict[str, np.ndarray] = {}
    for name, values in zip(arrays["feature_names"].tolist(), arrays["X"].T.astype(float), strict=True):
        column, _, level = name.partition("=")
        if not level:
            columns[column] = values
            continue
        found = columns.setdefault(column, np.full(len(values), "", dtype="<U8"))
        found[values == 1.0] = level
    columns = {n: np.where(v == "", "other", v) if v.dtype.kind == "U" else v for n, v in columns.items()}
    return Table(columns, arrays["y"].astype(float), arrays["exposure"].astype(float))


def energy():
    """Heating load of buildings; orientation and the side of the glazing as levels."""
    arrays = _read("uci_energy")
    columns = {f"x{k}": values for k, values in enumerate(arrays["X"].T.astype(float))}
    return Table(columns | {name: _levels(columns[name]) for name in ("x5", "x7")}, arrays["y"].astype(float))


def made():
    """A curve for each of 40 levels, some of which few rows have, beside one for all; noise of deviation .3."""
    rng, rows, levels = np.random.default_rng(0), 6000, 40
    x, c = rng.uniform(-2.0, 2.0, (rows, 3)), np.minimum(rng.zipf(1.3, rows), levels) - 1
    phase, height, slope = (
        rng.uniform(0.0, 2.0 * np.pi, levels),
        rng.standard_normal(levels),
        rng.standard_normal(levels),
    )
    f = np.sin(2.0 * x[:, 0]) + 0.7 * (height[c] + np.sin(1.5 * x[:, 1] + phase[c]) + slope[c] * x[:, 2] / 2.0)
    columns = {"c": np.array([f"c{k:02}" for k in c])} | {f"x{d}": x[:, d] for d in range(3)}
    return Table(columns, f + 0.3 * rng.standard_normal(rows))


TABLES: dict[str, Callable[[], Table]] = {"energy": energy, "made": made, "bike": bike, "claims": claims}


# --- Methods ---


@dataclass(frozen=True)
class Score:
    """On held-out rows."""

    mnlp: float
    rmse: float
    note: str = ""


def committee(train: Table, test: Table, coding: Coding, *, grouped: bool, effort) -> Score:
    """Ours, which is told that columns are categories or is not."""
    settings = Settings(task="regression" if train.exposure is None else "counts", effort=effort)
    with tempfile.TemporaryDirectory() as folder:
        url, new = f"{folder}/train.zarr", f"{folder}/test.zarr"
        schema = Schema(coding.inputs, (), coding if grouped else None)
        for place, part in ((url, train), (new, test)):
            arrays = {"X": part.inputs(coding), "y": part.y}
            arrays |= {} if part.exposure is None else {"exposure": part.exposure}
            write_dataset(place, arrays, schema=schema)
        gbcm = GBCM.fit(url, settings, model=f"{folder}/model")
        scores, kernel = gbcm.score(new), gbcm.model.kernel_name
        found = gbcm.predict(test.inputs(coding), exposure=test.exposure)
    return Score(scores["mnlp"], _rmse(found["observation_mean"], test.y), f"{kernel}, Q {gbcm.model.shared.functions}")


def lightgbm(train: Table, test: Table, coding: Coding, **_) -> Score:
    """Boosted trees; Poisson rates times exposure for counts."""
    from lightgbm import LGBMRegressor, early_stopping

    known = [k for k, code in enumerate(coding.codes) if code.kind == "category"]
    counts = train.exposure is not None
    X, Xs = (_numbered(part, coding) for part in (train, test))
    order = np.random.default_rng(0).permutation(len(X))
    out, kept = np.split(order, [int(HELD_OUT * len(X))])
    exposure = train.exposure if counts else np.ones(len(X))
    trees = LGBMRegressor(
        objective="poisson" if counts else "regression",
        n_estimators=TREES,
        learning_rate=0.1,
        num_leaves=31,
        n_jobs=2,
        random_state=0,
        verbosity=-1,
    )
    rate = train.y / exposure  # weighted by exposure, its Poisson likelihood is that of the counts
    trees.fit(
        X[kept],
        rate[kept],
        sample_weight=exposure[kept],
        eval_set=[(X[out], rate[out])],
        eval_sample_weight=[exposure[out]],
        categorical_feature=known,
        callbacks=[early_stopping(PATIENCE, verbose=False)],
    )
    mean = trees.predict(Xs) * (test.exposure if counts else 1.0)
    variance = np.mean((trees.predict(X[out]) - train.y[out]) ** 2)
    law = stats.poisson(mean).logpmf if counts else stats.norm(mean, np.sqrt(variance)).logpdf
    return Score(-float(law(test.y).mean()), _rmse(mean, test.y), f"{trees.best_iteration_} trees")


def _numbered(table, coding):
    """Levels as their numbers."""
    return np.column_stack(
        [
            np.searchsorted(code.levels, table.columns[code.name])
            if isinstance(code, Category)
            else table.columns[code.name]
            for code in coding.codes
        ]
    ).astype(float)


def _rmse(mean, y):
    return float(np.sqrt(np.mean((mean - y) ** 2)))


METHODS: dict[str, Callable[..., Score]] = {
    "category": lambda *tables, **how: committee(*tables, grouped=True, **how),
    "onehot": lambda *tables, **how: committee(*tables, grouped=False, **how),
    "lightgbm": lightgbm,
}


# --- The table ---


def parts(table: Table, seed, *, validate, most) -> tuple[Table, Table]:
    """Rows to learn from and rows to judge by; those of the test part are left alone where it is for a decision."""
    order = np.random.default_rng(seed).permutation(len(table.y))
    held, train = np.split(order, [int(HOLDOUT * len(order))])
    if validate:
        held, train = np.split(train, [int(HOLDOUT * len(train))])
    return table[train[:most]], table[held]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(TABLES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--rows", type=int, help="to learn from, at most")
    parser.add_argument("--validate", action="store_true", help="judge by training rows")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    most = chosen.rows or (QUICK_ROWS if chosen.quick else None)
    effort = "quick" if chosen.quick else "normal"
    print(
        "| set | split | rows | method | -log p | RMSE | s | note |\n| --- | --: | --: | --- | --: | --: | --: | --- |"
    )
    for name in chosen.sets.split(","):
        table = TABLES[name]()
        for seed in range(chosen.splits):
            train, test = parts(table, seed, validate=chosen.validate, most=most)
            for method in chosen.methods.split(","):
                begun = time.perf_counter()
                found = METHODS[method](train, test, table.coding, effort=effort)
                spent = time.perf_counter() - begun
                figures = f"{found.mnlp:.4f} | {found.rmse:.4f} | {spent:.0f} | {found.note} |"
                print(f"| {name} | {seed} | {len(train.y)} | {method} | {figures}", flush=True)


if __name__ == "__main__":
    main()

"""Seconds of learning under each `--effort` on tables of 300 to 10^6 rows and 2 to 128 columns.

    BCMDIST_DATA=FOLDER python tests/benchmarks/effort.py [--quick] [--efforts quick,normal] [--workers W] [--json FILE]

Each is a `bcmdist fit --prepare-only` with a local cluster: the seconds of all stages after the survey, as `info` lists
them. Sets that are not in FOLDER are left out; tables with "made" are made here.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from bcmdist import write_dataset
from commands import bcmdist

LIMITS = {"quick": 10.0, "normal": 60.0}
SETS = ("uci_yacht", "uci_concrete", "kin40k", "pol", "uci_protein", "heaton_simulated")
MADE = {"made 100,000 x 128": (100_000, 128), "made 1,000,000 x 6": (1_000_000, 6)}
QUICK = {"made 300 x 2": (300, 2)}


def stored(name, folder):
    """X (n, D) and y (n,) of training rows of a set in `folder`; None where it is not there."""
    path = Path(folder) / f"{name}.npz"
    if not path.exists():
        return None
    with np.load(path) as arrays:
        end = "_train" if "X_train" in arrays else ""
        return arrays[f"X{end}"].astype(float), arrays[f"y{end}"].astype(float)


def made(rows, columns):
    """Rows of a function of the first four columns, with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] * np.tanh(X[:, min(2, columns - 1)]) + 0.5 * X[:, min(3, columns - 1)] ** 2
    return X, f + 0.3 * rng.standard_normal(rows)


def measured(X, y, effort, workers):
    """Seconds by stage and of the whole command, with what the search left out."""
    with tempfile.TemporaryDirectory() as name:
        data, model = Path(name) / "data.zarr", Path(name) / "model"
        write_dataset(data, {"X": X, "y": y})
        options = ["--serial"] if workers == 0 else ["--workers", workers]
        figures = bcmdist("fit", data, "--model", model, "--effort", effort, "--prepare-only", *options)
    stages = figures["seconds_by_stage"]
    return {"learning": sum(stages.values()) - stages.get("survey", 0.0), "command": figures["seconds"]} | {
        "stages": stages,
        "kernel": figures["kernel"],
        "cut short": [line for line in figures["advice"] if "seconds" in line],
    }


def main(options):
    folder = os.environ.get("BCMDIST_DATA", ".")
    tables = {} if options.quick else {name: stored(name, folder) for name in SETS}
    for name, size in (QUICK if options.quick else MADE).items():
        tables[name] = made(*size)
    found = {}
    print(f"{'table':24} {'rows':>9} {'columns':>7}  " + "  ".join(f"{one:>8}" for one in options.efforts))
    for name, rows in tables.items():
        if rows is None:
            print(f"{name:24} not in {folder}")
            continue
        found[name] = {effort: measured(*rows, effort, options.workers) for effort in options.efforts}
        seconds = "  ".join(f"{one['learning']:8.1f}" for one in found[name].values())
        print(f"{name:24} {rows[0].shape[0]:9,} {rows[0].shape[1]:7}  {seconds}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))
    over = [
        f"{name}, {effort}: {one['learning']:.1f} s of {LIMITS[effort]:g}"
        for name, efforts in found.items()
        for effort, one in efforts.items()
        if one["learning"] > LIMITS[effort]
    ]
    print("longer than promised: " + ("; ".join(over) or "none"))
    return found


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--efforts", type=lambda text: text.split(","), default=list(LIMITS), metavar="A,B")
    parser.add_argument("--workers", type=int, default=2, help="0: in one process")
    parser.add_argument("--json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(parse())

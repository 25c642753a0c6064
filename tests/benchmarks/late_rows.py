"""Rows that arrive after a fit with spatial cells: accuracy against fits of all rows, and the rate of ingestion.

    python tests/benchmarks/late_rows.py [--rows 36000] [--arriving 100000] [--json]

Everything by the command line, in one process. kin40k comes in ten parts: the first is fitted, nine are ingested;
against a fit of all rows with the same hyper-parameters (`--like`), and one that learns from all. NMSE and MNLP of
4,000 other rows, and seconds of their prediction. Then the rate at which rows are absorbed by a model with cells, and
by one without.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from growing import field, run

from bcmdist.data.writing import write_dataset

PARTS, TESTED, CHUNK = 10, 4000, 500


def timed(*arguments):
    begun = time.perf_counter()
    found = run(*arguments)
    return found, time.perf_counter() - begun


def accuracy(folder, rows):
    """Figures by model."""
    stored = np.load(Path(os.environ.get("BCMDIST_DATA", "../shared/data"), "kin40k.npz"))
    X, y = (np.concatenate([stored[f"{k}_train"], stored[f"{k}_test"]]).astype(float) for k in ("X", "y"))
    order = np.random.default_rng(1).permutation(len(X))
    test, train = order[:TESTED], order[TESTED : TESTED + rows]
    cuts = {f"part{k}": some for k, some in enumerate(np.array_split(train, PARTS))} | {"all": train, "test": test}
    for name, some in cuts.items():
        write_dataset(folder / f"{name}.zarr", {"X": X[some], "y": y[some].ravel()}, rows_per_chunk=CHUNK)
    table = {}

    def row(name, model, seconds):
        score, predicting = timed("score", model, folder / "test.zarr")
        table[name] = {k: score[k] for k in ("nmse", "mnlp", "coverage95")}
        table[name] |= {"seconds to train": seconds, "seconds to score": predicting}

    how = ("--partition", "spatial", "--query", 500)
    model = folder / "model"
    seconds = timed("fit", folder / "part0.zarr", "--model", model, *how)[1]
    row("first part", model, seconds)
    seconds += sum(timed("ingest", model, folder / f"part{k}.zarr")[1] for k in range(1, PARTS))
    row("nine more ingested", model, seconds)
    like = ("--like", model, *how)
    row(
        "all, same hyper-parameters",
        folder / "like",
        timed("fit", folder / "all.zarr", "--model", folder / "like", *like)[1],
    )
    row("all", folder / "all", timed("fit", folder / "all.zarr", "--model", folder / "all", *how)[1])
    return table


def rates(folder, rows):
    """Rows a second by partition of the fit."""
    rng, f, found = np.random.default_rng(2), field(), {}
    for name, count in (("first", 10_000), ("arriving", rows)):
        X = rng.uniform(0, 10, (count, 2))
        write_dataset(
            folder / f"{name}.zarr", {"X": X, "y": f(X) + 0.1 * rng.standard_normal(count)}, rows_per_chunk=CHUNK
        )
    for partition in ("chunks", "spatial"):
        how = (
            "--partition",
            partition,
            "--query",
            500,
            "--kernel",
            "se",
            "--effort",
            "quick",
            "--rows-per-expert",
            CHUNK,
        )
        run("fit", folder / "first.zarr", "--model", folder / partition, *how)
        found[partition] = rows / timed("ingest", folder / partition, folder / "arriving.zarr")[1]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=36_000)
    parser.add_argument("--arriving", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = {"accuracy": accuracy(Path(folder), asked.rows), "rows a second": rates(Path(folder), asked.arriving)}
    if asked.json:
        print(json.dumps(table))
        return
    columns = list(next(iter(table["accuracy"].values())))
    print(f"| kin40k | {' | '.join(columns)} |\n| --- |{' --: |' * len(columns)}")
    for name, one in table["accuracy"].items():
        print(f"| {name} | {' | '.join(f'{one[column]:.4g}' for column in columns)} |")
    print("rows a second:", {name: round(rate) for name, rate in table["rows a second"].items()})


if __name__ == "__main__":
    main()

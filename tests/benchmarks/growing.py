"""A stream whose inputs move: query points fixed at the beginning, chosen in hindsight, grown, and merged.

    python tests/benchmarks/growing.py [--rows 20000] [--json]

Everything by the command line, in one process. 20,000 rows move from one place to another, 500 rows a partition. Kernel
and noise are learned from the first 2,000 rows. RMSE of f in its standard deviations and MNLP of new observations, at
5,000 places all along the way; seconds and peak memory of each partition once the inputs stop moving.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import zarr
from click.testing import CliRunner

from bcmdist.app.cli.main import cli
from bcmdist.data.writing import write_dataset

CHUNK, NOISE, WAYS = 500, 0.1, 10.0


def field(seed=3):
    """A smooth random function of two inputs: a sum of 400 waves with lengths as of a squared exponential kernel."""
    rng = np.random.default_rng(seed)
    frequencies, phases = rng.normal(size=(400, 2)) * 1.2, rng.uniform(0, 2 * np.pi, 400)
    return lambda X: np.sqrt(2 / 400) * np.cos(X @ frequencies.T + phases).sum(axis=1)


def stream(rows, seed=4):
    """Inputs (rows, 2) that move by `WAYS` along the first axis."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 2, (rows, 2)) + np.outer(np.linspace(0, WAYS, rows), [1.0, 0.0])


def run(*arguments):
    where = () if arguments[0] == "info" else ("--serial", "--quiet")
    found = CliRunner().invoke(cli, [*map(str, arguments), "--json", *where], catch_exceptions=False)
    if found.exit_code:
        raise SystemExit(found.output)
    return json.loads(found.stdout)


def judged(model, places, f):
    out = Path(f"{model}-predictions.zarr")
    score = run("score", model, places)
    run("predict", model, places, "--out", out)
    mean = np.asarray(zarr.open_group(out, mode="r")["mean"])
    return float(np.sqrt(np.mean((mean - f) ** 2)) / f.std()), score["mnlp"]


def measured(folder, rows):
    f, rng = field(), np.random.default_rng(5)
    X = stream(rows)
    y = f(X) + NOISE * rng.standard_normal(rows)
    new = stream(5000, seed=6)
    at = f(new)
    half = rows // 2 // CHUNK * CHUNK
    for name, some in (("start", slice(2000)), ("all", slice(rows)), ("one", slice(half)), ("two", slice(half, rows))):
        write_dataset(folder / f"{name}.zarr", {"X": X[some], "y": y[some]}, rows_per_chunk=CHUNK)
    write_dataset(folder / "new.zarr", {"X": new, "y": at + NOISE * rng.standard_normal(5000)}, rows_per_chunk=CHUNK)

    def fit(name, data, query, *options):
        model, how = folder / name, ("--partition", "chunks", "--rows-per-expert", CHUNK)
        like = () if name == "grown" else ("--like", folder / "grown")
        run("fit", folder / f"{data}.zarr", "--model", model, "--query", query, *how, *like, *options)
        return model

    table = {}

    def row(name, model):
        points = (run("info", model)["capacity"] or {}).get("points") or run("info", model)["query"]
        rmse, mnlp = judged(model, folder / "new.zarr", at)
        table[name] = {"points": points, "rmse": rmse, "mnlp": mnlp}

    learn = ("--kernel", "se", "--effort", "quick", "--warp", "none", "--target-transform", "none")
    grown = fit("grown", "start", 20, "--prepare-only", *learn)
    fixed = fit("fixed", "start", 120, "--prepare-only")
    run("ingest", fixed, folder / "all.zarr", "--no-grow")
    row("fixed at the beginning", fixed)
    row("in hindsight, 120", fit("hindsight", "all", 120))
    begun = time.perf_counter()
    report = run("ingest", grown, folder / "all.zarr", "--grow", "--query-most", 400)
    row("grown from 20", grown)
    table["grown from 20"]["seconds"] = time.perf_counter() - begun
    assert report["rows"] == rows
    row("in hindsight, as many", fit("as-many", "all", table["grown from 20"]["points"]))
    one, two = fit("first", "one", 120), fit("second", "two", 120)
    row("first half alone", one)
    row("second half alone", two)
    run("merge", one, two, "--model", folder / "merged")
    row("both merged", folder / "merged")
    row("one committee, as many", fit("union", "all", table["both merged"]["points"]))
    table["at rest"] = at_rest(folder, grown, f)
    return table


def at_rest(folder, model, f, *, rows=5000):
    """Seconds a partition, and growth of the peak memory, of rows at the last place, in two halves."""
    found = []
    for k in range(2):
        X = np.random.default_rng(7 + k).uniform(0, 2, (rows, 2)) + np.array([WAYS, 0.0])
        write_dataset(folder / f"rest{k}.zarr", {"X": X, "y": f(X)}, rows_per_chunk=CHUNK)
        begun = time.perf_counter()
        run("ingest", model, folder / f"rest{k}.zarr", "--grow", "--query-most", 400)
        seconds = (time.perf_counter() - begun) / (rows / CHUNK)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found.append({"seconds": seconds, "peak MB": peak, "points": run("info", model)["capacity"]["points"]})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = measured(Path(folder), asked.rows)
    if asked.json:
        print(json.dumps(table))
        return
    rest = table.pop("at rest")
    print("| query points | number | RMSE of f | MNLP |\n| --- | --: | --: | --: |")
    for name, one in table.items():
        print(f"| {name} | {one['points']} | {one['rmse']:.3f} | {one['mnlp']:.3f} |")
    print("at rest:", *rest, sep="\n  ")


if __name__ == "__main__":
    main()

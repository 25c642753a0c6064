"""Plans against what fits then take: projected over measured seconds, by stage.

    python tests/benchmarks/plan.py [--quick] [--cpu] [--only NAME,...] [--json]

Each setting is planned, fitted and planned again, in a process of its own, without a cluster; the projection is the
mean of the two plans. `--cpu` counts seconds of the processor in place of wall time, for a machine that is shared.
Data sets are read from $BCMDIST_DATA; those that are not there are left out.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sums import write_rows
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings, plan
from bcmdist.data.writing import write_dataset
from commands import run

AIM = "projected / measured within 0.7 and 1.3"
GENERATED = {"learn": False, "kernel": "matern32"}
SETTINGS = {
    "generated_500": ("generated", GENERATED | {"query": 500, "rows_per_expert": 500}),
    "generated_1000": ("generated", GENERATED | {"query": 1000, "rows_per_expert": 1000}),
    "kin40k_spatial": ("kin40k", {"partition": "spatial"}),
    "kin40k_chunks": ("kin40k", {}),
    "doctor_visits": ("doctor_visits", {"task": "counts"}),
    "magic": ("magic", {"task": "classification"}),
    "kin40k_dgp": ("kin40k", {"expert": "dgp"}),
}
QUICK = {"generated_500"}
ROWS, QUICK_ROWS = 125_000, 5000


def write(name, folder, rows):
    """A data set: path, or None where it is not there."""
    path = str(folder / "data.zarr")
    if name == "generated":
        return write_rows(path, rows)
    source = Path(os.environ.get("BCMDIST_DATA", ""), f"{name}.npz")
    if not source.exists():
        return None
    arrays = np.load(source)
    columns = {column: arrays[f"{column}_train" if f"{column}_train" in arrays else column] for column in ("X", "y")}
    write_dataset(path, {name: values.astype(float) for name, values in columns.items()}, rows_per_chunk=1000)
    return path


def compared(setting, rows=ROWS, *, cpu=False):
    """Seconds of one setting by stage, (projected, measured); None without its data."""
    if cpu:  # in a process that does nothing else
        time.perf_counter = time.monotonic = time.process_time
    name, how = SETTINGS[setting]
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        data = write(name, Path(folder), rows)
        if data is None:
            return None
        plans = [plan(data, Settings(**how))]
        start = time.perf_counter()
        fitted = GBCM.fit(data, Settings(**how), model=f"{folder}/model")
        measured = fitted.facts["seconds"] | {"total": time.perf_counter() - start}
        plans.append(plan(data, Settings(**how)))
    stages = dict.fromkeys([*plans[0].projected_seconds, *measured])
    found = {
        s: (float(np.mean([p.projected_seconds.get(s, 0.0) for p in plans])), measured.get(s, 0.0)) for s in stages
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {
        "seconds": found,
        "ratio": found["total"][0] / found["total"][1],
        "evaluations": (plans[0].evaluations, fitted.facts["evaluations"]),
        "peak_megabytes": (plans[0].projected_peak_megabytes, peak),
    }


def main(names, *, quick=False, cpu=False):
    """Of each setting what `compared` says, each in a fresh process unless it is quick."""
    if quick:
        return {name: compared(name, QUICK_ROWS) for name in names if name in QUICK}
    command = [sys.executable, __file__, "--json", *(["--cpu"] if cpu else []), "--one"]
    return {name: run([*command, name]) for name in names}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default=",".join(SETTINGS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(compared(options.one, cpu=options.cpu)))
        sys.exit()
    figures = main(options.only.split(","), quick=options.quick, cpu=options.cpu)
    if options.json:
        print(json.dumps(figures))
        sys.exit()
    for name, found in figures.items():
        if found is None:
            print(f"{name:16} skipped: its data are not there; set BCMDIST_DATA")
            continue
        stages = "  ".join(f"{s} {a:.2f}/{b:.2f}" for s, (a, b) in found["seconds"].items() if max(a, b) >= 0.05)
        beside = "  ".join(f"{n} {found[n][0]:.0f}/{found[n][1]:.0f}" for n in ("evaluations", "peak_megabytes"))
        print(f"{name:16} {found['ratio']:.2f}  {stages}  {beside}")
    print("wanted:", AIM)

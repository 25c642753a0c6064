"""Ingestion on a cluster: what the client fetches for each partition, and how long the experts take.

    python tests/benchmarks/sums.py [--quick] [--rows N] [--query Q] [--workers W] [--json]

Generated rows of eight inputs, hyper-parameters given, one pass; the first fit on a cluster only warms it. Bytes are
those of pickled results: told of partitions, or fetched otherwise, which are totals of commits and of what else a fit
asks. Seconds of `--serial` are of the same run.
"""

import argparse
import contextlib
import json
import pickle
import tempfile
from pathlib import Path

import numpy as np
from distributed import Client
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, DaskRuntime, SerialRuntime, Settings
from bcmdist.data.writing import write_dataset
from bcmdist.runtime.dask.summaries import EventChannel

INPUTS = 8
WANTED = "told_bytes_per_partition <= 2000 at Q 500"


@contextlib.contextmanager
def counted():
    """Bytes that clients fetch meanwhile: of what is told of results that stay on workers, and of other results."""
    found = {"told": 0, "fetched": 0}
    gather, told = Client._gather_remote, EventChannel.summary

    async def gathering(self, *arguments, **options):
        response = await gather(self, *arguments, **options)
        found["fetched"] += sum(len(pickle.dumps(value)) for value in response.get("data", {}).values())
        return response

    async def telling(self, future):
        answer = await told(self, future)
        found["told"] += len(pickle.dumps(answer))
        return answer

    Client._gather_remote, EventChannel.summary = gathering, telling
    try:
        yield found
    finally:
        Client._gather_remote, EventChannel.summary = gather, told


def write_rows(path, rows):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (rows, INPUTS))
    y = np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(rows)
    write_dataset(path, {"X": X, "y": y}, rows_per_chunk=5000)
    return str(path)


def measured(folder, rows, query, workers, repeats):
    data, small = write_rows(folder / "data.zarr", rows), write_rows(folder / "small.zarr", 8 * query)
    settings = Settings(partition="chunks", kernel="se", learn=False, query=query, rows_per_expert=query)
    partitions, seconds, commits = rows // query, {"serial": [], "workers": []}, 0
    with DaskRuntime(workers=workers) as cluster:
        GBCM.fit(small, settings, runtime=cluster)
        for _ in range(repeats):
            with counted() as found:
                gbcm = GBCM.fit(data, settings, runtime=cluster)
            seconds["workers"].append(gbcm.facts["seconds"]["experts"])
            commits = gbcm.commit - 1
            with threadpool_limits(1, user_api="blas"):
                alone = GBCM.fit(data, settings, runtime=SerialRuntime())
            seconds["serial"].append(alone.facts["seconds"]["experts"])
    return {
        "partitions": partitions,
        "commits": commits,
        "told_bytes_per_partition": found["told"] / partitions,
        "fetched_bytes_per_partition": found["fetched"] / partitions,
        "fetched_bytes_per_commit": found["fetched"] / commits,
        "serial_seconds": min(seconds["serial"]),
        f"workers_{workers}_seconds": min(seconds["workers"]),
    }


def main(*, quick=False, rows=125_000, query=500, workers=2):
    rows, query, repeats = (4000, 100, 1) if quick else (rows, query, 3)
    with tempfile.TemporaryDirectory() as name:
        return measured(Path(name), rows, query, workers, repeats)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=125_000)
    parser.add_argument("--query", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = main(quick=options.quick, rows=options.rows, query=options.query, workers=options.workers)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:.4g}")
        print("wanted in full mode:", WANTED)

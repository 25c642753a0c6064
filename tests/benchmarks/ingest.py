"""Ingestion beside its limit, the computation of the messages alone, in one process and run.

    python tests/benchmarks/ingest.py [--quick] [--json]

Chunks of 1000 rows, Q = 1000, one thread. Limit and ingestion take turns, so that the machine's own noise cancels in
part; on a machine that others use too, look at the time on a core, which lacks only the waits for the disk. Full mode
is run by hand on a quiet machine; quick mode only shows that the benchmark works.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from speed import seconds_of, write_rows
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.committee.ingest import loop as ingestion
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.experts.contributions import Expert

POLICIES = {"default": None, "commit_every_1": 1, "commit_every_16": 16}
WANTED = "default share_of_limit >= 0.9"


class Commits:
    """Notes how long commits take."""

    def __init__(self):
        self.seconds = []
        self.original = ingestion.Loop.commit

    def __enter__(self):
        def commit(loop, **how):
            told = loop.admission.uncommitted > 0
            seconds = seconds_of(lambda: self.original(loop, **how))
            self.seconds += [seconds] * told

        ingestion.Loop.commit = commit
        return self

    def __exit__(self, *_):
        ingestion.Loop.commit = self.original


def clocks(work):
    """Seconds on the wall, and of this process on a core."""
    before = time.process_time()
    wall = seconds_of(work)
    return np.array([wall, time.process_time() - before])


def limit_seconds(gbcm, data, n):
    """Computing all messages, of rows that are in memory."""
    expert = Expert(gbcm.snapshot.reference)
    rows = list(read_all(partitions(open_data(data), n)))
    expert(*rows[0])  # the model is loaded
    return clocks(lambda: [expert(part, found) for part, found in rows])


def ingest_seconds(gbcm, data, place, commit_every):
    """Ingesting all partitions into a copy of a model, and each commit."""
    shutil.copytree(gbcm.url, place)
    begun = GBCM.load(place)
    with Commits() as commits:
        seconds = clocks(lambda: begun.ingest(begun.source(data), IngestOptions(commit_every=commit_every)))
    shutil.rmtree(place)
    return seconds, commits.seconds


def rates(folder, experts, n, repeats):
    data = write_rows(folder / "data.zarr", experts * n)
    gbcm = GBCM.prepare(data, Settings(kernel="matern32", learn=False, query=n, rows_per_expert=n), model=folder / "m")
    shares = {name: [] for name in POLICIES}
    commits = {name: [] for name in POLICIES}
    for _ in range(repeats):
        for name, commit_every in POLICIES.items():
            before = limit_seconds(gbcm, data, n)
            seconds, each = ingest_seconds(gbcm, data, folder / "copy", commit_every)
            limit = (before + limit_seconds(gbcm, data, n)) / 2
            shares[name].append(limit / seconds)
            commits[name] += each
    return {
        name: {
            "share_of_limit": float(np.median(shares[name], axis=0)[0]),
            "share_of_limit_on_core": float(np.median(shares[name], axis=0)[1]),
            "commits": len(commits[name]) // repeats,
            "commit_seconds": statistics.median(commits[name]),
        }
        for name in POLICIES
    } | {"limit_rows_per_core_second": float(experts * n / limit[1])}


def main(quick):
    n, experts, repeats = (200, 6, 1) if quick else (1000, 48, 3)
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1, user_api="blas"):
        start = time.perf_counter()
        return rates(Path(name), experts, n, repeats) | {"seconds": time.perf_counter() - start}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = main(options.quick)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:22} {value}")
        print("wanted in full mode:", WANTED)

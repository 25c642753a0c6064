"""The ledger of a model that is old: time and memory to load it, to commit and to look partitions up.

    python tests/benchmarks/ledger.py [--entries 1e4 1e5 1e6 1e7] [--json]

A committee of 400 rows gets entries of partitions that never existed, in commits of 200,000. Each figure is of a new
process: CPU seconds, and the growth of its memory (of which files that are mapped can be dropped by the system).
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bcmdist import GBCM, Settings
from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.admission import Admission, LedgerState
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import Dataset
from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Delivery
from bcmdist.prediction.errors.drift import drift_in
from bcmdist.storage.entry import Entry

AT_ONCE, ROWS = 200_000, 10
PLACE = "/stream.zarr"


def entries(first, last):
    hashes = (hashlib.sha256(b"%d" % k).hexdigest() for k in range(first, last))
    scores = {"arrival": (-1.0, 0.95, 0.5), "excess_loss": (0.01, 0.02), "densities": float(ROWS)}
    keys = (f"{PLACE}/X[{k * ROWS}:{(k + 1) * ROWS}]" for k in range(first, last))
    return [Entry(key, digest, ROWS, **scores) for key, digest in zip(keys, hashes, strict=True)]


def absorbed(snapshot, first, last):
    """The next commit, with entries of these numbers."""
    total = snapshot.committee.total
    grown = replace(snapshot.committee, total=replace(total, rows=total.rows + ROWS * (last - first)))
    return snapshot.changed(grown, entries(first, last)).committed()


def made(model, count):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    settings = Settings(query=20, rows_per_expert=100, effort="quick")
    snapshot = GBCM.fit(X, np.sin(X[:, 0]), settings, model=model).snapshot
    for first in range(0, count, AT_ONCE):
        snapshot = absorbed(snapshot, first, min(count, first + AT_ONCE))
    snapshot.store.prune(1)


def resident():
    """Megabytes of memory: all, and without mapped files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return [int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")]


def figures(model, count):
    """What one new process measures."""
    before, found = resident(), {"partitions": count}

    def timed(name, what):
        begun = time.process_time()
        result = what()
        found[name] = time.process_time() - begun
        return result

    def opened():
        with Snapshot.opened(model) as snapshot:
            return snapshot.committee

    timed("open to predict", opened)
    snapshot = timed("open to ingest", lambda: Snapshot.load(model))
    timed("open the next commit", snapshot.newest)
    begun = time.process_time()
    for k in range(10):
        snapshot = absorbed(snapshot, count + 20 * k, count + 20 * k + 20)
    found["commit"] = (time.process_time() - begun) / 10
    state = LedgerState(snapshot.ledger, set(), Weighting())
    admission = timed("begin to ingest", lambda: Admission(state, {}, IngestOptions(), lambda part: None))
    data = Dataset(PLACE, "X", "y", (count + 10_000) * ROWS, 2, ROWS, ())
    parts = [Partition(data, k * ROWS, (k + 1) * ROWS) for k in (*range(0, count, max(1, count // 500)), count + 5000)]
    instructions = timed("admit 500 that are known", lambda: admission.delivered(Delivery(tuple(parts), 0)))
    assert (len(instructions.compare), len(instructions.to_absorb)) == (len(parts) - 1, 1)
    timed("drift", lambda: drift_in(snapshot.ledger, None))
    grown = [now - then for now, then in zip(resident(), before, strict=True)]
    return found | {"MB": grown[0], "MB without files": grown[1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=float, nargs="+", default=[1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(figures(asked.measure[0], int(asked.measure[1]))))
        return
    table = []
    for count in map(int, asked.entries):
        with tempfile.TemporaryDirectory() as folder:
            made(f"{folder}/model", count)
            command = [sys.executable, __file__, "--measure", f"{folder}/model", str(count)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        table.append(found)
        if not asked.json:
            print("  ".join(f"{name} {value:.3g}" for name, value in found.items()), flush=True)
    if asked.json:
        print(json.dumps(table))


if __name__ == "__main__":
    main()

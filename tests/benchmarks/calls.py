"""Counts of Python calls, of modules entered, and of commits, in small fits, scores and ingestions.

    python tests/benchmarks/calls.py [--json]

Counts are exact: they do not depend on the machine, but change a little with the versions of libraries.
"""

import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import bcmdist
from bcmdist import GBCM, Settings
from bcmdist.data.writing import write_dataset

ROWS, NEW_ROWS, SEED = 3000, 500, 0
PACKAGE = str(Path(bcmdist.__file__).parent)
NUMPY = str(Path(np.__file__).parent)


class CallCounter:
    """Python calls outside numpy, and those of this package by module, while it is open (one thread)."""

    def __init__(self):
        self.calls, self.moves, self.modules = 0, 0, Counter()
        self._last = ""

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)

    def _note(self, frame, event, _):
        if event != "call":
            return
        name = frame.f_code.co_filename
        if name.startswith(NUMPY):
            return
        self.calls += 1
        if name.startswith(PACKAGE):
            self.modules[name] += 1
            self.moves += name != self._last
            self._last = name


def rows(count, rng):
    """Inputs and targets of a smooth function with noise."""
    X = rng.uniform(-2.0, 2.0, (count, 4))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.standard_normal(count)


def counts(folder) -> dict[str, int]:
    """All figures by name."""
    rng = np.random.default_rng(SEED)
    for name, count in (("train", ROWS), ("new", NEW_ROWS), ("test", NEW_ROWS)):
        X, y = rows(count, rng)
        write_dataset(folder / f"{name}.zarr", {"X": X, "y": y}, rows_per_chunk=min(count, 1000))
    plain = Settings(kernel="se", query=50, rows_per_expert=1000, effort="quick", seed=SEED)
    with CallCounter() as fit:
        GBCM.fit(folder / "train.zarr", plain, model=folder / "plain").predict(X[:1])
    model = GBCM.load(shutil.copytree(folder / "plain", folder / "copy"))  # nothing of a copy is in a cache
    with CallCounter() as score:
        model.score(folder / "test.zarr")
    commits = model.snapshot.commit
    with CallCounter() as ingest:
        model.partial_fit(folder / "new.zarr")
    spatial = Settings(kernel="se", query=50, rows_per_expert=200, effort="quick", seed=SEED, partition="spatial")
    cells = GBCM.fit(folder / "train.zarr", spatial, model=folder / "spatial")
    return {
        f"score of {NEW_ROWS} rows: Python calls besides numpy": score.calls,
        f"score of {NEW_ROWS} rows: calls of this package": sum(score.modules.values()),
        f"fit of {ROWS} rows, one predicted: modules": len(fit.modules),
        f"fit of {ROWS} rows, one predicted: moves between modules": fit.moves,
        f"batch of {NEW_ROWS} rows ingested: modules": len(ingest.modules),
        f"batch of {NEW_ROWS} rows ingested: moves between modules": ingest.moves,
        "commits of a plain fit": commits,
        "commits of a spatial fit": cells.snapshot.commit,
    }


def main():
    """Print one table."""
    with tempfile.TemporaryDirectory() as folder:
        found = counts(Path(folder))
    if "--json" in sys.argv[1:]:
        print(json.dumps(found))
        return
    for name, count in found.items():
        print(f"{name:<60}{count:>10,}")


if __name__ == "__main__":
    main()

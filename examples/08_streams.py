"""Rows that keep coming: each is absorbed once, old ones fade, and drift is seen when it happens.

A producer appends rows to a Zarr array; an ingester takes those that are complete, scores each partition before it
absorbs it, and commits state, ledger and offset in one step. Kill it at any time and start it again: nothing is lost
and nothing counts twice. `bcmdist ingest model grown.zarr --watch` is the same on the command line, and
`redis://HOST:PORT/STREAM` in the place of the array a stream (see `bcmdist.publish`).
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from bcmdist import GBCM, IngestOptions, Settings, append_rows
from bcmdist.errors import BcmdistWarning


def rows(rng, count, *, shift=0.0):
    X = rng.uniform(-2, 2, (count, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + shift + 0.1 * rng.standard_normal(count)


def main(batches):
    warnings.simplefilter("default", BcmdistWarning)  # of drift, which is to come
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        append_rows(folder / "grown.zarr", *rows(rng, 2000), rows_per_chunk=100)
        settings = Settings(partition="chunks", kernel="se", query=100, rows_per_expert=100, effort="quick")
        gbcm = GBCM.prepare(folder / "grown.zarr", settings, model=folder / "model")

        options = IngestOptions(half_life=3000.0)  # a row counts half once 3000 newer ones have been absorbed
        for number in range(batches):
            gbcm, tally = gbcm.ingest(gbcm.source(folder / "grown.zarr"), options)
            fading = gbcm.info()["drift"]
            print(
                f"{tally.partitions:3} partitions, {tally.duplicates:3} known; log score of the newest "
                f"{fading['log_score_recent']:6.2f}, {fading['verdict'].partition(' (')[0]}"
            )
            shifted = 1.0 if number == batches - 2 else 0.0  # the sensor moves
            append_rows(folder / "grown.zarr", *rows(rng, 2000, shift=shifted))

        print("commits:", [commit["number"] for commit in gbcm.store.history()])
        print("offset:", gbcm.offsets, "- rows that count:", round(sum(weights(gbcm))))


def weights(gbcm):
    """What the rows of each partition count by now."""
    counts = gbcm.weights
    return [counts[entry.key] * entry.rows for entry in gbcm.ledger]


if __name__ == "__main__":
    main(3 if "--quick" in sys.argv else 8)

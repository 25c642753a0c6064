"""Let a copy of a model absorb a stream undisturbed, and compare: no row is missing, and none counts twice.

python compare.py MODEL COPY redis://HOST:PORT/0/STREAM
"""

import sys

import numpy as np

from bcmdist import GBCM

model, copy, stream = sys.argv[1:]
ours, before = GBCM.load(model), GBCM.load(copy)
theirs, report = before.ingest(before.source(stream))
assert len({entry.key for entry in ours.ledger}) == len(ours.ledger) == len(theirs.ledger)
for name in ("eta", "precision"):  # sums of the same messages, in another order
    one, other = (getattr(gbcm.committee.total, name) for gbcm in (ours, theirs))
    difference = np.abs(one - other).max() / np.abs(other).max()
    assert difference <= 1e-10, (name, difference)
    print(f"ok: {name} as of {report.rows} rows absorbed in peace, to {difference:.0e}")

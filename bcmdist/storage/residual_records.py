"""Residual records: standardised residuals at some rows of partitions, stored as further arrays of a commit.

    residuals           (R, D + 3) float64: scaled inputs, log of the predictive variance there, and the residuals of
                        the committee and of local prediction (0 if missing)
    residual_counts     (n, 2) int64, for each record: number of committee residuals, and number of local residuals
    residual_entries    uint8: the ledger entries of the records, as a segment

Up to format 5, `residual_digests`, (n, 32) uint8, named the entries by their digests, and `residual_counts` had a third
column, the number of ledger entries with the same digest before the entry. Formats before 4 held these numbers in the
lines of ledger segments.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bcmdist.storage.arrays import check_array
from bcmdist.storage.entry import Entry, ResidualRecord
from bcmdist.storage.fields import damaged
from bcmdist.storage.json_segments import residuals_before_4
from bcmdist.storage.ledger import Ledger
from bcmdist.storage.segment import Segment, encode

WRITTEN, BEFORE_6 = ("residuals", "residual_counts", "residual_entries"), "residual_digests"
RESIDUAL_ARRAYS = (*WRITTEN, BEFORE_6)
DIGEST_BYTES = 32
LARGEST = 1e100  # of stored numbers: distances between places stay finite


def residual_arrays(entries: Sequence[Entry]) -> dict[str, np.ndarray]:
    """Return the residual records of ledger entries that have one as arrays by name; empty if there are none."""
    found = [(entry, entry.residuals) for entry in entries if entry.residuals]
    if not found:
        return {}
    values = (
        np.concatenate([record.table() for _, record in found]),
        np.array([record.counts for _, record in found], dtype=np.int64),
        np.frombuffer(encode([replace(entry, residuals=None) for entry, _ in found]), np.uint8),
    )
    return dict(zip(WRITTEN, values, strict=True))


def with_residuals(ledger: Ledger, arrays: Mapping[str, np.ndarray], where: str) -> Ledger:
    """Return a ledger with the residual records from the arrays of a commit.

    Raises
    ------
    ModelDamaged
        The arrays are inconsistent, or, up to format 5, a record has no ledger entry.
    """
    if not any(name in arrays for name in RESIDUAL_ARRAYS):
        return ledger
    old = BEFORE_6 in arrays
    last = BEFORE_6 if old else WRITTEN[-1]
    for name in (*WRITTEN[:2], last):
        if name not in arrays:
            raise damaged(where, f"an array {name}, beside other residuals", "none")
    table, counts = arrays["residuals"], arrays["residual_counts"]
    entries = [] if old else _stored(arrays[last], where)
    _check(table, counts, (len(arrays[BEFORE_6]), 3) if old else (len(entries), 2), where)
    if old:
        entries = _of_digests(ledger, arrays[BEFORE_6], counts, where)
    ends = np.cumsum(counts[:, :2].max(axis=1)).tolist()
    rows = zip(entries, [0, *ends], ends, counts.tolist(), strict=False)
    recorded = [replace(entry, residuals=_record(table[a:b], count)) for entry, a, b, count in rows]
    return Ledger(ledger.parts, {entry.key: entry for entry in recorded})


def with_residuals_before_4(store, ledger: Ledger) -> Ledger:
    """Return a ledger with the residual records from the lines of its segments."""
    where, found = store.storage.url, dict[str, ResidualRecord]()
    for digest in ledger.digests:
        found |= residuals_before_4(store._get_blob(digest), f"{where}: blob {digest[:12]}")
    return Ledger(ledger.parts, {e.key: replace(e, residuals=found[e.key]) for e in ledger if e.key in found})


def _stored(array, where) -> list[Entry]:
    check_array(array, where, "residual_entries", shape=array.shape[:1], dtype=np.uint8)
    return list(Segment(array.tobytes(), f"{where}: residual_entries"))


def _of_digests(ledger, digests, counts, where) -> list[Entry]:
    """Entries by digest, and the number of entries before them that have it, too."""
    n = len(counts)
    check_array(digests, where, BEFORE_6, shape=(n, DIGEST_BYTES), dtype=np.uint8)
    ties = zip((bytes(line).hex() for line in digests), counts[:, 2].tolist(), strict=True)
    wanted, before, found = {tie: k for k, tie in enumerate(ties)}, Counter[str](), dict[int, Entry]()
    for entry in ledger:
        place = wanted.get((entry.digest, before[entry.digest]))
        before[entry.digest] += 1
        if place is not None:
            found[place] = entry
    if len(found) != n:
        raise damaged(where, "residuals of partitions in the ledger, once each", "others")
    return [found[place] for place in range(n)]


def _record(table, counts) -> ResidualRecord:
    committee, local = (table[:, -2 + k] if counts[k] else None for k in (0, 1))
    return ResidualRecord(table[:, :-2], committee, local)


def _check(table, counts, shape, where):
    """Raise `ModelDamaged` if arrays have wrong types or shapes, or counts are inconsistent."""
    if table.ndim != 2 or table.shape[1] < 4:
        raise damaged(where, "4 columns or more in residuals", f"the shape {table.shape}")
    check_array(counts, where, "residual_counts", shape=shape, dtype=np.int64)
    check_array(table, where, "residuals", shape=table.shape)
    if np.abs(table).max(initial=0.0) > LARGEST:
        raise damaged(where, f"numbers of at most {LARGEST:g} in residuals", f"{np.abs(table).max():g}")
    most = counts[:, :2].max(axis=1, initial=0)
    agree = (counts[:, :2] == most[:, None]) | (counts[:, :2] == 0)
    if not agree.all() or (counts < 0).any() or (most > len(table)).any() or most.sum() != len(table):
        raise damaged(where, f"{len(table)} residuals in residual_counts, of one number or 0 each", "others")
    if not most.all():
        raise damaged(where, "one residual or more in each line of residual_counts", "none")

"""Residual records: standardised residuals at some rows of partitions, stored as further arrays of a commit.

    residuals           (R, D + 3) float64: scaled inputs, log of the predictive variance there, and the residuals of
                        the committee and of local prediction (0 if missing)
    residual_counts     (n, 3) int64, for each record: number of committee residuals, number of local residuals, and
                        number of ledger entries with the same digest before its own entry
    residual_digests    (n, 32) uint8, for each record: digest of its ledger entry

Formats before 4 held these numbers in the lines of ledger segments (`ledger.get_segment`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bcmdist.storage.arrays import check_array
from bcmdist.storage.fields import damaged
from bcmdist.storage.ledger import Entry, ResidualRecord

RESIDUAL_ARRAYS = ("residuals", "residual_counts", "residual_digests")
DIGEST_BYTES = 32
LARGEST = 1e100  # of stored numbers: distances between places stay finite


def residual_arrays(ledger: Sequence[Entry]) -> dict[str, np.ndarray]:
    """Return the residual records of ledger entries as arrays by name; empty if there are no records."""
    before, found = Counter[str](), list[tuple[ResidualRecord, str, int]]()
    for entry in ledger:
        if entry.residuals:
            found.append((entry.residuals, entry.digest, before[entry.digest]))
        before[entry.digest] += 1
    if not found:
        return {}
    counts = [[*record.counts, number] for record, _, number in found]
    values = (
        np.concatenate([record.table() for record, _, _ in found]),
        np.array(counts, dtype=np.int64),
        np.frombuffer(bytes.fromhex("".join(digest for _, digest, _ in found)), np.uint8).reshape(-1, DIGEST_BYTES),
    )
    return dict(zip(RESIDUAL_ARRAYS, values, strict=True))


def with_residuals(ledger: Sequence[Entry], arrays: Mapping[str, np.ndarray], where: str) -> tuple[Entry, ...]:
    """Return ledger entries with the residual records from the arrays of a commit.

    Raises
    ------
    ModelDamaged
        The arrays are inconsistent, or a record has no ledger entry.
    """
    if not any(name in arrays for name in RESIDUAL_ARRAYS):
        return tuple(ledger)
    _check(arrays, where)
    table, counts, digests = (arrays[name] for name in RESIDUAL_ARRAYS)
    ends = np.cumsum(counts[:, :2].max(axis=1)).tolist()
    rows = zip([0, *ends], ends, counts.tolist(), strict=False)
    ties = zip((bytes(line).hex() for line in digests), counts[:, 2].tolist(), strict=True)
    records = {tie: _record(table[start:stop], count) for tie, (start, stop, count) in zip(ties, rows, strict=True)}
    before, entries = Counter[str](), []
    for entry in ledger:
        record = records.pop((entry.digest, before[entry.digest]), None)
        before[entry.digest] += 1
        entries.append(entry if record is None else replace(entry, residuals=record))
    if records or len(digests) != sum(entry.residuals is not None for entry in entries):
        raise damaged(where, "residuals of partitions in the ledger, once each", "others")
    return tuple(entries)


def _record(table, counts) -> ResidualRecord:
    committee, local = (table[:, -2 + k] if counts[k] else None for k in (0, 1))
    return ResidualRecord(table[:, :-2], committee, local)


def _check(arrays, where):
    """Raise `ModelDamaged` if arrays have wrong types or shapes, or counts are inconsistent."""
    for name in RESIDUAL_ARRAYS:
        if name not in arrays:
            raise damaged(where, f"an array {name}, beside other residuals", "none")
    table, counts, digests = (arrays[name] for name in RESIDUAL_ARRAYS)
    if table.ndim != 2 or table.shape[1] < 4:
        raise damaged(where, "4 columns or more in residuals", f"the shape {table.shape}")
    n = len(digests) if digests.ndim else 0
    check_array(digests, where, "residual_digests", shape=(n, DIGEST_BYTES), dtype=np.uint8)
    check_array(counts, where, "residual_counts", shape=(n, 3), dtype=np.int64)
    check_array(table, where, "residuals", shape=table.shape)
    if np.abs(table).max(initial=0.0) > LARGEST:
        raise damaged(where, f"numbers of at most {LARGEST:g} in residuals", f"{np.abs(table).max():g}")
    most = counts[:, :2].max(axis=1, initial=0)
    agree = (counts[:, :2] == most[:, None]) | (counts[:, :2] == 0)
    if not agree.all() or (counts < 0).any() or (most > len(table)).any() or most.sum() != len(table):
        raise damaged(where, f"{len(table)} residuals in residual_counts, of one number or 0 each", "others")
    if not most.all():
        raise damaged(where, "one residual or more in each line of residual_counts", "none")

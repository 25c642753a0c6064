"""Segments: the ledger as a few immutable blobs, so that a commit does not rewrite all entries.

A segment is a JSON list of ledger entries, each a list of the entry's fields. The public functions are methods of
`ModelStore`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bcmdist.errors import ModelDamaged
from bcmdist.storage.blobs import blob_label, canonical_json
from bcmdist.storage.fields import damaged, read_back, read_entries
from bcmdist.storage.ledger import STORED, Entry, ResidualRecord


def put_segment(store, entries: Sequence[Entry]) -> str:
    """Store ledger entries as one immutable blob, after a trial reading; return its hash.

    Raises
    ------
    CommitRefused
        Readers would not accept the entries.
    """
    where = f"{store.storage.url}: ledger"
    with read_back(where):
        text = canonical_json([[getattr(entry, name) for name in STORED] for entry in entries])
        read_entries(text, STORED, where)
    return store._put_blob(text)


def get_segment(store, digest: str, *, residuals=False) -> list[Entry]:
    """Load the ledger entries of a blob, checked against its hash.

    residuals : whether to load the residuals in lines of formats before 4
    """
    where = blob_label(store.storage, digest)
    lines = read_entries(store._get_blob(digest), STORED, where, residuals=residuals)
    return [_entry(line, where) for line in lines]


def _entry(line, where):
    """Convert a line to an entry; residuals of formats before 4 follow the fields `STORED`."""
    values = (tuple(value) if isinstance(value, list) else value for value in line)
    stored: dict[str, Any] = dict(zip(STORED, values, strict=False))
    if not any(line[len(STORED) :]):
        return Entry(**stored)
    places, *both = (np.array(values, dtype=float) for values in line[len(STORED) :])
    committee, local = (values if values.size else None for values in (*both, np.zeros(0), np.zeros(0))[:2])
    counts = {len(values) for values in (committee, local) if values is not None}
    if len(counts) != 1 or places.size % min(counts):
        raise damaged(where, f"residuals at places in the ledger entry {line[0]}", f"{sorted(counts)}, {places.size}")
    return Entry(**stored, residuals=ResidualRecord(places.reshape(min(counts), -1), committee, local))


def extended(store, segments: Sequence[str], entries: Sequence[Entry], *, after=0) -> tuple[str, ...]:
    """Append entries to the ledger of commit `after`; return the hashes of its segments.

    As in a binary counter, the last segment is merged with the new entries while it has less than twice as many. Then
    each segment is at least twice as long as the next: a ledger of n entries has at most 1 + log2 n segments. An entry
    is rewritten only into a segment at least 1.5 times as long, so at most log n / log 1.5 times.

    Raises
    ------
    CommitConflict
        Other processes have made later commits, and pruned commit `after`.
    """
    while segments and entries:
        try:
            last = store.get_segment(segments[-1])
        except ModelDamaged as error:
            if 0 < after <= store.pruned():
                raise store.taken(after + 1) from error
            raise
        if len(last) >= 2 * len(entries):
            break
        segments, entries = segments[:-1], [*last, *entries]
    return (*segments, store.put_segment(entries)) if entries else tuple(segments)

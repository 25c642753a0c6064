"""Segments: a ledger as a few immutable blobs, so that a commit does not rewrite what the one before it has.

A segment is a JSON list of ledger entries, each a list of their fields. Functions of a `ModelStore`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bcmdist.errors import ModelDamaged
from bcmdist.storage.blobs import blob_label, canonical_json
from bcmdist.storage.fields import damaged, read_back, read_entries
from bcmdist.storage.ledger import STORED, Entry, ResidualRecord


def put_segment(store, entries: Sequence[Entry]) -> str:
    """Store ledger entries as one immutable blob, once they were read back; its hash.

    Raises
    ------
    CommitRefused
    """
    where = f"{store.storage.url}: ledger"
    with read_back(where):
        text = canonical_json([[getattr(entry, name) for name in STORED] for entry in entries])
        read_entries(text, STORED, where)
    return store._put_blob(text)


def get_segment(store, digest: str, *, residuals=False) -> list[Entry]:
    """The ledger entries of a blob, checked against its name.

    residuals : with those that stand in lines of formats before 4
    """
    where = blob_label(store.storage, digest)
    lines = read_entries(store._get_blob(digest), STORED, where, residuals=residuals)
    return [_entry(line, where) for line in lines]


def _entry(line, where):
    """The entry of a line, whose residuals stand behind what is stored now."""
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
    """Segments of a ledger, of the commit `after`, with further entries at its end, as a binary counter grows.

    The last segment is merged with what is new while it has less than twice as many entries. Each segment is
    then at least twice as long as the next: a ledger of n entries has at most 1 + log2 n, and an entry is
    rewritten only into a segment that is half as long again, so at most log n / log 1.5 times.

    Raises
    ------
    CommitConflict
        Others have made, and pruned, later commits.
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

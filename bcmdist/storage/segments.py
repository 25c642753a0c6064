"""Segments: the ledger as a few immutable blobs, so that a commit does not rewrite all entries.

A segment is a JSON list of ledger entries, each a list of the entry's fields. The public functions are methods of
`ModelStore`.
"""

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import msgspec
import numpy as np

from bcmdist.errors import ModelDamaged
from bcmdist.storage.blobs import blob_label, canonical_json
from bcmdist.storage.fields import Number, damaged, decode, read_back
from bcmdist.storage.ledger import STORED, Entry, ResidualRecord

# A line of a segment: the fields of an entry in order, of which the last may be missing.
_HINTS = get_type_hints(Entry, include_extras=True)
_Line: Any = msgspec.defstruct(
    "_Line",
    [
        (field.name, _HINTS[field.name], *([] if field.default is MISSING else [field.default]))
        for field in fields(Entry)
        if field.name in STORED
    ],
    array_like=True,
)
# Residuals that follow in formats before 4: places, residuals of the committee and of local prediction.
_LineBefore4: Any = msgspec.defstruct(
    "_LineBefore4",
    [(name, tuple[Number, ...], ()) for name in ("places", "residuals", "local_residuals")],
    bases=(_Line,),
    array_like=True,
)


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
        _lines(text, _Line, where)
    return store._put_blob(text)


def get_segment(store, digest: str, *, residuals=False) -> list[Entry]:
    """Load the ledger entries of a blob, checked against its hash.

    residuals : whether to load the residuals in lines of formats before 4
    """
    where = blob_label(store.storage, digest)
    lines = _lines(store._get_blob(digest), _LineBefore4 if residuals else _Line, where)
    return [_entry(line, where) for line in lines]


def _lines(text, line, where) -> list:
    """Parse a segment.

    Raises
    ------
    ModelDamaged
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(where, "JSON", f"something else ({str(error)[:80]})") from error
    return decode(list[line], found, where, "ledger entry ")


def _entry(line, where) -> Entry:
    stored: dict[str, Any] = {name: getattr(line, name) for name in STORED}
    return Entry(**stored, residuals=_residuals(line, where))


def _residuals(line, where) -> ResidualRecord | None:
    """Return the residuals in a line of a format before 4; None if there are none."""
    if not isinstance(line, _LineBefore4) or not (line.places or line.residuals or line.local_residuals):
        return None
    committee, local = (np.array(values) if values else None for values in (line.residuals, line.local_residuals))
    counts = {len(values) for values in (committee, local) if values is not None}
    if len(counts) != 1 or len(line.places) % min(counts):
        found = f"{sorted(counts)}, {len(line.places)}"
        raise damaged(where, f"residuals at places in the ledger entry {line.key}", found)
    return ResidualRecord(np.array(line.places).reshape(min(counts), -1), committee, local)


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

"""Segments of the ledger in formats before 6: JSON lists of entries."""

from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import msgspec
import numpy as np

from bcmdist.storage.entry import STORED, Entry, ResidualRecord
from bcmdist.storage.fields import Count, Number, damaged, decode, parse

# A line of a segment: the fields of an entry in order, of which the last may be missing. Formats before 4 have places
# of residuals and residuals of the committee, arrays, where later ones have the number of the query set and the copy.
_HINTS = get_type_hints(Entry, include_extras=True)
_HINTS |= {"query": Count | tuple[Number, ...], "copy": str | tuple[Number, ...]}
_Line: Any = msgspec.defstruct(
    "_Line",
    [
        (one.name, _HINTS[one.name], *([] if one.default is MISSING else [one.default]))
        for one in fields(Entry)
        if one.name in STORED
    ],
    array_like=True,
)
# Residuals in formats before 4: places, in `query`, residuals of the committee, in `copy`, and what follows, residuals
# of local prediction.
_LineBefore4: Any = msgspec.defstruct(
    "_LineBefore4", [("local_residuals", tuple[Number, ...], ())], bases=(_Line,), array_like=True
)


def residuals_before_4(text: bytes, where: str) -> dict[str, ResidualRecord]:
    """Return the residuals in a segment of a format before 4, by key; errors as of `entries_of_json`."""
    lines = decode(list[_LineBefore4], parse(text, where), where, "ledger entry ")
    return {line.key: found for line in lines if (found := _residuals(line, where))}


def entries_of_json(text: bytes, where: str) -> list[Entry]:
    """Return the entries of a segment, without residuals.

    Raises
    ------
    ModelDamaged
    """
    lines = decode(list[_LineBefore4], parse(text, where), where, "ledger entry ")
    return [_entry(line) for line in lines]


def _entry(line) -> Entry:
    stored: dict[str, Any] = {name: getattr(line, name) for name in STORED}
    stored["query"] = line.query if isinstance(line.query, int) else 0
    stored["copy"] = line.copy if isinstance(line.copy, str) else ""
    return Entry(**stored)


def _residuals(line, where) -> ResidualRecord | None:
    if not (line.query or line.copy or line.local_residuals):
        return None
    places, of_committee = (value if isinstance(value, tuple) else () for value in (line.query, line.copy))
    committee, local = (np.array(values) if values else None for values in (of_committee, line.local_residuals))
    counts = {len(values) for values in (committee, local) if values is not None}
    if len(counts) != 1 or len(places) % min(counts):
        found = f"{sorted(counts)}, {len(places)}"
        raise damaged(where, f"residuals at places in the ledger entry {line.key}", found)
    return ResidualRecord(np.array(places).reshape(min(counts), -1), committee, local)

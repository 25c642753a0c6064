"""Bring a member of a mixture to the rows that the first member has absorbed, or back to the state that is named.

The first member reads a source, and the others absorb the partitions that it has absorbed: a source is read once, and a
stream has one consumer.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bcmdist.api import fit, refitting
from bcmdist.committee.absorbed import partitions_of
from bcmdist.committee.ingest.growing import Growth
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import BcmdistWarning, ModelDamaged
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import Reference
from bcmdist.storage.entry import Entry

# Commits of members to keep while they are changed: the mixture prunes them.
EVERY_COMMIT = 10**9


def named_member(reference: Reference) -> Snapshot:
    """The snapshot that a mixture names."""
    snapshot = Snapshot.load(reference.url, commit=reference.number)
    if snapshot.digest != reference.digest:
        raise ModelDamaged(
            f"{reference.url}: expected record {reference.digest[:12]} at commit {reference.number}, found "
            f"{snapshot.digest[:12]}; load the mixture again, or restore it from a copy"
        )
    return snapshot


def continued(reference: Reference, first: Snapshot | None = None) -> Snapshot:
    """The newest state of a member if it has absorbed more rows than the mixture names, else a commit like the named
    one; of another member than the first also where it has absorbed rows that the first has not."""
    named = named_member(reference)
    newest = named.newest()
    if newest.commit == named.commit or (_continues(newest, named) and (first is None or _holds(first, newest))):
        return newest
    return taken_back(named)


def _continues(newest: Snapshot, named: Snapshot) -> bool:
    """Whether a later commit of a member holds the rows of an earlier one, alike, and perhaps more."""
    same = newest.facts.learning.refits == named.facts.learning.refits
    return (
        same
        and _holds(newest, named)
        and all(newest.absorbed[one.key].at == one.at for one in named.ledger if one.key in newest.absorbed)
    )


def _holds(one: Snapshot, other: Snapshot) -> bool:
    """Whether a committee has absorbed all partitions of another, unless they have left its window."""
    return all(
        one.facts.fading.expired(entry.position) if found is None else _alike(found, entry)
        for entry in other.ledger
        for found in [one.absorbed.get(entry.key)]
    )


def _alike(one: Entry, other: Entry) -> bool:
    return (one.digest, one.weight) == (other.digest, other.weight)


def taken_back(named: Snapshot) -> Snapshot:
    """The state that a mixture names as the newest commit of a member."""
    newest = named.newest()
    return named if newest.commit == named.commit else refitting.revert(newest, named.commit)


class Replayed:
    """Partitions that the first member has absorbed, as a source for another.

    Each is delivered with the position at which the first member absorbed it, and with the offset of its last commit.
    """

    def __init__(self, name: str, parts: Sequence[Partition], entries: Sequence[Entry], offset: Any) -> None:
        self.name, self.offset = name, offset
        self._left = [(part, entry.position) for part, entry in zip(parts, entries, strict=True)]

    def read(self, after: Any, most: int) -> list[Delivery]:
        """Return the next deliveries, at most `most`."""
        taken, self._left = self._left[:most], self._left[most:]
        return [Delivery((part,), self.offset, position) for part, position in taken]

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        """Do nothing: the first member acknowledges."""

    def lag(self, after: Any) -> int:
        """Return the number of partitions left."""
        return len(self._left)

    def close(self) -> None:
        """Do nothing: no resource is open."""


def following(snapshot: Snapshot, first: Snapshot, options: IngestOptions | None, runtime: Runtime) -> Snapshot:
    """A member after it has absorbed the partitions that the first member has absorbed.

    options : those of the ingestion; by default as the state of the first member shows
    """
    new = [entry for entry in first.ledger if entry.key not in snapshot.absorbed]
    if not new:
        return snapshot
    found = partitions_of(first, new, dict.fromkeys((one.key for one in new), 1.0))
    parts = [replace(part, state="", query=None) for part in found]
    moved = [name for name, offset in first.offsets.items() if offset != snapshot.offsets.get(name)]
    name = first.facts.fading.source or (moved[0] if moved else "")
    source = Replayed(name, snapshot.with_variance(parts), new, first.offsets.get(name))
    with warnings.catch_warnings():  # the first member has warned of the rows
        warnings.simplefilter("ignore", BcmdistWarning)
        return fit.ingest_source(snapshot, source, _follower(snapshot, first, options), runtime)[0]


def _follower(snapshot: Snapshot, first: Snapshot, options: IngestOptions | None) -> IngestOptions:
    """Options with which a member absorbs partitions that the first has absorbed."""
    fades, grown = first.facts.fading, len(first.model.earlier) > len(snapshot.model.earlier)
    growth = Growth.asked(snapshot, options or IngestOptions(grow=grown))
    return IngestOptions(
        half_life=fades.half_life,
        window=fades.window,
        keep=EVERY_COMMIT,
        same_rows="allow",
        grow=growth is not None,
        grow_share=growth.share if growth else None,
        query_most=growth.most if growth else None,
    )

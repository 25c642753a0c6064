"""Sequential ingestion for models that linearise each partition at the running posterior.

Messages depend on their order here (SYSTEMS I.5, last paragraph): partitions are absorbed in order, in groups that grow
(`passes.absorb_in_turn`), and no other process may commit meanwhile.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from bcmdist.committee import passes
from bcmdist.committee.cells import absorbed_in_cells
from bcmdist.committee.ingest.events import Events
from bcmdist.committee.ingest.options import IngestOptions, IngestReport
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.surveyed import refuse_conflict
from bcmdist.data.partition import Partition, refuse_overlap
from bcmdist.data.row_ranges import Contents, same_rows, same_rows_warning
from bcmdist.data.rows import Rows
from bcmdist.data.sources.open import Source
from bcmdist.errors import BcmdistWarning, InvalidOption
from bcmdist.experts.contributions import Contribution
from bcmdist.experts.limits import refuse_large_expert
from bcmdist.runtime.interface import Parted, Runtime, Task
from bcmdist.storage.entry import Entry


@dataclass(frozen=True)
class PartitionMessage:
    """Compute the message of a partition; it stays on the worker, only its ledger entry is returned at once."""

    expert: Task
    """computes the partition's `Contribution`"""
    parted: ClassVar[bool] = True

    def __call__(self, part: Partition, rows: Rows) -> Parted:
        absorbed: Contribution = self.expert(part, rows)
        names = {key: identity(entry) for key, entry in absorbed.entries.items()}
        return Parted(LedgerEntries(absorbed.entries), replace(absorbed, entries=names))


def identity(entry: Entry) -> Entry:
    """The part of an entry that identifies its rows and the message computed from them."""
    return Entry(entry.key, entry.digest, entry.rows, at=entry.at, state=entry.state, query=entry.query)


@dataclass(frozen=True)
class LedgerEntries:
    """Ledger entries by key."""

    entries: dict[str, Entry]

    def __add__(self, other: "LedgerEntries") -> "LedgerEntries":
        return LedgerEntries(self.entries | other.entries)


@dataclass(frozen=True)
class Digests:
    """Compute the content hash of a partition, to check that an absorbed partition is unchanged."""

    def __call__(self, part: Partition, rows: Rows) -> "Found":
        return Found({part.key: rows.digest})


@dataclass(frozen=True)
class Found:
    """Content hashes by key."""

    by_key: dict[str, str]

    def __add__(self, other: "Found") -> "Found":
        return Found(self.by_key | other.by_key)


# Least number of deliveries that are read, and committed, together.
GROUP = 4
# Options that do not change what is absorbed, or in which order.
ALLOWED = ("keep", "same_rows", "stop", "observe")


def ingest_in_turn(
    snapshot: Snapshot, source: Source, runtime: Runtime, options: IngestOptions
) -> tuple[Snapshot, IngestReport]:
    """Absorb the partitions that a source delivers, once each, linearised under the posterior of the groups before.

    Returns the last snapshot and a report.

    Raises
    ------
    InvalidOption
        An option that is not among `ALLOWED` is set.
    CommitConflict
        Another process has committed; there is no retry, since messages depend on their order.
    """
    asked = {one.name: getattr(options, one.name) for one in fields(options) if one.name not in ALLOWED}
    changed = [f"{name} {value!s:.80}" for name, value in asked.items() if value != getattr(IngestOptions(), name)]
    if changed:
        raise InvalidOption(
            "ingest: expected no options with a model that linearises at the running belief, since its messages depend "
            f"on their order, got {', '.join(changed)}; leave them out ({', '.join(ALLOWED)} may stay), or fit a model "
            "with --linearise own"
        )
    report, read_to, twins = IngestReport(), None, dict[str, str]()
    events = Events(options.observe, source.name)
    digests = _digests(snapshot)
    keys = {entry.key for entry in snapshot.ledger} | absorbed_in_cells(snapshot)
    while deliveries := source.read(read_to, max(GROUP, passes.partitions_at_once(len(keys)))):
        read_to = deliveries[-1].offset
        for error in (delivery.bad[1] for delivery in deliveries if delivery.bad):
            raise error
        parts = [part for delivery in deliveries for part in delivery.parts]
        fresh = [part for part in parts if not (part.key in keys or snapshot.ledger.holds(part.key))]
        report.duplicates += len(parts) - len(fresh)
        again = [part for part in parts if part.key in digests]
        if again:
            refuse_conflict(runtime.sum(Digests(), again, label="compare").by_key, digests)
        if fresh:
            snapshot.refuse_unlike(fresh)
            refuse_overlap(fresh, keys)
            refuse_large_expert(fresh, snapshot.model.shared, runtime, snapshot.model.likelihood)
            twins |= _twins(snapshot, fresh, runtime, options)
            snapshot = passes.absorb_in_turn(snapshot, fresh, runtime)
            digests = _digests(snapshot)
            keys |= digests.keys()
        report.partitions += len(fresh)
        report.rows += sum(part.rows for part in fresh)
        source.ack(read_to, [part.key for part in parts])
        added = [part.key for part in fresh]
        events.happened(report, commit=snapshot.commit, threads=runtime.threads, keys=added)
    report.same_rows = len(twins)
    if twins and options.same_rows == "warn":
        warnings.warn(BcmdistWarning(same_rows_warning(twins)), stacklevel=2)
    return snapshot, report


def _digests(snapshot: Snapshot) -> dict[str, str]:
    """Hashes of absorbed rows by key, without compacted entries."""
    return {entry.key: entry.digest for entry in snapshot.ledger if not entry.compacted}


def _twins(snapshot: Snapshot, fresh: Sequence[Partition], runtime: Runtime, options: IngestOptions) -> dict[str, str]:
    """Keys of new partitions whose rows the ledger has under another key, with that key.

    Raises `SameRows` if there are any and the options refuse them.
    """
    found = runtime.sum(Digests(), fresh, label="compare").by_key
    twins = Contents(snapshot.ledger).twins(Entry(part.key, found[part.key], part.rows) for part in fresh)
    if twins and options.same_rows == "refuse":
        raise same_rows(*next(iter(twins.items())))
    return twins

"""Lost races for a commit number: what remains of a batch after another process has committed.

Messages commute, so the loser adds its own messages to the winner's state, except those of partitions that the winner
has absorbed too. A batch holds only the sum of its messages, so if any partition drops out, the messages of the others
are computed again.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from bcmdist.committee.ingest.uncommitted import Batch, remainder_of
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.data.row_ranges import RowRanges
from bcmdist.experts.contributions import Contribution
from bcmdist.storage.entry import Entry


def parts_left(batch: Batch, absorbed: RowRanges, dropped: Collection[str]) -> list[Partition]:
    """The partitions of a batch, cut to the rows that were not absorbed, without those with the keys `dropped`."""
    return [left for key, part in batch.parts.items() if key not in dropped for left in absorbed.remaining(part)]


def version_of(snapshot: Snapshot) -> tuple[int | None, int]:
    """What tells models of a directory apart: the number of refits, and that of the query set."""
    return snapshot.facts.learning.refits, len(snapshot.model.earlier)


def with_entry(batch: Batch, part: Partition) -> tuple[Partition, Entry]:
    """A remaining partition, whole or cut, with its weight, and its ledger entry with its key, rows and position."""
    whole = next(p for p in batch.parts.values() if p.data == part.data and p.start <= part.start < p.stop)
    before = batch.entries[whole.key]
    position = before.position and before.position - (whole.stop - part.stop)
    entry = replace(before, key=part.key, rows=part.rows, position=position)
    return replace(part, weight=batch.fading.weight(position)), entry


def with_weights(batch: Batch) -> list[tuple[Partition, Entry]]:
    """All partitions of a batch with their weights, and their ledger entries."""
    entries = batch.entries
    return [
        (replace(part, weight=batch.fading.weight(entries[key].position)), entries[key])
        for key, part in batch.parts.items()
    ]


def absorbed_again(
    batch: Batch, left: Sequence[tuple[Partition, Entry]], compute_messages: Callable[[list[Partition]], Contribution]
) -> Batch:
    """The batch reduced to the partitions in `left`, with their messages computed again; empty if `left` is empty."""
    if not left:
        return remainder_of(batch, None, {}, [])
    parts = [part for part, _ in left]
    found = compute_messages(parts)
    return remainder_of(
        replace(batch, query=found.query),
        found.message,
        {part.key: _made(entry, found.entries[part.key]) for part, entry in left},
        parts,
    )


def _made(entry: Entry, new: Entry) -> Entry:
    """A ledger entry with what computing it again changes: digest, state, densities, query set and copy."""
    changed = ("digest", "state", "densities", "query", "copy")
    return replace(entry, **{name: getattr(new, name) for name in changed})

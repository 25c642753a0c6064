"""A lost race for a commit number: what is left of a batch once somebody else has committed.

Messages commute, so the loser adds his own to the winner's state, but for what the winner has absorbed too. A batch
holds one sum of messages: where something of it is gone, the rest is absorbed again.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from bcmdist.committee.ingest.uncommitted import Batch, remainder_of
from bcmdist.data.partition import Partition
from bcmdist.data.row_ranges import unheard
from bcmdist.experts.contributions import Contribution
from bcmdist.storage.ledger import Entry


def parts_left(batch: Batch, keys: Collection[str], refused: Collection[str]) -> list[Partition]:
    """What of a batch is not in `keys`, whole partitions or parts of them, nor refused."""
    return unheard([part for key, part in batch.parts.items() if key not in keys and key not in refused], keys)


def with_entry(batch: Batch, part: Partition) -> tuple[Partition, Entry]:
    """A partition that is left of a batch, or is a part of one of its, with its weight; and its entry."""
    whole = next(p for p in batch.parts.values() if p.data == part.data and p.start <= part.start < p.stop)
    known = batch.entries[whole.key]
    position = known.position and known.position - (whole.stop - part.stop)
    entry = replace(known, key=part.key, rows=part.rows, position=position)
    return replace(part, weight=batch.fading.weight(position)), entry


def absorbed_again(
    batch: Batch, left: Sequence[tuple[Partition, Entry]], compute_messages: Callable[[list[Partition]], Contribution]
) -> Batch:
    """What is left of a batch, with the messages of these partitions alone; none where others have absorbed it all."""
    if not left:
        return remainder_of(batch, None, {}, [])
    parts = [part for part, _ in left]
    found = compute_messages(parts)
    return remainder_of(
        batch, found.message, {part.key: _made(entry, found.entries[part.key]) for part, entry in left}, parts
    )


def _made(entry: Entry, new: Entry) -> Entry:
    """An entry with what belongs to its rows, of a new one."""
    return replace(entry, digest=new.digest, state=new.state, densities=new.densities)

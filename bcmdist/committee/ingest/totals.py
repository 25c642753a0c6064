"""The total of a batch: what was kept of its messages, wherever that is, as the one message that a commit adds.

Ledger entries come before the total, and whatever computed it may have died meanwhile: what is computed again is of
the rows of now. So a total names what it is of, and is taken only where these are the entries of its batch. Where they
are not, or it is lost, the batch is heard again as a whole, message and entries together, or refused as changed data.
"""

from collections.abc import Callable
from dataclasses import replace

from bcmdist.committee.ingest.digests import identity
from bcmdist.committee.ingest.race import absorbed_again
from bcmdist.committee.ingest.uncommitted import Batch
from bcmdist.data.partition import Partition
from bcmdist.experts.contributions import Contribution
from bcmdist.runtime.interface import Runtime, SumLost


def totalled(batch: Batch, runtime: Runtime, hear: Callable[[list[Partition]], Contribution], *, label: str) -> Batch:
    """A batch with its message, of what was kept.

    Raises
    ------
    SchedulerLost
    DataChanged, ...
        It had to be heard again, and cannot be; nothing of it is to be committed.
    """
    if batch.message is None:
        return batch
    try:
        total = runtime.total(batch.message, label=label)
        if total.entries == {key: identity(entry) for key, entry in batch.entries.items()}:
            return replace(batch, message=total.message)
    except SumLost:
        pass
    again = []
    for key, part in batch.parts.items():
        entry = batch.entries[key]
        again.append((replace(part, weight=batch.fading.weight(entry.position)), entry))
    return absorbed_again(batch, again, hear)

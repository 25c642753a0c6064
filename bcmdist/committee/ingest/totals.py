"""The sum of a batch's messages, which workers keep until a commit asks for it.

Workers return ledger entries at once, but keep the messages until a commit asks for their sum. If a worker dies in
between, its messages are recomputed from the rows as they are by then. The sum therefore lists the entries that it
covers, and is used only if they equal the entries of the batch (`totalled`). Otherwise the whole batch is absorbed
again, messages and entries together, or refused because its data changed.
"""

from collections.abc import Callable
from dataclasses import replace

from bcmdist.committee.ingest.in_turn import identity
from bcmdist.committee.ingest.race import absorbed_again, with_weights
from bcmdist.committee.ingest.uncommitted import Batch
from bcmdist.data.partition import Partition
from bcmdist.experts.contributions import Contribution
from bcmdist.runtime.interface import Runtime, SumLost


def totalled(
    batch: Batch, runtime: Runtime, to_absorb: Callable[[list[Partition]], Contribution], *, label: str
) -> Batch:
    """Return the batch with its message: the sum of the messages that the runtime has kept.

    Parameters
    ----------
    to_absorb : computes the messages of partitions again, where the sum is lost or covers other rows

    Raises
    ------
    SchedulerLost
    DataChanged, ...
        The batch had to be absorbed again and this failed; commit nothing of it.
    """
    if batch.message is None:
        return batch
    try:
        total = runtime.total(batch.message, label=label)
        if total.entries == {key: identity(entry) for key, entry in batch.entries.items()}:
            return replace(batch, message=total.message, query=total.query)
    except SumLost:
        pass
    return absorbed_again(batch, with_weights(batch), to_absorb)

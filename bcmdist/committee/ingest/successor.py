"""The next commit of an ingestion: absorb a batch, fade old rows, and withdraw partitions that left the window."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from bcmdist.committee import passes
from bcmdist.committee.committee import Committee
from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.options import UpdateForm
from bcmdist.committee.ingest.uncommitted import Batch
from bcmdist.committee.online_update import updated
from bcmdist.committee.revision import messages
from bcmdist.committee.snapshot import Snapshot
from bcmdist.experts.contributions import lifted
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.entry import Entry, named_range
from bcmdist.storage.ledger import Ledger


@dataclass(frozen=True)
class CommitDetails:
    """What a commit records besides the batch."""

    source: str
    """name of the source that the offset belongs to"""
    fading: Weighting
    """how rows of the source fade"""
    skipped: Collection[str]
    """names of partitions or data sets that failed; names that are in the ledger are dropped"""
    facts: dict[str, Any]
    """further facts to change"""
    update: UpdateForm | None = None
    """how the belief is updated; None: by adding messages, without a record"""


def says_more(
    snapshot: Snapshot, batch: Batch, details: CommitDetails, *, absorbed: Collection[str], watching: bool
) -> bool:
    """Whether a commit would record anything that `snapshot` does not: if not, none is made.

    Parameters
    ----------
    absorbed : keys that were ever in the ledger; a failure under one of them is not recorded
    watching : whether an advanced offset alone is worth a commit
    """
    advanced = batch.offset is not None and batch.offset != snapshot.offsets.get(details.source)
    begins_to_fade = details.fading.fades and not snapshot.facts.fading.fades
    recorded = snapshot.facts.ingestion.skipped
    failed = any(name not in recorded and name not in absorbed for name in details.skipped)
    return batch.message is not None or (watching and advanced) or failed or begins_to_fade


def successor(
    snapshot: Snapshot, batch: Batch, details: CommitDetails, runtime: Runtime, stages: StageTimer
) -> Snapshot:
    """The snapshot after `batch` has been absorbed, which remains to be committed.

    Raises
    ------
    DataChanged
        Rows that left the window differ from those that were absorbed, so they cannot be withdrawn.
    """
    entries = sorted(batch.entries.values(), key=lambda entry: named_range(entry.key))
    ledger = snapshot.ledger.extended(entries)
    fading = snapshot.facts.fading
    before = fading if fading.fades else details.fading
    after = before.at(batch.fading.position)
    gone = [entry for entry in ledger if after.expired(entry.position)] if after.window else []
    with stages("committee"):
        committee = snapshot.committee.aged(before.aged(after))
        facts: dict[str, Any] = {"fading": after}
        if batch.message is not None:
            message = lifted(batch.message, snapshot.model.lift(batch.query))  # another process may have added points
            message = message.weighted(batch.fading.aged(after))
            if details.update:
                committee, facts["update"] = updated(committee, message, details.update, commit=snapshot.commit + 1)
            else:
                committee = committee.absorb(message)
        committee = _without(snapshot, committee, gone, after, ledger, runtime)
    if entries:
        facts |= passes.first_pass(snapshot.facts)
    facts |= details.facts
    skipped = {*snapshot.facts.ingestion.skipped, *details.skipped}
    facts["skipped"] = tuple(sorted(name for name in skipped if not _is_absorbed(name, ledger)))
    offsets = snapshot.offsets if batch.offset is None else snapshot.offsets | {details.source: batch.offset}
    new = [entry for entry in ledger if not after.expired(entry.position)] if gone else entries
    return snapshot.changed(committee, new, rewrite=bool(gone), stages=stages, offsets=offsets, **facts)


def _without(
    snapshot: Snapshot,
    committee: Committee,
    gone: Sequence[Entry],
    fading: Weighting,
    ledger: Ledger,
    runtime: Runtime,
) -> Committee:
    """The committee without the entries `gone`, which left the window; their messages are recomputed at the weights
    that `fading` gives them."""
    if not gone:
        return committee
    counts = {entry.key: entry.weight * fading.weight(entry.position) for entry in gone}
    with snapshot.drafted() as readable:
        return committee.withdraw(messages(readable, counts, runtime, ledger=ledger))


def _is_absorbed(name: str, ledger: Ledger) -> bool:
    """Whether a partition, or rows of a data set, are in the ledger."""
    inside = (array for array, _, _ in ledger.arrays(f"{name}/"))
    return ledger.find(name) is not None or any("/" not in array[len(name) + 1 :] for array in inside)

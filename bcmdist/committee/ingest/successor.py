"""The commit that follows: a batch absorbed, old rows faded, and those that the window has left withdrawn."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from bcmdist.committee import passes
from bcmdist.committee.committee import Committee
from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.uncommitted import Batch
from bcmdist.committee.revision import messages
from bcmdist.committee.snapshot import Snapshot
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.ledger import Entry, named_range


@dataclass(frozen=True)
class CommitDetails:
    """What a commit is to say beside a batch."""

    source: str
    """whose offset it is"""
    fading: Weighting
    """how its rows fade"""
    skipped: Collection[str]
    """names of what failed; those that the ledger knows are left out"""
    facts: dict[str, Any]
    """what else was found"""


def says_more(
    snapshot: Snapshot, batch: Batch, beside: CommitDetails, *, absorbed: Collection[str], watching: bool
) -> bool:
    """Whether a commit would say what its predecessor does not.

    Parameters
    ----------
    absorbed : keys that were in the ledger: what has failed beside them is news
    watching : the offset is where somebody reads on from: it counts
    """
    advanced = batch.offset is not None and batch.offset != snapshot.offsets.get(beside.source)
    begins_to_fade = beside.fading.fades and not snapshot.facts.fading.fades
    told = snapshot.facts.skipped
    failed = any(name not in told and name not in absorbed for name in beside.skipped)
    return batch.message is not None or (watching and advanced) or failed or begins_to_fade


def successor(snapshot: Snapshot, batch: Batch, beside: CommitDetails, runtime, stages: StageTimer) -> Snapshot:
    """The commit after a snapshot, with a batch.

    Raises
    ------
    CommitConflict
        Somebody else has made it.
    DataChanged
        Rows that the window has left are not those that were absorbed.
    """
    entries = sorted(batch.entries.values(), key=lambda entry: named_range(entry.key))
    ledger: list[Entry] = [*snapshot.ledger, *entries]
    known = snapshot.facts.fading
    before = known if known.fades else beside.fading
    after = before.at(batch.fading.position)
    gone = [entry for entry in ledger if after.expired(entry.position)] if after.window else []
    with stages("committee"):
        committee = snapshot.committee.aged(before.aged(after))
        if batch.message is not None:
            committee = committee.absorb(batch.message.weighted(batch.fading.aged(after)))
        committee = _without(snapshot, committee, gone, after, ledger, runtime)
    facts: dict[str, Any] = {"fading": after}
    if entries:
        facts |= passes.first_pass(snapshot.facts)
    facts |= beside.facts
    skipped = {*snapshot.facts.skipped, *beside.skipped}
    facts["skipped"] = tuple(sorted(skipped and skipped - _names(ledger)))
    offsets = snapshot.offsets if batch.offset is None else snapshot.offsets | {beside.source: batch.offset}
    new = [entry for entry in ledger if not after.expired(entry.position)] if gone else entries
    return snapshot.successor(committee, new, rewrite=bool(gone), stages=stages, offsets=offsets, **facts)


def _without(snapshot, committee, gone, fading, ledger, runtime) -> Committee:
    """A committee that has not absorbed what the window has left, at the weights of now."""
    if not gone:
        return committee
    counts = {entry.key: entry.weight * fading.weight(entry.position) for entry in gone}
    return committee.withdraw(messages(snapshot, counts, runtime, ledger=ledger))


def _names(ledger):
    """Keys of what was absorbed, and of the data sets that it is of."""
    return {name for entry in ledger for name in (entry.key, entry.key.rpartition("/")[0])}

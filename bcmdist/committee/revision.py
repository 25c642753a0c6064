"""Revision of a committee: forget or reweight partitions.

Messages are natural parameters and add. A partition is forgotten by subtracting its message, recomputed from the same
rows, and reweighted by adding a multiple of it. Both are exact if messages do not depend on each other: for Gaussian
likelihoods and after first passes (SYSTEMS I.6). In further passes, the other messages were linearised at a posterior
that included the forgotten partition; one more pass removes all but the square of that error. Hyper-parameters and
query points still depend on the forgotten rows.

Other processes may commit meanwhile: messages are recomputed once, and withdrawn from the newest commit.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bcmdist.committee import passes
from bcmdist.committee.absorbed import partitions_of, refuse_compacted
from bcmdist.committee.committee import Committee
from bcmdist.committee.fading import weights
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.surveyed import refuse_changed
from bcmdist.errors import CommitConflict, InvalidOption
from bcmdist.experts.message import Message, zero_message
from bcmdist.experts.precision import refuse_inexact
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.entry import RUNNING, Entry

CommitteeAndLedger = tuple[Committee, list[Entry]]
"""a committee and its whole ledger"""


def forget(snapshot: Snapshot, keys: Iterable[str], runtime: Runtime) -> Snapshot:
    """Commit the committee as if it had not absorbed some partitions, and return its snapshot.

    Parameters
    ----------
    keys : ledger keys of these partitions

    Raises
    ------
    InvalidOption
        A key is not in the ledger, or messages depend on their order.
    DataChanged
        The rows differ from those that were absorbed.
    CommitConflict
        Messages depend on each other, and another process committed before the further pass was done.
    """
    recall = _Recall(runtime)

    def without(snapshot: Snapshot) -> CommitteeAndLedger:
        gone = entries_of(snapshot, keys)
        refuse_inexact(snapshot.model.precision, snapshot.url, "forget")
        keys_gone = {entry.key for entry in gone}
        ledger = [entry for entry in snapshot.ledger if entry.key not in keys_gone]
        if not ledger:
            nothing = zero_message(snapshot.model.shared, snapshot.model.likelihood)
            return replace(snapshot.committee, total=nothing), ledger
        return snapshot.committee.withdraw(recall(snapshot, gone, weights(snapshot.facts.fading, gone))), ledger

    return _revised(snapshot, without, runtime)


def reweight(snapshot: Snapshot, asked: Mapping[str, float], runtime: Runtime) -> Snapshot:
    """Commit the committee with new weights of some partitions, and return its snapshot.

    A partition of weight w counts like w independent copies of its rows.

    Parameters
    ----------
    asked : new weights by key, positive; fading by position multiplies them

    Raises
    ------
    InvalidOption, DataChanged
    """
    if not isinstance(asked, Mapping):
        raise InvalidOption(f"weights: expected weights by key, got {asked!r:.80}; give a mapping such as {{key: 0.5}}")
    bad = {key: weight for key, weight in asked.items() if not (np.isfinite(weight) and weight > 0)}
    if bad:
        key, weight = next(iter(bad.items()))
        raise InvalidOption(f"{key}: expected a positive weight, got {weight}; forget the partition to remove it")
    recall = _Recall(runtime)

    def reweighted(snapshot: Snapshot) -> CommitteeAndLedger | None:
        old = [entry for entry in entries_of(snapshot, asked) if asked[entry.key] != entry.weight]
        refuse_inexact(snapshot.model.precision, snapshot.url, "reweight")
        if not old:
            return None
        new = {entry.key: replace(entry, weight=asked[entry.key]) for entry in old}
        before, after = (
            weights(snapshot.facts.fading, old),
            weights(snapshot.facts.fading, new.values()),
        )
        change = recall(snapshot, old, {key: after[key] - before[key] for key in after})
        return snapshot.committee.absorb(replace(change, rows=0)), [
            new.get(entry.key, entry) for entry in snapshot.ledger
        ]

    return _revised(snapshot, reweighted, runtime)


class _Recall:
    """Messages of partitions, recomputed once and reused while commits of other processes force retries."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.entries: list[Entry] = []
        self.counts: Mapping[str, float] = {}

    def __call__(self, snapshot: Snapshot, entries: list[Entry], counts: Mapping[str, float]) -> Message:
        """Sum of the messages of ledger entries, with weights `counts` by key."""
        scale = _common_ratio(counts, self.counts) if entries == self.entries else None
        if scale is None:
            self.message, self.entries, self.counts = messages(snapshot, counts, self.runtime), entries, counts
        return self.message.weighted(1.0 if scale is None else scale)


def _common_ratio(counts: Mapping[str, float], others: Mapping[str, float]) -> float | None:
    """The common ratio of two sets of weights by key; None if there is none."""
    if not all(others.values()):  # a weight has faded to zero
        return None
    ratios = [counts[key] / others[key] for key in counts]
    return ratios[0] if np.allclose(ratios, ratios[0], rtol=1e-12, atol=0.0) else None


def _revised(snapshot: Snapshot, revise: Callable[[Snapshot], CommitteeAndLedger | None], runtime: Runtime) -> Snapshot:
    """Commit the committee and ledger that `revise` makes from a snapshot, retrying on newer commits after conflicts.

    Makes a further pass where messages depend on each other. `revise` returns None where nothing changes.
    """
    while True:
        revised = revise(snapshot)
        if revised is None:
            return snapshot
        try:
            snapshot, refined = _committed(snapshot, *revised)
        except CommitConflict:
            snapshot = snapshot.newest()
        else:
            return _with_a_pass(snapshot, runtime) if refined else snapshot


def _committed(snapshot: Snapshot, committee: Committee, ledger: Sequence[Entry]) -> tuple[Snapshot, bool]:
    """Write the next commit; return it, and whether messages depend on each other, so that a pass must follow."""
    refined = any(entry.at for entry in ledger) or (
        snapshot.facts.linearisation.approximation == "ep" and len(snapshot.facts.linearisation.passes) > 1
    )
    facts = passes.first_pass(snapshot.facts) if refined else {"objective": None}
    return snapshot.successor(committee, ledger, rewrite=True, withdrawn_error=None, **facts), refined


def _with_a_pass(snapshot: Snapshot, runtime: Runtime) -> Snapshot:
    """Make one more pass, and record the error that it has removed (`withdrawn_error`)."""
    before, commit = snapshot.committee.posterior.mean, snapshot.commit
    try:
        snapshot = passes.refine(snapshot, runtime, most=passes.passes_made(snapshot.facts) + 1, tolerance=-1.0)
        belief = snapshot.committee.posterior
        error = belief.length(belief.mean - before)
        return snapshot.successor(snapshot.committee, [], withdrawn_error=error)
    except CommitConflict as conflict:
        raise CommitConflict(
            f"{snapshot.url}: expected to make a further pass after commit {commit}, which has withdrawn what was "
            "said, but somebody else has committed; refine the model (`GBCM.refine`) when nobody ingests"
        ) from conflict


def entries_of(snapshot: Snapshot, keys: Iterable[str]) -> list[Entry]:
    """Ledger entries by key, once each.

    Raises `InvalidOption` if a key is missing, or messages cannot be recomputed because they depend on their order.
    """
    by_key = {entry.key: entry for entry in snapshot.ledger}
    keys = list(dict.fromkeys(keys))
    missing = [key for key in keys if key not in by_key]
    if missing and (whole := snapshot.ledger.range_of(missing[0])):
        refuse_compacted(snapshot, [whole])
    if missing or not keys:
        shown = next(iter(by_key), "none")
        raise InvalidOption(
            f"{snapshot.url}: expected keys of partitions it has absorbed (such as {shown}), got "
            f"{missing[:1] or 'none'}; see `bcmdist info --ledger`"
        )
    if any(entry.at == RUNNING for entry in snapshot.ledger):
        raise InvalidOption(
            f"{snapshot.url}: expected messages that do not depend on their order, this model linearises at the "
            "running belief; fit it again without the partitions"
        )
    return [by_key[key] for key in keys]


def messages(
    snapshot: Snapshot, counts: Mapping[str, float], runtime: Runtime, *, ledger: Sequence[Entry] | None = None
) -> Message:
    """Weighted sum of messages, recomputed at the shared values at which they were linearised.

    Parameters
    ----------
    counts : weights by key
    ledger : ledger that holds the keys; that of the snapshot by default

    Raises
    ------
    DataChanged
        The rows differ from those that were absorbed.
    """
    ledger = snapshot.ledger if ledger is None else ledger
    by_key = {entry.key: entry for entry in ledger}
    total = zero_message(snapshot.model.shared, snapshot.model.likelihood)
    keys = sorted(counts, key=lambda key: by_key[key].at)
    for at, group in itertools.groupby(keys, key=lambda key: by_key[key].at):
        parts = partitions_of(snapshot, [by_key[key] for key in group], counts)
        reference = BlobReference(snapshot.url, at) if at else None
        absorbed = snapshot.compute_messages(parts, runtime, at=reference, label="recompute")
        refuse_changed(absorbed.entries.values(), ledger)
        total += absorbed.message
    return total

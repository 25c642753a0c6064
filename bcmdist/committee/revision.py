"""Revision of a committee: forget or reweight partitions, and merge two committees.

Messages are natural parameters and add. A partition is forgotten by subtracting its message, recomputed from the same
rows, and reweighted by adding a multiple of it. Both are exact if messages do not depend on each other: for Gaussian
likelihoods and after first passes (SYSTEMS I.6). In further passes, the other messages were linearised at a posterior
that included the forgotten partition; one more pass removes all but the square of that error. Hyper-parameters and
query points still depend on the forgotten rows.

Other processes may commit meanwhile: messages are recomputed once, and withdrawn from the newest commit.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bcmdist.committee import passes
from bcmdist.committee.absorbed import partitions_of, refuse_compacted
from bcmdist.committee.cells import absorbed_in_cells
from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Cells
from bcmdist.committee.fading import weights
from bcmdist.committee.growth import joined, why_fixed
from bcmdist.committee.rescaled import rescaled
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.surveyed import recorded_chunks, refuse_changed
from bcmdist.data.checks.manifest import to_table
from bcmdist.data.groups import Location
from bcmdist.data.partition import refuse_overlap
from bcmdist.data.schema import few
from bcmdist.errors import CommitConflict, InvalidOption, ModelExists, ModelsDiffer
from bcmdist.experts.message import Message, zero_message
from bcmdist.experts.precision import refuse_inexact
from bcmdist.model.conversion import differences
from bcmdist.model.model import CELL_ARRAYS
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.commits import BlobReference, ModelStore, open_store
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


@one_thread()
def merge(one: Snapshot, other: Snapshot, model: Location, *, query_most: int | None = None) -> Snapshot:
    """Merge two committees in a new model directory, and return its snapshot.

    If their query points differ, the result has those of both (`growth.joined`). If only the scaling of inputs and
    targets differs, and the models are the same in original units, the result has the scaling of the larger one
    (`rescaled`).

    Facts are those of the larger committee, whichever argument it is. Its calibrations on held-out rows are marked as
    outdated (0 rows). Local calibration, error distribution and spatial cells are dropped; the method "local" becomes
    "committee".

    Parameters
    ----------
    model : the new model directory
    query_most : largest number of query points; no limit by default

    Raises
    ------
    InvalidOption
        `query_most` is less than the number of query points of the larger committee.
    ModelsDiffer
        The models differ in more than the partitions absorbed and the query points, or both have absorbed the same
        rows.
    ModelExists
        The directory is not empty.
    """
    base, job = larger(one, other), _merge_job(one, other, query_most)
    one, other = rescaled(one, base), rescaled(other, base)
    same_points = _refuse_different(one, other)
    _refuse_shared_rows(one, other)
    store = new_store(model)
    for snapshot in (one, other):  # the state that experts keep is stored in separate blobs
        store.copy_blobs(snapshot.store, {entry.state for entry in snapshot.ledger if entry.state})
    found, ledger, of_query = base.model, [*one.ledger, *other.ledger], dict[str, Any]()
    if same_points:
        total = one.committee.total + other.committee.total
    else:
        found, total, ledger, of_query = joined(base, other if base is one else one, query_most)
    surveyed = {
        e.key: e for snapshot in (one, other) for e in snapshot.store.get_segment(snapshot.facts.survey.surveyed)
    }
    measured = dict.fromkeys(("local_calibration", "spread", "accuracy"))
    facts = base.facts.changed(cells=Cells(), **measured)  # halos stay in the old directory
    outdated = {name: getattr(facts.errors, name) for name in ("calibration", "recalibration")}
    facts = facts.changed(**{name: fact and fact.changed(rows=0) for name, fact in outdated.items()})
    if base.facts.method == "local":
        facts = facts.changed(method="committee")
    arrays = [snapshot.facts.cells.array for snapshot in (one, other) if absorbed_in_cells(snapshot)]
    if arrays:
        facts = facts.changed(cells=Cells(array=arrays[0]))  # its ledger keys name this array
    facts = facts.changed(surveyed=store.put_segment(list(surveyed.values())), job=job, **of_query)
    chunks = {k: c for snapshot in (one, other) for k, c in recorded_chunks(snapshot.store, snapshot.facts).items()}
    if chunks:
        facts = facts.changed(chunks=store.put_arrays({"chunks": to_table(chunks)})["chunks"])
    committee = Committee(total, found.shared.belief)
    return replace(one, model=found).written(store, committee, _by_committee(ledger), facts)


CALIBRATED = " calibrated"  # follows the hash of a merge that is complete


def existing_merge(one: Snapshot, other: Snapshot, model: Location, query_most: int | None) -> Snapshot | None:
    """The merge of these two commits in the directory `model`: the sum alone, or calibrated; None if there is none.

    Any later change of the merged model makes it another one.
    """
    store = open_store(model)
    head = store.head()
    if head not in (1, 2):
        return None
    job, found = _merge_job(one, other, query_most), store.record(head)["facts"]["fit"]["job"]
    return Snapshot.load(model, commit=head) if (head, found) in ((1, job), (2, job + CALIBRATED)) else None


def is_calibrated(merged: Snapshot) -> bool:
    """Whether a merge is complete."""
    return merged.facts.job.endswith(CALIBRATED)


def as_calibrated(merged: Snapshot) -> Snapshot:
    """The snapshot of a complete merge, which remains to be committed if anything has changed since the sum."""
    return merged.changed(job=merged.facts.job + CALIBRATED) if merged.pending else merged


def _merge_job(one, other, query_most):
    """Hash of a merge: of two commits, in either order, and of the number of query points."""
    commits = sorted(snapshot.reference.digest for snapshot in (one, other))
    return hashlib.sha256(json.dumps([*commits, query_most]).encode()).hexdigest()


def new_store(model: Location) -> ModelStore:
    """The store of a new model directory. Raises `ModelExists` if there is anything in it."""
    store = open_store(model)
    if store.head() or store.foreign():
        raise ModelExists(f"{model}: expected a new or empty directory; choose another")
    return store


def _refuse_shared_rows(one: Snapshot, other: Snapshot) -> None:
    """Raise `ModelsDiffer` or `InvalidData` where two committees have absorbed the same rows."""
    shared = {entry.digest: entry.key for entry in one.ledger if not entry.compacted}
    for entry in other.ledger:
        if entry.digest in shared:
            raise ModelsDiffer(
                f"{other.url}: expected rows that {one.url} has not absorbed, both have absorbed {entry.key} (there as "
                f"{shared[entry.digest]}); forget it in one of them"
            )
    for cells, stored in ((one, other), (other, one)):
        in_cells, others = absorbed_in_cells(cells), absorbed_in_cells(stored)
        again = [key for key in sorted(in_cells) if key in others or stored.ledger.holds(key)]
        if again:
            raise ModelsDiffer(
                f"{stored.url}: expected rows that {cells.url} has not absorbed, it has absorbed them in the order of "
                f"cells ({again[0]}); forget them in one of them"
            )
        if in_cells and others:
            raise ModelsDiffer(
                f"{stored.url}: expected rows in stored order in one model of the two, both have absorbed theirs in "
                "the order of cells; fit one with --partition chunks and --like the other"
            )
    refuse_overlap([], [entry.key for entry in (*one.ledger, *other.ledger)])


def larger(one: Snapshot, other: Snapshot) -> Snapshot:
    """The snapshot that has absorbed more rows; independent of the order of the arguments."""
    return max(one, other, key=lambda snapshot: (snapshot.committee.total.rows, [e.key for e in snapshot.ledger]))


def _by_committee(ledger: Iterable[Entry]) -> list[Entry]:
    """Ledger entries without residual records of local predictions and without copies of rows."""
    residuals = [e.residuals if e.residuals and e.residuals.local is None else None for e in ledger]
    return [replace(e, residuals=found, copy="") for e, found in zip(ledger, residuals, strict=True)]


# Parts of a stored model that differ where only the query points do, and those that depend on the units of inputs and
# targets.
_OF_QUERY_POINTS = re.compile("query_(points|factor)|earlier.*|jitter")
_OF_UNITS = {"x_mean", "x_scale", "y_mean", "y_scale", "kernel_parameters", "likelihood_parameters"}


def _refuse_different(one: Snapshot, other: Snapshot) -> bool:
    """Raise `ModelsDiffer` unless two models differ only in the partitions absorbed and in their query points.

    Returns whether they have the same query points.

    The error names what differs, or the first model that cannot be merged: one whose rows fade, or whose messages come
    from further passes.
    """
    (arrays, facts), (other_arrays, other_facts) = one.model.to_arrays(), other.model.to_arrays()
    names = [name for name in arrays | other_arrays if name not in CELL_ARRAYS]
    both = arrays.keys() & other_arrays.keys()
    different = [name for name in names if name not in both or not np.array_equal(arrays[name], other_arrays[name])]
    different += [name for name in facts | other_facts if facts.get(name) != other_facts.get(name)]
    different += [
        name
        for name in ("approximation", "linearise")
        if getattr(one.facts.linearisation, name) != getattr(other.facts.linearisation, name)
    ]
    for snapshot in (one, other):
        if snapshot.facts.fading.fades:
            raise ModelsDiffer(
                f"{snapshot.url}: expected rows that do not fade, those of this model do, each by its position; "
                "ingest the sources into one model without --half-life and --window"
            )
        if any(entry.at for entry in snapshot.ledger) or len(snapshot.facts.linearisation.passes) > 1:
            raise ModelsDiffer(
                f"{snapshot.url}: expected messages of a first pass, its messages were linearised at what it believed; "
                "fit it with --passes 1 and --linearise own, merge, and refine then"
            )
    more = [name for name in different if not _OF_QUERY_POINTS.fullmatch(name)]
    fixed = None if more or not different else why_fixed(one) or why_fixed(other)
    if more or fixed:
        remedy = (
            f"which cannot be brought together, as {fixed}; " if fixed else "fit one of them with --like the other, or "
        )
        words = differences(one.model, other.model) if _OF_UNITS & set(more) else []
        more = [name for name in more if not (words and name in _OF_UNITS)] + words
        raise ModelsDiffer(
            f"expected the same model in {one.url} and {other.url}, they differ in {few(more or different)}; "
            f"{remedy}prepare one model with --prepare-only, copy the directory, and let each copy absorb its data"
        )
    return not different

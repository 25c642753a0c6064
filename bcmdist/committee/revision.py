"""Second thoughts about what was absorbed: forgetting, weighing and joining.

Messages are natural parameters and add, so a partition is forgotten by subtracting its message, which
is recomputed from the same rows, and weighed by adding a multiple of it. Both are exact where messages do not
depend on each other: Gaussian likelihoods and first passes (SYSTEMS I.6). After further passes the others were
linearised knowing what is forgotten; one more pass removes all but the square of that error.
Hyper-parameters and query points still remember the rows they were chosen on.

Others may commit meanwhile: what partitions have said is recomputed once, and withdrawn from the newest commit.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bcmdist.committee import passes
from bcmdist.committee.cells import absorbed_in_cells
from bcmdist.committee.facts import Cells
from bcmdist.committee.fading import weights
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.surveyed import recorded_chunks, refuse_changed
from bcmdist.data.checks.manifest import to_table
from bcmdist.data.partition import from_keys, refuse_overlap
from bcmdist.errors import CommitConflict, InvalidOption, ModelExists, ModelsDiffer
from bcmdist.experts.expert import zero_message
from bcmdist.experts.message import Message
from bcmdist.experts.precision import refuse_inexact
from bcmdist.model.model import CELL_ARRAYS
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.commits import BlobReference, open_store
from bcmdist.storage.ledger import RUNNING, Entry


def forget(snapshot: Snapshot, keys: Iterable[str], runtime) -> Snapshot:
    """The committee as if it had not absorbed some partitions, committed.

    Parameters
    ----------
    keys : of the ledger

    Raises
    ------
    InvalidOption
        A key is not in the ledger, or messages depend on their order.
    DataChanged
        The rows are not those that were absorbed.
    CommitConflict
        Messages depend on each other, and others commit so fast that no further pass can be made.
    """
    recall = _Recall(runtime)

    def without(snapshot):
        gone = _entries(snapshot, keys)
        refuse_inexact(snapshot.model.precision, snapshot.url, "forget")
        keys_gone = {entry.key for entry in gone}
        ledger = [entry for entry in snapshot.ledger if entry.key not in keys_gone]
        if not ledger:
            nothing = zero_message(snapshot.model.shared, snapshot.model.likelihood)
            return replace(snapshot.committee, total=nothing), ledger
        return snapshot.committee.withdraw(recall(snapshot, gone, weights(snapshot.facts.fading, gone))), ledger

    return _revised(snapshot, without, runtime)


def reweight(snapshot: Snapshot, wanted: Mapping[str, float], runtime) -> Snapshot:
    """The committee with other weights of some partitions, committed.

    A partition of weight w counts as w copies of its rows would, were they independent.

    Parameters
    ----------
    wanted : new weights by key, positive; what fades with its position fades from there

    Raises
    ------
    InvalidOption, DataChanged
    """
    bad = {key: weight for key, weight in wanted.items() if not (np.isfinite(weight) and weight > 0)}
    if bad:
        key, weight = next(iter(bad.items()))
        raise InvalidOption(f"{key}: expected a positive weight, got {weight}; forget the partition to remove it")
    recall = _Recall(runtime)

    def reweighted(snapshot):
        old = [entry for entry in _entries(snapshot, wanted) if wanted[entry.key] != entry.weight]
        refuse_inexact(snapshot.model.precision, snapshot.url, "reweight")
        if not old:
            return None
        new = {entry.key: replace(entry, weight=wanted[entry.key]) for entry in old}
        before, after = weights(snapshot.facts.fading, old), weights(snapshot.facts.fading, new.values())
        change = recall(snapshot, old, {key: after[key] - before[key] for key in after})
        return snapshot.committee.absorb(replace(change, rows=0)), [
            new.get(entry.key, entry) for entry in snapshot.ledger
        ]

    return _revised(snapshot, reweighted, runtime)


class _Recall:
    """What partitions have said, recomputed once, while others commit on."""

    def __init__(self, runtime):
        self.runtime = runtime
        self.entries: list[Entry] = []
        self.counts: dict[str, float] = {}

    def __call__(self, snapshot, entries, counts) -> Message:
        """The sum of the messages of entries, counted so many times by key."""
        scale = _common_ratio(counts, self.counts) if entries == self.entries else None
        if scale is None:
            self.message, self.entries, self.counts = messages(snapshot, counts, self.runtime), entries, counts
        return self.message.weighted(1.0 if scale is None else scale)


def _common_ratio(counts, others):
    """By what all counts, by key, have changed, where they fade alike; None where they do not."""
    if not all(others.values()):  # faded to nothing
        return None
    ratios = [counts[key] / others[key] for key in counts]
    return ratios[0] if np.allclose(ratios, ratios[0], rtol=1e-12, atol=0.0) else None


def _revised(snapshot, revise, runtime):
    """The next commit with another committee and ledger, as `revise` makes them from the newest commit."""
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


def _committed(snapshot, committee, ledger):
    """The next commit with another ledger, and whether messages depend on each other: then a pass is to follow."""
    refined = any(entry.at for entry in ledger) or (
        snapshot.facts.approximation == "ep" and len(snapshot.facts.passes) > 1
    )
    facts = passes.first_pass(snapshot.facts) if refined else {"objective": None}
    return snapshot.successor(committee, ledger, rewrite=True, withdrawn_error=None, **facts), refined


def _with_a_pass(snapshot, runtime):
    """With one more pass, and the error that it has removed."""
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


def _entries(snapshot, keys):
    """Ledger entries by their keys, once each; all must be there and be such that can be recomputed."""
    known = {entry.key: entry for entry in snapshot.ledger}
    keys = list(dict.fromkeys(keys))
    missing = [key for key in keys if key not in known]
    if missing or not keys:
        shown = next(iter(known), "none")
        raise InvalidOption(
            f"{snapshot.url}: expected keys of partitions it has absorbed (such as {shown}), got "
            f"{missing[:1] or 'none'}; see `bcmdist info --ledger`"
        )
    if any(entry.at == RUNNING for entry in snapshot.ledger):
        raise InvalidOption(
            f"{snapshot.url}: expected messages that do not depend on their order, this model linearises at the "
            "running belief; fit it again without the partitions"
        )
    return [known[key] for key in keys]


def messages(
    snapshot: Snapshot, counts: Mapping[str, float], runtime, *, ledger: Sequence[Entry] | None = None
) -> Message:
    """Sum of messages, each counted so many times, recomputed where they were linearised.

    Parameters
    ----------
    counts : by key
    ledger : where the keys are; that of the committee by default

    Raises
    ------
    DataChanged
        The rows are not those that were absorbed.
    """
    ledger = snapshot.ledger if ledger is None else ledger
    known = {entry.key: entry for entry in ledger}
    total = zero_message(snapshot.model.shared, snapshot.model.likelihood)
    keys = sorted(counts, key=lambda key: known[key].at)
    for at, group in itertools.groupby(keys, key=lambda key: known[key].at):
        parts = from_keys(group, y=snapshot.model.y_name, schema=snapshot.model.schema)
        parts = [replace(part, weight=counts[part.key], state=known[part.key].state) for part in parts]
        reference = BlobReference(snapshot.url, at) if at else None
        absorbed = snapshot.compute_messages(parts, runtime, at=reference, label="recompute")
        refuse_changed(absorbed.entries.values(), ledger)
        total += absorbed.message
    return total


@one_thread()
def merge(one: Snapshot, other: Snapshot, model) -> Snapshot:
    """The committee that has absorbed what both have, in a new model directory.

    Facts are those of the larger of the two, in whichever order they come; what rows left out say of its predictions
    is marked as out of date.

    Raises
    ------
    ModelsDiffer
        They differ in more than what they have absorbed, or have absorbed the same; names the difference.
    ModelExists
        The directory holds something.
    """
    _refuse_different(one, other)
    shared = {entry.digest: entry.key for entry in one.ledger}
    for entry in other.ledger:
        if entry.digest in shared:
            raise ModelsDiffer(
                f"{other.url}: expected rows that {one.url} has not absorbed, both have absorbed {entry.key} (there as "
                f"{shared[entry.digest]}); forget it in one of them"
            )
    for cells, stored in ((one, other), (other, one)):
        in_cells = absorbed_in_cells(cells)
        again = [entry.key for entry in stored.ledger if entry.key in in_cells]
        if again or (in_cells and absorbed_in_cells(stored)):
            raise ModelsDiffer(
                f"{stored.url}: expected rows that {cells.url} has not absorbed, it has absorbed them in the order of "
                f"cells ({(again or sorted(in_cells))[0]}); forget them in one of them"
            )
    refuse_overlap([], [entry.key for entry in (*one.ledger, *other.ledger)])
    store = open_store(model)
    if store.head() or store.foreign():
        raise ModelExists(f"{model}: expected a new or empty directory; choose another --model")
    for snapshot in (one, other):  # what experts keep lies in blobs of its own
        store.copy_blobs(snapshot.store, {entry.state for entry in snapshot.ledger if entry.state})
    base = larger(one, other)
    surveyed = {e.key: e for snapshot in (one, other) for e in snapshot.store.get_segment(snapshot.facts.surveyed)}
    facts = base.facts.changed(cells=Cells(), local_calibration=None, spread=None)  # halos lie in its directory
    outdated = {name: getattr(facts, name) for name in ("calibration", "recalibration")}
    facts = facts.changed(**{name: fact and fact | {"rows": 0} for name, fact in outdated.items()})
    if base.facts.method == "local":
        facts = facts.changed(method="committee")
    arrays = [snapshot.facts.cells.array for snapshot in (one, other) if absorbed_in_cells(snapshot)]
    if arrays:
        facts = facts.changed(cells=Cells(array=arrays[0]))  # by which its rows are known
    facts = facts.changed(surveyed=store.put_segment(list(surveyed.values())), job="merge")
    chunks = {k: c for snapshot in (one, other) for k, c in recorded_chunks(snapshot.store, snapshot.facts).items()}
    if chunks:
        facts = facts.changed(chunks=store.put_arrays({"chunks": to_table(chunks)})["chunks"])
    return one.written(
        store, one.committee.absorb(other.committee.total), _by_committee([*one.ledger, *other.ledger]), facts
    )


def larger(one: Snapshot, other: Snapshot) -> Snapshot:
    """That of two which has absorbed more rows, in whichever order they come."""
    return max(one, other, key=lambda snapshot: (snapshot.committee.total.rows, [e.key for e in snapshot.ledger]))


def _by_committee(ledger):
    """Entries without what is known of local predictions only."""
    return [replace(e, residuals=None) if e.residuals and e.residuals.local is not None else e for e in ledger]


def _refuse_different(one, other):
    """Raise `ModelsDiffer` naming the first thing in which two models are not the same."""
    (arrays, facts), (other_arrays, other_facts) = one.model.to_arrays(), other.model.to_arrays()
    names = [name for name in arrays if name not in CELL_ARRAYS]
    different = [name for name in names if not np.array_equal(arrays[name], other_arrays.get(name))]
    different += [name for name in facts | other_facts if facts.get(name) != other_facts.get(name)]
    different += [
        name for name in ("approximation", "linearise") if getattr(one.facts, name) != getattr(other.facts, name)
    ]
    for snapshot in (one, other):
        if snapshot.facts.fading.fades:
            raise ModelsDiffer(
                f"{snapshot.url}: expected rows that do not fade, those of this model do, each by its position; "
                "ingest the sources into one model without --half-life and --window"
            )
        if any(entry.at for entry in snapshot.ledger) or len(snapshot.facts.passes) > 1:
            raise ModelsDiffer(
                f"{snapshot.url}: expected messages of a first pass, its messages were linearised at what it believed; "
                "fit it with --passes 1 and --linearise own, merge, and refine then"
            )
    if different:
        raise ModelsDiffer(
            f"expected the same model in {one.url} and {other.url}, they differ in {', '.join(different)}; prepare "
            "one model with --prepare-only, copy the directory, and let each copy absorb its data"
        )

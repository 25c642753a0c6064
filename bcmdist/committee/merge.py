"""Merge two committees that have absorbed different rows: their messages add, in a new model directory.

The sum is a commit of its own. `bcmdist.api.merging` then fits calibrations to the rows of both and commits them. A
process that dies in between leaves the sum, from which the same merge goes on.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bcmdist.committee.cells import absorbed_in_cells
from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Cells
from bcmdist.committee.growth import joined, why_fixed
from bcmdist.committee.rescaled import rescaled
from bcmdist.committee.snapshot import Snapshot, new_store
from bcmdist.committee.surveyed import recorded_chunks
from bcmdist.data.checks.manifest import to_table
from bcmdist.data.groups import Location
from bcmdist.data.partition import refuse_overlap
from bcmdist.data.schema import few
from bcmdist.errors import ModelsDiffer
from bcmdist.model.conversion import differences
from bcmdist.model.model import CELL_ARRAYS
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.commits import open_store
from bcmdist.storage.entry import Entry


@one_thread()
def sum_of(one: Snapshot, other: Snapshot, model: Location, *, query_most: int | None = None) -> Snapshot:
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


COMPLETE = " complete"  # follows the hash of a merge after its calibrations


def existing_merge(one: Snapshot, other: Snapshot, model: Location, query_most: int | None) -> Snapshot | None:
    """The merge of these two commits in the directory `model`: the sum alone, or complete; None if there is none.

    A merged model that has been changed since is not recognised.
    """
    store = open_store(model)
    head = store.head()
    if head not in (1, 2):
        return None
    job, found = _merge_job(one, other, query_most), (store.record(head)["facts"].get("fit") or {}).get("job")
    return Snapshot.load(model, commit=head) if (head, found) in ((1, job), (2, job + COMPLETE)) else None


def is_complete(merged: Snapshot) -> bool:
    """Whether nothing is left to do after the sum."""
    return merged.facts.job.endswith(COMPLETE)


def as_complete(merged: Snapshot) -> Snapshot:
    """The snapshot of a complete merge, which remains to be committed."""
    return merged.changed(job=merged.facts.job + COMPLETE)


def _merge_job(one: Snapshot, other: Snapshot, query_most: int | None) -> str:
    """Hash of a merge: of two commits, in either order, and of the number of query points."""
    commits = sorted(snapshot.reference.digest for snapshot in (one, other))
    return hashlib.sha256(json.dumps([*commits, None if query_most is None else int(query_most)]).encode()).hexdigest()


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

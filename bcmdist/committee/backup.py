"""Backups: a commit of a model in a directory of its own, with its number and identity.

Others may commit and prune meanwhile: a lease keeps the commit. The record is copied last, so that a copy that was
interrupted holds no commit. To restore, a backup is copied to the place of the model in the same way.
"""

import os
import shutil

from bcmdist.committee.snapshot import Snapshot, new_store
from bcmdist.errors import InvalidOption
from bcmdist.storage.commits import CELL_DATA, ModelStore
from bcmdist.storage.records import record_name
from bcmdist.storage.urls import on_objects


def blobs_of(snapshot: Snapshot) -> set[str]:
    """Hashes of the blobs that a commit needs in its own directory."""
    record, facts = snapshot.store.record(snapshot.commit), snapshot.facts
    named = {*record["arrays"].values(), *record["segments"], facts.survey.surveyed, facts.survey.chunks}
    named.add(facts.linearisation.linearised_at)
    if facts.cells.home is None:
        named |= {facts.cells.edges, facts.cells.halos, facts.cells.centroids}
        if facts.cells.halos:
            named |= {bytes(line).hex() for line in snapshot.store.get_array(facts.cells.halos)}
    for part in snapshot.ledger.parts:
        if part.summary.blobs:
            named |= {name for entry in part.segment for name in (entry.at, entry.state, entry.copy)}
    return {name for name in named if name and len(name) == 64}


def back_up(url: str, to: str, commit: int | str | None = None) -> Snapshot:
    """Copy a commit of a committee, the newest by default, to a new directory, and return its snapshot there.

    Raises
    ------
    InvalidOption
        A spatial model, whose copy of the rows needs a disk, shall be copied to an object store.
    ModelExists
        There is something at `to`.
    ModelNotFound, ModelDamaged
    """
    with Snapshot.opened(url, commit=commit) as snapshot:
        return copy_of(snapshot, to)


def copy_of(snapshot: Snapshot, to: str) -> Snapshot:
    """Copy a commit that is protected from pruning; see `back_up`."""
    refuse_copy_of_cells(snapshot, to)
    copy = new_store(to)
    if _has_cells(snapshot):
        rows = os.path.join(snapshot.url, CELL_DATA)
        if os.path.isdir(rows):  # in the order of cells; they do not change
            shutil.copytree(rows, os.path.join(copy.storage.url, CELL_DATA), dirs_exist_ok=True)
    copy.copy_blobs(snapshot.store, sorted(blobs_of(snapshot)))
    copy_record(snapshot.store, copy, snapshot.commit)
    return Snapshot.load(to)


def refuse_copy_of_cells(snapshot: Snapshot, to: str) -> None:
    """Raise `InvalidOption` if a commit has rows in the order of cells and shall be copied to an object store."""
    if _has_cells(snapshot) and on_objects(to):
        raise InvalidOption(
            f"{to}: expected a directory on a disk, since a spatial model contains a copy of its rows, got an object "
            "store; back it up to a disk"
        )


def _has_cells(snapshot: Snapshot) -> bool:
    """Whether rows in the order of cells are stored in the directory of the commit itself."""
    return snapshot.facts.cells.array is not None and snapshot.facts.cells.home is None


def copy_record(store: ModelStore, copy: ModelStore, number: int) -> None:
    """Copy the record of a commit to an empty store; the commits before it count as pruned."""
    storage = copy.storage
    if number > 1:
        storage.put_if_absent(copy.pruned_name(number - 1), b"")
    storage.put_if_absent(record_name(number), store.record_bytes(number))
    storage.put_if_absent(copy.acknowledged_name(number), b"")

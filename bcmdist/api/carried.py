"""A committee as bytes, and back: what a pickled estimator holds.

Files of a model directory by their names, with nothing in them that runs, and no path of the machine that made them.
As all that is read of a model directory, they are checked when they are used.

A model that names no place: the newest state of one in a directory that may go anywhere.

Partitions are known by where their rows lie, a path of some machine. For predictions, and for absorbing more, a name is
enough: places become `rows-1`, `rows-2`, ... in the order in which they were absorbed. What lies there cannot be
read again, so that nothing of it is forgotten; the history stays behind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.reorder.reorder import copy_reordered
from bcmdist.errors import ModelDamaged, ModelExists
from bcmdist.storage.commits import CELL_DATA, ModelStore, open_store
from bcmdist.storage.ledger import Entry, named_range
from bcmdist.storage.scratch import Scratch


def portable(snapshot: Snapshot, store: ModelStore) -> Snapshot:
    """The same state as the first commit of a new model directory, without places.

    Rows in the order of cells, which lie beside a model, stay where they are.
    """
    facts, surveyed = snapshot.facts, list(snapshot.surveyed.values())
    names = _Names()
    ledger, surveyed = names.of_entries(snapshot.ledger), names.of_entries(surveyed)
    cells = facts.cells if facts.cells.array is None else replace(facts.cells, array=names.of(facts.cells.array))
    blobs = {entry.state for entry in ledger} | {facts.linearised_at, cells.edges, cells.halos, *_halos(snapshot)}
    store.copy_blobs(snapshot.store, sorted(blob for blob in blobs if blob))
    facts = facts.changed(
        data=None,
        job="portable",
        chunks=None,
        cells=cells,
        skipped=tuple(names.of_key(key) for key in facts.skipped),
        surveyed=store.put_segment(surveyed),
    )
    return snapshot.written(store, snapshot.committee, ledger, facts)


def _halos(snapshot):
    """Hashes of the blobs with the rows around cells."""
    table = snapshot.facts.cells.halos
    return [bytes(row).hex() for row in snapshot.store.get_array(table)] if table else []


class _Names:
    """Names of arrays that name no place, by the URLs of these."""

    def __init__(self):
        self.known: dict[str, str] = {}

    def of(self, array) -> str:
        """Name of an array, the same for the same URL."""
        return self.known.setdefault(array, f"rows-{len(self.known) + 1}/{array.rpartition('/')[2]}")

    def of_key(self, key) -> str:
        """Key of the same rows of that."""
        array, start, stop = named_range(key)
        return f"{self.of(array)}[{start}:{stop}]"

    def of_entries(self, entries: Iterable[Entry]) -> list[Entry]:
        """Lines of a ledger."""
        return [replace(entry, key=self.of_key(entry.key)) for entry in entries]


def packed(snapshot: Snapshot) -> dict[str, bytes]:
    """Files of a model directory that holds the same state, by name."""
    scratch = Scratch()
    with snapshot.held():
        write_portable(snapshot, Path(scratch.path, "model"))
    root = Path(scratch.path, "model")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def unpacked(files: Mapping[str, bytes]) -> Snapshot:
    """The state that was packed, in a scratch directory.

    Raises
    ------
    ModelDamaged
        A name leads elsewhere.
    """
    scratch = Scratch()
    for name, data in files.items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or "\\" in name or "\0" in name:
            raise ModelDamaged(f"estimator: expected names of files in a model directory, got {name!r}; fit it again")
        path = Path(scratch.path, "model", *place.parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Snapshot.load(Path(scratch.path, "model")).kept(scratch)


def write_portable(snapshot: Snapshot, model) -> Snapshot:
    """The same state in a new model directory.

    Raises
    ------
    ModelExists
    """
    store = open_store(model)
    if store.head() or store.foreign():
        raise ModelExists(f"{model}: expected a new or empty directory; choose another one")
    found = portable(snapshot, store)
    if snapshot.facts.cells.edges is not None:
        copy_reordered(f"{snapshot.url}/{CELL_DATA}", f"{store.storage.url}/{CELL_DATA}")
    return found

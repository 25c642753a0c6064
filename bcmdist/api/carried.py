"""Portable copies of a committee: as a model directory without paths, and as bytes for pickled estimators.

Ledger keys contain the URLs of the absorbed arrays. A portable copy replaces them with `rows-1`, `rows-2`, ..., in the
order in which they were absorbed. Such names are enough to predict and to absorb further rows, but the absorbed rows
cannot be read again, so the copy cannot forget them. Only the current state is copied, not earlier commits.

As bytes, a copy is a mapping from file names of a model directory to their contents. The files contain no executable
code, and are validated when they are read, like those of any model directory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from bcmdist.committee.cells import cells_directory
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.groups import Location
from bcmdist.data.reorder.reorder import copy_reordered
from bcmdist.errors import ModelDamaged, ModelExists
from bcmdist.storage.commits import CELL_DATA, ModelStore, open_store
from bcmdist.storage.entry import Entry, named_range
from bcmdist.storage.temporary import Scratch


def portable(snapshot: Snapshot, store: ModelStore) -> Snapshot:
    """Write the same state, without URLs of data, as the first commit of a new model directory.

    The data sorted into cells, stored next to the model, are not copied here; see `write_portable`.
    """
    facts, surveyed = snapshot.facts, list(snapshot.surveyed.values())
    names = _Names()
    ledger, surveyed = names.of_entries(snapshot.ledger), names.of_entries(surveyed)
    cells = facts.cells if facts.cells.array is None else facts.cells.changed(array=names.of(facts.cells.array))
    cells = cells.changed(home=None)
    blobs = {blob for entry in ledger for blob in (entry.state, entry.copy)} | {facts.linearisation.linearised_at}
    store.copy_blobs(snapshot.store, sorted(blob for blob in blobs if blob))
    of_cells = (cells.edges, cells.halos, cells.centroids, *_halos(snapshot))
    store.copy_blobs(_with_cells(snapshot), sorted(blob for blob in of_cells if blob))
    facts = facts.changed(
        data=None,
        job="portable",
        chunks=None,
        cells=cells,
        skipped=tuple(names.of_key(key) for key in facts.ingestion.skipped),
        surveyed=store.put_segment(surveyed),
    )
    return snapshot.written(store, snapshot.committee, ledger, facts)


def _halos(snapshot: Snapshot) -> list[str]:
    """Hashes of the blobs that hold the rows around each cell."""
    table = snapshot.facts.cells.halos
    return [bytes(row).hex() for row in _with_cells(snapshot).get_array(table)] if table else []


def _with_cells(snapshot: Snapshot) -> ModelStore:
    """The model directory with the cells of a model."""
    return open_store(cells_directory(snapshot.facts.cells, snapshot.url))


class _Names:
    """Placeholder names `rows-1/x`, `rows-2/x`, ... that replace the data URLs in ledger keys of a portable copy.

    Equal URLs get equal names, so that keys remain distinct and consistent; no data are copied.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def of(self, array: str) -> str:
        """Return the name that replaces the URL of an array."""
        return self.names.setdefault(array, f"rows-{len(self.names) + 1}/{array.rpartition('/')[2]}")

    def of_key(self, key: str) -> str:
        """Return a partition key with the URL of its array replaced."""
        array, start, stop = named_range(key)
        return f"{self.of(array)}[{start}:{stop}]"

    def of_entries(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return ledger entries with the URLs in their keys replaced."""
        return [replace(entry, key=self.of_key(entry.key)) for entry in entries]


def packed(snapshot: Snapshot) -> dict[str, bytes]:
    """Return the files of a portable copy: contents by path relative to the model directory."""
    scratch = Scratch()
    with snapshot.held():
        write_portable(snapshot, Path(scratch.path, "model"))
    root = Path(scratch.path, "model")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def unpacked(files: Mapping[str, bytes]) -> Snapshot:
    """Write packed files into a scratch directory, and load the snapshot.

    Raises
    ------
    ModelDamaged
        A file name leads outside the model directory.
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


def write_portable(snapshot: Snapshot, model: Location) -> Snapshot:
    """Write a portable copy into the new directory `model`, with the data sorted into cells where there are any.

    Raises
    ------
    ModelExists
    """
    store = open_store(model)
    if store.head() or store.foreign():
        raise ModelExists(f"{model}: expected a new or empty directory; choose another one")
    found = portable(snapshot, store)
    if snapshot.facts.cells.edges is not None:
        copy_reordered(f"{_with_cells(snapshot).storage.url}/{CELL_DATA}", f"{store.storage.url}/{CELL_DATA}")
    return found

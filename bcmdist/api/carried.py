"""A committee as bytes, and back: what a pickled estimator holds.

Files of a model directory by their names, with nothing in them that runs, and no path of the machine that made them
(`bcmdist.committee.portable`). As all that is read of a model directory, they are checked when they are used.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from bcmdist.committee.portable import portable
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.reorder.reorder import copy_reordered
from bcmdist.errors import ModelDamaged, ModelExists
from bcmdist.storage.commits import CELL_DATA, open_store
from bcmdist.storage.scratch import Scratch


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
            raise ModelDamaged(f"estimator: expected names of files in a model directory, got {name!r}; fit it anew")
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

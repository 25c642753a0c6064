"""Whether what local prediction reads of a model can be: rows of cells, and halos."""

import numpy as np

from bcmdist.storage.fields import check_array, damaged
from bcmdist.storage.kinds import shown


def check_edges(edges, cells, rows, where: str) -> None:
    """Raise `ModelDamaged` where the rows of cells do not begin at `edges` (cells + 1,)."""
    check_array(edges, where, "edges", shape=(cells + 1,), dtype=np.int64)
    _check_ascending(edges, rows, where, "edges")


def check_halo(blob, cells, rows, where: str) -> None:
    """Raise `ModelDamaged` where a blob is not that of `Halo`: offsets (cells + 1,), then rows."""
    if not blob.size and blob.ndim == 1:
        return
    check_array(blob, where, "a halo", shape=(blob.size,), dtype=np.int64)
    if len(blob) <= cells:
        raise damaged(where, f"{cells + 1} offsets of a halo", f"{len(blob)}")
    _check_ascending(blob[: cells + 1], len(blob) - cells - 1, where, "offsets of a halo")
    found = blob[cells + 1 :]
    if len(found) and not 0 <= found.min() <= found.max() < rows:
        raise damaged(where, f"rows 0 to {rows - 1} in a halo", f"{found.min()} to {found.max()}")


def _check_ascending(numbers, last, where, name):
    if numbers[0] != 0 or numbers[-1] != last or np.any(np.diff(numbers) < 0):
        raise damaged(where, f"ascending numbers from 0 to {last} in {name}", shown(numbers.tolist()))


def check_halos(table, partitions, where: str) -> None:
    """Raise `ModelDamaged` where a table does not hold a hash for each partition, (partitions, 32)."""
    check_array(table, where, "halos", shape=(partitions, 32), dtype=np.uint8)

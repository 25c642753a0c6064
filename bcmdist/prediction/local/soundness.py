"""Consistency checks of stored cell edges and halos."""

import numpy as np

from bcmdist.storage.fields import check_array, damaged
from bcmdist.storage.kinds import shown


def check_edges(edges, cells, rows, where: str) -> None:
    """Raise `ModelDamaged` if `edges` is not an ascending array (cells + 1,) from 0 to `rows`."""
    check_array(edges, where, "edges", shape=(cells + 1,), dtype=np.int64)
    _check_ascending(edges, rows, where, "edges")


def check_halo(blob, cells, rows, where: str) -> None:
    """Raise `ModelDamaged` if a blob is not one that `Halo` writes: offsets (cells + 1,), then row numbers."""
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
    """Raise `ModelDamaged` if a table does not hold one hash per partition, (partitions, 32)."""
    check_array(table, where, "halos", shape=(partitions, 32), dtype=np.uint8)

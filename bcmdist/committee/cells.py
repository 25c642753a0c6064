"""Checks for rows sorted by spatial cell: no row is absorbed both in cell order and in stored order.

Cell order also requires a model directory on a disk: object stores are refused.
"""

import os
from collections.abc import Iterable

import numpy as np

from bcmdist.committee.facts import Cells
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.storage.commits import CELL_DATA
from bcmdist.storage.urls import on_objects


def cells_directory(cells: Cells, url: str) -> str:
    """The model directory with the rows in cell order, edges and halos of the model at `url`."""
    return url if cells.home is None else os.path.normpath(os.path.join(url, cells.home))


def absorbed_in_cells(snapshot: Snapshot) -> set[str]:
    """Surveyed keys of the partitions if their rows have been absorbed in cell order; else empty."""
    array = snapshot.facts.cells.array
    if array is None or not snapshot.ledger.knows(array):
        return set()
    return set(snapshot.surveyed)


def arranged_alike(one: Snapshot, other: Snapshot) -> bool:
    """Whether two states of a fit have the same copy of the rows in cell order, as those of two coordinators have."""
    a, b = one.facts.cells, other.facts.cells
    if a.edges is None or b.edges is None or a.array != b.array:
        return False
    return np.array_equal(one.store.get_array(a.edges), other.store.get_array(b.edges))


def rows_outside(snapshot: Snapshot) -> int:
    """Number of rows absorbed after the fit without a copy, which local prediction cannot use as neighbours.

    0 for a model without local predictions.
    """
    cells = snapshot.facts.cells
    if not cells.surrounded:
        return 0
    uncopied = (entry for entry in snapshot.ledger if not entry.copy and not entry.key.startswith(f"{cells.array}["))
    return sum(entry.rows for entry in uncopied)


def outside_in_words(rows: int, total: int) -> str:
    """Message on the effect of `rows` of `total` rows that cannot serve as neighbours, and what to do about it."""
    return (
        f"{rows} of {total} rows, absorbed after the fit by an earlier version, count through the committee only, "
        "local predictions near them ignore them as neighbours: fit again with all rows, or use --method committee"
    )


def refuse_absorbed_in_cells(snapshot: Snapshot, parts: Iterable[Partition]) -> None:
    """Raise `InvalidData` if `parts` contain cells, and rows of the survey were ingested in stored order."""
    copy = f"{cells_directory(snapshot.facts.cells, snapshot.url)}/{CELL_DATA}"
    if any(part.data.url == copy for part in parts):
        refuse_absorbed_as_stored(snapshot)


def refuse_absorbed_as_stored(snapshot: Snapshot) -> None:
    """Raise `InvalidData` if rows of the survey were ingested in stored order: in cell order they would count twice."""
    absorbed = [key for key in snapshot.surveyed if snapshot.ledger.holds(key)]
    if absorbed:
        raise InvalidData(
            f"{snapshot.url}: expected rows that were not absorbed yet, {absorbed[0]} was ingested as it is stored "
            f"(and {len(absorbed) - 1} more were); forget these, or fit a new --model"
        )


def refuse_cells_on_objects(url: str, cells: bool) -> None:
    """Raise `InvalidOption` if a model on an object store shall make or use cells."""
    if cells and on_objects(url):
        raise InvalidOption(
            f"{url}: expected a model directory on a disk that all workers share, for spatial partitions sort rows "
            "there, got an object store; use --partition chunks and --method committee, or --model DIR (DATA may stay "
            "where it is)"
        )

"""Copies of rows that are absorbed after a fit with spatial cells, for local predictions.

The fit has its rows in cell order in the model directory. Rows of later arrivals may be gone when a prediction needs
them, so the task that computes their message also stores them as a blob, which their ledger entry names: a copy is
part of the model from the commit of its partition until that is forgotten. Further passes, revisions and refits read
the rows from it (`bcmdist.committee.absorbed`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bcmdist.committee.cells import cells_directory
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.data.row_copy import copy_of
from bcmdist.data.rows import Rows
from bcmdist.experts.contributions import Contribution
from bcmdist.runtime.interface import Runtime, Task
from bcmdist.storage.commits import CELL_DATA, open_store


@dataclass(frozen=True)
class WithCopy:
    """Task: as `task`, which computes the message of a partition, and store a copy of the rows."""

    task: Task
    url: str
    """the model directory"""
    in_order: str
    """URL of the rows in cell order"""

    def __call__(self, part: Partition, rows: Rows) -> Contribution:
        found: Contribution = self.task(part, rows)
        if part.data.url == self.in_order:  # these rows stay
            return found
        copy = open_store(self.url).put_arrays({"": copy_of(rows.X, rows.obs)})[""]
        return replace(found, entries={key: replace(entry, copy=copy) for key, entry in found.entries.items()})


def copied(snapshot: Snapshot, task: Task) -> Task:
    """The task that absorbs further rows into a committee: with copies of them where local predictions use them."""
    cells = snapshot.facts.cells
    if not cells.take_rows:
        return task
    return WithCopy(task, snapshot.url, f"{cells_directory(cells, snapshot.url)}/{CELL_DATA}")


def messages_with_copies(
    snapshot: Snapshot, parts: Sequence[Partition], runtime: Runtime, *, label: str
) -> Contribution:
    """As `Snapshot.compute_messages`, with copies of the rows where local predictions use them."""
    return snapshot.messages_of(copied(snapshot, snapshot.expert()), parts, runtime, label=label)

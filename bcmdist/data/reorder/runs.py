"""Rows on their way to another order: into sorted runs, and out of them into the chunks of an output."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist.data.reorder.external_sort import Run, Shuffle
from bcmdist.data.writing import write_rows
from bcmdist.errors import DataDamaged
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.ledger import Entry
from bcmdist.storage.loading import load_array
from bcmdist.storage.paths import room_for

Router = Callable[[np.ndarray], np.ndarray]
"""Cells (n,) int64 of rows X (n, D) in original units; small, and pickled with every task"""


@dataclass(frozen=True)
class Moved:
    """What is in sorted runs."""

    counts: np.ndarray
    """(cells,) int64, rows per cell"""
    entries: dict[str, Entry]
    """partitions with their content hashes, by key"""

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(self.counts + other.counts, self.entries | other.entries)


@dataclass(frozen=True)
class Scatter:
    """Write the rows of a partition as a run sorted by cell, unless the run of this content is there."""

    shuffle: Shuffle
    router: Router
    cells: int

    def __call__(self, part, rows) -> Moved:
        cells = self.router(rows.X)
        columns = {part.data.x: rows.X} | ({part.data.y: rows.obs.y} if part.data.y is not None else {})
        columns |= {name: getattr(rows.obs, name) for name in part.data.companions}
        self.shuffle.write(run_name(part, rows.digest), Run(cells, np.arange(part.start, part.stop), columns))
        counts = np.bincount(cells, minlength=self.cells)
        assert len(counts) == self.cells, "a router names cells that exist"
        return Moved(counts, {part.key: Entry(part.key, rows.digest, part.rows)})


def run_name(part, digest) -> str:
    """Name of the run of a partition with this content: other rows in its place make another run."""
    return f"{part.start}-{part.stop}-{digest[:16]}"


@dataclass(frozen=True)
class Gather:
    """Write the rows of a span of an output from the runs that hold them; returns the number of rows.

    A span owns whole chunks of the output, so that no two tasks write to one chunk, and writing twice
    writes the same. In memory: the span, and the cells that its ends cut, some three times.
    """

    shuffle: Shuffle
    out: str
    edges: BlobReference | None
    """of the offsets (cells + 1,): rows of cell k stand at edges[k] to edges[k + 1] of the output, which has an
    array `row` for where they stood before; None: a key is a row of the output"""

    def __call__(self, span, _) -> int:
        columns = self._in_place(span) if self.edges is None else self._by_cell(span, load_array(self.edges))
        with room_for(self.out, sum(column.nbytes for column in columns.values())):
            write_rows(self.out, span.start, columns)
        return span.rows

    def _in_place(self, span):
        return self._gather(span, np.arange(span.start, span.stop)).columns

    def _by_cell(self, span, edges):
        """The cells that overlap a span, cut to it."""
        first = np.searchsorted(edges, span.start, side="right") - 1
        last = np.searchsorted(edges, span.stop)
        run = self._gather(span, np.repeat(np.arange(first, last), np.diff(edges[first : last + 1])))
        some = slice(span.start - edges[first], span.stop - edges[first])
        return {name: column[some] for name, column in ({"row": run.rows} | dict(run.columns)).items()}

    def _gather(self, span, keys):
        """Rows that have exactly these keys, sorted."""
        run = self.shuffle.gather(keys[0], keys[-1] + 1)
        if not np.array_equal(run.keys, keys):
            raise DataDamaged(
                f"{self.shuffle.url}: expected {len(keys)} rows with keys {keys[0]} to {keys[-1]} for {span.key}, got "
                f"{len(run.keys)}, or others; remove it and repeat the command"
            )
        return run

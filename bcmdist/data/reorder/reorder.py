"""A data set in another order of its rows, and the way back.

    source tasks: partition -> run sorted by cell        output tasks: span of whole chunks <- slices of all runs

Nothing is held in memory but a partition or a span per task; the original data are only read. All that is
written stands in `PLACE.partial-<job>` until the new data set is complete and renamed: a reordering that was
killed is repeated with the runs that are there, one that failed too, and when the disk was full all of it
is removed. Two that run at the same time do the same work; the one that is late fails.

Rows on their way to another order: into sorted runs, and out of them into the chunks of an output.
"""

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.groups import absolute_url, open_group
from bcmdist.data.partition import Partition, Span
from bcmdist.data.reorder.external_sort import Run, Shuffle
from bcmdist.data.writing import create_dataset, update_attributes, write_array, write_rows
from bcmdist.errors import DataDamaged, DataExists, DiskFull, InvalidOption
from bcmdist.storage.commits import BlobReference, ModelStore, open_store
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


# What the rows of one output task may take: every task opens every run, so few large ones; some three copies
# are in memory.
SPAN_BYTES = 2**25


def reorder(
    data: Dataset,
    router: Router,
    cells: int,
    place,
    store: ModelStore,
    runtime,
    *,
    chunk_rows: int,
    parts: list[Partition],
    job: str,
) -> tuple[Dataset, np.ndarray, dict[str, Entry]]:
    """Rows of some partitions of a data set, ordered by (cell, row), as a data set of its own.

    Parameters
    ----------
    cells : number of cells that `router` knows
    place : path on a disk that all workers share, for arrays of the same names (inputs, targets where there are
        any, companions), and `row` (N,) int64, where a row stood in `data`; what is there is used if it was made
        by the same job
    store : carries the offsets to the tasks
    chunk_rows : rows per chunk
    job : hash of the survey and the router

    Returns
    -------
    The new data set, the offsets (cells + 1,) int64 of its cells, and what was read: the partitions with their
    content hashes, by key, to be compared with a survey (`bcmdist.committee.surveyed.refuse_changed`).

    Raises
    ------
    DiskFull, DataExists, DataDamaged, InvalidOption, WorkerCannotRead
    """
    where = absolute_url(place)
    taken = {"row", "edges"} & {data.x, data.y}
    if taken:
        raise InvalidOption(f"{data.url}: expected arrays of other names, got {min(taken)}; rename it")
    if "://" in where:
        raise InvalidOption(f"place: expected a path on a disk that all workers share, got {place}; give one")
    scratch = f"{where}.partial-{hashlib.sha256(job.encode()).hexdigest()[:12]}"
    if not os.path.exists(where):
        shuffle = Shuffle(f"{scratch}/runs")
        try:
            with room_for(scratch, 8 * data.rows * (data.inputs + len(data.companions) + 2)):
                moved = _scatter(Scatter(shuffle, router, cells), scratch, runtime, parts)
                with _appearing(where, f"{scratch}/{uuid.uuid4().hex[:8]}") as out:
                    edges = _create(out, data, moved, chunk_rows, job)
                    with store.transient({"edges": edges}) as references:
                        _gather(Gather(shuffle, out, **references), edges[-1], chunk_rows, runtime, label="gather")
        except DiskFull:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    shutil.rmtree(scratch, ignore_errors=True)
    return _reordered(data, where, job)


def restore(shuffle: Shuffle, out, rows: int, rows_per_chunk: int, runtime) -> None:
    """Write rows whose keys are the rows of an output, from sorted runs, to the arrays of that output.

    Parameters
    ----------
    out : Zarr group with an array for each column of the runs, of `rows` rows in chunks of `rows_per_chunk`

    Raises
    ------
    DiskFull, DataDamaged
    """
    _gather(Gather(shuffle, out, None), rows, rows_per_chunk, runtime, label="restore")


def copy_reordered(place, out) -> None:
    """A copy of a reordered data set that does not tell where its rows stood before."""
    shutil.copytree(place, out)
    update_attributes(out, "edges", {"entries": []})


def _scatter(task, scratch, runtime, parts):
    """Sorted runs of partitions; those of other rows, from a time when the data were others, go."""
    task.shuffle.create()
    with open_store(scratch).canary() as probe:
        runtime.check_same(probe, url=scratch)
    moved = runtime.sum(task, parts, label="sort")
    task.shuffle.keep(run_name(part, moved.entries[part.key].digest) for part in parts)
    return moved


def _gather(task, rows, chunk_rows, runtime, *, label):
    """Write an output span by span, whole chunks each."""
    step = chunk_rows * max(1, SPAN_BYTES // (chunk_rows * task.shuffle.row_bytes()))
    runtime.sum(task, [Span(a, min(a + step, rows)) for a in range(0, rows, step)], label=label)


@contextlib.contextmanager
def _appearing(where, out):
    """A group that is written at `out` and appears at `where`, whole or not at all."""
    try:
        yield out
        os.rename(out, where)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _create(out, data, moved, chunk_rows, job):
    """Empty group with what is known before the rows come; the offsets of the cells."""
    edges = np.concatenate([[0], np.cumsum(moved.counts)])
    one = np.zeros(1)
    columns = {data.x: np.zeros((1, data.inputs)), "row": np.zeros(1, np.int64)} | ({data.y: one} if data.y else {})
    columns |= dict.fromkeys(data.companions, one)
    create_dataset(out, columns, edges[-1], rows_per_chunk=chunk_rows, attributes={"job": job})
    entries = [[entry.key, entry.digest, entry.rows] for entry in moved.entries.values()]
    write_array(out, "edges", edges, along="cell", attributes={"entries": entries})
    return edges


def _reordered(data, where, job):
    """A complete data set, after a check that this job has made it."""
    group: Any = open_group(where)
    if group.attrs.get("job") != job:
        raise DataExists(f"{where}: expected the reordered data of this job, it holds others; remove it and repeat")
    open_data(where, x=data.x, y="row")  # no chunk of `row` is missing
    try:
        edges, entries = group["edges"][...], group["edges"].attrs["entries"]
    except (ValueError, RuntimeError, OSError, KeyError) as error:
        raise DataDamaged(f"{where}: expected to read edges, failed: {error}; remove it and repeat") from error
    return open_data(where, x=data.x, y=data.y), edges, {key: Entry(key, *rest) for key, *rest in entries}

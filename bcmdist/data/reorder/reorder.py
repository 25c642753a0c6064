"""Reorder the rows of a data set, and restore the original order.

    source tasks: partition -> run sorted by cell        output tasks: span of whole chunks <- slices of all runs

Each task holds only one partition or span in memory; the original data are never modified. Everything is written to
`PLACE.partial-<job>` until the new data set is complete and renamed. A reordering that was killed or failed resumes
with the existing runs; if the disk was full, all of it is removed. Two concurrent reorderings of one job do the same
work, and the later one fails.
"""

import contextlib
import hashlib
import math
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
from bcmdist.storage.commits import BlobReference, ModelStore, load_array, open_store
from bcmdist.storage.entry import Entry
from bcmdist.storage.paths import room_for

Router = Callable[[np.ndarray], np.ndarray]
"""Returns cells (n,) int64 for rows X (n, D) in original units; small, and pickled with every task."""


@dataclass(frozen=True)
class Moved:
    """Content of the sorted runs."""

    counts: np.ndarray
    """(cells,) int64, rows per cell"""
    entries: dict[str, Entry]
    """partitions with their content hashes, by key"""

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(self.counts + other.counts, self.entries | other.entries)


@dataclass(frozen=True)
class Scatter:
    """Task: write the rows of a partition as a run sorted by cell, unless a run of the same content exists."""

    shuffle: Shuffle
    router: Router
    cells: int

    def __call__(self, part, rows) -> Moved:
        cells = self.router(rows.X)
        columns = {part.data.x: rows.X} | ({part.data.y: rows.obs.y} if part.data.y is not None else {})
        columns |= {name: getattr(rows.obs, name) for name in part.data.companions}
        columns |= {part.data.variance: rows.X_variance} if part.data.variance else {}
        self.shuffle.write(run_name(part, rows.digest), Run(cells, np.arange(part.start, part.stop), columns))
        counts = np.bincount(cells, minlength=self.cells)
        assert len(counts) == self.cells, "a router names cells that exist"
        return Moved(counts, {part.key: Entry(part.key, rows.digest, part.rows)})


def run_name(part, digest) -> str:
    """Return the name of the run of a partition with this content; other content gets another run."""
    return f"{part.start}-{part.stop}-{digest[:16]}"


@dataclass(frozen=True)
class Gather:
    """Task: write the rows of a span of an output, gathered from all runs; return the number of rows.

    A span consists of whole chunks of the output, so no two tasks write to one chunk, and writing twice gives the same
    result. Memory: about three times the span and the cells cut by its ends.
    """

    shuffle: Shuffle
    out: str
    edges: BlobReference | None
    """reference to the offsets (cells + 1,): rows edges[k] to edges[k + 1] of the output belong to cell k, and the
    output has an array `row` of original row numbers. None: keys are row numbers of the output"""

    def __call__(self, span, _) -> int:
        columns = self._in_place(span) if self.edges is None else self._by_cell(span, load_array(self.edges))
        with room_for(self.out, sum(column.nbytes for column in columns.values())):
            write_rows(self.out, span.start, columns)
        return span.rows

    def _in_place(self, span):
        return self._gather(span, np.arange(span.start, span.stop)).columns

    def _by_cell(self, span, edges):
        """Gather the cells that overlap a span, and cut them to the span."""
        first = np.searchsorted(edges, span.start, side="right") - 1
        last = np.searchsorted(edges, span.stop)
        run = self._gather(span, np.repeat(np.arange(first, last), np.diff(edges[first : last + 1])))
        some = slice(span.start - edges[first], span.stop - edges[first])
        return {name: column[some] for name, column in ({"row": run.rows} | dict(run.columns)).items()}

    def _gather(self, span, keys):
        """Gather the rows with exactly these keys, sorted."""
        run = self.shuffle.gather(keys[0], keys[-1] + 1)
        if not np.array_equal(run.keys, keys):
            raise DataDamaged(
                f"{self.shuffle.url}: expected {len(keys)} rows with keys {keys[0]} to {keys[-1]} for {span.key}, got "
                f"{len(run.keys)}, or others; remove it and repeat the command"
            )
        return run


# Limit for the rows of one output task. Every task opens every run, so a few large tasks are better; about three
# copies are in memory.
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
    """Write the rows of some partitions, ordered by (cell, row), as a new data set.

    Parameters
    ----------
    cells : number of cells of `router`
    place : path on a disk that all workers share, for arrays of the same names (inputs, targets if there are any,
        companions) and `row` (N,) int64, the original row numbers in `data`. An existing output of the same job is
        reused
    store : passes the offsets to the tasks
    chunk_rows : rows per chunk
    job : hash of the survey and the router

    Returns
    -------
    The new data set, the offsets (cells + 1,) int64 of its cells, and the partitions that were read with their content
    hashes, by key, for comparison with a survey (`bcmdist.committee.surveyed.refuse_changed`).

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
            width = data.inputs + len(data.companions) + 2 + math.prod(_shape_of_variance(data))
            with room_for(scratch, 8 * data.rows * width):
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
    """Write rows from sorted runs, keyed by output row number, to the arrays of an output.

    Parameters
    ----------
    out : Zarr group with an array for each column of the runs, of `rows` rows in chunks of `rows_per_chunk`

    Raises
    ------
    DiskFull, DataDamaged
    """
    _gather(Gather(shuffle, out, None), rows, rows_per_chunk, runtime, label="restore")


def copy_reordered(place, out) -> None:
    """Copy a reordered data set without the record of its original partitions."""
    shutil.copytree(place, out)
    update_attributes(out, "edges", {"entries": []})


def _scatter(task, scratch, runtime, parts):
    """Write sorted runs of partitions; remove runs of earlier contents of the data."""
    task.shuffle.create()
    with open_store(scratch).canary() as probe:
        runtime.check_same(probe, url=scratch)
    moved = runtime.sum(task, parts, label="sort")
    task.shuffle.keep(run_name(part, moved.entries[part.key].digest) for part in parts)
    return moved


def _gather(task, rows, chunk_rows, runtime, *, label):
    """Write an output span by span, each of whole chunks."""
    step = chunk_rows * max(1, SPAN_BYTES // (chunk_rows * task.shuffle.row_bytes()))
    runtime.sum(task, [Span(a, min(a + step, rows)) for a in range(0, rows, step)], label=label)


@contextlib.contextmanager
def _appearing(where, out):
    """Yield `out` for writing, and rename it to `where` on success; remove it on failure."""
    try:
        yield out
        os.rename(out, where)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _create(out, data, moved, chunk_rows, job):
    """Create an empty group with all that is known before the rows; return the offsets of the cells."""
    edges = np.concatenate([[0], np.cumsum(moved.counts)])
    one = np.zeros(1)
    columns = {data.x: np.zeros((1, data.inputs)), "row": np.zeros(1, np.int64)} | ({data.y: one} if data.y else {})
    columns |= dict.fromkeys(data.companions, one)
    if data.variance:
        columns[data.variance] = np.zeros((1, *_shape_of_variance(data)))
    create_dataset(out, columns, edges[-1], rows_per_chunk=chunk_rows, attributes={"job": job})
    entries = [[entry.key, entry.digest, entry.rows] for entry in moved.entries.values()]
    write_array(out, "edges", edges, along="cell", attributes={"entries": entries})
    return edges


def _shape_of_variance(data) -> tuple[int, ...]:
    """Return the shape of a row's input variances, in the order of the columns that are read; (0,) if none are."""
    if not data.variance:
        return (0,)
    stored: Any = open_group(data.url)[data.variance]
    return (data.inputs,) * (stored.ndim - 1)


def _reordered(data, where, job):
    """Return a complete reordered data set, its partitions' edges and ledger entries, if this job wrote it."""
    group: Any = open_group(where)
    if group.attrs.get("job") != job:
        raise DataExists(f"{where}: expected the reordered data of this job, it holds others; remove it and repeat")
    open_data(where, x=data.x, y="row")  # checks that no chunk of `row` is missing
    try:
        edges, entries = group["edges"][...], group["edges"].attrs["entries"]
    except (ValueError, RuntimeError, OSError, KeyError) as error:
        raise DataDamaged(f"{where}: expected to read edges, failed: {error}; remove it and repeat") from error
    copy = open_data(where, x=data.x, y=data.y, uncertain=bool(data.variance))
    return copy, edges, {key: Entry(key, *fields) for key, *fields in entries}

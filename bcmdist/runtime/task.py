"""Tasks: functions that a worker applies to one partition, with results that can be added.

A task is a small immutable value (a few hundred bytes: references and options, never data). A task maps a partition
with its rows, or a span of an output that the task writes, to a monoid element. Tasks are pure: repeated, lost, or run
in any order, they give the same answer. Only the runtime decides where they run.
"""

import functools
import operator
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bcmdist.data.partition import Span, Work
from bcmdist.data.rows import Rows, read_all
from bcmdist.errors import EPNotConverged, LaplaceNotConverged, NotPositiveDefinite
from bcmdist.runtime.threads import one_thread


class Task(Protocol):
    """A function of one partition, or of one span, whose results can be added.

    A task with a true attribute `aside` only rereads partitions that are done already, so the partitions do not count
    as progress. A task with a true attribute `parted` returns `Parted` results.
    """

    def __call__(self, part: Any, rows: Any, /) -> Any:
        """Return the term of one `Partition` with its `Rows`, or of one `Span` with rows None."""


@dataclass(frozen=True)
class Parted:
    """A result in two parts: a small `summary`, sent to the client, and a large part `kept` on the worker.

    Both parts can be added; `kept` also has a method `weighted`.
    """

    summary: Any
    kept: Any

    def __add__(self, other: "Parted") -> "Parted":
        return Parted(self.summary + other.summary, self.kept + other.kept)

    def __sizeof__(self):
        """Approximate size of `kept`, by which Dask decides about spilling and moving results."""
        return sys.getsizeof(self.kept)


def is_parted(task: Task) -> bool:
    """Whether the results of a task are `Parted`."""
    return getattr(task, "parted", False)


def shares(task: Task, parts: Sequence[Work]) -> Iterator[Any]:
    """Yield the value of a task for each partition or span, in order."""
    for part, rows in _with_rows(parts):
        try:
            with one_thread():
                share = task(part, rows)
        except (NotPositiveDefinite, LaplaceNotConverged, EPNotConverged) as error:
            raise type(error)(f"{part.key}: {error}") from error
        yield share


def _with_rows(parts) -> Iterator[tuple[Work, Rows | None]]:
    spans = [part for part in parts if isinstance(part, Span)]
    return ((span, None) for span in spans) if spans else read_all(parts)


def run_batch(task: Task, batch: Sequence[Work]) -> Any:
    """Sum of a task over some partitions or spans; the unit of work of one worker."""
    return functools.reduce(operator.add, shares(task, batch))

"""What a worker computes: functions from one partition to something that adds.

A task is a small immutable value (a few hundred bytes: references and options, never data) that
maps a partition and its rows, or a span of an output that it writes, to a monoid element. Tasks are
pure: run twice, lost, or run in any order, they give the same answer, and only the runtime decides
where.
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

    One whose `aside` is true only looks at partitions that are done: they are not counted again. One whose `parted` is
    true has results that are `Parted`.
    """

    def __call__(self, part: Any, rows: Any, /) -> Any:
        """The share of the sum of a `Partition` with its `Rows`, or of a `Span` with None."""


@dataclass(frozen=True)
class Parted:
    """A result of which a small part is told, and a large one is kept where it is, to be added up there.

    Both add, and what is kept can be `weighted`.
    """

    told: Any
    kept: Any

    def __add__(self, other: "Parted") -> "Parted":
        return Parted(self.told + other.told, self.kept + other.kept)

    def __sizeof__(self):
        """About what is kept takes: workers spill and move results by it."""
        return sys.getsizeof(self.kept)


def is_parted(task: Task) -> bool:
    """Whether the results of a task are `Parted`."""
    return getattr(task, "parted", False)


def shares(task: Task, parts: Sequence[Work]) -> Iterator[Any]:
    """A task's value for each partition, or for each span, in order."""
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
    """Sum of a task over some partitions or spans: what one worker does in one go."""
    return functools.reduce(operator.add, shares(task, batch))

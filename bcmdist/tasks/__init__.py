"""What a worker computes: functions from one partition to something that adds.

A task is a small immutable value (a few hundred bytes: references and options, never data) that
maps a partition and its rows to a monoid element. Tasks are pure: run twice, lost, or run in any
order, they give the same answer, and only the runtime decides where.
"""

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from bcmdist.errors import EPNotConverged, LaplaceNotConverged, NotPositiveDefinite
from bcmdist.partition import Partition, Rows, read_all


class Task(Protocol):
    """A function of one partition whose results can be added."""

    def __call__(self, part: Partition, rows: Rows) -> Any:
        """The partition's share of the sum."""


def shares(task: Task, parts: Sequence[Partition]) -> Iterator[Any]:
    """A task's value for each partition, in order."""
    for part, rows in read_all(parts):
        try:
            yield task(part, rows)
        except (NotPositiveDefinite, LaplaceNotConverged, EPNotConverged) as error:
            raise type(error)(f"{part.key}: {error}") from error


def run_batch(task: Task, batch: Sequence[Partition]):
    """Sum of a task over some partitions: what one worker does in one go."""
    return functools.reduce(operator.add, shares(task, batch))

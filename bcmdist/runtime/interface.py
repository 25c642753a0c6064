"""Where tasks run: the sum of a task over partitions, or its values one by one.

`serial` is a loop and the oracle; `dask` is a cluster. Both give the same answer up to rounding,
whatever the number of workers, the order of events, or the workers that die on the way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bcmdist.data.partition import Work
from bcmdist.errors import BcmdistError
from bcmdist.runtime.task import Task

Progress = Callable[[str, int, int], None]
"""Called with a label, partitions done, and partitions in all."""


def silent(label: str, done: int, total: int) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class Outcome:
    """What became of some partitions that were computed together."""

    parts: list[Work]
    result: Any = None
    """sum of the task over them, or what is told of it where it is `Parted`; None where there is an error"""
    error: BcmdistError | None = None
    """why there is no result; `parts` is then a single partition"""
    kept: Any = None
    """the other part of that sum, wherever it is: such add, can be `weighted`, and have a `Runtime.total`"""


class SumLost(Exception):
    """What was kept is gone, with the workers that had it; what it was the sum of is to be computed again."""


class Runtime(Protocol):
    """Somewhere to run tasks."""

    allowed_bytes: float
    """Memory a worker thread may use."""
    threads: int
    """Tasks that run at the same time."""
    progress: Progress
    """Told about sums by the runtime, and about `each` by whoever takes the outcomes: he knows what is left."""

    def sum(self, task: Task, parts: Sequence[Work], *, label: str) -> Any:
        """Sum of a task over partitions, or over spans, at least one."""

    def each(self, work: Iterable[tuple[Task, list[Work]]], *, label: str) -> Iterator[Outcome]:
        """Sum of a task over the partitions of each pair, as soon as it is there, in any order.

        `work` is pulled as there is room for it. A pair that fails is repeated partition by partition, so that an
        error is the error of one partition; whether to go on is the caller's decision. Every partition is in
        exactly one outcome. Work in flight is given up when the iterator is closed; what was kept stays for as long as
        somebody has it.
        """

    def total(self, kept: Any, *, label: str) -> Any:
        """What outcomes have `kept`, summed up: the whole of it, here.

        Whatever was computed again on the way, since workers died, may be of other data than what was told.

        Raises
        ------
        SumLost, SchedulerLost
        """

    def check_same(self, probe: Callable[[], str], *, url: str) -> None:
        """Raise `WorkerCannotRead` where `probe` returns another text on a worker than here."""

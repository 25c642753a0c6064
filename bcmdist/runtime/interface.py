"""The interface of runtimes: sum a task over partitions, or return its results one by one.

`serial` is a loop in this process and the reference in tests; `dask` is a cluster. Both give the same answer up to
rounding, independent of the number of workers, the order of events, and workers that die meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bcmdist.data.partition import Work
from bcmdist.errors import BcmdistError
from bcmdist.runtime.task import Task

Progress = Callable[[str, int, int], None]
"""Called with the label of a sum, the number of partitions done, and the total number of partitions."""


def silent(label: str, done: int, total: int) -> None:
    """Ignore progress; a `Progress` that shows nothing."""


@dataclass(frozen=True)
class Outcome:
    """Result or error of some partitions that were computed together."""

    parts: list[Work]
    result: Any = None
    """sum of the task over `parts`, or its summary if the task's results are `Parted`; None if there is an error"""
    error: BcmdistError | None = None
    """reason for a missing result; `parts` is then a single partition"""
    kept: Any = None
    """large part of a `Parted` sum, here or on workers: can be added, `weighted`, and fetched by `Runtime.total`"""


class SumLost(Exception):
    """A sum kept on workers was lost with them. The caller has to compute its terms again."""


class Runtime(Protocol):
    """Runs tasks over partitions."""

    allowed_bytes: float
    """Memory that one worker thread may use, in bytes."""
    threads: int
    """Number of tasks that run at the same time."""
    progress: Progress
    """Called by the runtime during `sum`. During `each` the consumer of the outcomes calls it: only the consumer knows
    how much work is left."""

    def sum(self, task: Task, parts: Sequence[Work], *, label: str) -> Any:
        """Sum of a task over at least one partition or span."""

    def each(self, work: Iterable[tuple[Task, list[Work]]], *, label: str) -> Iterator[Outcome]:
        """Yield the sum of each pair's task over the pair's partitions, in the order of completion.

        `work` is consumed as capacity becomes free. A pair that fails is repeated partition by partition, so that each
        error belongs to one partition; the caller decides whether to continue. Every partition is in exactly one
        outcome. Closing the iterator cancels work in flight; kept sums stay for as long as they are referenced.
        """

    def total(self, kept: Any, *, label: str) -> Any:
        """Fetch the sum of the `kept` parts of outcomes into this process.

        Results of workers that have died are recomputed from the partitions. If the data have changed meanwhile, the
        total differs from the summaries in the outcomes; the caller must compare.

        Raises
        ------
        SumLost, SchedulerLost
        """

    def check_same(self, probe: Callable[[], str], *, url: str) -> None:
        """Raise `WorkerCannotRead` if `probe` returns a different text on a worker than in this process."""

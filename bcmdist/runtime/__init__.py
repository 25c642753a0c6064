"""Where tasks run: one verb, the sum of a task over partitions.

`serial` is a loop and the oracle; `dask` is a cluster. Both give the same answer up to rounding,
whatever the number of workers, the order of events, or the workers that die on the way.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bcmdist.partition import Work
from bcmdist.tasks import Task

Progress = Callable[[str, int, int], None]
"""Called with a label, partitions done, and partitions in all."""


def silent(label: str, done: int, total: int) -> None:
    """Show no progress."""


class Runtime(Protocol):
    """Somewhere to run tasks."""

    allowed_bytes: float
    """Memory a worker thread may use."""
    threads: int
    """Tasks that run at the same time."""

    def sum(self, task: Task, parts: Sequence[Work], *, label: str) -> Any:
        """Sum of a task over partitions, or over spans, at least one."""

    def check_same(self, probe: Callable[[], str], *, url: str) -> None:
        """Raise `WorkerCannotRead` where `probe` returns another text on a worker than here."""

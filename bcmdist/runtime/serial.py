"""The serial runtime: a loop in this process, and the oracle of the others."""

from collections.abc import Iterator
from typing import Any

import psutil

from bcmdist.errors import BcmdistError
from bcmdist.runtime.interface import Outcome, Progress, silent
from bcmdist.runtime.task import is_parted, run_batch, shares


class SerialRuntime:
    """Runs one partition after the other, with one BLAS thread as workers have."""

    threads = 1

    def __init__(self, *, progress: Progress = silent, allowed_bytes: float | None = None):
        self.progress = progress
        self.allowed_bytes = allowed_bytes or psutil.virtual_memory().available

    def sum(self, task, parts, *, label) -> Any:
        """Sum of a task over partitions, in their order."""
        total = None
        self.progress(label, 0, len(parts))
        for done, share in enumerate(shares(task, parts), start=1):
            total = share if total is None else total + share
            self.progress(label, done, len(parts))
        return total

    def each(self, work, *, label) -> Iterator[Outcome]:
        """Outcome of each pair of a task and partitions, one after the other."""
        for task, parts in work:
            yield from _outcomes(task, parts)

    def total(self, kept, *, label) -> Any:
        """What was kept: it has been here all the time."""
        return kept

    def check_same(self, probe, *, url) -> None:
        """Run `probe`: this process sees what it sees, or raises."""
        probe()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def _outcomes(task, parts):
    try:
        outcome = _outcome(parts, run_batch(task, parts), parted=is_parted(task))
    except BcmdistError as error:
        if len(parts) > 1:
            for part in parts:
                yield from _outcomes(task, [part])
            return
        outcome = Outcome(parts, error=error)
    yield outcome


def _outcome(parts, result, *, parted):
    return Outcome(parts, result.told, kept=result.kept) if parted else Outcome(parts, result)

"""The serial runtime: a loop in this process, and the reference for the other runtimes."""

from collections.abc import Iterator
from typing import Any

import psutil

from bcmdist.errors import BcmdistError
from bcmdist.runtime.interface import Outcome, Progress, is_parted, run_batch, shares, silent


class SerialRuntime:
    """Runs one partition after the other with one BLAS thread, as workers do."""

    threads = 1

    def __init__(self, *, progress: Progress = silent, allowed_bytes: float | None = None):
        self.progress = progress
        self.allowed_bytes = allowed_bytes or psutil.virtual_memory().available

    def sum(self, task, parts, *, label) -> Any:
        """Sum of a task over partitions, in the order of `parts`."""
        total = None
        self.progress(label, 0, len(parts))
        for done, share in enumerate(shares(task, parts), start=1):
            total = share if total is None else total + share
            self.progress(label, done, len(parts))
        return total

    def each(self, work, *, label) -> Iterator[Outcome]:
        """Yield the outcomes of each pair of a task and partitions, in order."""
        for task, parts in work:
            yield from _outcomes(task, parts)

    def total(self, kept, *, label) -> Any:
        """Return `kept`, which is in this process already."""
        return kept

    def check_same(self, probe, *, url) -> None:
        """Do nothing: there is no other process to compare with."""

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
    return Outcome(parts, result.summary, kept=result.kept) if parted else Outcome(parts, result)

"""The serial runtime: a loop in this process, and the oracle of the others."""

import psutil

from bcmdist.runtime import Progress, silent
from bcmdist.tasks import run_batch


class SerialRuntime:
    """Runs one partition after the other, with the BLAS threads this process has."""

    threads = 1

    def __init__(self, *, progress: Progress = silent, allowed_bytes: float | None = None):
        self.progress = progress
        self.allowed_bytes = allowed_bytes or psutil.virtual_memory().available

    def sum(self, task, parts, *, label):
        """Sum of a task over partitions, in their order."""
        total = None
        for done, part in enumerate(parts):
            self.progress(label, done, len(parts))
            share = run_batch(task, [part])
            total = share if total is None else total + share
        self.progress(label, len(parts), len(parts))
        return total

    def check_same(self, probe, *, url):
        """Run `probe`: this process sees what it sees, or raises."""
        probe()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

"""Batches of neighbouring partitions, and the tree that adds their results on the workers."""

import uuid
from typing import Any

from bcmdist.runtime.dask.heartbeat import Heartbeat
from bcmdist.runtime.dask.sums import FAN_IN, SUM_PRIORITY

BATCHES_PER_THREAD = 8  # enough that the last batches end at about the same time
BATCH_PARTITIONS = 16  # when a worker dies, its batch in flight is repeated, and the sums it held


def batches_of(parts, threads) -> list[list]:
    """Group neighbouring partitions into batches: several per thread, none with more than `BATCH_PARTITIONS`."""
    size = min(BATCH_PARTITIONS, max(1, len(parts) // (BATCHES_PER_THREAD * threads)))
    return [list(parts[k : k + size]) for k in range(0, len(parts), size)]


class Tree:
    """Submits batches and adds their results in a fixed order, like a counter in base `FAN_IN`."""

    def __init__(self, pulse: Heartbeat):
        self.pulse = pulse
        self.prefix = f"{pulse.label}-{uuid.uuid4().hex[:12]}"
        self.submitted = 0
        self.levels: list[list] = []

    def submit(self, function, *arguments) -> Any:
        """Submit a function whose result is a term of the sum; return its future."""
        future = self._submit(function, *arguments)
        self._add(future, 0)
        return future

    def total(self) -> Any:
        """Return a future of the sum of all submitted results."""
        futures = [future for level in reversed(self.levels) for future in level]
        return futures[0] if len(futures) == 1 else self._submit(_add_all, futures, priority=SUM_PRIORITY)

    def _add(self, future, level):
        if level == len(self.levels):
            self.levels.append([])
        self.levels[level].append(future)
        if len(self.levels[level]) == FAN_IN:
            full, self.levels[level] = self.levels[level], []
            self._add(self._submit(_add_all, full, priority=SUM_PRIORITY), level + 1)

    def _submit(self, function, *arguments, priority=0):
        self.submitted += 1
        key = f"{self.prefix}-{self.submitted}"
        only = self.pulse.live.only
        self.pulse.on |= {only} if only else set()
        how = {"key": key, "workers": sorted(only or ()) or None, "priority": priority}
        return self.pulse.client.submit(function, *arguments, **how, pure=False)


def _add_all(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total

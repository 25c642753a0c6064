"""Number of partitions per task, from the measured durations of earlier tasks.

Neighbours are read together, and their messages are summed before transfer. A task costs the scheduler about a
millisecond, however short it is, so fast partitions go into larger groups. The sum of the messages does not depend on
the groups, up to rounding.
"""

import collections
import statistics
from collections.abc import Iterator, Sequence
from typing import TypeVar

from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.runtime.interface import Outcome

Part = TypeVar("Part")

GROUP = 4
"""partitions per task until durations are known; groups of slow partitions stay like this"""
MOST = 32
"""largest number of partitions per task: if a worker dies, each partition of its tasks is run alone; arbitrary"""
TASK_SECONDS = 0.25
"""duration of a task at which larger groups aim; short enough that threads end at about the same time"""
RECENT = 25
"""number of tasks whose median duration counts"""


class GroupSize:
    """Size of the groups of one kind of task: `TASK_SECONDS` of work, from `GROUP` to `most` partitions."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._recent: collections.deque[float] = collections.deque(maxlen=RECENT)
        """seconds per partition of the last tasks"""

    def observe(self, outcome: Outcome) -> None:
        """Use the duration of a task from now on."""
        if outcome.seconds is not None:
            self._recent.append(outcome.seconds / len(outcome.parts))

    @property
    def partitions(self) -> int:
        """Number of partitions per task."""
        if not self._recent:
            return min(GROUP, self._most)
        fitting = TASK_SECONDS / max(statistics.median(self._recent), TASK_SECONDS / MOST)
        return min(max(GROUP, round(fitting)), self._most)

    def groups(self, parts: Sequence[Part], threads: int) -> Iterator[list[Part]]:
        """Cut into groups of neighbours, smaller ones where a thread would be left without."""
        size = max(1, min(self.partitions, -(-len(parts) // threads)))
        return (list(parts[k : k + size]) for k in range(0, len(parts), size))


def most_partitions(options: IngestOptions, fading: Weighting) -> int:
    """Largest size of a group.

    It is one partition where each needs its own weight (half-life) or may be refused for its digest. With
    `commit_every` a commit has at most `GROUP` - 1 partitions, or 1 %, more than were asked for.
    """
    if fading.half_life or options.same_rows == "refuse":
        return 1
    return MOST if options.commit_every is None else min(MOST, max(GROUP, options.commit_every // 100))

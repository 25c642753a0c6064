"""Interface of observers of an ingestion, which record, for example, how well arriving partitions were predicted."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Never, Protocol

from bcmdist.committee.facts import Facts
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.runtime.interface import Outcome, Task
from bcmdist.storage.entry import Entry

Finish = Callable[[Snapshot], Snapshot]
"""from a snapshot that remains to be committed to one that says more, such as calibrated probabilities"""

TaskWithParts = tuple[Task, list[Partition]]
"""a task and the partitions that it is summed over"""


class Watch(Protocol):
    """An observer of one ingestion; its methods are called in the order in which they are defined."""

    def message_task(self, expert: Task, snapshot: Snapshot) -> Task:
        """The task that computes messages of new partitions with `expert` and records what is observed.

        `snapshot` is the newest commit, which predicts the partitions before they are absorbed.
        """

    def further_tasks(self, snapshot: Snapshot) -> Iterator[TaskWithParts]:
        """Further tasks, on partitions absorbed before, to run along with those on new partitions."""

    def is_of(self, outcome: Outcome) -> bool:
        """Whether an outcome belongs to a task of `further_tasks`, including a failed one."""

    def take(self, outcome: Outcome, digests: Mapping[str, str]) -> None:
        """Handle the outcome of such a task.

        Results count only if the rows are still the absorbed ones according to `digests` (by key); failures are
        ignored.
        """

    def recorded(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        """New ledger entries, reduced to the observations that may be recorded."""

    def facts(self, facts: Facts) -> dict[str, Any]:
        """Facts to change in the commit that follows one with the facts `facts`."""

    def warning(self, snapshot: Snapshot, before: Iterable[Entry]) -> str | None:
        """The warning due after partitions were absorbed, None if none is; each warning is returned once.

        `before` : the ledger at the start of the ingestion
        """


class Unwatched:
    """The observer that records nothing."""

    def message_task(self, expert: Task, snapshot: Snapshot) -> Task:
        return expert

    def further_tasks(self, snapshot: Snapshot) -> Iterator[TaskWithParts]:
        return iter(())

    def is_of(self, outcome: Outcome) -> bool:
        return False

    def take(self, outcome: Outcome, digests: Mapping[str, str]) -> Never:
        raise AssertionError("no outcome is of Unwatched")

    def recorded(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        return entries

    def facts(self, facts: Facts) -> dict[str, Any]:
        return {}

    def warning(self, snapshot: Snapshot, before: Iterable[Entry]) -> None:
        return None

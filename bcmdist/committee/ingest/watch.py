"""What is noted of partitions while they are ingested, beside what they say: how well they were predicted, say."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Never, Protocol

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.runtime.interface import Outcome
from bcmdist.runtime.task import Task
from bcmdist.storage.ledger import Entry


class Watch(Protocol):
    """Somebody who looks on at one ingestion; asked in the order of the methods."""

    def message_task(self, expert: Task, snapshot: Snapshot) -> Task:
        """The task that absorbs new partitions by an expert, under a commit."""

    def beside(self, snapshot: Snapshot) -> Iterator[tuple[Task, list[Partition]]]:
        """Tasks for partitions that were absorbed before, to be run beside those for new ones."""

    def is_of(self, outcome: Outcome) -> bool:
        """Whether an outcome is of such a task: what fails is left out."""

    def take(self, outcome: Outcome, digests: Mapping[str, str]) -> None:
        """What came of it; it counts where rows are those that were absorbed, by their `digests`."""

    def noted(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        """New ledger entries with what may be noted in them."""

    def facts(self, known) -> dict[str, Any]:
        """What a commit after one with `known` facts is to say."""

    def warning(self, snapshot: Snapshot, before: Iterable[Entry]) -> str | None:
        """What to warn of once partitions were absorbed that the ledger did not know `before`; not said twice."""


class Unwatched:
    """Nobody looks on."""

    def message_task(self, expert, snapshot) -> Task:
        return expert

    def beside(self, snapshot) -> Iterator[tuple[Task, list[Partition]]]:
        return iter(())

    def is_of(self, outcome) -> bool:
        return False

    def take(self, outcome, digests) -> Never:
        raise AssertionError("no outcome is of Unwatched")

    def noted(self, entries) -> dict[str, Entry]:
        return entries

    def facts(self, known) -> dict[str, Any]:
        return {}

    def warning(self, snapshot, before) -> None:
        return None

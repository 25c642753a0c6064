"""Partitions that somebody has listed."""

from dataclasses import dataclass

from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Delivery


@dataclass(frozen=True)
class Listed:
    """A source that is a list; the offset is the number of partitions read, and nobody keeps it."""

    parts: tuple[Partition, ...]
    name: str = ""
    """none: there is nothing to read on from"""

    def read(self, after, most) -> list[Delivery]:
        """At most so many partitions."""
        start = after or 0
        parts = self.parts[start : start + most]
        return [Delivery(parts, start + len(parts))] if parts else []

    def ack(self, offset, keys) -> None:
        """Nobody waits for it."""

    def lag(self, after) -> int:
        """Partitions that are left."""
        return len(self.parts) - (after or 0)

    def close(self) -> None:
        """Nothing is open."""

"""A source over a given list of partitions."""

from dataclasses import dataclass

from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Delivery


@dataclass(frozen=True)
class Listed:
    """Partitions from a list; the offset is the number of partitions read, and is not stored."""

    parts: tuple[Partition, ...]
    name: str = ""
    """empty: the offset is not kept in commits"""

    def read(self, after, most) -> list[Delivery]:
        """Return at most `most` partitions after the offset, in one delivery."""
        start = after or 0
        parts = self.parts[start : start + most]
        return [Delivery(parts, start + len(parts))] if parts else []

    def ack(self, offset, keys) -> None:
        """Nothing to acknowledge."""

    def lag(self, after) -> int:
        """Return the number of partitions left."""
        return len(self.parts) - (after or 0)

    def close(self) -> None:
        """Nothing to close."""

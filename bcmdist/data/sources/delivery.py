"""Deliveries of a source, partitions with the offset after them; and a list of partitions as a source."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bcmdist.data.partition import Partition
from bcmdist.errors import BcmdistError


@dataclass(frozen=True)
class Delivery:
    """One or a few partitions, and the offset at which to continue reading."""

    parts: tuple[Partition, ...]
    offset: Any
    """JSON-ready: where to continue once these partitions, and all delivered before them, are committed"""
    position: int | None = None
    """rows of the source up to the end of these partitions; None if unknown"""
    bad: tuple[str, BcmdistError] | None = None
    """name and error of a data set or entry that cannot be split into partitions; `parts` is then empty"""


@dataclass(frozen=True)
class Listed:
    """Partitions from a list; the offset is the number of partitions read, and is not stored."""

    parts: tuple[Partition, ...]
    name: str = ""
    """empty: the offset is not kept in commits"""

    def read(self, after: int | None, most: int) -> list[Delivery]:
        """Return at most `most` partitions after the offset, in one delivery."""
        start = after or 0
        parts = self.parts[start : start + most]
        return [Delivery(parts, start + len(parts))] if parts else []

    def ack(self, offset: int | None, keys: Iterable[str]) -> None:
        """Nothing to acknowledge."""

    def lag(self, after: int | None) -> int:
        """Return the number of partitions left."""
        return len(self.parts) - (after or 0)

    def close(self) -> None:
        """Nothing to close."""

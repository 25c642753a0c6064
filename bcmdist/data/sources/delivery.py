"""Deliveries of a source: partitions with the offset after them."""

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

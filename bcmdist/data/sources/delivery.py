"""What a source delivers."""

from dataclasses import dataclass
from typing import Any

from bcmdist.data.partition import Partition
from bcmdist.errors import BcmdistError


@dataclass(frozen=True)
class Delivery:
    """One or a few partitions, and where to read on."""

    parts: tuple[Partition, ...]
    offset: Any
    """JSON-ready: where to read on once these, and all delivered before them, are committed"""
    position: int | None = None
    """rows of the source up to their end; None where the source cannot tell"""
    bad: tuple[str, BcmdistError] | None = None
    """name of what cannot be taken apart into partitions, and why; there are none then"""

"""What shared variables are trained on, once they are made: rows of the data on the workers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bcmdist.data.partition import Partition
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference, ModelStore


@dataclass(frozen=True)
class Ground:
    """A runtime, and rows that its workers keep."""

    runtime: Runtime
    blocks: Callable[[int, int], list[Partition]]
    """of at most so many rows in all, a uniform sample of the data, and so many in each"""
    scaling: BlobReference
    """of a `scaling_to_array`"""
    store: ModelStore
    """in which to pass arrays on to the experts"""
    scratch: str
    """directory for what a killed training is to find again"""
    effort: str
    """how long to train: quick, normal or thorough"""
    found: dict[str, Any]
    """to which what was found out is added, by the names of `Facts`"""

"""What shared variables are trained on, once they are made: rows of the data, where they can be summed over."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.data.partition import Partition, Work
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference, ModelStore


@dataclass(frozen=True)
class TrainingContext:
    """A runtime, the partitions that a fit will absorb and a sample of their rows, and what the fit was asked."""

    runtime: Runtime
    parts: Sequence[Partition]
    """of all rows"""
    sampled: Callable[[int, int], list[Partition]]
    """of at most so many rows in all, a uniform sample of the data, and so many in each; workers keep them"""
    scaling: BlobReference
    """of a `scaling_to_array`"""
    store: ModelStore
    """in which to pass arrays on to the experts"""
    scratch: str
    """directory for what a killed training is to find again"""
    learn: bool
    """whether hyper-parameters are learned"""
    effort: str
    """how long to train: quick, normal or thorough"""
    count: int
    """functions that were asked for"""
    options: Mapping[str, Any]
    """the expert's own, by the names of `Settings`"""
    found: dict[str, Any]
    """to which what was found out is added, by the names of `Facts`"""
    classes: tuple[float, ...] | None = None
    """labels that targets number, where they do"""
    groups: tuple[int, ...] = ()
    """the first of the inputs that each shares its lengthscale with, (D,); () where each has its own"""

    def transient(self, arrays: Mapping[str, np.ndarray]) -> AbstractContextManager[dict[str, BlobReference]]:
        """References of arrays that tasks need for a moment, by name."""
        return self.store.transient(arrays)

    def sum(self, task, parts: Sequence[Work] | None = None) -> Any:
        """The sum of a task over some partitions or spans, or the partitions of all rows."""
        return self.runtime.sum(task, self.parts if parts is None else parts, label="train")

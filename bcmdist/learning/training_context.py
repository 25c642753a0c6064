"""The context in which shared variables are trained: partitions, samples, options, and a runtime to sum over them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bcmdist.data.partition import Partition, Work
from bcmdist.learning.time_limit import TimeLimit
from bcmdist.model.kernels import Kernel
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference, ModelStore


@dataclass(frozen=True)
class TrainingContext:
    """Runtime, partitions and options with which a method trains its shared variables."""

    runtime: Runtime
    parts: Sequence[Partition]
    """partitions of all rows"""
    sampled: Callable[[int, int], list[Partition]]
    """(rows, size) -> partitions of at most `size` rows each, from a uniform sample of at most `rows` rows in all;
    workers cache these rows"""
    scaling: BlobReference
    """reference of a `scaling_to_array`"""
    store: ModelStore
    """store through which arrays are passed to the tasks"""
    scratch: str
    """directory for the files from which an interrupted training resumes"""
    learn: bool
    """whether hyper-parameters are learned"""
    effort: str
    """training effort: quick, normal or thorough"""
    count: int
    """requested number of basis functions or query points; 0 before it is chosen"""
    options: Any
    """options of the method, as its `options`"""
    found: dict[str, Any]
    """findings of the fit, by their field names in `Facts`; training adds to it"""
    classes: tuple[float, ...] | None = None
    """class labels, if the targets are class labels"""
    groups: tuple[int, ...] = ()
    """(D,) for each input the first input that shares its lengthscale; () if each input has its own"""
    limit: TimeLimit = field(default_factory=TimeLimit)
    """time of learning, which the search for hyper-parameters has begun to use"""
    near: Callable[[Kernel, Sequence[float], int], list[Partition]] | None = None
    """(kernel, shares, size) -> neighbourhoods of `size` rows in the metric of a kernel, each among a share of all rows
    (`CellBlocks`); None where partitions are not spatial"""

    def transient(self, arrays: Mapping[str, np.ndarray]) -> AbstractContextManager[dict[str, BlobReference]]:
        """Store arrays while the context is open; yields their references by name."""
        return self.store.transient(arrays)

    def sum(self, task, parts: Sequence[Work] | None = None) -> Any:
        """Sum a task over the given partitions or spans, by default over the partitions of all rows."""
        return self.runtime.sum(task, self.parts if parts is None else parts, label="train")

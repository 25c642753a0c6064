"""All rows of a fit, for what is learned from sums over them before the first message."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference, ModelStore


@dataclass(frozen=True)
class AllRows:
    """The partitions that a fit will hear, where they can be summed over, and what the fit was asked."""

    parts: Sequence[Partition]
    runtime: Runtime
    scaling: BlobReference
    """to the units of the model"""
    store: ModelStore
    """where tasks find arrays"""
    classes: tuple[float, ...] | None
    """labels that targets number, where they do"""
    learn: bool
    """whether hyper-parameters were to be learned"""
    update: str
    """how relevance vectors are to be learned"""
    adapt: bool
    """whether lengthscales of relevance vectors are to be learned from all rows"""
    at_once: int
    """functions of which sums are made in one pass, at most, beside those that are kept"""
    seed: int

    def transient(self, arrays: Mapping[str, np.ndarray]) -> AbstractContextManager[dict[str, BlobReference]]:
        """References of arrays that tasks need for a moment, by name."""
        return self.store.transient(arrays)

    def sum(self, task) -> Any:
        """The sum of a task over all partitions."""
        return self.runtime.sum(task, self.parts, label="learn")

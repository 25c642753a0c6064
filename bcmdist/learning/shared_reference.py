"""Shared variables and likelihood as tasks of training receive them: arrays by reference, all else by value."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.data.rows import Rows
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import Message
from bcmdist.learning.training_context import TrainingContext
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.model.model import KINDS
from bcmdist.model.shared.interface import Shared
from bcmdist.storage.commits import BlobReference, load_array


@dataclass(frozen=True)
class SharedReference:
    """Shared variables, the likelihood, and the scaling of rows."""

    scaling: BlobReference
    kind: str
    arrays: tuple[tuple[str, BlobReference], ...]
    """arrays of `Shared.to_arrays`, by name"""
    facts: dict[str, Any]
    kernel: Kernel
    mean: str
    residual: str
    likelihood: Likelihood

    def load(self) -> Shared:
        """The shared variables."""
        arrays = {name: load_array(reference) for name, reference in self.arrays}
        return KINDS[self.kind].from_arrays(arrays, self.facts, self.kernel, Mean(self.mean), self.residual)

    def scaled(self, rows: Rows) -> tuple[np.ndarray, Observations]:
        """Scaled inputs (n, D) and observations."""
        scaling = load_scaling(self.scaling)
        return scaling.inputs(rows.X), scaling.observations(rows.obs, self.likelihood.units, rows.X)


@contextmanager
def referenced(shared: Shared, likelihood: Likelihood, context: TrainingContext) -> Iterator[SharedReference]:
    """Store the arrays of shared variables while the context is open."""
    arrays, facts = shared.to_arrays()
    how = facts | {"jitter": shared.jitter}, shared.kernel, shared.mean.name, shared.residual, likelihood
    with context.transient(arrays) as references:
        yield SharedReference(context.scaling, shared.kind, tuple(references.items()), *how)


@dataclass(frozen=True)
class MessageOfRows:
    """Task: the message of the rows of a partition about shared variables."""

    shared: SharedReference

    def __call__(self, part, rows) -> Message:
        message = expert_message(self.shared.load(), self.shared.likelihood, *self.shared.scaled(rows))
        return message.weighted(part.weight)

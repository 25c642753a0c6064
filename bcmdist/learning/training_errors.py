"""Errors of trained shared variables, at rows of training and at rows that training has not seen.

Rows of training are left out of the committee one at a time, but the shared variables remember them: their errors are
too small, by a ratio that rows left out of training show. These are few; the many others show how the scale of errors
varies, and their shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.data.partition import Partition
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
from bcmdist.prediction.errors.error_distribution import Residuals
from bcmdist.prediction.errors.heteroscedasticity import places_of
from bcmdist.prediction.errors.standardised_residuals import DECIMALS
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import left_out_of_committee
from bcmdist.storage.commits import BlobReference, load_array

# Largest number of rows of training whose errors are computed.
MOST = 4000
# Standard deviation of |z| relative to its mean, for standard normal z; and the value to which |z| is clipped: a few
# gross errors decide less.
ABSOLUTE_ERROR, FARTHEST = 0.756, 3.0


@dataclass(frozen=True)
class Trained:
    """Shared variables and likelihood, passed to tasks by reference."""

    scaling: BlobReference
    kind: str
    arrays: tuple[tuple[str, BlobReference], ...]
    facts: dict[str, Any]
    kernel: Kernel
    mean: str
    residual: str
    likelihood: Likelihood
    """Gaussian"""

    def shared(self) -> Shared:
        arrays = {name: load_array(reference) for name, reference in self.arrays}
        return KINDS[self.kind].from_arrays(arrays, self.facts, self.kernel, Mean(self.mean), self.residual)

    def scaled(self, rows: Rows) -> tuple[np.ndarray, Observations]:
        """Scaled inputs (n, D) and observations."""
        scaling = load_scaling(self.scaling)
        return scaling.inputs(rows.X), scaling.observations(rows.obs, self.likelihood.units, rows.X)


@dataclass(frozen=True)
class TrainedMessage:
    """Task: the message of the rows of a partition."""

    trained: Trained

    def __call__(self, part, rows) -> Message:
        message = expert_message(self.trained.shared(), self.trained.likelihood, *self.trained.scaled(rows))
        return message.weighted(part.weight)


@dataclass(frozen=True)
class ErrorsByPartition:
    """Places (n, D + 1) and standardised errors (n,) of rows, by the first row of their partition; objects add."""

    found: dict[int, tuple[np.ndarray, np.ndarray]]

    def __add__(self, other: "ErrorsByPartition") -> "ErrorsByPartition":
        return ErrorsByPartition(self.found | other.found)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows, in order."""
        each = [self.found[start] for start in sorted(self.found)]
        return np.concatenate([places for places, _ in each]), np.concatenate([z for _, z in each])


@dataclass(frozen=True)
class StandardisedErrors:
    """Task: the standardised errors of the rows of a partition, given the sum of messages."""

    trained: Trained
    eta: BlobReference
    precision: BlobReference
    absorbed: bool
    """whether the messages are also of these rows, which are then left out one at a time"""

    def __call__(self, part, rows) -> ErrorsByPartition:
        X, obs = self.trained.scaled(rows)
        shared, likelihood = self.trained.shared(), self.trained.likelihood
        belief = shared.belief(load_array(self.eta), load_array(self.precision))
        if self.absorbed:
            mean, variance = left_out_of_committee(shared, likelihood, belief, X, obs, weight=part.weight)
        else:
            mean, variance = predict_latent(shared, belief, X)
        noise = float(np.ravel(likelihood.parameters["noise_variance"])[0])
        variance = variance + noise / obs.weight + obs.target_variance
        z = np.round((obs.y - mean) / np.sqrt(variance), DECIMALS)
        return ErrorsByPartition({part.start: (np.round(places_of(X, variance), DECIMALS), z)})


@dataclass(frozen=True)
class TrainingErrors:
    """Places (n, D + 1) and standardised errors (n,) of rows of training, and of rows left out."""

    seen: tuple[np.ndarray, np.ndarray]
    left_out: tuple[np.ndarray, np.ndarray]

    @property
    def ratio(self) -> float:
        """Errors at rows left out, relative to those of training, one standard error lower; at least 1."""
        seen, left_out = (np.minimum(np.abs(z), FARTHEST) for _, z in (self.seen, self.left_out))
        if not seen.any():
            return 1.0
        return max(1.0, float(left_out.mean() / seen.mean()) * (1.0 - ABSOLUTE_ERROR / np.sqrt(len(left_out))))

    def residuals(self) -> Residuals:
        """All errors, those of training multiplied by the ratio."""
        (places, z), (others, left_out) = self.seen, self.left_out
        return Residuals([places, others], [self.ratio * z, left_out], [1.0, 1.0])


def training_errors(
    shared: Shared,
    likelihood: Likelihood,
    context: TrainingContext,
    seen: Sequence[Partition],
    left_out: Sequence[Partition],
) -> TrainingErrors:
    """Errors of shared variables that partitions `seen` have trained, of up to `MOST` rows of these and of others.

    The likelihood is Gaussian.
    """
    arrays, facts = shared.to_arrays()
    some = list(seen[: 1 + int(np.searchsorted(np.cumsum([part.rows for part in seen]), MOST))])
    with context.transient(arrays) as references:
        facts = facts | {"jitter": shared.jitter}
        how = shared.kernel, shared.mean.name, shared.residual, likelihood
        trained = Trained(context.scaling, shared.kind, tuple(references.items()), facts, *how)
        total = context.sum(TrainedMessage(trained), seen)
        with context.transient({"eta": total.eta, "precision": total.precision}) as sums:
            task = StandardisedErrors(trained, sums["eta"], sums["precision"], absorbed=True)
            absorbed = context.sum(task, some).arrays()
            task = StandardisedErrors(trained, sums["eta"], sums["precision"], absorbed=False)
            return TrainingErrors(absorbed, context.sum(task, left_out).arrays())

"""Errors of trained shared variables, at rows of training and at rows that training has not seen.

Rows of training are left out of the committee one at a time, but the shared variables remember them: their errors are
too small, by a ratio that rows left out of training show. These are few; the many others show how the scale of errors
varies, and their shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.learning.shared_reference import MessageOfRows, SharedReference, referenced
from bcmdist.learning.training_context import TrainingContext
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.errors.error_distribution import Residuals
from bcmdist.prediction.errors.heteroscedasticity import places_of
from bcmdist.prediction.errors.standardised_residuals import DECIMALS
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import left_out_of_committee
from bcmdist.storage.commits import BlobReference, load_array

# Largest number of rows of training, and of rows left out, whose errors are computed.
MOST = 4000
# Standard deviation of |z| relative to its mean, for standard normal z; and the value to which |z| is clipped: a few
# gross errors decide less.
ABSOLUTE_ERROR, FARTHEST = 0.756, 3.0


@dataclass(frozen=True)
class ErrorsByPartition:
    """Places (n, D + 1) and standardised errors (n,) of rows, by the first row of their partition; objects add."""

    by_start: dict[int, tuple[np.ndarray, np.ndarray]]

    def __add__(self, other: "ErrorsByPartition") -> "ErrorsByPartition":
        return ErrorsByPartition(self.by_start | other.by_start)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows, in order."""
        each = [self.by_start[start] for start in sorted(self.by_start)]
        return np.concatenate([places for places, _ in each]), np.concatenate([z for _, z in each])


@dataclass(frozen=True)
class StandardisedErrors:
    """Task: the standardised errors of the rows of a partition, given the sum of messages."""

    shared: SharedReference
    eta: BlobReference
    precision: BlobReference
    absorbed: bool
    """whether the messages are also of these rows, which are then left out one at a time"""

    def __call__(self, part, rows) -> ErrorsByPartition:
        X, obs = self.shared.scaled(rows)
        shared, likelihood = self.shared.load(), self.shared.likelihood
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
    """Errors of shared variables that were trained on the partitions `seen`, and not on those left out.

    The likelihood is Gaussian.
    """
    some, others = (_first(parts, MOST) for parts in (seen, left_out))
    with referenced(shared, likelihood, context) as reference:
        total = context.sum(MessageOfRows(reference), seen)
        with context.transient({"eta": total.eta, "precision": total.precision}) as sums:
            task = StandardisedErrors(reference, sums["eta"], sums["precision"], absorbed=True)
            absorbed, new = context.sum(task, some), context.sum(replace(task, absorbed=False), others)
    return TrainingErrors(absorbed.arrays(), new.arrays())


def _first(parts, most):
    """The first partitions, with at least `most` rows if there are so many."""
    return parts[: 1 + int(np.searchsorted(np.cumsum([part.rows for part in parts]), most))]

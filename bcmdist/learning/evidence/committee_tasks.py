"""Tasks for the evidence of a committee at trial hyper-parameters: its messages and shares of its gradient.

Nothing is committed. A task carries the hyper-parameters by value, and references to arrays that are constant or
large. Each worker prepares the query factor itself and caches the last ones.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.experts.contributions import Contribution
from bcmdist.experts.expert import conditional_message, expert_message
from bcmdist.learning.evidence import independent_rows_gradient
from bcmdist.learning.evidence.committee_gradient import ModeShare, expert_share, mode_share, points_share
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.model.shared.belief import Belief, Factored
from bcmdist.model.shared.query import Query, prepare
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference, load_array, open_store


@dataclass(frozen=True)
class Trial:
    """Trial hyper-parameters, and the query points, scaling and mean that they are evaluated with."""

    scaling: BlobReference
    points: BlobReference
    jitter: float
    """share of the mean variance of the query values"""
    mean: str
    classes: tuple[float, ...] | None
    kernel: Kernel
    likelihood: OneProcess
    residual: str = "block"

    def query(self) -> Query:
        """Prepare the query set, or take it from the cache.

        Raises
        ------
        NotPositiveDefinite
            The jitter is too small.
        """
        numbers = tuple(value.tobytes() for value in self.kernel.parameters.values())
        place = (self.points, self.jitter, self.mean, self.residual)
        return _query(_Prior(*place, self.kernel.expression, numbers, self.kernel))

    def case(self, rows) -> tuple[Query, OneProcess, np.ndarray, Observations]:
        """Query set, likelihood, inputs (n, D) and observations in the units of the model."""
        scaling = load_scaling(self.scaling)
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units, rows.X)
        return self.query(), self.likelihood, scaling.inputs(rows.X), obs


@dataclass(frozen=True)
class _Prior:
    """Cache key of a query set; kernels are compared by expression and parameter values."""

    points: BlobReference
    jitter: float
    mean: str
    residual: str
    expression: str
    numbers: tuple[bytes, ...]
    kernel: Kernel = field(compare=False)


@lru_cache(maxsize=2)
def _query(prior: _Prior):
    located = open_store(prior.points.url).get_array(prior.points.digest)
    mean, jitters = Mean(prior.mean), (prior.jitter,)
    return prepare(located, kernel=prior.kernel, mean=mean, residual=prior.residual, jitters=jitters)


@dataclass(frozen=True)
class Moment:
    """Posterior of the committee at the trial hyper-parameters, by reference."""

    mean: BlobReference
    factor: BlobReference
    shift: BlobReference | None = None
    """shift of the mode; None for Gaussian noise, or before it is computed"""

    def belief(self) -> Belief:
        """Load the posterior."""
        return _belief(self.mean, self.factor)

    def shift_array(self) -> np.ndarray | None:
        """Load the shift, (S,)."""
        return None if self.shift is None else load_array(self.shift)


@lru_cache(maxsize=2)
def _belief(mean, factor):
    def read(blob):
        return open_store(blob.url).get_array(blob.digest)

    return Factored(read(mean), np.asfortranarray(read(factor)))


@dataclass(frozen=True)
class TrialMessage:
    """Task: the message of a partition, times its weight."""

    trial: Trial
    at: BlobReference | None = None
    """shared values at which rows are linearised; None: each expert at its own mode"""

    def __call__(self, part, rows) -> Contribution:
        case = self.trial.case(rows)
        if self.at is None:
            return Contribution(expert_message(*case).weighted(part.weight), {})
        found = conditional_message(*case, load_array(self.at)).weighted(part.weight)
        return Contribution(found.message, {}, found.objective, found.step)


@dataclass(frozen=True)
class TrialModes:
    """Task: contribution of a partition's third derivatives to the shift of the mode, times its weight."""

    trial: Trial
    moment: Moment

    def __call__(self, part, rows) -> ModeShare:
        return mode_share(*self.trial.case(rows), self.moment.belief()).weighted(part.weight)


@dataclass(frozen=True)
class TrialGradient:
    """Task: a partition's part of the gradient in the log hyper-parameters, (P,)."""

    trial: Trial
    moment: Moment

    def __call__(self, part, rows):
        share = expert_share(*self.trial.case(rows), self.moment.belief(), self.moment.shift_array())
        return part.weight * share


@dataclass(frozen=True)
class TrialPointsGradient:
    """Task: a partition's part of the gradient in the coordinates of the query points, (Q, D)."""

    trial: Trial
    moment: Moment

    def __call__(self, part, rows):
        share = points_share(*self.trial.case(rows), self.moment.belief(), self.moment.shift_array())
        return part.weight * share


@dataclass(frozen=True)
class Gradients:
    """Parts of the gradients in the log hyper-parameters and in the query points; they add."""

    parameters: np.ndarray
    """(P,)"""
    points: np.ndarray
    """(Q, D)"""

    def __add__(self, other: "Gradients") -> "Gradients":
        return Gradients(self.parameters + other.parameters, self.points + other.points)


@dataclass(frozen=True)
class TrialGradients:
    """Task: a partition's part of both gradients, for experts whose rows are coupled by the query points only."""

    trial: Trial
    mean: BlobReference
    covariance: BlobReference

    def __call__(self, part, rows) -> Gradients:
        query, likelihood, X, obs = self.trial.case(rows)
        found = independent_rows_gradient.adjoints(
            query, likelihood, X, obs, load_array(self.mean), np.asfortranarray(load_array(self.covariance))
        )
        parameters = independent_rows_gradient.expert_share(query, X, found)
        return Gradients(
            part.weight * parameters, part.weight * independent_rows_gradient.points_share(query, X, found)
        )

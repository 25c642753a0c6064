"""Objectives of learning: log evidences summed over partitions, with their gradients.

An objective is called with a kernel and a likelihood. It returns a value in nats and its gradient (P,) in the
log parameters, the kernel's first; on numerical failure it returns (-inf, zeros) and stores the reason. Each
evaluation runs over the partitions one or more times:

    LocalObjective       each partition by itself: the sum of log p(y_i), or of the log densities of rows given
                         the other rows of the partition; one round
    CommitteeObjective   the whole committee, log p(y) of PITC (SYSTEMS I.3): two rounds; if the likelihood is
                         not Gaussian, two more than the joint mode takes
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.committee.committee import Committee, next_mean
from bcmdist.data.partition import Partition
from bcmdist.errors import InvalidOption, LaplaceNotConverged, NotPositiveDefinite
from bcmdist.learning.decisions import LEAVE_ONE_OUT
from bcmdist.learning.evidence.committee_gradient import committee_gradient, mode_shift, points_gradient
from bcmdist.learning.evidence.committee_tasks import (
    Moment,
    Trial,
    TrialGradient,
    TrialMessage,
    TrialModes,
    TrialPointsGradient,
)
from bcmdist.learning.evidence.local_tasks import LocalEvidence, LocalLeaveOneOut
from bcmdist.model.kernels import Kernel, finite_metric
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.belief import Belief
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference, ModelStore

# Tasks of objectives that are summed over blocks of rows, possibly neighbourhoods, by objective.
BLOCKWISE = {"local": LocalEvidence, LEAVE_ONE_OUT: LocalLeaveOneOut}
# The joint mode has converged when a pass moves no shared value by more than this share of its standard deviation. The
# log determinant is linear in the remaining error, and the gradient must agree with differences of evidences.
MODE_TOLERANCE = 1e-8
# Below this, passes that stop improving are limited by rounding, for instance with large counts.
ROUGH_TOLERANCE, STALLED_SHARE = 1e-5, 0.9
MOST_PASSES = 50
# Relative decrease of the joint log density that rounding alone can cause.
ROUNDING = 1e-12


class EvidenceObjective(ABC):
    """Value and gradient of a log evidence over partitions.

    Parameters
    ----------
    scaling : reference of a `scaling_to_array`
    mean : name of the prior mean
    classes : class labels, if the targets are class labels
    """

    def __init__(
        self,
        runtime: Runtime,
        parts: Sequence[Partition],
        *,
        scaling: BlobReference,
        mean: str,
        classes: tuple[float, ...] | None = None,
    ):
        self.runtime, self.scaling, self.mean, self.classes = runtime, scaling, mean, classes
        self.parts = list(parts)
        """may be replaced between evaluations"""
        self.reasons: list[str] = []
        """messages of all failures, the latest last"""

    @abstractmethod
    def __call__(self, kernel: Kernel, likelihood: Likelihood) -> tuple[float, np.ndarray]:
        """Value in nats and gradient (P,) in the log parameters."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """String that identifies all that the value depends on, except kernel and likelihood."""

    def _failed(self, reason, shape):
        self.reasons.append(reason)
        return -np.inf, np.zeros(shape)


class LocalObjective(EvidenceObjective):
    """Sum of the log evidences of single partitions: the committee's if partitions were independent.

    Parameters
    ----------
    scaling, mean, classes : as for `EvidenceObjective`
    task : `LocalEvidence`, or `LocalLeaveOneOut` for log densities of rows given the other rows of their partition
    """

    def __init__(self, *arguments, task: type[LocalEvidence] = LocalEvidence, **further):
        super().__init__(*arguments, **further)
        self.task = task

    @property
    def identity(self) -> str:
        name = "local" if self.task is LocalEvidence else self.task.__name__
        return identity_of(self.parts, name, self.scaling.digest, self.mean, self.classes)

    def __call__(self, kernel, likelihood):
        task = self.task(self.scaling, kernel, self.mean, likelihood, self.classes)
        total = self.runtime.sum(task, self.parts, label="learn")
        if total.failures:
            return self._failed(total.reason, total.gradient.shape)
        return total.value, total.gradient


class CommitteeObjective(EvidenceObjective):
    """Log evidence of a committee that has absorbed all partitions, at its joint mode.

    Each partition counts with its weight. An evaluation depends on its arguments only, not on earlier ones.

    Parameters
    ----------
    scaling, mean, classes : as for `EvidenceObjective`
    points : (Q, D) in scaled units
    jitter : share of the mean variance of the query values, fixed so that the objective is smooth; use
        `Query.jitter_share` of a query set prepared at the start of the search. If it is too small at some
        hyper-parameters, the evaluation fails.
    store : store through which query points and posterior are passed to the tasks; they are removed afterwards
    """

    def __init__(
        self,
        runtime: Runtime,
        parts: Sequence[Partition],
        *,
        scaling: BlobReference,
        mean: str,
        points: np.ndarray,
        jitter: float,
        store: ModelStore,
        classes: tuple[float, ...] | None = None,
    ):
        super().__init__(runtime, parts, scaling=scaling, mean=mean, classes=classes)
        self.points, self.jitter, self.store = np.array(points, dtype=float), jitter, store

    @property
    def identity(self) -> str:
        located = hashlib.sha256(self.points.tobytes()).hexdigest()
        return identity_of(self.parts, "committee", self.scaling.digest, self.mean, self.classes, located, self.jitter)

    def __call__(self, kernel, likelihood):
        try:
            with self._trial(kernel, likelihood, self.points) as trial:
                committee = self._messages_of(trial, likelihood)
                return committee.log_evidence, self._gradient(trial, likelihood, committee.posterior)
        except (NotPositiveDefinite, LaplaceNotConverged) as error:
            return self._failed(str(error), len(kernel.theta) + sum(map(len, likelihood.parameters.values())))

    def at_points(self, kernel, likelihood, points) -> tuple[float, np.ndarray]:
        """Value at query points (Q, D), and its gradient (Q, D) in their coordinates."""
        try:
            with self._trial(kernel, likelihood, points) as trial:
                committee = self._messages_of(trial, likelihood)
                belief, query = committee.posterior, trial.query()
                with self._moment(trial, likelihood, belief) as (moment, shift):
                    total = self.runtime.sum(TrialPointsGradient(trial, moment), self.parts, label="learn")
                return committee.log_evidence, points_gradient(query, belief, total, shift)
        except (NotPositiveDefinite, LaplaceNotConverged) as error:
            return self._failed(str(error), points.shape)

    def gradient(self, kernel, likelihood, belief: Belief) -> np.ndarray:
        """Gradient (P,) from a posterior that has been computed, at the joint mode.

        Raises
        ------
        LaplaceNotConverged, NotPositiveDefinite
        """
        with self._trial(kernel, likelihood, self.points) as trial:
            return self._gradient(trial, likelihood, belief)

    @contextmanager
    def _trial(self, kernel, likelihood, points) -> Iterator[Trial]:
        if not likelihood.single:
            raise InvalidOption(
                "evidence of a committee: expected a likelihood with probabilities and one latent process, got "
                f"{likelihood.name}; learn from partitions on their own"
            )
        with self.store.transient({"points": points}) as references:
            yield Trial(
                scaling=self.scaling,
                points=references["points"],
                jitter=self.jitter,
                mean=self.mean,
                classes=self.classes,
                kernel=kernel,
                likelihood=likelihood,
            )

    def _messages_of(self, trial, likelihood) -> Committee:
        """Messages of all partitions, iterated to the joint mode (SYSTEMS I.5, schedule i').

        A step that would lower the joint log density is halved, as in `passes.refine`.
        """
        trial.query()  # may fail: here rather than on every worker
        committee = Committee(self.runtime.sum(TrialMessage(trial), self.parts, label="learn").message)
        if likelihood.exact:
            return committee
        values, previous = committee.posterior.mean, None
        last, change = -np.inf, np.inf
        for _ in range(MOST_PASSES):
            with self.store.transient({"at": values}) as references:
                absorbed = self.runtime.sum(TrialMessage(trial, references["at"]), self.parts, label="learn")
            objective = absorbed.objective - 0.5 * float(values @ values)
            if previous is not None and change > ROUGH_TOLERANCE and objective < last - ROUNDING * abs(last):
                values = 0.5 * (values + previous)
                continue
            committee, last_change = Committee(absorbed.message), change
            moved = next_mean(committee, absorbed.step)
            change = float(np.linalg.norm((moved - values) @ committee.posterior.factor))
            if change <= MODE_TOLERANCE or STALLED_SHARE * last_change < change <= ROUGH_TOLERANCE:
                return committee
            values, previous, last = moved, values, objective
        raise LaplaceNotConverged(
            f"joint mode of the committee: expected passes to move it by at most {MODE_TOLERANCE:g} standard "
            f"deviations, got {change:.1e} after {MOST_PASSES} passes; lower the kernel's variance, or "
            "check the targets"
        )

    def _gradient(self, trial, likelihood, belief):
        with self._moment(trial, likelihood, belief) as (moment, shift):
            total = self.runtime.sum(TrialGradient(trial, moment), self.parts, label="learn")
        return committee_gradient(trial.query(), belief, total, shift)

    @contextmanager
    def _moment(self, trial, likelihood, belief):
        """Yield the posterior for the tasks, with the shift of the mode unless noise is Gaussian; and the shift."""
        with self.store.transient({"mean": belief.mean, "factor": belief.factor}) as references:
            moment = Moment(**references)
            if likelihood.exact:
                yield moment, None
                return
            shift = mode_shift(belief, self.runtime.sum(TrialModes(trial, moment), self.parts, label="learn"))
            with self.store.transient({"shift": shift}) as further:
                yield Moment(**references, **further), shift


def improved_points(objective: CommitteeObjective, kernel: Kernel, likelihood: Likelihood, points, steps) -> np.ndarray:
    """Maximise the log evidence over query points by at most `steps` L-BFGS iterations; return the points (Q, D).

    The evidence is never lower than at the start. The hyper-parameters are held fixed. Coordinates are in units of the
    kernel's lengthscales.
    """
    unit = finite_metric(kernel, points.shape[1])
    value, _ = objective.at_points(kernel, likelihood, points)
    best: list[Any] = [value, np.array(points, dtype=float)]

    def loss(flat):
        moved = flat.reshape(points.shape) * unit
        found, gradient = objective.at_points(kernel, likelihood, moved)
        if found > best[0]:
            best[:] = [found, moved]
        if not np.isfinite(found):
            return 1e3 * (1.0 + abs(value)), np.zeros(flat.shape)  # a high wall that L-BFGS steps back from
        return -found, -(gradient * unit).ravel()

    if np.isfinite(value):
        minimize(loss, (points / unit).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": steps})
    return best[1]


def identity_of(parts, *facts) -> str:
    """Encode partitions with their weights, and further facts, as one JSON string."""
    return json.dumps([[[part.key, part.weight] for part in parts], *facts])

"""The interface of predictors, which compute f at new points from a committee's posterior.

Two predictors are built in: the committee alone ("committee"), and the committee with the training rows around each
point ("local"). `bcmdist.register_predictor` adds others (`bcmdist.prediction.predictive_model`). A predictor is chosen
once by name. The client uses the class: whether it supports the model, and how much memory it needs. Workers use an
instance to compute f.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np

from bcmdist.committee.loading import load_committee, load_facts
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.model.loading import load_model
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Belief
from bcmdist.prediction.errors.error_distribution import (
    AS_THE_MODEL_SAYS,
    ErrorDistribution,
    error_distribution_in,
    error_distribution_of,
    load_error_distribution,
)
from bcmdist.prediction.errors.platt_scaling import Probabilities, calibration_from
from bcmdist.prediction.errors.recalibration import recalibrated_from
from bcmdist.prediction.joint.committee import committee_moments, joint_latent
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.limits import MemoryNeed, committee_memory
from bcmdist.prediction.local.committee_at_rows import Designed
from bcmdist.prediction.local.joint_moments import Sums
from bcmdist.prediction.local.samples import by_covariance, sample_normal, sample_paths
from bcmdist.prediction.terms import committee_terms
from bcmdist.storage.commits import Reference


class LatentPredictor(ABC):
    """Predicts mean and variance of f, and holds what is needed to predict observations."""

    model: Model
    calibration: Probabilities | None
    """calibration of class probabilities; None for other likelihoods, or if none was fitted"""
    error_distribution: ErrorDistribution = AS_THE_MODEL_SAYS
    """distribution of the errors, for numeric targets"""

    @abstractmethod
    def latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D), with the shapes of `predict_latent`.

        The result at a row must not depend on the other rows of X.
        """

    def joint(self, X: np.ndarray, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
        """Mean (count,) and covariance (count, count) of weighted sums of f over scaled inputs X (n, D).

        For one process. For sums of one point, the diagonal is the variance of `latent`.

        Raises
        ------
        InvalidOption
            This predictor has no joint distribution.
        """
        raise self._no_joint()

    def sample(self, X: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        """Samples of f at scaled inputs X (n, D) from its joint distribution, (size, n); raises as `joint`."""
        raise self._no_joint()

    def _no_joint(self):
        return InvalidOption(
            f"joint prediction: expected the method committee or local, got one of {type(self).__name__}; give "
            "--method committee"
        )

    def cells(self, X: np.ndarray) -> np.ndarray:
        """Numbers of the cells of scaled inputs X (n, D), (n,), which predict with different rows."""
        return np.zeros(len(X), np.int64)

    def terms(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the additive terms of f at scaled inputs X (n, D): (n, T), or (n, T, C) for C processes.

        The means add up to that of f; see `prediction.terms`.

        Raises
        ------
        InvalidOption
            This predictor has no terms.
        """
        raise InvalidOption(
            f"terms: expected the method committee or local, got one of {type(self).__name__}; give --method committee"
        )


class Latent(Protocol):
    """A distribution of f that replaces the predictor's own, for example averaged over uncertain inputs."""

    def latent(self, predictor: LatentPredictor, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D)."""


class LatentOfRows(Latent, Protocol):
    """A `Latent` that belongs to n rows and can be indexed and concatenated."""

    def __getitem__(self, rows) -> Any:
        """Select rows."""

    def __add__(self, other) -> Any:
        """Concatenate with the rows of `other`."""


class Predictor(LatentPredictor):
    """Predicts f from one commit."""

    in_cells: ClassVar[bool] = False
    """whether new rows must be sorted by the model's cells, each partition of rows within one partition of the model"""
    reads_rows: ClassVar[bool] = False
    """whether it reads rows of the data again for each prediction, which the service does not do"""

    @classmethod
    @abstractmethod
    def refuse(cls, snapshot: Snapshot) -> None:
        """Raise `InvalidOption`, saying what to do instead, if the snapshot lacks what this predictor needs."""

    @classmethod
    @abstractmethod
    def memory(cls, snapshot: Snapshot) -> MemoryNeed:
        """Projected memory of a worker thread, without the memory for reading the new rows."""

    @classmethod
    @abstractmethod
    def of_snapshot(cls, snapshot: Snapshot) -> "Predictor":
        """The predictor of a snapshot in memory."""

    @classmethod
    @abstractmethod
    def of_commit(cls, reference: Reference) -> "Predictor":
        """The predictor of a stored commit, on any worker. Called for each partition: implementations should cache."""


@dataclass(frozen=True)
class Fitted(Predictor):
    """Predicts f from the committee's posterior only. Everything needed is stored in the commit."""

    model: Model
    belief: Belief
    calibration: Probabilities | None = None
    error_distribution: ErrorDistribution = AS_THE_MODEL_SAYS

    @classmethod
    def refuse(cls, snapshot) -> None:
        """Do nothing: every snapshot has what this predictor needs."""

    @classmethod
    def memory(cls, snapshot) -> MemoryNeed:
        return committee_memory(snapshot.model.shared)

    @classmethod
    def of_snapshot(cls, snapshot) -> "Fitted":
        return _corrected(fitted_of(snapshot), snapshot.facts, error_distribution_of(snapshot, "committee"))

    @classmethod
    def of_commit(cls, reference) -> "Fitted":
        return _corrected(
            load_fitted(reference), load_facts(reference), load_error_distribution(reference, "committee")
        )

    def latent(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D); see `predict_latent`."""
        return predict_latent(self.model.shared, self.belief, X)

    def terms(self, X) -> tuple[np.ndarray, np.ndarray]:
        return committee_terms(self.model.shared, self.belief, X)

    def joint(self, X, sums) -> tuple[np.ndarray, np.ndarray]:
        return committee_moments(self.model.shared, self.belief, X, sums)

    def sample(self, X, size, rng) -> np.ndarray:
        shared = self.model.shared
        if by_covariance(shared, len(X)):
            return sample_normal(*joint_latent(shared, self.belief, X), size, rng)
        return sample_paths(Designed(shared, self.belief), [(np.arange(len(X)), None)], X, size, rng)


def _corrected(fitted, facts, error_distribution):
    """`fitted` with class probabilities recalibrated and the error distribution estimated from held-out rows."""
    recalibrated = recalibrated_from(facts.errors.recalibration, fitted.model.likelihood)
    return replace(fitted, calibration=fitted.calibration or recalibrated, error_distribution=error_distribution)


def corrected_of(snapshot: Snapshot) -> Fitted:
    """A snapshot in memory with the calibration and the error distribution of its default method; not cached, so that
    the snapshot may have changes that are not committed."""
    facts = snapshot.facts
    fitted = _corrected(fitted_of(snapshot), facts, error_distribution_in(facts, snapshot.ledger, facts.method))
    local = calibration_from(facts.errors.local_calibration) if facts.method == "local" else None
    return replace(fitted, calibration=local or fitted.calibration)


@lru_cache(maxsize=2)
def load_fitted(reference: Reference) -> Fitted:
    """Model and posterior of a commit, without error distribution or recalibration.

    Arrivals are compared with these predictions.
    """
    calibration = calibration_from(load_facts(reference).errors.calibration)
    return Fitted(load_model(reference), load_committee(reference).posterior, calibration)


def fitted_of(snapshot: Snapshot) -> Fitted:
    """Model and posterior of a snapshot in memory, without error distribution or recalibration."""
    return Fitted(snapshot.model, snapshot.committee.posterior, calibration_from(snapshot.facts.errors.calibration))

"""The committee alone as a predictor: model, posterior, and class-probability or error calibration."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bcmdist.committee.loading import load_committee, load_facts
from bcmdist.committee.snapshot import Snapshot
from bcmdist.model.loading import load_model
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Belief
from bcmdist.prediction.errors.error_distribution import (
    AS_THE_MODEL_SAYS,
    ErrorDistribution,
    error_distribution_of,
    load_error_distribution,
)
from bcmdist.prediction.errors.platt_scaling import Probabilities, calibration_from
from bcmdist.prediction.errors.recalibration import recalibrated_from
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.limits import MemoryNeed, committee_memory
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class Fitted(Predictor):
    """Predicts f from the committee's posterior only. Everything needed is stored in the commit."""

    model: Model
    belief: Belief
    calibration: Probabilities | None = None
    spread: ErrorDistribution = AS_THE_MODEL_SAYS

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


def _corrected(fitted, facts, spread):
    """`fitted` with class probabilities recalibrated and the error distribution estimated from held-out rows."""
    recalibrated = recalibrated_from(facts.errors.recalibration, fitted.model.likelihood)
    return replace(fitted, calibration=fitted.calibration or recalibrated, spread=spread)


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

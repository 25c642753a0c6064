"""What predictions need of a commit: its model, its belief and, of classes, their calibration."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bcmdist.committee.loading import load_committee, load_facts
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import NotFinite
from bcmdist.model.loading import load_model
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Belief
from bcmdist.prediction.calibration import Calibration, calibration_from
from bcmdist.prediction.latent import predict_latent
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class Fitted:
    """What predictions need."""

    model: Model
    belief: Belief
    calibration: Calibration | None = None

    def latent(self, X):
        """Mean and variance of f at scaled inputs X (n, D); see `predict_latent`.

        Raises
        ------
        NotFinite
        """
        return finite_latent(*predict_latent(self.model.shared, self.belief, X))


def finite_latent(mean, variance):
    """A belief about f as it is; `NotFinite` where it is none."""
    for name, values in (("mean", mean), ("variance", variance)):
        _refuse(name, values, ~np.isfinite(values))
    return mean, variance


def refuse_nan(predictions):
    """Raise `NotFinite` where a predicted quantity is no number; moments of heavy tails may be infinite."""
    for name, values in predictions.items():
        _refuse(name, values, np.isnan(values))


def _refuse(name, values, wrong):
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise NotFinite(
            f"prediction: expected numbers, got {name} {values[tuple(place)]} at row {place[0]} of {len(values)} "
            f"({int(wrong.sum())} such); check that inputs are in the range of the training data, else "
            "restore the model from a copy"
        )


@lru_cache(maxsize=2)
def load_fitted(reference: Reference) -> Fitted:
    """Model and belief of a commit."""
    calibration = calibration_from(load_facts(reference).calibration)
    return Fitted(load_model(reference), load_committee(reference).posterior, calibration)


def fitted_of(snapshot: Snapshot) -> Fitted:
    """Model and belief of a snapshot in memory."""
    return Fitted(snapshot.model, snapshot.committee.posterior, calibration_from(snapshot.facts.calibration))

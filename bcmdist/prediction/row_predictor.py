"""The interface for predicting and scoring rows in original units, by one committee or a mixture of committees.

Tasks, plots, reports and the service use a `RowPredictor`; mixtures implement it in `bcmdist.prediction.mixture`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.model.model import Model
from bcmdist.prediction.interface import Latent, Predictor
from bcmdist.prediction.scored_rows import predict_rows, score_predictions
from bcmdist.prediction.scoring.judged import Judged
from bcmdist.storage.commits import Reference


class RowPredictor(ABC):
    """Predicts rows in original units."""

    @property
    @abstractmethod
    def model(self) -> Model:
        """Model with the columns, units, likelihood and classes of the rows."""

    @abstractmethod
    def predict(self, X, obs, quantiles=(), around: Latent | None = None) -> dict[str, np.ndarray]:
        """All predicted quantities at rows of X (n, D), by name; see `predict_rows`."""

    @abstractmethod
    def score_each(self, several: Sequence[Judged]) -> list[Judged]:
        """Add predictions and scores to sets of rows whose observations are in the units of the model."""

    def score(self, rows: Judged) -> Judged:
        """As `score_each`, for one set."""
        return self.score_each([rows])[0]


@dataclass(frozen=True)
class CommitteePredictor(RowPredictor):
    """Predicts rows by one committee."""

    predictor: Predictor

    @property
    def model(self) -> Model:
        return self.predictor.model

    def predict(self, X, obs, quantiles=(), around=None) -> dict[str, np.ndarray]:
        return predict_rows(self.predictor, X, obs, quantiles, around)

    def score_each(self, several: Sequence[Judged]) -> list[Judged]:
        return [score_predictions(self.predictor, s.X, s.obs, s.number, s.around) for s in several]


class StoredPredictor(ABC):
    """Reference to a stored row predictor, a few hundred bytes, which tasks carry."""

    @property
    @abstractmethod
    def in_cells(self) -> bool:
        """Whether new rows must be sorted by the model's cells; see `Predictor`."""

    @abstractmethod
    def load(self) -> RowPredictor:
        """Load the predictor, on any worker. Called for each partition."""


@dataclass(frozen=True)
class StoredCommittee(StoredPredictor):
    """One commit and the class that predicts from it."""

    reference: Reference
    predictor: type[Predictor]

    @property
    def in_cells(self) -> bool:
        return self.predictor.in_cells

    def load(self) -> CommitteePredictor:
        return CommitteePredictor(self.predictor.of_commit(self.reference))

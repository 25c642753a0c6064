"""Predictions of rows in original units and their scores, by one committee or by a mixture of several.

Tasks, pictures, reports and the service ask a `RowPredictor`, whichever it is; a mixture is one over its members
(`bcmdist.prediction.mixture`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.model.model import Model
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.latent_predictor import Latent
from bcmdist.prediction.scored_rows import predict_rows, score_predictions
from bcmdist.prediction.scoring.judged import Judged
from bcmdist.storage.commits import Reference


class RowPredictor(ABC):
    """Predicts rows in original units."""

    @property
    @abstractmethod
    def model(self) -> Model:
        """Columns, units, likelihood and classes of the rows."""

    @abstractmethod
    def predict(self, X, obs, quantiles=(), around: Latent | None = None) -> dict[str, np.ndarray]:
        """All predicted quantities at rows of X (n, D), by name; see `predict_rows`."""

    @abstractmethod
    def score_each(self, several: Sequence[Judged]) -> list[Judged]:
        """Sets of rows with observations in the units of the model, beside predictions and their scores."""

    def score(self, rows: Judged) -> Judged:
        """As `score_each`, of one set."""
        return self.score_each([rows])[0]


@dataclass(frozen=True)
class CommitteePredictor(RowPredictor):
    """Predictions of rows by one committee."""

    predictor: Predictor

    @property
    def model(self) -> Model:
        return self.predictor.model

    def predict(self, X, obs, quantiles=(), around=None) -> dict[str, np.ndarray]:
        return predict_rows(self.predictor, X, obs, quantiles, around)

    def score_each(self, several: Sequence[Judged]) -> list[Judged]:
        return [score_predictions(self.predictor, s.X, s.obs, s.number, s.around) for s in several]


class StoredPredictor(ABC):
    """What a task carries in place of a row predictor: where it is stored, in a few hundred bytes."""

    @property
    @abstractmethod
    def in_cells(self) -> bool:
        """Whether rows are to come in the order of the model's cells, as of `Predictor`."""

    @abstractmethod
    def load(self) -> RowPredictor:
        """The predictor, on whichever worker; asked for with each partition."""


@dataclass(frozen=True)
class StoredCommittee(StoredPredictor):
    """One commit, and how it predicts."""

    reference: Reference
    predictor: type[Predictor]

    @property
    def in_cells(self) -> bool:
        return self.predictor.in_cells

    def load(self) -> CommitteePredictor:
        return CommitteePredictor(self.predictor.of_commit(self.reference))

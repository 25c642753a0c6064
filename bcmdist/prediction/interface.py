"""The interface of predictors, which compute f at new points from a committee's posterior.

Two predictors are built in: the committee alone ("committee"), and the committee with the training rows around each
point ("local"). `bcmdist.register_predictor` adds others (`bcmdist.prediction.predictors`). A predictor is chosen once
by name. The client uses the class: whether it supports the model, and how much memory it needs. Workers use an instance
to compute f.
"""

from abc import abstractmethod
from typing import ClassVar

from bcmdist.committee.snapshot import Snapshot
from bcmdist.prediction.latent_predictor import LatentPredictor
from bcmdist.prediction.limits import MemoryNeed
from bcmdist.storage.commits import Reference


class Predictor(LatentPredictor):
    """Predicts f from one commit."""

    in_cells: ClassVar[bool] = False
    """whether new rows must be sorted by the model's cells, each partition of rows within one partition of the model"""

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

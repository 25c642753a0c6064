"""The interface of predictors: what turns the belief of a committee into f at new points.

The committee alone, with the rows around each point, and with a bump there are three; others are added by
`bcmdist.register_predictor` (`bcmdist.prediction.predictors`). Whoever predicts chooses one once, by its name, and
asks it from then on: on the client the class, whether it can and what it takes, on workers an object of it for f.
"""

from abc import abstractmethod
from typing import ClassVar

from bcmdist.committee.snapshot import Snapshot
from bcmdist.prediction.latent_predictor import LatentPredictor
from bcmdist.prediction.limits import MemoryNeed
from bcmdist.storage.commits import Reference


class Predictor(LatentPredictor):
    """What one commit is predicted with."""

    in_cells: ClassVar[bool] = False
    """whether new rows are to come in the order of the model's cells, each partition of them from one of the model"""

    @classmethod
    @abstractmethod
    def refuse(cls, snapshot: Snapshot) -> None:
        """Raise `InvalidOption`, with the way out, where a snapshot lacks what it needs."""

    @classmethod
    @abstractmethod
    def memory(cls, snapshot: Snapshot) -> MemoryNeed:
        """What a worker thread needs beside what reading takes, projected."""

    @classmethod
    @abstractmethod
    def of_snapshot(cls, snapshot: Snapshot) -> "Predictor":
        """That of a snapshot in memory."""

    @classmethod
    @abstractmethod
    def of_commit(cls, reference: Reference) -> "Predictor":
        """That of a commit, on whichever worker; asked for with each partition, so what is read is to be kept."""

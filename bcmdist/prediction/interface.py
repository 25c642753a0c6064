"""The interface of predictors: what turns the belief of a committee into f at new points.

The committee alone, with the rows around each point, and with a bump there are three; others are added by
`bcmdist.register_predictor` (`bcmdist.prediction.predictors`). Whoever predicts chooses one once, by its name, and
asks it from then on: on the client the class, whether it can and what it takes, on workers an object of it for f.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from bcmdist.committee.snapshot import Snapshot
from bcmdist.model.model import Model
from bcmdist.prediction.calibration import Probabilities
from bcmdist.prediction.limits import MemoryNeed
from bcmdist.prediction.spread import AS_THE_MODEL_SAYS, Spread
from bcmdist.storage.commits import Reference


class Predictor(ABC):
    """What one commit is predicted with."""

    in_cells: ClassVar[bool] = False
    """whether new rows are to come in the order of the model's cells, each partition of them from one of the model"""

    model: Model
    calibration: Probabilities | None
    """of classes that have no probabilities of their own, or need to be corrected; None: of the others, or none was
    fitted"""
    spread: Spread = AS_THE_MODEL_SAYS
    """of errors, where numbers are predicted"""

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

    @abstractmethod
    def latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D), of the shapes that `predict_latent` gives.

        No row of them may depend on the others that are asked for with it.
        """

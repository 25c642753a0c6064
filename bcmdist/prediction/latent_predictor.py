"""The interface of what predicts f at scaled inputs, by which uncertain inputs and scores are computed."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from bcmdist.model.model import Model
from bcmdist.prediction.errors.error_distribution import AS_THE_MODEL_SAYS, ErrorDistribution
from bcmdist.prediction.errors.platt_scaling import Probabilities


class LatentPredictor(ABC):
    """Mean and variance of f, with what else predictions of observations need."""

    model: Model
    calibration: Probabilities | None
    """of classes that have no probabilities of their own, or need to be corrected; None: of the others, or none was
    fitted"""
    spread: ErrorDistribution = AS_THE_MODEL_SAYS
    """of errors, where numbers are predicted"""

    @abstractmethod
    def latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D), of the shapes that `predict_latent` gives.

        No row of them may depend on the others that are asked for with it.
        """


class Latent(Protocol):
    """A belief about f at inputs in place of that of a predictor at the inputs as they are."""

    def latent(self, predictor: LatentPredictor, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f, of scaled inputs X (n, D)."""


class LatentOfRows(Latent, Protocol):
    """The same of n rows."""

    def __getitem__(self, rows) -> Any:
        """Of some rows."""

    def __add__(self, other) -> Any:
        """Of these rows and others."""

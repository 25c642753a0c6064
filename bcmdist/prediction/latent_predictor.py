"""The interface for predicting f at scaled inputs; scores and uncertain inputs are computed through it."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from bcmdist.model.model import Model
from bcmdist.prediction.errors.error_distribution import AS_THE_MODEL_SAYS, ErrorDistribution
from bcmdist.prediction.errors.platt_scaling import Probabilities


class LatentPredictor(ABC):
    """Predicts mean and variance of f, and holds what is needed to predict observations."""

    model: Model
    calibration: Probabilities | None
    """calibration of class probabilities; None for other likelihoods, or if none was fitted"""
    spread: ErrorDistribution = AS_THE_MODEL_SAYS
    """distribution of the errors, for numeric targets"""

    @abstractmethod
    def latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D), with the shapes of `predict_latent`.

        The result at a row must not depend on the other rows of X.
        """


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

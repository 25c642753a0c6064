"""The interface of predictive distributions: what is said of new observations, one of each row."""

from abc import ABC, abstractmethod

import numpy as np
from scoringrules import crps_quantile

# Levels of the quantiles by which a continuous ranked probability score is averaged: 20 bring it to about 2 %.
CRPS_LEVELS = (np.arange(20) + 0.5) / 20.0


class Predictive(ABC):
    """Distributions of new observations, one for each of n rows."""

    @property
    @abstractmethod
    def mean(self) -> np.ndarray:
        """(n,)."""

    @property
    @abstractmethod
    def variance(self) -> np.ndarray:
        """(n,)."""

    @abstractmethod
    def cdf(self, y) -> np.ndarray:
        """P(Y <= y), (n,)."""

    @abstractmethod
    def quantile(self, q) -> np.ndarray:
        """Smallest y with P(Y <= y) >= q, for one level q, (n,)."""

    @abstractmethod
    def log_density(self, obs) -> np.ndarray:
        """log p(y) of one observation of each row; of a censored row, the log probability of surviving it."""

    def crps(self, y) -> np.ndarray:
        """Continuous ranked probability score of y, (n,): from quantiles at `CRPS_LEVELS`, unless it is known."""
        quantiles = np.column_stack([self.quantile(level) for level in CRPS_LEVELS])
        return crps_quantile(y, quantiles, CRPS_LEVELS, backend="numpy")


class Numbers(Predictive):
    """Distributions of numbers, whose errors can be told in units of what was said."""

    @abstractmethod
    def standardised(self, obs, generator: np.random.Generator) -> np.ndarray:
        """Errors of observations, (n,): standard normal where what is said is right.

        Parameters
        ----------
        generator : draws where all that is known of an error is a range
        """

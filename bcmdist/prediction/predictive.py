"""The interface of predictive distributions: one distribution of a new observation for each row."""

from abc import ABC, abstractmethod

import numpy as np
from scoringrules import crps_quantile

# Quantile levels averaged in a continuous ranked probability score: 20 levels give it to about 2 %.
CRPS_LEVELS = (np.arange(20) + 0.5) / 20.0


class Predictive(ABC):
    """Distributions of new observations, one for each of n rows."""

    @property
    @abstractmethod
    def mean(self) -> np.ndarray:
        """Mean, (n,)."""

    @property
    @abstractmethod
    def variance(self) -> np.ndarray:
        """Variance, (n,)."""

    @abstractmethod
    def cdf(self, y) -> np.ndarray:
        """P(Y <= y), (n,)."""

    @abstractmethod
    def quantile(self, q) -> np.ndarray:
        """Smallest y with P(Y <= y) >= q for one level q, (n,)."""

    @abstractmethod
    def log_density(self, obs) -> np.ndarray:
        """log p(y), (n,), of one observation per row; for a censored row, the log probability of survival beyond y."""

    def crps(self, y) -> np.ndarray:
        """Continuous ranked probability score of y, (n,).

        Computed from quantiles at `CRPS_LEVELS`, unless a subclass has a closed form.
        """
        quantiles = np.column_stack([self.quantile(level) for level in CRPS_LEVELS])
        return crps_quantile(y, quantiles, CRPS_LEVELS, backend="numpy")


class Numbers(Predictive):
    """Distributions of numeric targets, whose errors can be standardised."""

    @abstractmethod
    def standardised(self, obs, generator: np.random.Generator) -> np.ndarray:
        """Standardised errors of observations, (n,): standard normal if the predictions are right.

        Parameters
        ----------
        generator : draws an error within its range where only a range is known (counts, censored rows)
        """

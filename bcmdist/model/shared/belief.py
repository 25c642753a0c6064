"""What somebody believes of the shared variables: a Gaussian."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Belief:
    """The Gaussian posterior N(mean, (L L')^-1) of the shared variables v, process by process."""

    mean: np.ndarray
    """(..., S)"""
    factor: np.ndarray
    """L, lower Cholesky factor of the posterior *precision*, (S, S) or (..., S, S)"""

    def __getitem__(self, k) -> "Belief":
        """That of one of several processes or models, each with a factor of its own."""
        return Belief(self.mean[k], self.factor[k])

"""Kernels that an expert's shared variables cannot stand for are left out of a choice, and named."""

import warnings

import numpy as np

from bcmdist.errors import BcmdistWarning
from bcmdist.learning.experts import EXPERTS
from bcmdist.learning.settings import Settings
from bcmdist.model.kernels import Kernel


class BasisBudget:
    """Whether the expert of a fit can do with a kernel; remembers those with which it could not.

    Parameters
    ----------
    low, high : least and largest values of inputs, (D,), scaled
    """

    def __init__(self, settings: Settings, low: np.ndarray, high: np.ndarray):
        self.settings, self.low, self.high = settings, low, high
        self.left: set[str] = set()
        """expressions of kernels that it cannot do with"""

    def __call__(self, kernel: Kernel) -> bool:
        if EXPERTS[self.settings.expert].represents(kernel, self.low, self.high, self.settings):
            return True
        self.left.add(kernel.expression)
        return False

    def warn(self, taken: str) -> None:
        """Say which kernels were left out for the one that was taken."""
        left = sorted(self.left - {taken})
        if left:
            warnings.warn(
                BcmdistWarning(
                    f"kernel: {', '.join(left)} left out, which would take too many weights for a tolerance of "
                    f"{self.settings.tolerance:g}; raise --tolerance to choose among all"
                ),
                stacklevel=2,
            )

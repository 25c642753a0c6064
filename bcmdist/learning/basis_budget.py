"""Exclude kernels that an expert's shared variables cannot represent from the choice of a kernel, and warn of them."""

import warnings

import numpy as np

from bcmdist.errors import BcmdistWarning
from bcmdist.learning.experts import EXPERTS
from bcmdist.learning.settings import Settings
from bcmdist.model.kernels import Kernel


class BasisBudget:
    """Check whether a fit's expert can represent a kernel; record the kernels that it cannot.

    Parameters
    ----------
    low, high : smallest and largest value of each scaled input, (D,)
    """

    def __init__(self, settings: Settings, low: np.ndarray, high: np.ndarray):
        self.settings, self.low, self.high = settings, low, high
        self.left: set[str] = set()
        """expressions of the kernels that were excluded"""

    def __call__(self, kernel: Kernel) -> bool:
        if EXPERTS[self.settings.expert].represents(kernel, self.low, self.high, self.settings):
            return True
        self.left.add(kernel.expression)
        return False

    def warn(self, taken: str) -> None:
        """Warn of the kernels that were excluded, other than the chosen one."""
        left = sorted(self.left - {taken})
        if left:
            warnings.warn(
                BcmdistWarning(
                    f"kernel: {', '.join(left)} left out, which would take too many weights for a tolerance of "
                    f"{self.settings.tolerance:g}; raise --tolerance to choose among all"
                ),
                stacklevel=2,
            )

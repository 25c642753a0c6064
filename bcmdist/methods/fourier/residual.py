"""Residual `waves`: every row has the same independent variance, that of the truncated frequencies.

Also the memory estimates of these experts, whose messages are sums by fast transforms without a design matrix.
"""

import numpy as np

from bcmdist.experts.residual import IndependentRows
from bcmdist.methods.fourier.belief import MAX_FACTORED, PREDICTION_ROWS, PROBES
from bcmdist.runtime import memory

# Numbers per row during a transform: inputs, phases, strengths and their positions on the grid. Numbers per weight:
# grids at twice the lags, and the messages in memory.
ROW_NUMBERS, WEIGHT_NUMBERS = 24, 400


class EqualVariances(IndependentRows):
    """Lam = t I with the variance t of the truncated frequencies (`Fourier.truncated_variance`)."""

    joint_modes = False

    def variance(self, shared, V, X) -> np.ndarray:
        return np.full(len(X), shared.truncated_variance)

    def expert_bytes(self, rows, shared, *, kernels, laplace, classes, coupled) -> float:
        return memory.FLOAT * (ROW_NUMBERS * rows + WEIGHT_NUMBERS * shared)

    def prediction_bytes(self, rows, shared, *, kernels) -> float:
        """Peak bytes of probes with their grids, a block of rows, variance solutions, and a factor."""
        return memory.FLOAT * (240 * PREDICTION_ROWS + 1000 * shared + 4 * 2000**2)

    def local_bytes(self, around, rows, shared, *, kernels, classes) -> float:
        columns = classes + (shared if shared <= MAX_FACTORED else PROBES)
        near = memory.local_bytes(around, min(rows, PREDICTION_ROWS), columns, kernels=kernels, classes=classes)
        return near + self.prediction_bytes(rows, shared, kernels=kernels)

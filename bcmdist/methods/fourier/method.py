"""The expert `fourier`: Fourier features, for up to three inputs and millions of rows.

In its residual, `waves`, every row has the same independent variance, that of the truncated frequencies. Messages are
sums by fast transforms, without a design matrix.
"""

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import RESIDUALS, IndependentRows
from bcmdist.learning.experts import register_method
from bcmdist.learning.method import Capabilities, Defaults, Method
from bcmdist.methods.fourier import frequency_grid
from bcmdist.methods.fourier.belief import MAX_DENSE, MAX_FACTORED, PREDICTION_ROWS, PROBES
from bcmdist.methods.fourier.options import FourierOptions
from bcmdist.methods.fourier.shared import Fourier
from bcmdist.model.model import KINDS
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
        factored = 2 * shared**2 if shared <= MAX_DENSE else 0  # with that of the belief before
        return memory.FLOAT * (240 * PREDICTION_ROWS + 1000 * shared + 4 * MAX_FACTORED**2 + factored)

    def local_bytes(self, neighbours, rows, shared, *, kernels, classes) -> float:
        columns = classes + (shared if shared <= MAX_FACTORED else PROBES)
        near = memory.local_bytes(neighbours, min(rows, PREDICTION_ROWS), columns, kernels=kernels, classes=classes)
        return near + self.prediction_bytes(rows, shared, kernels=kernels)


LEAST_TOLERANCE = 1e-9  # the transforms are accurate to twelve digits
ROWS = 250_000  # per partition; a transform has a fixed cost of some 50,000 rows
CELL_ROWS = 16_000  # with --partition spatial, where local experts and the search for halo rows cost more


class FourierFeatures(Method):
    """Weights of Fourier features on a grid of frequencies."""

    residual = "waves"
    options = FourierOptions
    size = "tolerance"
    capabilities = Capabilities(query_methods=("kmeans",), query_from=False, local=True, sums=False)
    defaults = Defaults(rows=ROWS, cell_rows=CELL_ROWS)

    def shared(self, basis_inputs) -> Fourier:
        return frequency_grid.fourier_features(basis_inputs)

    def refuse(self, settings, likelihood) -> None:
        tolerance = settings.of(FourierOptions).tolerance
        if not LEAST_TOLERANCE <= tolerance < 1.0:
            raise InvalidOption(
                f"tolerance: expected a share of the variance from {LEAST_TOLERANCE:g} to 1, got {tolerance:g}; give "
                "another"
            )
        if settings.kernel != "auto" and "(" not in settings.kernel:  # columns are those of the data
            frequency_grid.refuse_early(settings.kernel, 1, tolerance)

    def refuse_data(self, settings, kernel, inputs, rows) -> None:
        frequency_grid.refuse_early(kernel, inputs, settings.of(FourierOptions).tolerance)

    def represents(self, kernel, low, high, settings) -> bool:
        return frequency_grid.fits_weights(kernel, low, high, settings.of(FourierOptions).tolerance)


KINDS.add(Fourier.kind, Fourier)
RESIDUALS.add("waves", EqualVariances())
register_method(FourierFeatures("fourier"))

"""Fourier features for tests."""

import numpy as np

from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.methods.fourier.frequency_grid import fourier_features
from bcmdist.methods.fourier.options import FourierOptions
from bcmdist.model.mean import Mean


def make_fourier(kernel, inputs, *, tolerance=1e-3, mean="constant", extent=1.0):
    """Fourier features for a box about 0, half as wide along the last input as along the first."""
    low = -extent * np.linspace(1.0, 0.5, inputs)
    return fourier_features(
        BasisInputs(
            sample=np.zeros((0, inputs)),
            targets=None,
            noise=np.ones(0),
            rows=0,
            kernel=kernel,
            mean=Mean(mean),
            count=0,
            method="",
            seed=0,
            residual="waves",
            low=low,
            high=-low,
            options=FourierOptions(tolerance),
        )
    )

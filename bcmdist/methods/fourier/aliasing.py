"""Aliasing: the covariance that a discrete grid of frequencies adds to the kernel, summed over all other periods.

sum_{n != 0} k(lag - n / h)
"""

import itertools

import numpy as np

from bcmdist.model.kernels import Kernel

# Covariances below this share of the variance are neglected.
NEGLIGIBLE = 1e-10
# Number of lags per block.
BLOCK_LAGS = 2**13


def aliased_covariance(kernel: Kernel, step, lags) -> np.ndarray:
    """Sum of the aliases at lags (N, D), for a frequency spacing `step` (D,): (N,)."""
    found, shifts = np.zeros(len(lags)), _significant_shifts(kernel, step, np.abs(lags).max(axis=0, initial=0.0))
    for a in range(0, len(lags) if len(shifts) else 0, BLOCK_LAGS):
        found[a : a + BLOCK_LAGS] = kernel.cross(lags[a : a + BLOCK_LAGS], shifts).sum(axis=1)
    return found


def _significant_shifts(kernel, step, most):
    """Shifts n / h, n != 0, that are correlated with lags up to `most` (D,) in either direction, (K, D)."""
    here, found, significant = np.zeros((1, len(step))), [np.zeros((0, len(step)))], np.ones(1, bool)
    while significant.any():
        ring = len(found)
        numbers = np.array(list(itertools.product(range(-ring, ring + 1), repeat=len(step))))
        shifts = numbers[np.abs(numbers).max(axis=1) == ring] / step
        nearest = np.maximum(np.abs(shifts) - most, 0.0)
        significant = kernel.cross(nearest, here)[:, 0] > NEGLIGIBLE * kernel.diagonal(here)
        found.append(shifts[significant])
    return np.vstack(found)

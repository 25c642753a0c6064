"""What a covariance of waves has more than its kernel: what comes round from other periods,

sum_{n != 0} k(lag - n / h)
"""

import itertools

import numpy as np

from bcmdist.model.kernels import Kernel

# Of the variance: covariances that are less are not felt.
FELT = 1e-10
# Lags whose covariances are looked at together.
BLOCK_LAGS = 2**13


def comes_round(kernel: Kernel, step, lags) -> np.ndarray:
    """The sum at lags (N, D) for frequencies that are `step` (D,) apart, (N,)."""
    found, shifts = np.zeros(len(lags)), _felt(kernel, step, np.abs(lags).max(axis=0, initial=0.0))
    for a in range(0, len(lags) if len(shifts) else 0, BLOCK_LAGS):
        found[a : a + BLOCK_LAGS] = kernel.cross(lags[a : a + BLOCK_LAGS], shifts).sum(axis=1)
    return found


def _felt(kernel, step, most):
    """Shifts n / h, n != 0, at which lags up to `most` (D,) either way are felt, (K, D)."""
    here, found, felt = np.zeros((1, len(step))), [np.zeros((0, len(step)))], np.ones(1, bool)
    while felt.any():
        ring = len(found)
        numbers = np.array(list(itertools.product(range(-ring, ring + 1), repeat=len(step))))
        shifts = numbers[np.abs(numbers).max(axis=1) == ring] / step
        nearest = np.maximum(np.abs(shifts) - most, 0.0)
        felt = kernel.cross(nearest, here)[:, 0] > FELT * kernel.diagonal(here)
        found.append(shifts[felt])
    return np.vstack(found)

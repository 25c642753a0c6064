"""Moments of f at an uncertain input from its slopes and curvatures there (paper D, eqs. 8-9; SYSTEMS T19).

    mean = m(u),   variance = v(u) + 1/2 tr(v''(u) S) + m'(u)' S m'(u)

S = sum_k c_k c_k' has D directions, along which m and v are differenced: any predictor has such moments, those with the
rows around each point too, and any kernel with slopes.
"""

import numpy as np

from bcmdist.prediction.latent import marginal
from bcmdist.prediction.latent_predictor import LatentPredictor

# In standard deviations of the input: at a hundredth of them the next terms of the series are 1e-4 of these, and
# rounding 1e-12.
STEP = 1e-2


def moments(predictor: LatentPredictor, U, S) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f where scaled inputs are N(U, S), (n, D) and (n, D, D)."""
    mean, variance = predictor.latent(U)
    slopes, curvatures = np.zeros_like(variance), np.zeros_like(variance)
    for c in np.moveaxis(roots(S), 2, 0):
        (m_up, v_up), (m_down, v_down) = (predictor.latent(U + step * c) for step in (STEP, -STEP))
        slopes += squared(m_up - m_down, variance.ndim) / (2.0 * STEP) ** 2
        curvatures += (v_up - 2.0 * variance + v_down) / STEP**2
    spread = variance + 0.5 * curvatures
    kept = np.where(_positive(spread), spread, variance)  # what falls below zero is beyond where the series holds
    return mean, kept + slopes


def _positive(variance) -> np.ndarray:
    """Where variances are positive, (n,) or (n, C); of covariances (n, C, C) where all are, (n, 1, 1)."""
    positive = np.greater(marginal(variance), 0.0)
    return positive.all(axis=1)[:, None, None] if variance.ndim == 3 else positive


def roots(S) -> np.ndarray:
    """C with C C' = S for covariances (n, D, D), which may be singular."""
    values, vectors = np.linalg.eigh(S)
    return vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]


def squared(mean, axes) -> np.ndarray:
    """Squares of (n,) or (n, C); with three axes, the products (n, C, C) of processes."""
    return mean[:, :, None] * mean[:, None, :] if axes == 3 else mean**2


def with_inputs(predictor: LatentPredictor, U, S) -> np.ndarray:
    """cov(f, x) = S m'(U), (n, D), of one process."""
    found = np.zeros_like(U)
    for c in np.moveaxis(roots(S), 2, 0):
        slope = (predictor.latent(U + STEP * c)[0] - predictor.latent(U - STEP * c)[0]) / (2.0 * STEP)
        found += slope[:, None] * c
    return found

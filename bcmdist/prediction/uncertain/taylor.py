"""Moments of f at an uncertain input from slopes and curvatures (paper D, eqs. 8-9; SYSTEMS T19).

    mean = m(u),   variance = v(u) + 1/2 tr(v''(u) S) + m'(u)' S m'(u)

With S = sum_k c_k c_k', m and v are differenced numerically along the D directions c_k. So this works with any
predictor, local prediction included, and any kernel with slopes.
"""

import numpy as np

from bcmdist.prediction.interface import LatentPredictor
from bcmdist.prediction.latent import marginal

# Step in standard deviations of the input: the next terms of the series are 1e-4 of those used, and rounding is 1e-12.
STEP = 1e-2


def moments(predictor: LatentPredictor, U, S) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at scaled inputs N(U, S), (n, D) and (n, D, D)."""
    mean, variance = predictor.latent(U)
    slopes, curvatures = np.zeros_like(variance), np.zeros_like(variance)
    for c in np.moveaxis(roots(S), 2, 0):
        (m_up, v_up), (m_down, v_down) = (predictor.latent(U + step * c) for step in (STEP, -STEP))
        slopes += squared(m_up - m_down, variance.ndim) / (2.0 * STEP) ** 2
        curvatures += (v_up - 2.0 * variance + v_down) / STEP**2
    spread = variance + 0.5 * curvatures
    kept = np.where(_positive(spread), spread, variance)  # negative: the series is not valid here
    return mean, kept + slopes


def _positive(variance) -> np.ndarray:
    """Whether variances are positive, (n,) or (n, C); for covariances (n, C, C), whether all are, (n, 1, 1)."""
    positive = np.greater(marginal(variance), 0.0)
    return positive.all(axis=1)[:, None, None] if variance.ndim == 3 else positive


def roots(S) -> np.ndarray:
    """C with C C' = S, for covariances (n, D, D) that may be singular."""
    values, vectors = np.linalg.eigh(S)
    return vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]


def squared(mean, axes) -> np.ndarray:
    """Squares of (n,) or (n, C); with `axes` 3, outer products over processes, (n, C, C)."""
    return mean[:, :, None] * mean[:, None, :] if axes == 3 else mean**2


def with_inputs(predictor: LatentPredictor, U, S) -> np.ndarray:
    """cov(f, x) = S m'(U), (n, D), for one process."""
    found = np.zeros_like(U)
    for c in np.moveaxis(roots(S), 2, 0):
        slope = (predictor.latent(U + STEP * c)[0] - predictor.latent(U - STEP * c)[0]) / (2.0 * STEP)
        found += slope[:, None] * c
    return found

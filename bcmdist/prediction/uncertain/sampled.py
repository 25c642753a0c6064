"""Moments of f at an uncertain input, averaged over a fixed set of draws (thesis, section 4.1.4; SYSTEMS T20).

    mean = avg m(x_t),   variance = avg v(x_t) + avg (m(x_t) - mean)^2,   x_t = u + C z_t,  C C' = S

The z_t are a scrambled Sobol sequence mapped through normal quantiles. They are the same for all points, so the result
at a row does not depend on other rows. Works with any predictor.
"""

from functools import cache

import numpy as np
from scipy.stats import qmc

from bcmdist.prediction.interface import LatentPredictor
from bcmdist.prediction.uncertain.taylor import roots, squared

DRAWS = 256  # Sobol sequences need a power of two
SEED = 0


@cache
def draws(inputs: int) -> np.ndarray:
    """Standard normal draws, (DRAWS, D), with mean exactly zero: each draw has its negative."""
    half = qmc.MultivariateNormalQMC(np.zeros(inputs), rng=np.random.default_rng(SEED)).random(DRAWS // 2)
    return np.concatenate([half, -half])


def moments(predictor: LatentPredictor, U, S) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at scaled inputs N(U, S), (n, D) and (n, D, D)."""
    C = roots(S)
    centre, spread = predictor.latent(U)
    total, squares, believed = np.zeros_like(centre), np.zeros_like(spread), np.zeros_like(spread)
    for z in draws(U.shape[1]):
        mean, variance = predictor.model.shared.predict_draws(predictor, U + C @ z)
        total += mean - centre
        squares += squared(mean - centre, spread.ndim)
        believed += variance
    gap = total / DRAWS
    return centre + gap, believed / DRAWS + squares / DRAWS - squared(gap, spread.ndim)

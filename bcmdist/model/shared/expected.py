"""Expectations of designs at an uncertain input, x ~ N(u, S)."""

from dataclasses import dataclass

import numpy as np

from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.mean import WEIGHT_SD, Mean


@dataclass(frozen=True)
class ExpectedDesign:
    """Expectations of the whitened design b(x) over x ~ N(u, S)."""

    single: FloatArray
    """E b, (S,)"""
    covariance: FloatArray
    """cov(b, b), (S, S)"""
    with_inputs: FloatArray
    """cov(b, x), (S, D)"""
    left: float
    """E k(x, x) - E b_g'b_g: the variance of the process that the shared variables do not explain"""


def expected_design(
    single: FloatArray,
    covariance: FloatArray,
    with_inputs: FloatArray,
    prior: float,
    mean: Mean,
    u: FloatArray,
    S: FloatArray,
) -> ExpectedDesign:
    """Complete the expectations of the process columns with those of the mean's columns.

    h(x) = s (1, x); a constant mean has only the first column and a zero mean has none:
    cov(b_g, h) = s (0, cov(b_g, x)),   cov(h, h) = s^2 blockdiag(0, S)

    Parameters
    ----------
    single, covariance, with_inputs : E b_g (B,), cov(b_g, b_g) (B, B) and cov(b_g, x) (B, D)
    prior : E k(x, x)
    """
    P, D = mean.weights(len(u)), len(u)
    h = WEIGHT_SD * np.concatenate([[1.0], u])[:P]
    across = WEIGHT_SD * np.column_stack([np.zeros_like(single), with_inputs])[:, :P]
    cross = WEIGHT_SD * np.vstack([np.zeros(D), S])[:P]  # cov(h, x)
    within = WEIGHT_SD * np.column_stack([np.zeros(P), cross])[:, :P]
    return ExpectedDesign(
        np.concatenate([single, h]),
        np.block([[covariance, across], [across.T, within]]),
        np.vstack([with_inputs, cross]),
        float(prior - single @ single - np.trace(covariance)),
    )

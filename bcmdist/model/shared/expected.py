"""What designs are on average where an input is uncertain, x ~ N(u, S)."""

from dataclasses import dataclass

import numpy as np

from bcmdist.model.mean import WEIGHT_SD, Mean


@dataclass(frozen=True)
class ExpectedDesign:
    """Averages of the whitened design b(x) over x ~ N(u, S)."""

    single: np.ndarray
    """E b, (S,)"""
    pairs: np.ndarray
    """E b b', (S, S)"""
    inputs: np.ndarray
    """E b x', (S, D)"""
    left: float
    """E k(x, x) - b_g'b_g: of the variance of the process, what the shared variables leave"""


def expected_design(single, pairs, inputs, prior, mean: Mean, u, S) -> ExpectedDesign:
    """That of columns of the process, E b_g (B,), E b_g b_g' (B, B) and E b_g x' (B, D), with those of the mean.

    h(x) = s (1, x), of which a constant has the first and no mean none:
    E b_g h' = s (E b_g, E b_g x'),   E h h' = s^2 (1, u)(1, u)' + s^2 blockdiag(0, S)
    """
    P, D = mean.weights(len(u)), len(u)
    h = WEIGHT_SD * np.concatenate([[1.0], u])[:P]
    across = WEIGHT_SD * np.column_stack([single, inputs])[:, :P]
    spread = WEIGHT_SD * np.vstack([np.zeros(D), S])[:P]  # cov(h, x)
    within = np.outer(h, h) + WEIGHT_SD * np.column_stack([np.zeros(P), spread])[:, :P]
    return ExpectedDesign(
        np.concatenate([single, h]),
        np.block([[pairs, across], [across.T, within]]),
        np.vstack([inputs, np.outer(h, u) + spread]),
        float(prior - np.trace(pairs)),
    )

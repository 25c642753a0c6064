"""What is known of a row's f from all others, given what is known with it."""

import numpy as np

# Share of the information about f that other rows have at least: where a row knows nearly all there is to know
# of its f, rounding could leave them nothing, or less.
LEAST_SHARE = 1e-10


def left_out(mean, variance, score, curvature) -> tuple[np.ndarray, np.ndarray]:
    """Moments of f without the row's own site: v' = v / (1 - w v), m' = m - v' score.

    Parameters
    ----------
    mean, variance : (n,), or (n, C)
        Of the posterior of f.
    score, curvature : (n,), or (n, C)
        d log p / df and w = -d2 log p / df2 of the site at the posterior mean; a Gaussian row has
        (y - mean) / noise and 1 / noise.
    """
    without = variance / np.maximum(1.0 - curvature * variance, LEAST_SHARE)
    return mean - without * score, without

"""From the committee's belief to new points (GBCM paper, section 6.4, eq. 10).

Needs the query set and the belief only, never the training data. Rows are handled in blocks, so
memory does not grow with the number of new points, and no answer depends on the other rows.
"""

import numpy as np

from bcmdist import linalg
from bcmdist.committee import Belief
from bcmdist.errors import NotPositiveDefinite
from bcmdist.query import Query

BLOCK_ROWS = 2048

# Share of the prior variance by which rounding may make a residual variance negative.
NEGATIVE_SHARE = 1e-6


def predict_latent(query: Query, belief: Belief, X):
    """Mean and variance of the latent f at the rows of X.

    b = b(x):  mean = b' m,  variance = var(f | v) + b' Lambda^-1 b

    Parameters
    ----------
    X : (n, D)
        Scaled inputs.

    Returns
    -------
    mean : (n,), variance : (n,)
    """
    mean, variance = np.empty(len(X)), np.empty(len(X))
    for start in range(0, len(X), BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, len(X)))
        mean[rows], variance[rows] = _predict_block(query, belief, X[rows])
    return mean, variance


def _predict_block(query, belief, X):
    V = query.whiten(X)
    residual = query.residual_variance(V, X)
    prior = query.kernel.diagonal(X)
    if np.any(residual < -NEGATIVE_SHARE * prior):
        raise NotPositiveDefinite(
            f"variance of f given the query values: expected at least 0, got {residual.min():.1e} at a prior "
            f"variance of {prior.max():.1e}; the kernel is no covariance or the query factor is damaged"
        )
    mean = V @ belief.mean
    A = linalg.solve_right_transposed(belief.factor, V)
    return mean, np.maximum(residual, 0.0) + np.einsum("ij,ij->i", A, A)

"""Leave-one-out identities: predictions of a row from all others, out of quantities of a fit that includes the row.

`from_precision`   rows of one joint normal distribution, from the diagonal of its inverse covariance
`cavity`           a latent value with a Gaussian site, from its posterior: the site is divided out
`downdated`        rows of a committee, from its posterior of the shared values: a change of rank one

The first and the third are exact for Gaussian rows. Otherwise sites stay where they were linearised with the row
(SYSTEMS T26).
"""

import numpy as np

from bcmdist import linalg
from bcmdist.linalg.arrays import FloatArray, FloatOrArray
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Moments

# Least share of the information about f that remains without the row. If the row itself carries nearly all of the
# information, rounding could leave zero or less.
LEAST_SHARE = 1e-10


def from_precision(pull: FloatArray, precision: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Errors y_i - E(y_i | others) and variances var(y_i | others) of rows of y ~ N(0, C).

    With T = C^-1 they are (T y)_i / T_ii and 1 / T_ii (Rasmussen & Williams 2006, eqs. 5.10 to 5.12).

    Parameters
    ----------
    pull : (k,) or (k, C), (T y)_i
    precision : T_ii, (k,), or (k, 1) for C processes with the same covariance
    """
    return pull / precision, 1.0 / precision


def cavity(
    mean: FloatArray, variance: FloatArray, score: FloatArray, curvature: FloatArray, *, prior: FloatOrArray = np.inf
) -> Moments:
    """Moments of f without the row's own site: v' = v / (1 - w v), m' = m - v' score.

    Parameters
    ----------
    mean, variance : (n,), or (n, C)
        Posterior moments of f.
    score, curvature : (n,), or (n, C)
        d log p / df and w = -d2 log p / df2 of the site at the posterior mean; for a Gaussian row
        (y - mean) / noise and 1 / noise.
    prior : (n,)
        Prior variance of f, an upper bound of v'. Rows linearised at an f other than the posterior mode may
        appear more informative than they are.
    """
    without = variance / np.maximum(1.0 - curvature * variance, np.maximum(variance / prior, LEAST_SHARE))
    return mean - without * score, without


def downdated(belief: Belief, V: FloatArray, U: FloatArray, pull: FloatArray, share: FloatArray) -> Moments:
    """Mean and variance of b_i'v at rows i, under the posterior N(m, Lambda^-1) of v without row i.

    Without row i the posterior has the natural parameters Lambda - s_i u_i u_i' and eta - s_i u_i (u_i'm + pull_i):
    a change of rank one. With h = Lambda^-1 u and c = s / (1 - s u'h)

        mean  b'm - c b'h pull,    variance  b'Lambda^-1 b + c (b'h)^2

    Parameters
    ----------
    V, U : (k, S), the b_i and the u_i
    pull, share : (k,), the pull_i and s_i; pull (k, C) for C processes with the same precision
    """
    A, B = (linalg.solve_right_transposed(belief.factor, np.array(M, order="F")) for M in (U, V))
    uu, bu, bb = (np.einsum("ij,ij->i", *pair) for pair in ((A, A), (A, B), (B, B)))
    c = share / np.maximum(1.0 - share * uu, LEAST_SHARE)
    return V @ belief.mean.T - (c * bu * pull.T).T, bb + c * bu**2

"""Moments of layers where what comes out of one is not taken for independent (Bui et al. 2016, appendix G, eqs. 20-24;
SYSTEMS D10).

All U processes of a layer see the same uncertain input, so that what comes out of them varies together. With N(m, S)
believed of the input, L = diag(l^2), and A, B as in `bcmdist.methods.deep.moments`:

    mean_u   = psi1' A_u
    cov_uw   = A_u' psi2 A_w - mean_u mean_w,  and on the diagonal  noise + a + tr(B_u psi2) - mean_u^2
    psi1_j   = a   |I + S L^-1|^-1/2   exp(-1/2 (m - z_j)' (L + S)^-1 (m - z_j))
    psi2_jk  = a^2 |I + 2 S L^-1|^-1/2 exp(-1/4 (z_j - z_k)' L^-1 (z_j - z_k) - (m - z)' (L + 2 S)^-1 (m - z)),
               z = (z_j + z_k) / 2

Of each row there are U (U + 1) / 2 numbers in place of U, and D x D systems for each: for predictions, and to see what
the independence that layers are trained with leaves out.
"""

from collections.abc import Sequence

import numpy as np

from bcmdist.methods.deep.moments import Stage


def correlated(stage: Stage, m, S) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n, U) and covariance (n, U, U) of what a layer makes of inputs N(m, S), (n, D) and (n, D, D)."""
    M = len(stage.centres)
    psi1 = _averages(stage, m, S, stage.centres, 1.0)
    pairs = stage.pairs
    psi2 = np.empty((len(m), M, M))
    each = _averages(stage, m, S, pairs.middle, 2.0) * np.exp(pairs.exponent)
    psi2[:, pairs.first, pairs.second] = psi2[:, pairs.second, pairs.first] = each
    mean = psi1 @ stage.alpha.T
    covariance = np.einsum("uj,njk,wk->nuw", stage.alpha, psi2, stage.alpha, optimize=True)
    own = np.arange(len(stage.alpha))
    covariance[:, own, own] = stage.noise + stage.variance + np.einsum("ujk,njk->nu", stage.quadratic, psi2)
    return mean, covariance - mean[:, :, None] * mean[:, None]


def correlated_through(stages: Sequence[Stage], X) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n, U) and covariance (n, U, U) of what all layers make of the rows X (n, D)."""
    m, S = X, np.zeros((*X.shape, X.shape[1]))
    for stage in stages:
        m, S = correlated(stage, m, S)
    return m, S


def _averages(stage, m, S, z, copies):
    """E of a^copies exp(-copies/2 (h - z)' L^-1 (h - z)) over h ~ N(m, S), (n, j): products of as many kernels that
    share a centre."""
    square = stage.lengthscale**2
    widened = np.diag(square) + copies * S
    apart = m[:, None] - z
    bowed = np.einsum("njd,nde,nje->nj", apart, np.linalg.inv(widened), apart, optimize=True)
    _, log_determinant = np.linalg.slogdet(widened)
    level = copies * np.log(stage.variance) - 0.5 * (log_determinant - np.log(square).sum())
    return np.exp(level[:, None] - 0.5 * copies * bowed)

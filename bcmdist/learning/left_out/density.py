"""Leave-one-out errors and densities of rows under a Gaussian process.

The posterior of f at a row is the product of the leave-one-out distribution N(m, v) and the row's own Gaussian
site; dividing by the site costs nothing (SYSTEMS T26; exact for Gaussian noise, else as accurate as the site).
"""

import numpy as np
from scipy.special import log_softmax

from bcmdist import linalg
from bcmdist.experts.evidence import posterior_variance
from bcmdist.experts.laplace import laplace_mode
from bcmdist.experts.leave_one_out import cavity, from_precision
from bcmdist.model.likelihoods import Likelihood
from bcmdist.prediction.observation import predictive

# Steepness of the label probabilities that are tried, as factors on the regression's logits; calibrated later.
STEEPNESS = 2.0 ** np.arange(-4.0, 3.5, 0.5)


def left_out_labels(K, likelihood: Likelihood, obs, rows: int) -> np.ndarray:
    """log p(label_i | all others) of the first `rows` rows, (steepness, rows), under a prior N(0, K) of f.

    Leave-one-out predictions are N(m, s^2) for each of the targets t, one of which is +1. The density of each
    possible t, over their sum, is softmax(2 m / s^2): a fit of +1 and -1 is scored by how well it separates labels.

    Raises
    ------
    NotPositiveDefinite
    """
    return label_densities(likelihood.targets(obs)[:rows], *left_out_errors(K, likelihood, obs, rows))


def label_densities(targets, error, variance) -> np.ndarray:
    """Log probability of each row's own label at each steepness, (steepness, n), from errors of +1 and -1 (n, C)."""
    logits = 2.0 * (targets - error) / variance
    own = targets > 0
    return np.array([log_softmax(steep * logits, axis=1)[own] for steep in STEEPNESS])


def densities_a_row(likelihood: Likelihood) -> int:
    """Number of log densities of each row left out: one for each steepness of class labels, else one."""
    return len(STEEPNESS) if likelihood.on_labels else 1


def normal_density(error, variance) -> np.ndarray:
    """log N(error; 0, variance)."""
    return -0.5 * (error**2 / variance + np.log(2.0 * np.pi * variance))


def _conditional_factor(K, likelihood, obs, rows):
    """Factor of the covariance of the first targets given those after them, and these targets whitened by it.

    Both are of the first `rows` rows in reverse order, for which the last block of the factor of all rows suffices. K
    is overwritten.
    """
    K[np.diag_indices_from(K)] += likelihood.noise(obs)
    L = linalg.cholesky(np.asfortranarray(K[::-1, ::-1]), name="covariance of a neighbourhood's targets")
    white = linalg.solve_lower(L, np.array(likelihood.targets(obs)[::-1], order="F"))
    return np.asfortranarray(L[-rows:, -rows:]), np.array(white[-rows:], order="F")


def left_out_errors(K, likelihood: Likelihood, obs, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out errors of the first rows, target less predicted mean, and predictive variances of the targets.

    Each row is predicted from all others; the variances include noise. K is overwritten.

    Raises
    ------
    NotPositiveDefinite
    """
    corner, white = _conditional_factor(K, likelihood, obs, rows)
    pull = linalg.solve_lower_transposed(corner, white)[::-1]
    precision = np.diag(linalg.inverse(corner))[::-1].reshape(rows, *[1] * (pull.ndim - 1))
    return from_precision(pull, precision)


def block_errors(K, likelihood: Likelihood, obs, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors (rows,) of the first rows, predicted only from the rows after them, and their variances (rows,).

    The variances include noise. K is overwritten.

    Raises
    ------
    NotPositiveDefinite
    """
    corner, white = _conditional_factor(K, likelihood, obs, rows)
    lower = np.tril(corner)
    return (lower @ white)[::-1], (lower**2).sum(axis=1)[::-1]


def left_out_densities(K, likelihood: Likelihood, obs, rows: int) -> np.ndarray:
    """log p(y_i | all others) of the first `rows` rows, (rows,), under a prior N(0, K) of f.

    For likelihoods that are not Gaussian; else see `left_out_errors`.

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    K, obs = np.asfortranarray(K[::-1, ::-1]), obs[np.arange(len(K))[::-1]]  # the last block of a factor suffices
    f = laplace_mode(K, obs, likelihood)
    w, last = likelihood.curvature(obs, f), slice(len(K) - rows, None)
    L = linalg.cholesky(linalg.identity_plus_scaled(K, np.sqrt(w)), name="I + w^1/2 K w^1/2 of a neighbourhood")
    left = np.diag(linalg.inverse(np.asfortranarray(L[last, last])))
    variance = posterior_variance(K, L, w, left)
    mean, without = cavity(f[last], variance, likelihood.score(obs, f)[last], w[last])
    own = obs[np.arange(len(K))[last]]
    return predictive(likelihood, mean, without, own).log_density(own)[::-1]

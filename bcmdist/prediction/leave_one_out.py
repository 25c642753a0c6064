"""What is known of a row's f from all others, given what is known with it."""

import numpy as np

from bcmdist import linalg
from bcmdist.experts.residual import kind_of
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared

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


def left_out_of_committee(
    shared: Shared, likelihood: Likelihood, belief: Belief, X, obs, rows, *, weight=1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at some rows of a partition, as the committee predicts each that has not heard it.

    Without row i the message of a partition lacks a a' / p and a t / p, with a = V'R^-1 e_i, p the i-th of the
    diagonal of R^-1 and t = e_i'R^-1 y (inverse of a matrix by blocks): the committee's precision changes by rank one.
    With h = Lambda^-1 a and s = p - a'h

        mean  b'm - b'h e_i'R^-1 (y - V m) / s,    variance  var(f | v) + b'Lambda^-1 b + (b'h)^2 / s

    Parameters
    ----------
    likelihood : a normal one
    belief : of the committee that has heard the partition
    X, obs : the rows of the partition, (n, D) scaled
    rows : (k,) numbers of those that are left out, one by one
    weight : how many times the partition counts
    """
    V, kind = shared.design(X), kind_of(shared)
    R = kind.residual(shared, V, X).factor(likelihood.noise(obs))
    a = np.asfortranarray(R.solve(V.copy(order="F"))[rows].T)
    h = linalg.cholesky_solve(belief.factor, a.copy(order="F"))
    information = R.inverse_diagonal(rows) / weight
    left = np.maximum(information - np.einsum("ij,ij->j", a, h), LEAST_SHARE * information)
    b = V[rows]
    reach = np.einsum("ij,ji->i", b, h)
    pull = R.solve(likelihood.targets(obs) - V @ belief.mean)[rows]
    spread = linalg.solve_right_transposed(belief.factor, b.copy(order="F"))
    variance = kind.variance(shared, b, X[rows]) + np.einsum("ij,ij->i", spread, spread)
    return b @ belief.mean - reach * pull / left, variance + reach**2 / left

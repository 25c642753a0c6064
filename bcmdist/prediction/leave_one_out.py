"""What is known of a row's f from all others, given what is known with it."""

import numpy as np

from bcmdist import linalg
from bcmdist.experts.residual import kind_of
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.latent import mixed

# Share of the information about f that other rows have at least: where a row knows nearly all there is to know
# of its f, rounding could leave them nothing, or less.
LEAST_SHARE = 1e-10


def left_out(mean, variance, score, curvature, *, prior=np.inf) -> tuple[np.ndarray, np.ndarray]:
    """Moments of f without the row's own site: v' = v / (1 - w v), m' = m - v' score.

    Parameters
    ----------
    mean, variance : (n,), or (n, C)
        Of the posterior of f.
    score, curvature : (n,), or (n, C)
        d log p / df and w = -d2 log p / df2 of the site at the posterior mean; a Gaussian row has
        (y - mean) / noise and 1 / noise.
    prior : (n,)
        Variance of f before anything was absorbed, which no v' exceeds: where rows were linearised at other f's than
        the posterior's mode, they may seem to know more than there is.
    """
    without = variance / np.maximum(1.0 - curvature * variance, np.maximum(variance / prior, LEAST_SHARE))
    return mean - without * score, without


def freed(shared: Shared, belief: Belief, V, X, U, pull, share) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at some rows, under the belief of a committee that each has been taken out of.

    The others say without row i: precision - s_i u_i u_i', eta - s_i u_i (u_i'm + pull_i), so that the belief changes
    by rank one. With b the design of the row, h = Lambda^-1 u and c = s / (1 - s u'h)

        mean  b'm - c b'h pull,    variance  var(f | v) + b'Lambda^-1 b + c (b'h)^2

    Parameters
    ----------
    V, X : design (k, S) and scaled inputs (k, D) of the rows
    U : (k, S)
    pull, share : (k,)
    """
    A, B = (linalg.solve_right_transposed(belief.factor, np.array(M, order="F")) for M in (U, V))
    uu, bu, bb = (np.einsum("ij,ij->i", *pair) for pair in ((A, A), (A, B), (B, B)))
    c = share / np.maximum(1.0 - share * uu, LEAST_SHARE)
    return V @ belief.mean - c * bu * pull, kind_of(shared).variance(shared, V, X) + bb + c * bu**2


def left_out_of_committee(
    shared: Shared, likelihood: Likelihood, belief: Belief, X, obs, rows, *, weight=1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at some rows of a partition, as the committee predicts each that has not absorbed it.

    Without row i the message of a partition lacks u u' / p and u t / p, with u = V'R^-1 e_i, p the i-th of the
    diagonal of R^-1 and t = e_i'R^-1 y (inverse of a matrix by blocks); see `freed`. Of members side by side, the
    mixture of what each says without the row.

    Parameters
    ----------
    likelihood : a normal one
    belief : of the committee that has absorbed the partition
    X, obs : the rows of the partition, (n, D) scaled
    rows : (k,) numbers of those that are left out, one by one
    weight : how many times the partition counts
    """
    if shared.members:
        each = (
            left_out_of_committee(one.shared, likelihood, belief[k], X, one.absorbed(obs), rows, weight=weight)
            for k, one in enumerate(shared.members)
        )
        return mixed(each)
    return shared.leave_one_out(likelihood, X, obs, belief, rows, weight, None, _left_out_of_committee)


def _left_out_of_committee(shared, likelihood, X, obs, belief, rows, weight, at):
    V = shared.design(X)
    R = kind_of(shared).residual(shared, V, X).factor(likelihood.noise(obs))
    U = R.solve(V.copy(order="F"))[rows]
    pull = R.solve(likelihood.targets(obs) - V @ belief.mean)[rows]
    return freed(shared, belief, V[rows], X[rows], U, pull, weight / R.inverse_diagonal(rows))

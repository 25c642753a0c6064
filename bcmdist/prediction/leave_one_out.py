"""Leave-one-out predictions of f at a training row, from a posterior that includes the row."""

import numpy as np

from bcmdist import linalg
from bcmdist.experts.residual import kind_of
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.latent import mixed

# Least share of the information about f that remains without the row. If the row itself carries nearly all of the
# information, rounding could leave zero or less.
LEAST_SHARE = 1e-10


def left_out(mean, variance, score, curvature, *, prior=np.inf) -> tuple[np.ndarray, np.ndarray]:
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


def freed(shared: Shared, belief: Belief, V, X, U, pull, share) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at some rows, each under the committee's posterior without that row.

    Without row i the posterior has the natural parameters precision - s_i u_i u_i' and eta - s_i u_i (u_i'm + pull_i):
    a rank-one change. With b the design of the row, h = Lambda^-1 u and c = s / (1 - s u'h)

        mean  b'm - c b'h pull,    variance  var(f | v) + b'Lambda^-1 b + c (b'h)^2

    Parameters
    ----------
    V, X : design (k, S) and scaled inputs (k, D) of the rows
    U : (k, S), the u_i
    pull, share : (k,), the pull_i and s_i
    """
    A, B = (linalg.solve_right_transposed(belief.factor, np.array(M, order="F")) for M in (U, V))
    uu, bu, bb = (np.einsum("ij,ij->i", *pair) for pair in ((A, A), (A, B), (B, B)))
    c = share / np.maximum(1.0 - share * uu, LEAST_SHARE)
    return V @ belief.mean - c * bu * pull, kind_of(shared).variance(shared, V, X) + bb + c * bu**2


def left_out_of_committee(
    shared: Shared, likelihood: Likelihood, belief: Belief, X, obs, rows, *, weight=1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out mean and variance of f at some rows of an absorbed partition.

    Without row i the message of a partition lacks u u' / p and u t / p, with u = V'R^-1 e_i, p the i-th diagonal entry
    of R^-1 and t = e_i'R^-1 y (block matrix inverse); see `freed`. If the model has members, the result is the mixture
    of their leave-one-out predictions.

    Parameters
    ----------
    likelihood : Gaussian
    belief : posterior of the committee that has absorbed the partition
    X, obs : rows of the partition, X (n, D) scaled
    rows : (k,) positions of the rows to leave out, one at a time
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

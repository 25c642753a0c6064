"""Loss of local predictions with half of the query points: would more query points help?

With L L' = Kqq, the first of the whitened values v = L^-1 f^q depend on the first query points alone. So half of the
query set corresponds to the first columns of the design and the marginal posterior of the first values. Leave-one-out
predictions of local experts are compared with and without the other half. If half does as well, doubling the query
points would hardly help.
"""

import numpy as np

from bcmdist import linalg
from bcmdist.experts.leave_one_out import from_precision
from bcmdist.model.shared.belief import Belief, Factored
from bcmdist.prediction.local.expert import LocalExpert

# Least share of the information about a row that remains without it. Approximate, as halos are not partitions.
LEAST_SHARE = 0.05
# Least precision of a row; smaller values are raised to this.
LEAST_CURVATURE = 1e-10


def half_of(points, shared) -> np.ndarray:
    """Positions of the shared values that remain with half of the query points.

    These are the first half of the values at query points, and all values that do not belong to query points.
    """
    return np.concatenate([np.arange((points + 1) // 2), np.arange(points, shared)])


def marginal(belief: Belief, kept) -> Belief:
    """Marginal posterior of some of the shared values of one process."""
    inverse = linalg.inverse(np.asfortranarray(belief.factor))
    covariance = np.asfortranarray(inverse[np.ix_(kept, kept)])
    precision = linalg.inverse(linalg.cholesky(covariance, name="covariance of half of the query values"))
    factor = linalg.cholesky(np.asfortranarray(precision), name="precision of half of the query values")
    return Factored(belief.mean[..., kept], factor)


def left_out_densities(T, pull, V, belief: Belief, rows) -> np.ndarray:
    """Leave-one-out log densities of the targets of some rows of a local expert, (k,), up to a constant.

    Let T = (cov(f | v) + Psi)^-1 and p its i-th diagonal entry. Given v and the other rows, row i is N(y_i - g, 1 / p)
    with p g = e_i'T (y - V v): a Gaussian site along a = V'T e_i / p, which is removed from the posterior of v. With m
    the posterior mean and h = p a'Lambda^-1 a, the share of row i in the information along a,

        gap  g(m) / (1 - h),    variance  1 / (p (1 - h))

    Exact if the rows are a partition of the committee.

    Parameters
    ----------
    T : (n, k), the columns of the rows
    pull : (k,) T (y - V m) at the rows, or (k, C) for processes over which the log density is averaged
    V : (n, S)
    rows : (k,)
    """
    p = np.maximum(T[rows, np.arange(len(rows))], LEAST_CURVATURE)
    gap, _ = from_precision(pull.reshape(len(rows), -1), p[:, None])
    a = linalg.solve_right_transposed(belief.factor, np.asfortranarray(T.T @ V / p[:, None]))
    others = np.maximum(1.0 - p * np.einsum("ij,ij->i", a, a), LEAST_SHARE)
    return 0.5 * (np.log(p * others) - p * (gap**2).mean(axis=1) / others)


def query_losses(expert: LocalExpert, belief: Belief, points, rows) -> np.ndarray:
    """Leave-one-out log density of rows of a local expert minus that with half of the query points, (k,), in nats.

    Without the columns U of the design the residual covariance grows by U U', so that the existing factor gives

        T' = T - T U G U'T,    T' (y - V'm') = T' (y - V m) + T' U m_u,    G = (I + U'T U)^-1

    Other likelihoods are made Gaussian at the mode. If processes have different sites, only the first is used.
    """
    site, V, S = expert.sites[0], expert.V, expert.V.shape[1]
    pull = expert.pull.reshape(len(V), -1)
    pull = pull[:, : pull.shape[1] // len(expert.sites)]
    belief = Factored(belief.mean.reshape(-1, S)[: pull.shape[1]], belief.factor.reshape(-1, S, S)[0])
    kept = half_of(points, S)
    lost = np.setdiff1d(np.arange(S), kept)
    if not len(lost):
        return np.zeros(len(rows))
    half, U = marginal(belief, kept), V[:, lost]
    E = np.zeros((len(V), len(rows)), order="F")
    E[rows, np.arange(len(rows))] = 1.0
    T, _ = site.times(E)
    root = linalg.cholesky(
        np.eye(len(lost), order="F") + site.within(U.copy()), name="I + U'T U of half of the query points"
    )
    without = T - site.times(U @ linalg.cholesky_solve(root, U.T @ T))[0]
    less = pull[rows] - (U.T @ T).T @ linalg.cholesky_solve(root, U.T @ pull)
    less += without.T @ (U @ belief.mean[:, lost].T)
    whole = left_out_densities(T, pull[rows], V, belief, rows)
    return whole - left_out_densities(without, less, V[:, kept], half, rows)

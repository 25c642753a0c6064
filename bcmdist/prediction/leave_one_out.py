"""Leave-one-out predictions of f at rows that a committee has absorbed.

With pseudo-targets z, Gaussian sites of the rows of a partition, and P = cov(z | v)^-1, the committee without row i has
the natural parameters

    precision - weight u_i u_i' / P_ii,    eta - weight u_i (P z)_i / P_ii,    u_i = V' P e_i

(the inverse of a matrix without one row and column), a change of rank one: see `leave_one_out.downdated` of the
experts. Exact for Gaussian rows. For other likelihoods the remaining sites stay as they are, linearised with row i
absorbed (SYSTEMS T26).
"""

import numpy as np

from bcmdist.committee.facts import Facts
from bcmdist.experts.expert import find_mode
from bcmdist.experts.laplace import regress
from bcmdist.experts.leave_one_out import downdated
from bcmdist.experts.residual import kind_of
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.latent import mixed
from bcmdist.storage.entry import RUNNING


def sites_repeat(facts: Facts) -> bool:
    """Whether the sites of rows can be recomputed.

    Sites of expectation propagation match moments, and those of a running linearisation depend on the order of the
    rows; neither can be recomputed.
    """
    return facts.linearisation.approximation == "laplace" and facts.linearisation.linearise != RUNNING


def as_absorbed_through(model: Model, belief: Belief, query: int | None) -> tuple[Shared, Belief]:
    """The shared variables of a model's query set of this number, and the marginal belief about them."""
    lift = model.lift(query)
    return (model.shared, belief) if lift is None else (model.through(query).shared, lift.belief(belief))


def left_out_of_committee(
    shared: Shared, likelihood: Likelihood, belief: Belief, X, obs, rows=slice(None), *, weight=1.0, at=None
) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out mean and variance of f at some rows of an absorbed partition, (k,) each, or (k, C) for C processes
    with Gaussian rows.

    If the model has members, the result is the mixture of their leave-one-out predictions.

    Parameters
    ----------
    belief : posterior of the committee that has absorbed the partition
    X, obs : all rows of the partition, X (n, D) scaled
    rows : slice or positions (k,) of the rows to leave out, one at a time
    weight : how many times the committee counts the partition
    at : (S,) shared values at which the rows were linearised; None: at their own mode. Not used for Gaussian rows
    """
    if shared.members:
        each = (
            left_out_of_committee(one.shared, likelihood, belief[k], X, one.absorbed(obs), rows, weight=weight, at=at)
            for k, one in enumerate(shared.members)
        )
        return mixed(each)
    return shared.leave_one_out(likelihood, X, obs, belief, rows, weight, at, _left_out_of_committee)


def _left_out_of_committee(shared, likelihood, X, obs, belief, rows, weight, at):
    V, rows = shared.design(X), np.arange(len(X))[rows]
    sites = _gaussian_sites if likelihood.exact else _laplace_sites
    U, pull, precision = sites(shared, likelihood, V, X, obs, belief, rows, at)
    share = np.divide(weight, precision, out=np.zeros(len(rows)), where=precision > 0.0)
    mean, variance = downdated(belief, V[rows], U, pull, share)
    variance = kind_of(shared).variance(shared, V[rows], X[rows]) + variance
    return mean, variance if mean.ndim == 1 else np.tile(variance[:, None], mean.shape[1])


def _gaussian_sites(shared, likelihood, V, X, obs, belief, rows, at):
    """u_i (k, S), e_i'P (z - V m) and P_ii (k,) of rows, where z are the targets and m is the belief's mean."""
    R = kind_of(shared).residual(shared, V, X).factor(likelihood.noise(obs))
    pull = R.solve(likelihood.targets(obs) - V @ belief.mean.T)
    return R.solve(V.copy(order="F"))[rows], pull[rows], R.inverse_diagonal(rows)


def _laplace_sites(shared, likelihood, V, X, obs, belief, rows, at):
    """As `_gaussian_sites`, for sites at the mode of f."""
    kind = kind_of(shared)
    prior, residual = kind.own_prior(shared, V, X) if at is None else (None, kind.residual(shared, V, X))
    f = find_mode(prior, obs, likelihood) if at is None else find_mode(residual.covariance, obs, likelihood, V @ at)
    w = likelihood.curvature(obs, f)
    root, factor = np.sqrt(w), residual.site(w)
    a = regress(factor, root, residual, w * f + likelihood.score(obs, f))  # P z
    U = root[:, None] * factor.solve(root[:, None] * V)
    return U[rows], (a - U @ belief.mean)[rows], (w * factor.inverse_diagonal(np.arange(len(f))))[rows]

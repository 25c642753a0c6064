"""Leave-one-out predictions at rows that a committee has absorbed.

If the sites of a partition's rows are Gaussian, with pseudo-targets z and P = cov(z | v)^-1, the committee without row
i has the natural parameters

    precision - u_i u_i' / P_ii,    eta - u_i (P z)_i / P_ii,    u_i = V' P e_i

(the inverse of a matrix without one row and column): see `leave_one_out.freed`. Exact for Gaussian rows. For other
likelihoods the remaining sites stay as they are, linearised with row i absorbed (SYSTEMS T26).
"""

from dataclasses import dataclass

import numpy as np

from bcmdist.committee.facts import Facts
from bcmdist.experts.contributions import load_values
from bcmdist.experts.expert import find_mode
from bcmdist.experts.laplace import regress
from bcmdist.experts.residual import kind_of
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared
from bcmdist.model.targets import model_rows
from bcmdist.prediction.errors.platt_scaling import HeldOutRows
from bcmdist.prediction.interface import load_fitted
from bcmdist.prediction.leave_one_out import freed
from bcmdist.storage.commits import BlobReference, Reference
from bcmdist.storage.ledger import RUNNING


def sites_repeat(facts: Facts) -> bool:
    """Whether the sites of rows can be recomputed.

    Sites of expectation propagation match moments, and those of a running linearisation depend on the order of the
    rows; neither can be recomputed.
    """
    return facts.linearisation.approximation == "laplace" and facts.linearisation.linearise != RUNNING


@dataclass(frozen=True)
class LeftOutByCommittee:
    """Task: leave-one-out latent predictions and targets at up to `most` rows of a partition."""

    fitted: Reference
    most: int
    at: BlobReference | None = None
    """shared values at which the rows were linearised; None: each expert at its own mode"""

    def __call__(self, part, rows) -> HeldOutRows:
        fitted = load_fitted(self.fitted)
        model = fitted.model
        X, obs = model_rows(model, part, rows)
        at = load_values(self.at, model) if self.at else None
        some = np.linspace(0, len(X) - 1, min(len(X), self.most)).astype(int)
        how = {"some": some, "at": at, "copies": part.weight}
        mean, variance = left_out_rows(model.shared, model.likelihood, X, obs, fitted.belief, **how)
        return HeldOutRows(mean, variance, obs.y[some], obs.weight[some])


def left_out_rows(
    shared: Shared, likelihood: Likelihood, X, obs, belief: Belief, *, some=slice(None), at=None, copies=1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out mean and variance of f at some of the scaled rows X (n, D).

    Parameters
    ----------
    some : slice or positions (k,) of the rows to predict; the mode needs all rows
    at : (S,) shared values at which the rows were linearised; None: at their own mode
    copies : how many times the committee counts the rows

    Returns
    -------
    mean, variance : (k,)
    """
    return shared.leave_one_out(likelihood, X, obs, belief, some, copies, at, _left_out_rows)


def _left_out_rows(shared, likelihood, X, obs, belief, some, copies, at):
    V, kind = shared.design(X), kind_of(shared)
    prior, Lam = kind.own_prior(shared, V, X) if at is None else (None, kind.residual(shared, V, X))
    f = find_mode(prior, obs, likelihood) if at is None else find_mode(Lam.covariance, obs, likelihood, V @ at)
    w = likelihood.curvature(obs, f)
    root, factor = np.sqrt(w), Lam.site(w)
    a = regress(factor, root, Lam, w * f + likelihood.score(obs, f))  # P z
    own = w * factor.inverse_diagonal(np.arange(len(f)))  # P_ii
    U = root[:, None] * factor.solve(root[:, None] * V)
    share = np.divide(copies, own, out=np.zeros(len(f)), where=own > 0.0)
    pull = a - U @ belief.mean
    return freed(shared, belief, V[some], X[some], U[some], pull[some], share[some])

"""What a committee says of rows that it has heard, of each as if it had not been heard.

Where the sites of a partition's rows are Gaussian, with pseudo-targets z and P = cov(z | v)^-1, the others say without
row i

    precision - u_i u_i' / P_ii,    eta - u_i (P z)_i / P_ii,    u_i = V' P e_i

(the inverse of a matrix less a row and column): see `leave_one_out.freed`. Exact for Gaussian rows; for others the
sites of the rest stay as they are, linearised where row i has been heard (SYSTEMS T26).
"""

from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from bcmdist.committee.facts import Facts
from bcmdist.experts.expert import find_mode
from bcmdist.experts.fourier import WaveCovariance
from bcmdist.experts.laplace import regress
from bcmdist.experts.loading import load_values
from bcmdist.experts.residual import kind_of
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.fourier.features import Fourier
from bcmdist.model.shared.interface import Shared
from bcmdist.model.targets import model_rows
from bcmdist.prediction.calibration import HeldOutRows
from bcmdist.prediction.fitted import load_fitted
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import freed, left_out
from bcmdist.storage.commits import BlobReference, Reference
from bcmdist.storage.ledger import RUNNING


def sites_repeat(facts: Facts) -> bool:
    """Whether the sites of rows can be worked out again: those of expectation propagation match moments, and those of a
    running linearisation depend on their order."""
    return facts.approximation == "laplace" and facts.linearise != RUNNING


@dataclass(frozen=True)
class LeftOutByCommittee:
    """Latent predictions and targets at the rows of a partition, each without itself, as a task."""

    fitted: Reference
    at: BlobReference | None = None
    """shared values given which rows were linearised; None: each expert at its own mode"""

    def __call__(self, part, rows) -> HeldOutRows:
        fitted = load_fitted(self.fitted)
        model = fitted.model
        X, obs = model_rows(model, part, rows)
        at = load_values(self.at, model) if self.at else None
        mean, variance = left_out_rows(model.shared, model.likelihood, X, obs, fitted.belief, at=at, copies=part.weight)
        return HeldOutRows(mean, variance, obs.y, obs.weight)


@singledispatch
def left_out_rows(
    shared: Shared, likelihood: Likelihood, X, obs, belief: Belief, *, at=None, copies=1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at each of the rows X (n, D), scaled, under a belief that has heard all but that one.

    Parameters
    ----------
    at : (S,) shared values given which they were linearised; None: at their own mode
    copies : how often the committee counts them

    Returns
    -------
    mean, variance : (n,)
    """
    V, kind = shared.design(X), kind_of(shared)
    prior, Lam = kind.own_prior(shared, V, X) if at is None else (None, kind.residual(shared, V, X))
    f = find_mode(prior, obs, likelihood) if at is None else find_mode(Lam.covariance, obs, likelihood, V @ at)
    w = likelihood.curvature(obs, f)
    root, factor = np.sqrt(w), Lam.site(w)
    a = regress(factor, root, Lam, w * f + likelihood.score(obs, f))  # P z
    own = w * factor.inverse_diagonal(np.arange(len(f)))  # P_ii
    U = root[:, None] * factor.solve(root[:, None] * V)
    share = np.divide(copies, own, out=np.zeros(len(f)), where=own > 0.0)
    return freed(shared, belief, V, X, U, a - U @ belief.mean, share)


@left_out_rows.register
def _(shared: Fourier, likelihood, X, obs, belief, *, at=None, copies=1.0):
    """Nothing couples rows: the Gaussian site of each, w and w f + s, is taken out of what is believed of it."""
    mean, variance = predict_latent(shared, belief, X)
    f = find_mode(WaveCovariance(shared, X), obs, likelihood) if at is None else shared.values(X, at[None])[0]
    w = likelihood.curvature(obs, f)
    pull = w * (f - mean) + likelihood.score(obs, f)
    return left_out(mean, variance, copies * pull, copies * w)

"""Effective degrees of freedom: how many parameters the data determine (GBCM paper, section 6.1; SYSTEMS I.8).

    P_eff = tr K (K + W^-1)^-1 = sum_j w_j var(f_j | all targets)

with the weights w of the (linearised) likelihood; one number per expert once the belief is known. What is
seen of them through the query set is tr(I - Lambda^-1) (`Committee.degrees_of_freedom`). With too few
query points P_eff is overstated: the rest of f is then taken for local wiggles.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.experts.expert import find_mode
from bcmdist.experts.residual import kind_of
from bcmdist.model.targets import model_rows
from bcmdist.prediction.fitted import load_fitted
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class Degrees:
    """Effective degrees of freedom of a partition under a fitted model, as a task."""

    fitted: Reference

    def __call__(self, part, rows) -> float:
        fitted = load_fitted(self.fitted)
        model = fitted.model
        X, obs = model_rows(model, part, rows)
        return part.weight * degrees_share(model.shared, model.likelihood, X, obs, fitted.belief)


def degrees_share(shared, likelihood, X, obs, belief) -> float:
    """One expert's part of P_eff, the mean over processes; rows X (n, D), belief of the whole committee.

    Of members side by side, the mean over these.
    """
    if shared.members:
        each, own = likelihood.each, enumerate(shared.members)
        return float(np.mean([degrees_share(one.shared, each, X, one.heard(obs), belief[k]) for k, one in own]))
    return shared.degrees_share(likelihood, X, obs, belief, _degrees_share)


def _degrees_share(shared, likelihood, X, obs, belief):
    V = shared.design(X)
    Lam = kind_of(shared).residual(shared, V, X)
    if likelihood.exact:
        w = (1.0 / likelihood.noise(obs))[:, None]
    else:
        prior_mean = V @ belief.mean.T
        w = likelihood.curvature(obs, find_mode(Lam.covariance, obs, likelihood, prior_mean)).reshape(len(X), -1)
    factors = belief.factor if belief.factor.ndim == 3 else [belief.factor] * w.shape[1]
    return float(np.mean([_trace(V, Lam, w[:, c], factor) for c, factor in enumerate(factors)]))


def _trace(V, Lam, w, factor):
    """sum w_j (Lam - Lam T Lam + M Lambda^-1 M')_jj with T = (Lam + w^-1)^-1 and M = (I + Lam w)^-1 V."""
    left, M = Lam.left(w, V)
    spread = linalg.solve_lower(factor, np.asfortranarray(M.T))
    return w @ (left + np.einsum("ij,ij->j", spread, spread))

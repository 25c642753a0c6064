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
        return part.weight * degrees_share(model.query, model.likelihood, X, obs, fitted.belief)


def degrees_share(query, likelihood, X, obs, belief) -> float:
    """One expert's part of P_eff, the mean over processes; rows X (n, D), belief of the whole committee."""
    V = query.whiten(X)
    Lam = linalg.mirror(query.residual_lower(V, query.kernel.cross(X, X)))
    if likelihood.exact:
        w = (1.0 / likelihood.noise(obs))[:, None]
    else:
        prior_mean = V @ belief.mean.T
        w = likelihood.curvature(obs, find_mode(Lam, obs, likelihood, prior_mean)).reshape(len(X), -1)
    factors = belief.factor if belief.factor.ndim == 3 else [belief.factor] * w.shape[1]
    return float(np.mean([_trace(V, Lam, w[:, c], factor) for c, factor in enumerate(factors)]))


def _trace(V, Lam, w, factor):
    """sum w_j (Lam - Lam T Lam + M Lambda^-1 M')_jj with T = (Lam + w^-1)^-1 and M = (I + Lam w)^-1 V."""
    root = np.sqrt(w)
    L = linalg.cholesky(linalg.identity_plus_scaled(Lam, root), name="I + w^1/2 Lam w^1/2")
    C = linalg.solve_lower(L, np.multiply(root[:, None], Lam, order="F"))
    M = V - C.T @ linalg.solve_lower(L, np.multiply(root[:, None], V, order="F"))
    spread = linalg.solve_lower(factor, np.asfortranarray(M.T))
    variance = np.diag(Lam) - np.einsum("ij,ij->j", C, C) + np.einsum("ij,ij->j", spread, spread)
    return w @ variance

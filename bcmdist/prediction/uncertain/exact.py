"""Exact moments of f at an uncertain input, from the committee's posterior alone (thesis, section 4.1.1; SYSTEMS T18).

Let f(x) = b(x)'v + r(x) with v ~ N(m, Lambda^-1) and x ~ N(u, S). With moments of b over x,

    mean      E b' m
    variance  E var(r(x)) + E b' Lambda^-1 E b + tr(Lambda^-1 cov b) + m' cov(b) m
    cov(f, x) m' cov(b, x)

For models with members these are the moments of the mixture; the input error is shared by all members.

All computations use whitened variables. No inverse of a covariance of query values is formed: in terms of the rows'
values (the thesis's beta and Omega) it would lose digits with its condition number. The cost per point is cubic in the
number of shared variables.
"""

import numpy as np

from bcmdist import linalg
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import kind_of
from bcmdist.model.shared.belief import Belief, Factored
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.fitted import Fitted
from bcmdist.prediction.latent import mixed, of_members


def refuse(predictor, snapshot) -> None:
    """Raise `InvalidOption` if these moments have no closed form."""
    model, belief = snapshot.model, snapshot.committee.posterior
    if predictor is not Fitted:
        raise InvalidOption(
            "inputs: expected predictions of the committee alone for exact averages, got another method; give --inputs "
            "montecarlo or taylor, or --method committee"
        )
    if not isinstance(belief, Factored):
        raise InvalidOption(
            f"inputs: expected query points, bumps or hidden units for exact averages, got {model.shared.noun}; give "
            "--inputs montecarlo or taylor"
        )
    if belief.mean.ndim == 1 and len(belief.mean) > model.shared.size:
        raise InvalidOption(
            f"inputs: expected processes apart for exact averages, got {model.likelihood.name}, which couples them; "
            "give --inputs montecarlo"
        )
    for shared in [one.shared for one in model.shared.members] or [model.shared]:
        shared.expected(np.zeros(model.inputs), np.zeros((model.inputs, model.inputs)))


def moments(predictor: Fitted, U, S) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f, (n,) or (n, C) each, at scaled inputs N(U, S), (n, D) and (n, D, D)."""
    return _moments(predictor.model.shared, predictor.belief, U, S)


def _moments(shared, belief, U, S):
    if shared.members:
        return of_members(shared, [_moments(one.shared, belief[k], U, S) for k, one in enumerate(shared.members)])
    processes = belief.mean.shape[:-1]
    mean, variance = np.empty((len(U), *processes)), np.empty((len(U), *processes))
    for i, (u, s) in enumerate(zip(U, S, strict=True)):
        mean[i], variance[i], _ = moments_at(shared, belief, u, s)
    return mean, variance


def moments_at(shared: Shared, belief: Belief, u, S) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of f, (...), and its covariance with x, (..., D), for one scaled input x ~ N(u, S).

    For a mixture of members the covariance with x is the mean of the members' covariances, as x is shared.
    """
    if shared.mixture and shared.members:
        each = [moments_at(one.shared, belief[k], u, S) for k, one in enumerate(shared.members)]
        return *mixed((mean, variance) for mean, variance, _ in each), np.mean([one for _, _, one in each], axis=0)
    said, m = shared.expected(u, S), belief.mean
    factors = belief.factor.reshape(-1, *belief.factor.shape[-2:])
    believed = np.array([_believed(L, said) for L in factors]).reshape(belief.factor.shape[:-2])
    moved = np.einsum("...i,ij,...j->...", m, said.covariance, m)
    left = max(kind_of(shared).keeps * said.left, 0.0)
    return m @ said.single, left + believed + np.maximum(moved, 0.0), m @ said.with_inputs


def _believed(L, said):
    """E b' (L L')^-1 b."""
    at_mean = linalg.solve_lower(np.asfortranarray(L), said.single.copy())
    return at_mean @ at_mean + np.trace(linalg.cholesky_solve(np.asfortranarray(L), said.covariance.copy(order="F")))

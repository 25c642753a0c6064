"""The expert: computes the message of one partition's rows about the shared variables.

Gaussian likelihoods need no approximation. Any other likelihood is approximated by a Gaussian at a mode (`laplace`,
`softmax`). The message follows from the whitened form of Appendix B of the GBCM paper (SYSTEMS I.4, I.7). The
`Residual` defines how an expert treats the part of f that the shared variables do not explain. A kind of shared
variables may override these computations (`Shared.expert_message` and similar methods); each override receives the
default here as a fallback.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.experts import softmax
from bcmdist.experts.laplace import laplace_message, laplace_mode, log_joint, step_message
from bcmdist.experts.message import Message, stacked, zero_message
from bcmdist.experts.residual import Kind, Residual, kind_of, refuse_coupled_classes
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.likelihoods import Likelihood, OneProcess
from bcmdist.model.likelihoods.multiclass import AnySoftmax
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared


@dataclass(frozen=True)
class Linearised:
    """A message with the quantities that the line search between passes needs."""

    message: Message
    objective: float
    """log p(y, f | v) at the mode f, up to a constant of f and v"""
    step: Message | None
    """message that gives the next Newton step where `message` uses expected weights; None where not needed"""

    def weighted(self, weight: float) -> "Linearised":
        """The same for rows that each count `weight` times."""
        step = None if self.step is None else self.step.weighted(weight)
        return Linearised(self.message.weighted(weight), weight * self.objective, step)


def expert_message(shared: Shared, likelihood: Likelihood, X: FloatArray, obs: Observations) -> Message:
    """Message of the rows X (n, D), scaled, with targets `obs`, computed from these rows alone.

    This is the expert of the GBCM paper, and pass 1. No rows give the zero message. Where the shared variables have
    members, return the stacked messages of all members.

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    message: Message = shared.expert_message(likelihood, X, obs, _expert_message)
    return message


def _expert_message(shared: Shared, likelihood: Likelihood, X: FloatArray, obs: Observations) -> Message:
    if len(X) == 0:
        return zero_message(shared, likelihood)
    if shared.members:
        return stacked([expert_message(one.shared, likelihood.each, X, one.absorbed(obs)) for one in shared.members])
    V, kind = shared.design(X), _kind(shared, likelihood)
    if likelihood.exact:
        return gaussian_message(V, kind.residual(shared, V, X), likelihood.targets(obs), likelihood.noise(obs))
    prior, Lam = kind.own_prior(shared, V, X)
    f = find_mode(prior, obs, likelihood)
    return _linearised_message(V, Lam, obs, likelihood, f)


def conditional_message(
    shared: Shared, likelihood: Likelihood, X: FloatArray, obs: Observations, mean: FloatArray
) -> Linearised:
    """Message of the rows linearised at their mode given that the shared variables equal `mean`.

    This is an expert in a later pass: f = argmax log p(y | f) + log N(f; V mean, Lam) depends only on the rows and on
    `mean`, so no state is kept between passes. Maximising the sum of all messages over v, or of all `step` messages,
    is a Newton step towards the joint mode of all experts (SYSTEMS I.5, schedule i').

    Parameters
    ----------
    mean : (S,), or (C, S) for C processes
    """
    found: Linearised = shared.conditional_message(likelihood, X, obs, mean, _conditional_message)
    return found


def _conditional_message(
    shared: Shared, likelihood: Likelihood, X: FloatArray, obs: Observations, mean: FloatArray
) -> Linearised:
    if shared.members:
        each, own = likelihood.each, zip(shared.members, mean, strict=True)
        return _side_by_side([conditional_message(one.shared, each, X, one.absorbed(obs), v) for one, v in own])
    V = shared.design(X)
    Lam = _kind(shared, likelihood).residual(shared, V, X)
    prior_mean = V @ mean.T
    f = find_mode(Lam.covariance, obs, likelihood, prior_mean)
    objective = log_joint(obs, likelihood, f, prior_mean)
    step = None if likelihood.log_concave else step_message(V, Lam, obs, cast(OneProcess, likelihood), f)
    return Linearised(_linearised_message(V, Lam, obs, likelihood, f), objective, step)


def _side_by_side(each: Sequence[Linearised]) -> Linearised:
    """Join the members' results for log-concave likelihoods, each linearised at its own shared values."""
    return Linearised(stacked([one.message for one in each]), sum(one.objective for one in each), None)


def running_message(
    shared: Shared, likelihood: Likelihood, X: FloatArray, obs: Observations, belief: Belief
) -> Message:
    """Message of rows linearised at their mode under the current belief, cov(f) = Lam + V Lambda^-1 V'.

    The message does not include the belief and adds like any other message, but the point of linearisation depends on
    which rows were absorbed before (SYSTEMS I.5, last paragraph).
    """
    message: Message = shared.running_message(likelihood, X, obs, belief, _running_message)
    return message


def _running_message(
    shared: Shared, likelihood: Likelihood, X: FloatArray, obs: Observations, belief: Belief
) -> Message:
    V = shared.design(X)
    Lam = _kind(shared, likelihood).residual(shared, V, X)
    A = linalg.solve_right_transposed(belief.factor, V.copy(order="F"))
    f = find_mode(Lam.plus(A), obs, likelihood, V @ belief.mean)
    return _linearised_message(V, Lam, obs, likelihood, f)


def _kind(shared: Shared, likelihood: Likelihood) -> Kind:
    """The `Kind` of residual of these experts; `InvalidOption` where the likelihood does not support it."""
    refuse_coupled_classes(shared.residual, likelihood)
    return kind_of(shared)


def find_mode(K: Any, obs: Observations, likelihood: Likelihood, prior_mean: FloatArray | None = None) -> FloatArray:
    """Mode of p(y | f) N(f; prior_mean, K): (n,), or (n, C) for classes; K is a `Covariance`."""
    if likelihood.per_class:
        return softmax.softmax_mode(K, obs, cast(AnySoftmax, likelihood), prior_mean)
    return laplace_mode(K, obs, likelihood, prior_mean)


def _linearised_message(
    V: FloatArray, Lam: Residual, obs: Observations, likelihood: Likelihood, f: FloatArray
) -> Message:
    if likelihood.per_class:
        return softmax.softmax_message(V, Lam, obs, cast(AnySoftmax, likelihood), f)
    return laplace_message(V, Lam, obs, likelihood, f)


def gaussian_message(V: FloatArray, residual: Residual, y: FloatArray, noise: FloatArray) -> Message:
    """Exact message of y = f + e, y (n,) or (n, C). Overwrites `residual` and `V`.

    R = Psi + Lam = cov(y | v),  T'T = R^-1,  W = T V,  z = T y:
    precision = W'W,  eta = W'z,  evidence = log N(y; 0, R)     (Appendix B, eqs. 12-15)

    C processes share R, hence its factor and the precision.
    """
    factor = residual.factor(noise)
    z = factor.whiten(np.array(y, dtype=float, order="F"))
    W = factor.whiten(V)
    processes = y.size // len(y)
    constant = processes * (factor.log_determinant + len(y) * np.log(2.0 * np.pi))
    return Message((W.T @ z).T, linalg.gram(W), float(-0.5 * (np.vdot(z, z) + constant)), len(y))

"""Conjugate gradients from random starts, as Williams & Rasmussen learn hyper-parameters (1996, section 3.1).

Their setting: 100 iterations, logs of all parameters drawn uniformly from [-3, 0] (SYSTEMS W2). Restarts do
not depend on each other.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from bcmdist.model.kernels import Kernel, split_parameters
from bcmdist.model.likelihoods import Likelihood

Loss = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""From log parameters (P,) to a loss, inf where it fails, and its gradient (P,)."""

START_LOGS = (-3.0, 0.0)


@dataclass(frozen=True)
class Optimum:
    """The best point that one start has led to."""

    theta: np.ndarray
    """(P,)"""
    loss: float
    """inf where the start itself failed"""


def conjugate_gradients(loss_and_gradient: Loss, starts: Iterable, iterations=100) -> list[Optimum]:
    """An optimum for each start (P,), lowest loss first; none is worse than its start.

    Where the loss is not finite a line search meets a wall and steps back; a start that fails stays where it is.
    """
    found = [_descend(loss_and_gradient, np.array(start, dtype=float), iterations) for start in starts]
    return sorted(found, key=lambda optimum: optimum.loss)


def uniform_starts(size, count, seed=0) -> np.ndarray:
    """Log parameters to start from, (count, size), uniform in `START_LOGS`."""
    return np.random.default_rng(seed).uniform(*START_LOGS, (count, size))


def objective_loss(objective, kernel: Kernel, likelihood: Likelihood) -> Loss:
    """The loss that an objective is for the optimiser: minus its value, at log parameters of kernel and likelihood."""

    def loss(theta):
        value, gradient = objective(*with_logs(kernel, likelihood, theta))
        return -value, -gradient

    return loss


def with_logs(kernel: Kernel, likelihood: Likelihood, theta) -> tuple[Kernel, Likelihood]:
    """Kernel and likelihood at log parameters (P,), the kernel's first."""
    size = len(kernel.theta)
    values = split_parameters(likelihood.parameters, np.exp(theta[size:]))
    return kernel.with_theta(theta[:size]), likelihood.with_parameters(values)


def _descend(loss_and_gradient, start, iterations):
    first, _ = loss_and_gradient(start)
    if not np.isfinite(first):
        return Optimum(start, np.inf)
    best = [first, start]

    def walled(theta):
        loss, gradient = loss_and_gradient(theta)
        if not np.isfinite(loss):
            return first + 1e3 * (1.0 + abs(first)), np.zeros_like(theta)
        if loss < best[0]:
            best[:] = [loss, theta.copy()]
        return loss, gradient

    minimize(walled, start, jac=True, method="CG", options={"maxiter": iterations})
    return Optimum(best[1], float(best[0]))

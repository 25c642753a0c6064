"""Hamiltonian Monte Carlo with persistent momentum, for log densities with gradients.

Williams & Rasmussen, "Gaussian Processes for Regression" (NIPS 1996), section 3.2. Momenta are not redrawn but only
partially refreshed between short trajectories, so they keep their direction over about 1 / (1 - persistence) of them.
The sampler is correct only if a rejected trajectory reverses the momentum (Horowitz 1991), which the paper does not
mention.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray, FloatOrArray

# Power by which changes of the step fall with the number of trajectories: between 1/2 and 1, for convergence.
ADAPTATION_POWER = 0.6

LogDensity = Callable[[FloatArray], tuple[float, FloatArray]]
"""From theta (P,) to the log density, up to a constant, and its gradient (P,); -inf outside the support."""
State = tuple[FloatArray, FloatArray, float, FloatArray]
"""theta, momentum, and the log density at theta with its gradient."""


@dataclass(frozen=True)
class HMC:
    """Settings of a chain; defaults from the paper where it gives them.

    Raises
    ------
    InvalidOption
        A number is outside its bounds.

    Examples
    --------
    >>> chain = bcmdist.HMC(iterations=500, burn_in=100)
    >>> chain.step
    0.05
    """

    iterations: int = 3000
    """trajectories in all; the paper gives no number ("for the desired amount of time")"""
    burn_in: int = 1000
    """initial trajectories that are discarded: a third in the paper"""
    step: float = 0.05
    """leapfrog step, the same for all parameters"""
    persistence: float = 0.95
    """weight of the old momentum in a partial refresh"""
    leapfrogs: int = 1
    """leapfrog steps per trajectory; with one, persistence alone suppresses random walks"""
    acceptance: float | None = None
    """share of accepted trajectories to which the burn-in adapts the step; None: the step stays"""

    def __post_init__(self) -> None:
        if not 0 <= self.burn_in < self.iterations:
            raise InvalidOption(
                f"hmc: expected burn_in below iterations, got {self.burn_in} of {self.iterations}; run longer"
            )
        if not self.step > 0 or not 0 <= self.persistence < 1 or self.leapfrogs < 1:
            raise InvalidOption(
                "hmc: expected step > 0, persistence in [0, 1) and at least one leapfrog, got "
                f"{self.step}, {self.persistence} and {self.leapfrogs}; correct them"
            )
        if self.acceptance is not None and not 0.0 < self.acceptance < 1.0:
            raise InvalidOption(f"hmc: expected acceptance between 0 and 1, got {self.acceptance}; correct it")


@dataclass(frozen=True)
class Chain:
    """The samples after the burn-in."""

    samples: FloatArray
    """(n, P)"""
    log_density: FloatArray
    """at the samples, (n,)"""
    acceptance: float
    """share of trajectories accepted, burn-in included"""


def sample(log_density: LogDensity, start: FloatArray, *, settings: HMC, seed: int | Sequence[int]) -> Chain:
    """Sample a chain from exp(log_density), reproducible by its seed.

    Refresh the momentum, p <- a p + sqrt(1 - a^2) N(0, I); follow the dynamics; accept the end with probability
    min(1, exp(H before - H after)), otherwise stay and reverse the momentum. H = -log density + p'p/2.

    With `settings.acceptance` the step follows the acceptance during the burn-in, by ever smaller changes of its log
    (Andrieu & Thoms 2008, section 4.2), and is fixed afterwards.

    Parameters
    ----------
    start : (P,)

    Raises
    ------
    InvalidOption
        The log density or its gradient is not finite at the start.
    """
    rng = np.random.default_rng(seed)
    theta = np.array(start, dtype=float)
    value, gradient = log_density(theta)
    if not _usable(value, gradient):
        raise InvalidOption(f"hmc: expected a finite log density at the start, got {value} at {theta}; start elsewhere")
    momentum = rng.standard_normal(len(theta))
    samples, values, accepted, step = [], [], 0, settings.step
    for iteration in range(settings.iterations):
        fresh = rng.standard_normal(len(theta))
        momentum = settings.persistence * momentum + math.sqrt(1.0 - settings.persistence**2) * fresh
        here = theta, momentum, value, gradient
        there = leapfrog(log_density, *here, step=step, count=settings.leapfrogs)
        fall = energy(*here) - energy(*there)
        if math.log(1.0 - rng.uniform()) < fall:
            theta, momentum, value, gradient = there
            accepted += 1
        else:
            momentum = -momentum
        if iteration < settings.burn_in and settings.acceptance is not None:
            step *= math.exp((math.exp(min(fall, 0.0)) - settings.acceptance) / (iteration + 1) ** ADAPTATION_POWER)
        if iteration >= settings.burn_in:
            samples.append(theta)
            values.append(value)
    return Chain(np.array(samples), np.array(values), accepted / settings.iterations)


def leapfrog(
    log_density: LogDensity,
    theta: FloatArray,
    momentum: FloatArray,
    value: float,
    gradient: FloatArray,
    *,
    step: float,
    count: int,
) -> State:
    """State (theta, momentum, value, gradient) after `count` leapfrog steps; value -inf on leaving the support.

    p += step/2 g;  theta += step p;  p += step/2 g.  Reversible and volume-preserving; energy changes by O(step^2).
    """
    for _ in range(count):
        momentum = momentum + 0.5 * step * gradient
        theta = theta + step * momentum
        value, gradient = log_density(theta)
        if not _usable(value, gradient):
            return theta, momentum, -math.inf, gradient
        momentum = momentum + 0.5 * step * gradient
    return theta, momentum, value, gradient


def energy(theta: FloatArray, momentum: FloatArray, value: float, gradient: FloatArray) -> float:
    """H of a state: potential plus kinetic energy."""
    return float(0.5 * momentum @ momentum - value)


def with_normal_prior(log_likelihood: LogDensity, *, mean: FloatOrArray, sd: FloatOrArray) -> LogDensity:
    """Log likelihood plus log N(theta; mean, sd^2), up to a constant, independent for each parameter."""

    def log_posterior(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = log_likelihood(theta)
        gap = (theta - mean) / sd
        return float(value - 0.5 * gap @ gap), gradient - gap / sd

    return log_posterior


def _usable(value: float, gradient: FloatArray) -> bool:
    return math.isfinite(value) and bool(np.all(np.isfinite(gradient)))

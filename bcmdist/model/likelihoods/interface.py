"""What a likelihood p(y | f) must answer: a log density with derivatives, and a distribution.

An expert needs the log density of its rows and three derivatives in the latent f; whoever predicts
needs the distribution of a new observation. A new member of the family is one class with these
methods. All of them work row by row and broadcast: latents f (n,) go with observations (n,), and
latents (n, K) with `obs[:, None]`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bcmdist.data.observations import Observations

# Exponents are clipped here, so that every density and derivative is finite for any latent: exp(300) = 1e130
# can be squared and multiplied by any count and any weight. No rate, mean or odds of scaled data comes near.
LARGEST_EXPONENT = 300.0

# Share of the expected curvature that a row keeps in steps towards the mode where its own is lower, or negative.
LEAST_STEP_WEIGHT = 0.05

# Step in the log of a parameter: the stencil's truncation (h^4 / 30, 5e-13) and rounding (1e-16 / h) are alike.
SLOPE_STEP = 2e-3


@dataclass(frozen=True)
class Likelihood(ABC):
    """log p(y | f) row by row, with all its constants, so that families can be compared."""

    name: ClassVar[str]
    support: ClassVar[str]
    """what targets and companions must be, in words, for the error text"""
    companions: ClassVar[tuple[str, ...]] = ()
    """which of exposure, trials and event it reads"""
    scaling: ClassVar[str] = "none"
    """how targets are scaled: "affine" (mean 0, standard deviation 1), "scale" (mean 1, so that latent 0 is
    the mean), "exposure" (exposures times the base rate, so that latent 0 is the mean rate), or "none" """
    log_concave: ClassVar[bool] = True
    """False where log p may be convex in f: then `curvature` is the expected one (Fisher)"""
    discrete: ClassVar[bool] = False
    """True where observations are whole numbers"""
    processes: ClassVar[int] = 1
    """number of latent processes"""
    exact: ClassVar[bool] = False
    """True where messages need no approximation, so that one pass is all there is"""
    needs_calibration: ClassVar[bool] = False
    """True where it says nothing of probabilities: they come from held-out rows"""
    learned: ClassVar[tuple[str, ...]] = ()
    """fields that are parameters"""

    def __post_init__(self):
        for name in self.learned:
            object.__setattr__(self, name, np.atleast_1d(np.asarray(getattr(self, name), dtype=float)))

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """Natural parameters by name, all positive, each 1-D; empty where there are none."""
        return {name: getattr(self, name) for name in self.learned}

    def with_parameters(self, values: dict[str, np.ndarray]) -> "Likelihood":
        """The same likelihood with other parameter values."""
        return replace(self, **values)

    @abstractmethod
    def unsupported(self, obs: Observations):
        """True for rows whose target or companions lie outside the support, (n,)."""

    @abstractmethod
    def log_density(self, obs: Observations, f):
        """log p(y | f), times the weight."""

    def densities(self, obs: Observations):
        """How many densities of its target each row's log p counts, (n,): one unit for another adds its log to each."""
        return obs.weight

    @abstractmethod
    def score(self, obs: Observations, f):
        """d log p / df."""

    @abstractmethod
    def curvature(self, obs: Observations, f):
        """-d2 log p / df2 where that is never negative, else its expectation over y."""

    @abstractmethod
    def third(self, obs: Observations, f):
        """-d curvature / df: d3 log p / df3 where the curvature is the observed one."""

    def hessian(self, obs: Observations, f):
        """-d2 log p / df2."""
        return self.curvature(obs, f)

    def step_weight(self, obs: Observations, f):
        """Positive weights with which a step towards the mode is taken: the Hessian where it may be."""
        weight = self.hessian(obs, f)
        return weight if self.log_concave else np.maximum(weight, LEAST_STEP_WEIGHT * self.curvature(obs, f))

    @abstractmethod
    def distribution(self, obs: Observations, f) -> Any:
        """Frozen scipy distribution of one new observation with the companions of a row; f (n,) or (n, K).

        The weight has no part in it, except that of a Gaussian row, which stands for an average.
        """

    @abstractmethod
    def saturated(self, obs: Observations):
        """The f that maximises log p of each row, +-`LARGEST_EXPONENT` for infinity."""


def beside(obs, f):
    """Observations shaped to go with latents (n,) or (n, K)."""
    return obs[:, None] if np.ndim(f) == 2 else obs


def bounded_exp(exponent):
    """exp, with exponents clipped at +-`LARGEST_EXPONENT`."""
    return np.exp(np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT))


def bounded_log(x):
    """log of x >= 0, clipped at +-`LARGEST_EXPONENT`."""
    return np.log(np.clip(x, np.exp(-LARGEST_EXPONENT), np.exp(LARGEST_EXPONENT)))


def whole(x, *, least=0):
    """True for whole numbers not below `least`."""
    return np.isfinite(x) & (x >= least) & (x == np.floor(x))


def positive(x):
    """True for finite positive numbers."""
    return np.isfinite(x) & (x > 0)


def slopes(likelihood: Likelihood, obs, f, name):
    """Derivatives of log density, score and curvature in the log of one parameter, at fixed f; three (n,).

    By the central stencil of five points, accurate to about 1e-11 of the terms that are summed: one short function
    in place of three formulas for every parameter of every family.
    """
    value = likelihood.parameters[name]

    def at(steps):
        moved = likelihood.with_parameters({name: value * np.exp(steps * SLOPE_STEP)})
        return np.array([moved.log_density(obs, f), moved.score(obs, f), moved.curvature(obs, f)])

    near, far = at(1) - at(-1), at(2) - at(-2)
    return tuple((8.0 * near - far) / (12.0 * SLOPE_STEP))

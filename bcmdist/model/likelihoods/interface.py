"""What a likelihood p(y | f) must answer: a log density with derivatives, and a distribution.

An expert needs the log density of its rows and derivatives in the latent f; whoever predicts needs the distribution
of a new observation. `Likelihood` is what every one answers, of one latent process or of one for each class;
`OneProcess` is what those of one process answer besides. A new one is one class with these methods, whose fields made
by `parameter` are learned, and `register_likelihood`. All methods work row by row and broadcast: latents f (n,) go
with observations (n,), and latents (n, K) with `obs[:, None]`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.model.units import Units

# Exponents are clipped here, so that every density and derivative is finite for any latent: exp(300) = 1e130
# can be squared and multiplied by any count and any weight. No rate, mean or odds of scaled data comes near.
LARGEST_EXPONENT = 300.0

# Share of the expected curvature that a row keeps in steps towards the mode where its own is lower, or negative.
LEAST_STEP_WEIGHT = 0.05

# Step in the log of a parameter: the stencil's truncation (h^4 / 30, 5e-13) and rounding (1e-16 / h) are alike.
SLOPE_STEP = 2e-3

# Halvings of the range of latents, after which it is as narrow as rounding.
LINK_HALVINGS = 64

# What predictions say of numbers, by name, and of classes.
NUMBERS = ("observation_mean", "observation_variance", "lower95", "upper95")
CLASSES = ("probability", "label")

# Bounds of parameters while learning, for scaled targets. At the far ends a family is its own limit (Poisson, Gaussian,
# a point), and more would only ruin conditioning.
NOISE_BOUNDS = (1e-6, 1e1)
SHAPE_BOUNDS = (1e-2, 1e4)


def parameter(default: float, bounds: tuple[float, float], *, widens: float = 0.0) -> Any:
    """A field of a likelihood that is learned: a positive number, kept as a vector of one.

    Parameters
    ----------
    bounds : while learning, for scaled targets
    widens : to what power of it the variance of an observation grows, about; 0 where it is not what widens it
    """
    return field(default_factory=lambda: np.full(1, default), metadata={"bounds": bounds, "widens": widens})


@dataclass(frozen=True)
class Likelihood(ABC):
    """log p(y | f) row by row, with all its constants, so that families can be compared."""

    name: ClassVar[str]
    task: ClassVar[str]
    """what it is for, by the name users choose: "regression", or another one, also one of its own"""
    support: ClassVar[str]
    """what targets and companions must be, in words, for the error text"""
    units: ClassVar[Units]
    """how targets are scaled, by what they can be"""
    companions: ClassVar[tuple[str, ...]] = ()
    """which of exposure, trials and event it reads"""
    columns: ClassVar[tuple[str, ...]] = NUMBERS
    """what predictions say of a new observation: `NUMBERS`, and perhaps its "median", or the "probability" of success
    in one trial; or `CLASSES`"""
    per_class: ClassVar[bool] = False
    """True where each class has a latent process, f (n, C); one, f (n,), otherwise"""
    coupled: ClassVar[bool] = False
    """True where messages are about the processes of all classes at once"""
    exact: ClassVar[bool] = False
    """True where messages need no approximation, `targets` being f plus normal `noise`: one pass is all there is"""
    log_concave: ClassVar[bool] = True
    """False where log p may be convex in f: then `curvature` is the expected one (Fisher)"""
    categorical: ClassVar[bool] = False
    """True where targets are classes, whose probabilities are predicted"""
    events: ClassVar[bool] = False
    """True where targets count or time events: scored by their deviance and order instead of by their errors"""
    needs_calibration: ClassVar[bool] = False
    """True where it says nothing of probabilities: they come from held-out rows"""
    zero_counts_as: ClassVar[float | None] = None
    """where targets of 0 are taken for something else: for what, in units of the mean one"""

    def __post_init__(self):
        for name in self.bounds:
            object.__setattr__(self, name, np.atleast_1d(np.asarray(getattr(self, name), dtype=float)))

    @classmethod
    @abstractmethod
    def default(cls, classes: int | None = None) -> Self:
        """At default parameters; for so many `classes`, where it has a process for each."""

    @property
    @abstractmethod
    def processes(self) -> int:
        """Number of latent processes."""

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """Natural parameters by name, all positive, each 1-D; empty where there are none."""
        return {name: getattr(self, name) for name in self.bounds}

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """Bounds of parameters while learning, by name."""
        return {one.name: one.metadata["bounds"] for one in fields(self) if one.metadata}

    @property
    def widening(self) -> Mapping[str, float]:
        """To what powers of parameters the variance of an observation grows, by name."""
        powers = {one.name: one.metadata["widens"] for one in fields(self) if one.metadata}
        return {name: power for name, power in powers.items() if power}

    def with_parameters(self, values: dict[str, np.ndarray]) -> Self:
        """The same likelihood with other parameter values."""
        return replace(self, **values)

    # --- What follows ---

    @property
    def normal(self) -> bool:
        """True for one process with normal noise around it: means are linear in the targets, predictions are normal."""
        return self.exact and not self.per_class

    @property
    def on_labels(self) -> bool:
        """True where class labels are regressed on as if they were numbers."""
        return self.exact and self.per_class

    @property
    def single(self) -> bool:
        """True for one process and a probability of the targets: what expectation propagation, a running linearisation
        and the evidence of a committee ask for."""
        return not self.per_class and not self.needs_calibration

    @property
    def measured(self) -> bool:
        """True for one process and numbers, whose errors rows left out tell of."""
        return self.single and not self.categorical

    @property
    def each(self) -> "Likelihood":
        """That of each process on its own, of a class against the rest, where processes know nothing of each other;
        elsewhere itself."""
        return self

    @property
    def apart(self) -> bool:
        """True where processes are models of their own, each with the likelihood `each`."""
        return self.each is not self

    @property
    def copies(self) -> int:
        """How many of an expert's matrices there are: one that all processes share, or one for each."""
        return 1 if self.exact else self.processes

    def zeros(self, obs: Observations) -> np.ndarray:
        """Latents of 0, (n,) or (n, C)."""
        return np.zeros((len(obs), self.processes) if self.per_class else len(obs))

    # --- Of rows ---

    @abstractmethod
    def unsupported(self, obs: Observations) -> np.ndarray:
        """True for rows whose target or companions lie outside the support, (n,)."""

    @abstractmethod
    def log_density(self, obs: Observations, f) -> np.ndarray:
        """log p(y | f), times the weight, (n,)."""

    @abstractmethod
    def score(self, obs: Observations, f) -> np.ndarray:
        """d log p / df, like f."""

    @abstractmethod
    def curvature(self, obs: Observations, f) -> np.ndarray:
        """-d2 log p / df2 where that is never negative, else its expectation over y; like f."""

    def noise(self, obs: Observations) -> np.ndarray:
        """Noise variance of each row as a regression, (n,): where not exact, 1 / w with w the curvature at latents of
        0, of the first class."""
        w = self.curvature(obs, self.zeros(obs)).reshape(len(obs), -1)[:, 0]
        return 1.0 / np.maximum(w, np.finfo(float).tiny)

    def targets(self, obs: Observations) -> np.ndarray:
        """What is regressed on, like f: where not exact, score / w at latents of 0."""
        f = self.zeros(obs)
        return self.score(obs, f) * self.noise(obs).reshape(-1, *[1] * (f.ndim - 1))

    def densities(self, obs: Observations) -> np.ndarray:
        """How many densities of its target each row's log p counts, (n,): one unit for another adds its log to each."""
        return obs.weight

    def class_probability(self, mean, variance) -> np.ndarray:
        """Probability of each class, averaged over f ~ N(mean, variance), (n, C); of none, (n, 0), where targets are no
        classes or it says nothing of probabilities.

        Parameters
        ----------
        mean : like f; variance : like f, or (n, C, C) of processes that are coupled
        """
        return np.empty((len(mean), 0))

    def learned_as(self) -> "Likelihood":
        """The likelihood whose evidence stands for its own while learning, where it has none, or none with a
        gradient."""
        return self


@dataclass(frozen=True)
class OneProcess(Likelihood):
    """A likelihood of one latent process."""

    discrete: ClassVar[bool] = False
    """True where observations are whole numbers"""

    @classmethod
    def default(cls, classes=None) -> Self:
        return cls()

    @property
    def processes(self) -> int:
        return 1

    @abstractmethod
    def third(self, obs: Observations, f) -> np.ndarray:
        """-d curvature / df: d3 log p / df3 where the curvature is the observed one."""

    def hessian(self, obs: Observations, f) -> np.ndarray:
        """-d2 log p / df2."""
        return self.curvature(obs, f)

    def step_weight(self, obs: Observations, f) -> np.ndarray:
        """Positive weights with which a step towards the mode is taken: the Hessian where it may be."""
        weight = self.hessian(obs, f)
        return weight if self.log_concave else np.maximum(weight, LEAST_STEP_WEIGHT * self.curvature(obs, f))

    @abstractmethod
    def distribution(self, obs: Observations, f) -> Any:
        """Frozen scipy distribution of one new observation with the companions of a row; f (n,) or (n, K).

        Larger for larger f. The weight has no part in it, except that of a Gaussian row, which stands for an average.
        """

    @abstractmethod
    def saturated(self, obs: Observations) -> np.ndarray:
        """The f that maximises log p of each row, +-`LARGEST_EXPONENT` for infinity."""

    def typical(self, obs: Observations, f) -> np.ndarray:
        """A typical new observation, (n,), from which the search for quantiles begins."""
        return self.distribution(obs, f).mean()

    def link(self, obs: Observations, mean) -> np.ndarray:
        """The f at which the mean of a new observation is `mean`, (n,), within +-`LARGEST_EXPONENT`: by bisection,
        unless a family knows it."""
        low, high = np.full(len(obs), -LARGEST_EXPONENT), np.full(len(obs), LARGEST_EXPONENT)
        for _ in range(LINK_HALVINGS):
            f = 0.5 * (low + high)
            above = self.distribution(obs, f).mean() > mean
            low, high = np.where(above, low, f), np.where(above, f, high)
        return 0.5 * (low + high)

    def compared(self) -> "OneProcess":
        """The likelihood by whose deviance models of the same targets are compared."""
        return self


def beside(obs, f) -> Observations:
    """Observations shaped to go with latents (n,) or (n, K)."""
    return obs[:, None] if np.ndim(f) == 2 else obs


def bounded_exp(exponent) -> np.ndarray:
    """exp, with exponents clipped at +-`LARGEST_EXPONENT`."""
    return np.exp(np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT))


def bounded_log(x) -> np.ndarray:
    """log of x >= 0, clipped at +-`LARGEST_EXPONENT`."""
    return np.log(np.clip(x, np.exp(-LARGEST_EXPONENT), np.exp(LARGEST_EXPONENT)))


def whole(x, *, least=0) -> np.ndarray:
    """True for whole numbers not below `least`."""
    return np.isfinite(x) & (x >= least) & (x == np.floor(x))


def positive(x) -> np.ndarray:
    """True for finite positive numbers."""
    return np.isfinite(x) & (x > 0)


def slopes(likelihood: OneProcess, obs, f, name) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

"""The interface of likelihoods p(y | f): a log density with derivatives, and a predictive distribution.

Experts need the log density of their rows and its derivatives in the latent f; predictions need the distribution of a
new observation. `Likelihood` is the interface for one latent process or one per class; `OneProcess` adds methods for a
single process. A new likelihood is a class with these methods, registered by `register_likelihood`; fields declared by
`parameter` are learned. All methods work row by row and broadcast: latents f (n,) go with observations (n,), and
latents (n, K) with `obs[:, None]`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, TypedDict

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import BoolArray, FloatArray
from bcmdist.model.likelihoods.distribution import Distribution
from bcmdist.model.units import Units

# Exponents are clipped here, so that densities and derivatives are finite for any latent: exp(300) = 1e130 can be
# squared and multiplied by any count and any weight. Rates, means and odds of scaled data are far smaller.
LARGEST_EXPONENT = 300.0

# Lower bound of a row's weight in steps towards the mode, as a share of the expected curvature: the Hessian may be
# smaller or negative.
LEAST_STEP_WEIGHT = 0.05

# Step in the log of a parameter: the stencil's truncation (h^4 / 30, 5e-13) and rounding (1e-16 / h) are about equal.
SLOPE_STEP = 2e-3

# Halvings of the range of latents, after which it is as narrow as rounding.
LINK_HALVINGS = 64

# Names of the predicted quantities for numbers, and for classes.
NUMBERS = ("observation_mean", "observation_variance", "lower95", "upper95")
CLASSES = ("probability", "label")

# Bounds of parameters during learning, for scaled targets. Near the bounds a family is close to its limit (Poisson,
# Gaussian, a point mass), and wider bounds would only make the problem ill-conditioned.
NOISE_BOUNDS = (1e-8, 1e1)
SHAPE_BOUNDS = (1e-2, 1e4)


def parameter(default: float, bounds: tuple[float, float], *, widens: float = 0.0) -> Any:
    """Declare a field of a likelihood that is learned: a positive number, stored as a vector of length 1.

    Parameters
    ----------
    bounds : during learning, for scaled targets
    widens : approximate power of the parameter with which the variance of an observation grows; 0 where the parameter
        does not control that variance
    """
    return field(default_factory=lambda: np.full(1, default), metadata={"bounds": bounds, "widens": widens})


class ExpertMemory(TypedDict):
    """How many matrices an expert needs: arguments of `Residual.expert_bytes`."""

    laplace: bool
    classes: int
    coupled: bool


@dataclass(frozen=True)
class Likelihood(ABC):
    """log p(y | f) row by row, with all its constants, so that families can be compared."""

    name: ClassVar[str]
    task: ClassVar[str]
    """task under which users choose it: "regression", or another name, possibly a new one"""
    support: ClassVar[str]
    """valid targets and companions, in words, for the error text"""
    units: ClassVar[Units]
    """scaling of targets, by their type"""
    companions: ClassVar[tuple[str, ...]] = ()
    """the extra columns that it reads, among exposure, trials, event and target_variance"""
    columns: ClassVar[tuple[str, ...]] = NUMBERS
    """predicted quantities of a new observation: `NUMBERS`, possibly with "median" or the "probability" of success in
    one trial; or `CLASSES`"""
    per_class: ClassVar[bool] = False
    """True where each class has a latent process, f (n, C); otherwise there is one, f (n,)"""
    coupled: ClassVar[bool] = False
    """True where messages are joint over the processes of all classes"""
    exact: ClassVar[bool] = False
    """True where `targets` are f plus Gaussian `noise`: messages need no approximation, and one pass suffices"""
    log_concave: ClassVar[bool] = True
    """False where -d2 log p / df2 may be negative: then `curvature` is its expectation (Fisher)"""
    events: ClassVar[bool] = False
    """True where targets count or time events: scored by deviance and ranking instead of errors"""
    needs_calibration: ClassVar[bool] = False
    """True where it gives no probabilities: these are calibrated on held-out rows"""
    zero_counts_as: ClassVar[float | None] = None
    """value, in units of the mean, that replaces targets of 0; None where they are not replaced"""

    def __post_init__(self) -> None:
        for name in self.bounds:
            object.__setattr__(self, name, np.atleast_1d(np.asarray(getattr(self, name), dtype=float)))

    @classmethod
    @abstractmethod
    def default(cls, classes: int | None = None) -> Self:
        """The likelihood at default parameters, with `classes` classes where each has a process."""

    @property
    @abstractmethod
    def processes(self) -> int:
        """Number of latent processes."""

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """Natural parameters by name, all positive, each 1-D; may be empty."""
        return {name: getattr(self, name) for name in self.bounds}

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """Bounds of parameters during learning, by name."""
        return {one.name: one.metadata["bounds"] for one in fields(self) if one.metadata}

    @property
    def widening(self) -> Mapping[str, float]:
        """Powers of parameters with which the variance of an observation grows, by name."""
        powers = {one.name: one.metadata["widens"] for one in fields(self) if one.metadata}
        return {name: power for name, power in powers.items() if power}

    def with_parameters(self, values: dict[str, FloatArray]) -> Self:
        """The same likelihood with other parameter values."""
        return replace(self, **values)

    # --- Derived properties ---

    @property
    def normal(self) -> bool:
        """True for one process with Gaussian noise: means are linear in the targets, and predictions are Gaussian."""
        return self.exact and not self.per_class

    @property
    def on_labels(self) -> bool:
        """True for a regression on class labels coded as numbers."""
        return self.exact and self.per_class

    @property
    def single(self) -> bool:
        """True for one process with a probability density of the targets, as required by expectation propagation, the
        running linearisation and the evidence of a committee.
        """
        return not self.per_class and not self.needs_calibration

    @property
    def categorical(self) -> bool:
        """True where targets are classes, whose probabilities are predicted."""
        return self.columns == CLASSES

    @property
    def kind_of_target(self) -> str:
        """How predictions are scored: "classes", "events" (by deviance and ranking) or "numbers" (by errors)."""
        return "classes" if self.categorical else "events" if self.events else "numbers"

    @property
    def corrected_by(self) -> str:
        """What held-out or left-out rows correct after a fit.

        "errors", the distribution of the errors of numeric targets; "recalibration" or "calibration" of class
        probabilities, the latter where the likelihood gives none; "" for several processes with probabilities.
        """
        if self.needs_calibration:
            return "calibration"
        return "" if self.per_class else "recalibration" if self.categorical else "errors"

    @property
    def one_pass(self) -> bool:
        """True where further passes over the rows do not improve messages: exact ones, and margins (svm)."""
        return self.exact or self.needs_calibration

    @property
    def memory(self) -> ExpertMemory:
        """How many matrices an expert of these rows needs, as arguments of `Residual.expert_bytes`."""
        return {"laplace": not self.exact, "classes": self.each.copies, "coupled": self.coupled}

    def replace_zeros(self, y: FloatArray) -> FloatArray:
        """Targets in units of the mean, with `zero_counts_as` in place of 0."""
        return y if self.zero_counts_as is None else np.where(y == 0.0, self.zero_counts_as, y)

    @property
    def each(self) -> "Likelihood":
        """Likelihood of one process, of a class against all others, if processes are independent; otherwise self."""
        return self

    @property
    def independent_processes(self) -> bool:
        """True where each process is a separate model with the likelihood `each`."""
        return self.each is not self

    @property
    def copies(self) -> int:
        """Number of copies of an expert's matrices: 1 where all processes share them, otherwise one per process."""
        return 1 if self.exact else self.processes

    def zeros(self, obs: Observations) -> FloatArray:
        """Latents of 0, (n,) or (n, C)."""
        return np.zeros((len(obs), self.processes) if self.per_class else len(obs))

    # --- Functions of rows ---

    @abstractmethod
    def unsupported(self, obs: Observations) -> BoolArray:
        """True for rows whose target or companions lie outside the support, (n,)."""

    @abstractmethod
    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        """log p(y | f) times the weight, (n,)."""

    @abstractmethod
    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        """d log p / df, shaped like f."""

    @abstractmethod
    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        """-d2 log p / df2 where that is never negative, otherwise its expectation over y; shaped like f."""

    def noise(self, obs: Observations) -> FloatArray:
        """Noise variance of each row as a regression, (n,).

        Where not exact: 1 / w, with w the curvature of the first process at latents of 0.
        """
        w = self.curvature(obs, self.zeros(obs)).reshape(len(obs), -1)[:, 0]
        return 1.0 / np.maximum(w, np.finfo(float).tiny)

    def learned_noise(self, obs: Observations) -> FloatArray:
        """The part of `noise` that is proportional to the noise parameter, where exact: all but known variances, (n,).

        It is the derivative of `noise` in the log of that parameter.
        """
        return self.noise(obs)

    def noise_slopes(self, obs: Observations, g: FloatArray) -> FloatArray:
        """Derivatives in the log parameters of the sum of `g_i noise_i`, g (n,) fixed; for normal errors."""
        return np.atleast_1d(g @ self.learned_noise(obs))

    def for_outputs(self, count: int) -> Self:
        """The likelihood of rows that observe one of `count` outputs each, in units of their own; by default self."""
        return self

    def targets(self, obs: Observations) -> FloatArray:
        """Targets of the equivalent regression, shaped like f; where not exact, score / w at latents of 0."""
        f = self.zeros(obs)
        return self.score(obs, f) * self.noise(obs).reshape(-1, *[1] * (f.ndim - 1))

    def densities(self, obs: Observations) -> FloatArray:
        """Number of target densities in each row's log p, (n,); a change of units adds its log to each."""
        return obs.weight

    def class_probability(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Probability of each class, averaged over f ~ N(mean, variance): (n, C).

        Shape (n, 0) where targets are not classes or the likelihood gives no probabilities.

        Parameters
        ----------
        mean : like f; variance : like f, or (n, C, C) for coupled processes
        """
        return np.empty((len(mean), 0))

    def learned_as(self) -> "Likelihood":
        """Likelihood to use for learning, where this one has no evidence or no gradient of it; by default self."""
        return self


@dataclass(frozen=True)
class OneProcess(Likelihood):
    """A likelihood of one latent process."""

    discrete: ClassVar[bool] = False
    """True where observations are whole numbers"""

    @classmethod
    def default(cls, classes: int | None = None) -> Self:
        return cls()

    @property
    def processes(self) -> int:
        return 1

    @abstractmethod
    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        """-d curvature / df: d3 log p / df3 where the curvature is the observed one."""

    def hessian(self, obs: Observations, f: FloatArray) -> FloatArray:
        """-d2 log p / df2."""
        return self.curvature(obs, f)

    def step_weight(self, obs: Observations, f: FloatArray) -> FloatArray:
        """Positive weights of a Newton step: the Hessian, with a lower bound where it may be negative."""
        weight = self.hessian(obs, f)
        return weight if self.log_concave else np.maximum(weight, LEAST_STEP_WEIGHT * self.curvature(obs, f))

    @abstractmethod
    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        """Frozen scipy distribution of one new observation with the companions of a row; f (n,) or (n, K).

        Stochastically increasing in f. It does not depend on the weight, except for a Gaussian row, where the
        observation is an average of `weight` values, with an error of known variance.
        """

    def previous(self, y: FloatArray) -> FloatArray | None:
        """The largest possible observation below y, for whole numbers; None for continuous observations."""
        return y - 1.0 if self.discrete else None

    @abstractmethod
    def saturated(self, obs: Observations) -> FloatArray:
        """The f that maximises log p of each row, with +-`LARGEST_EXPONENT` for infinity."""

    def typical(self, obs: Observations, f: FloatArray) -> FloatArray:
        """A typical new observation, (n,), the starting point of the search for quantiles."""
        return self.distribution(obs, f).mean()

    def link(self, obs: Observations, mean: FloatArray) -> FloatArray:
        """The f at which a new observation has the mean `mean`, (n,), within +-`LARGEST_EXPONENT`.

        By bisection, unless a subclass has a formula.
        """
        low, high = np.full(len(obs), -LARGEST_EXPONENT), np.full(len(obs), LARGEST_EXPONENT)
        for _ in range(LINK_HALVINGS):
            f = 0.5 * (low + high)
            above = self.distribution(obs, f).mean() > mean
            low, high = np.where(above, low, f), np.where(above, f, high)
        middle: FloatArray = 0.5 * (low + high)
        return middle

    def compared(self) -> "OneProcess":
        """The likelihood whose deviance is used to compare models of the same targets."""
        return self


def aligned(obs: Observations, f: FloatArray) -> Observations:
    """Reshape observations to broadcast with latents (n,) or (n, K)."""
    return obs[:, None] if np.ndim(f) == 2 else obs


def bounded_exp(exponent: FloatArray) -> FloatArray:
    """exp, with exponents clipped at +-`LARGEST_EXPONENT`."""
    return np.exp(np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT))


def bounded_log(x: FloatArray) -> FloatArray:
    """log of x >= 0, clipped at +-`LARGEST_EXPONENT`."""
    logs: FloatArray = np.log(np.clip(x, np.exp(-LARGEST_EXPONENT), np.exp(LARGEST_EXPONENT)))
    return logs


def whole(x: FloatArray, *, least: float = 0) -> BoolArray:
    """True for whole numbers not below `least`."""
    numbers: BoolArray = np.isfinite(x) & (x >= least) & (x == np.floor(x))
    return numbers


def positive(x: FloatArray) -> BoolArray:
    """True for finite positive numbers."""
    return np.isfinite(x) & (x > 0)


def slopes(
    likelihood: OneProcess, obs: Observations, f: FloatArray, name: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Derivatives of log density, score and curvature in the log of one parameter, at fixed f: three arrays (n,).

    Uses the central five-point stencil, accurate to about 1e-11 of the summed terms.
    """
    value = likelihood.parameters[name]

    def at(steps: int) -> FloatArray:
        moved = likelihood.with_parameters({name: value * np.exp(steps * SLOPE_STEP)})
        return np.array([moved.log_density(obs, f), moved.score(obs, f), moved.curvature(obs, f)])

    near, far = at(1) - at(-1), at(2) - at(-2)
    return tuple((8.0 * near - far) / (12.0 * SLOPE_STEP))

"""Likelihoods p(y | f) of independent rows, and what they predict for observations.

An expert needs the log density of its rows and three derivatives in the latent f; a committee
needs, for a latent Gaussian belief N(mean, variance), what to expect of an observation. A new
member of the exponential family is one class with these methods.

`Observations` are the targets of some rows with their optional companions. A row of weight w
counts as w rows: its log likelihood is multiplied by w (Gaussian: noise variance / w).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, log_expit, ndtr, ndtri, roots_hermitenorm

from bcmdist.errors import InvalidOption

# Averages of the logistic function. Below standard deviation 1 of the latent, Gauss-Hermite over
# the latent with this many nodes is exact to 1e-15; above, see `logistic_average`.
HERMITE_NODES = 64
# Trapezoid rule over a logistic variable: step and range leave an error of 1e-14 (measured).
TRAPEZOID_STEP = 0.5
TRAPEZOID_RANGE = 37.0


@dataclass(frozen=True)
class Observations:
    """Targets of n rows in the units the likelihood sees."""

    y: np.ndarray
    """Targets, (n,)."""
    weight: np.ndarray
    """How many rows each row counts for, (n,), positive."""

    def __len__(self):
        return len(self.y)

    def __getitem__(self, rows):
        return Observations(self.y[rows], self.weight[rows])


def unweighted(y):
    """Observations of weight one from targets (n,)."""
    y = np.asarray(y, dtype=float)
    return Observations(y, np.ones(len(y)))


class Likelihood(ABC):
    """log p(y | f) row by row; all methods are vectorised over rows, (n,) -> (n,)."""

    name: str

    @property
    @abstractmethod
    def parameters(self) -> dict[str, np.ndarray]:
        """Natural parameters by name, all positive, each 1-D; empty where there are none."""

    @abstractmethod
    def with_parameters(self, values: dict[str, np.ndarray]) -> "Likelihood":
        """The same likelihood with other parameter values."""

    @abstractmethod
    def unsupported(self, y):
        """True for targets outside the support, (n,)."""

    @property
    @abstractmethod
    def support(self) -> str:
        """The support in words, for the error text."""

    @abstractmethod
    def log_density(self, obs: Observations, f):
        """log p(y | f)."""

    @abstractmethod
    def score(self, obs: Observations, f):
        """d log p / df."""

    @abstractmethod
    def curvature(self, obs: Observations, f):
        """-d2 log p / df2, or its expectation: never negative."""

    @abstractmethod
    def third(self, obs: Observations, f):
        """d3 log p / df3."""

    @abstractmethod
    def observe(self, mean, variance, weight) -> dict[str, np.ndarray]:
        """What a latent belief N(mean, variance) says of an observation that counts for `weight` rows."""


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """y = f + e, e ~ N(0, noise_variance / weight)."""

    noise_variance: np.ndarray
    name = "gaussian"
    support = "finite numbers"

    def __post_init__(self):
        object.__setattr__(self, "noise_variance", np.atleast_1d(np.asarray(self.noise_variance, dtype=float)))

    @property
    def parameters(self):
        return {"noise_variance": self.noise_variance}

    def with_parameters(self, values):
        return replace(self, **values)

    def unsupported(self, y):
        return ~np.isfinite(y)

    def noise(self, obs):
        """Noise variance of each row, (n,)."""
        return self.noise_variance / obs.weight

    def log_density(self, obs, f):
        noise = self.noise(obs)
        return -0.5 * ((obs.y - f) ** 2 / noise + np.log(2.0 * np.pi * noise))

    def score(self, obs, f):
        return (obs.y - f) / self.noise(obs)

    def curvature(self, obs, f):
        return 1.0 / self.noise(obs)

    def third(self, obs, f):
        return np.zeros(len(obs))

    def observe(self, mean, variance, weight):
        total = variance + self.noise_variance / weight
        half = ndtri(0.975) * np.sqrt(total)
        return {
            "observation_mean": mean,
            "observation_variance": total,
            "lower95": mean - half,
            "upper95": mean + half,
        }


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """y in {0, 1} with P(y = 1) = 1 / (1 + exp(-f)) (GBCM paper, section 5.2)."""

    name = "bernoulli"
    support = "the two class labels 0 and 1"

    @property
    def parameters(self):
        return {}

    def with_parameters(self, values):
        return self

    def unsupported(self, y):
        return (y != 0) & (y != 1)

    def log_density(self, obs, f):
        return obs.weight * log_expit((2.0 * obs.y - 1.0) * f)

    def score(self, obs, f):
        return obs.weight * (obs.y - expit(f))

    def curvature(self, obs, f):
        return obs.weight * expit(f) * expit(-f)

    def third(self, obs, f):
        return -obs.weight * expit(f) * expit(-f) * (1.0 - 2.0 * expit(f))

    def observe(self, mean, variance, weight):
        # Both from the quadrature: 1 - p would lose a small probability of class 0.
        p = np.column_stack([logistic_average(-mean, variance), logistic_average(mean, variance)])
        return {"probability": p, "label": p.argmax(axis=1)}


def logistic_average(mean, variance):
    """Average of 1 / (1 + exp(-f)) over f ~ N(mean, variance), (n,), by quadrature.

    A narrow Gaussian is integrated by Gauss-Hermite. For a wide one the logistic function is
    nearly a step, and the roles are changed: with a logistic variable t it is the average of
    P(f > t) = Phi((mean - t) / sd), by the trapezoid rule, which converges exponentially. Averaging
    pulls a probability towards 1/2, so that 1 / (1 + exp(-mean)) bounds a small one from below
    where the rule underflows.
    """
    sd, mean = np.sqrt(variance), np.asarray(mean, dtype=float)
    out, wide = np.empty(len(mean)), sd >= 1.0
    nodes, weights = roots_hermitenorm(HERMITE_NODES)
    f = sd[~wide, None] * nodes + mean[~wide, None]
    out[~wide] = expit(f) @ (weights / weights.sum())
    t = np.arange(-TRAPEZOID_RANGE, TRAPEZOID_RANGE + TRAPEZOID_STEP, TRAPEZOID_STEP)
    weights = TRAPEZOID_STEP * expit(t) * expit(-t)
    out[wide] = ndtr((mean[wide, None] - t) / sd[wide, None]) @ weights
    return np.maximum(out, np.where(mean < 0, expit(mean), 0.0))


LIKELIHOODS = {
    "gaussian": lambda: Gaussian(noise_variance=np.array([0.1])),
    "bernoulli": Bernoulli,
}

TASKS = {"regression": "gaussian", "classification": "bernoulli"}


def make_likelihood(name) -> Likelihood:
    """Likelihood by its name, at its default parameters."""
    if name not in LIKELIHOODS:
        raise InvalidOption(
            f"likelihood: expected one of {', '.join(LIKELIHOODS)}, got {name!r}; give one of these names"
        )
    return LIKELIHOODS[name]()

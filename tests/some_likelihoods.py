"""Likelihoods with parameters, written plainly, for tests of what any likelihood may do."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import expit, gammaln, log_ndtr

from bcmdist.data.observations import Observations
from bcmdist.model.likelihoods import (
    LIKELIHOODS,
    OneProcess,
    Softmax,
    SoftmaxCoupled,
    SoftmaxFisher,
    make_likelihood,
)

# Those of one process by name, at their defaults.
OURS = [name for name in LIKELIHOODS if LIKELIHOODS[name].__module__.startswith("bcmdist.")]  # not those of other tests
ONE_PROCESS = {name: partial(make_likelihood, name) for name in OURS if not LIKELIHOODS[name].per_class}
SOFTMAX = {"poisson": Softmax, "fisher": SoftmaxFisher, "coupled": SoftmaxCoupled}


@dataclass(frozen=True)
class _Plain(OneProcess):
    """Parameters are the fields; nothing is predicted."""

    @property
    def parameters(self):
        return {name: np.atleast_1d(value) for name, value in vars(self).items()}

    def with_parameters(self, values):
        return replace(self, **values)

    def unsupported(self, obs):
        return np.zeros(len(obs), dtype=bool)

    def distribution(self, obs, f):
        raise NotImplementedError

    def saturated(self, obs):
        return np.log(obs.y + 0.1) if self.name == "negative binomial" else obs.y

    support = "any numbers"


@dataclass(frozen=True)
class NegativeBinomial(_Plain):
    """Counts of mean exp(f) and variance exp(f) + exp(2 f) / shape."""

    shape: np.ndarray
    name = "negative binomial"

    def log_density(self, obs, f):
        y, r = obs.y, self.shape
        constant = gammaln(y + r) - gammaln(r) - gammaln(y + 1) + r * np.log(r)
        return obs.weight * (constant + y * f - (y + r) * np.logaddexp(np.log(r), f))

    def _share(self, f):
        return expit(f - np.log(self.shape))

    def score(self, obs, f):
        return obs.weight * (obs.y - (obs.y + self.shape) * self._share(f))

    def curvature(self, obs, f):
        p = self._share(f)
        return obs.weight * (obs.y + self.shape) * p * (1 - p)

    def third(self, obs, f):
        return -self.curvature(obs, f) * (1 - 2 * self._share(f))


@dataclass(frozen=True)
class ScoredNegativeBinomial(NegativeBinomial):
    """The same with the expected curvature: Fisher scoring."""

    def curvature(self, obs, f):
        return obs.weight * self.shape * self._share(f)

    def third(self, obs, f):
        return -self.curvature(obs, f) * (1 - self._share(f))

    def hessian(self, obs, f):
        return super().curvature(obs, f)


@dataclass(frozen=True)
class StudentT(_Plain):
    """y = f + scale e, e ~ t of `freedom` degrees of freedom; its expected curvature is constant."""

    scale: np.ndarray
    freedom: np.ndarray
    name = "student t"
    log_concave = False

    def _spread(self, obs, f):
        return self.freedom * self.scale**2 + (obs.y - f) ** 2

    def log_density(self, obs, f):
        v, s = self.freedom, self.scale
        constant = gammaln((v + 1) / 2) - gammaln(v / 2) - 0.5 * np.log(v * np.pi * s**2)
        return obs.weight * (constant - (v + 1) / 2 * np.log(self._spread(obs, f) / (v * s**2)))

    def score(self, obs, f):
        return obs.weight * (self.freedom + 1) * (obs.y - f) / self._spread(obs, f)

    def curvature(self, obs, f):
        return obs.weight * (self.freedom + 1) / ((self.freedom + 3) * self.scale**2)

    def third(self, obs, f):
        return np.zeros(len(obs))

    def hessian(self, obs, f):
        spread = self._spread(obs, f)
        return obs.weight * (self.freedom + 1) * (2 * self.freedom * self.scale**2 - spread) / spread**2


@dataclass(frozen=True)
class ReweightedStudentT(StudentT):
    """The same with the weights of iterated least squares, which depend on f."""

    def curvature(self, obs, f):
        return obs.weight * (self.freedom + 1) / self._spread(obs, f)

    def third(self, obs, f):
        return -2 * self.curvature(obs, f) * (obs.y - f) / self._spread(obs, f)


@dataclass(frozen=True)
class Counts:
    """Poisson with log rate f."""

    def log_density(self, obs, f):
        return obs.weight * (obs.y * f - np.exp(f) - gammaln(obs.y + 1.0))

    def score(self, obs, f):
        return obs.weight * (obs.y - np.exp(f))

    def curvature(self, obs, f):
        return obs.weight * np.exp(f)


@dataclass(frozen=True)
class HeavyTailed:
    """Student-t noise of 4 degrees of freedom and scale 0.1, up to a constant: not log-concave."""

    def log_density(self, obs, f):
        return -2.5 * np.log1p((obs.y - f) ** 2 / 0.04)

    def score(self, obs, f):
        return 5.0 * (obs.y - f) / (0.04 + (obs.y - f) ** 2)

    def curvature(self, obs, f):
        return np.full(len(obs), 5.0 / 0.07)


@dataclass(frozen=True)
class Probit:
    """P(y = 1) = Phi(f): the tilted moments have a closed form."""

    def log_density(self, obs, f):
        return log_ndtr((2 * obs.y - 1) * f)

    def score(self, obs, f):
        sign = 2 * obs.y - 1
        return sign * np.exp(-0.5 * f**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(sign * f))

    def curvature(self, obs, f):
        s = self.score(obs, f)
        return s * (s + f)


def by_trapezoid(likelihood, y, mean, variance):
    """Log normaliser, mean and variance on an even grid over all that counts.

    The rule is exact to rounding for a smooth integrand that vanishes at both ends, once it resolves it.
    """

    def log_integrand(d):
        obs = Observations(np.full(len(d), float(y)), np.ones(len(d)))
        with np.errstate(over="ignore"):
            return likelihood.log_density(obs, mean + d) - 0.5 * d**2 / variance

    low, high, points = -14 * np.sqrt(variance), 14 * np.sqrt(variance), 4001
    while (value := log_integrand(np.linspace(low, high, points)))[[0, -1]].max() > value.max() - 60:
        low, high = 2 * low, 2 * high
    for _ in range(6):  # close in on where the integrand lives
        d = np.linspace(low, high, points)
        value = log_integrand(d)
        inside = np.flatnonzero(value > value.max() - 60)
        low, high = d[max(inside[0] - 1, 0)], d[min(inside[-1] + 1, points - 1)]
    d = np.linspace(low, high, 100_001)
    value = log_integrand(d)
    share = np.exp(value - value.max())
    total = share.sum()
    centre = share @ d / total
    spread = share @ (d - centre) ** 2 / total
    return value.max() + np.log(total * (d[1] - d[0]) / np.sqrt(2 * np.pi * variance)), mean + centre, spread

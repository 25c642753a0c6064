"""Likelihoods of two classes, y in {0, 1}: logit, probit, and the hinge of the support vector machine."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy import stats

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import BoolArray, FloatArray
from bcmdist.model.likelihoods.distribution import Distribution
from bcmdist.model.likelihoods.interface import CLASSES, LARGEST_EXPONENT, OneProcess
from bcmdist.model.likelihoods.multiclass import OneHot
from bcmdist.model.special import erfcx, expit, log_expit, log_ndtr, ndtr, roots_hermitenorm
from bcmdist.model.units import COUNTED

# Averages of the logistic function. For standard deviations of the latent below 1, Gauss-Hermite quadrature over the
# latent with this many nodes is exact to 1e-15; above, see `logistic_average`.
HERMITE_NODES = 64
# Trapezoid rule over a logistic variable: this step and range leave an error of 1e-14 (measured).
TRAPEZOID_STEP = 0.5
TRAPEZOID_RANGE = 37.0

# Half-width of the quadratic part of the hinge, in units of the margin; it adds at most FLOOR / 4 to the cost of a row.
# The weight of a support vector on the margin is cost / (2 FLOOR). At 1e-3 damped Newton steps with the true Hessian no
# longer converge for high costs (measured at cost 10).
FLOOR = 1e-2


@dataclass(frozen=True)
class TwoClass(OneProcess):
    """Rows of two classes, coded as the signs -1 and +1 of the latent."""

    task = "classification"
    support = "the two class labels 0 and 1"
    units = COUNTED
    columns = CLASSES
    discrete = True

    def unsupported(self, obs: Observations) -> BoolArray:
        other: BoolArray = (obs.y != 0) & (obs.y != 1)
        return other

    def saturated(self, obs: Observations) -> FloatArray:
        return LARGEST_EXPONENT * sign(obs)

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        law: Distribution = stats.bernoulli(self.probability(f))
        return law

    def class_probability(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        # Average both: 1 - p would lose a small probability of class 0. Quadrature exceeds 1 by rounding.
        return np.minimum(np.column_stack([self.average(-mean, variance), self.average(mean, variance)]), 1.0)

    @abstractmethod
    def probability(self, f: FloatArray) -> FloatArray:
        """P(y = 1 | f)."""

    @abstractmethod
    def average(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """P(y = 1) averaged over f ~ N(mean, variance), (n,)."""


def sign(obs: Observations) -> FloatArray:
    """-1 for class 0 and +1 for class 1."""
    return 2.0 * obs.y - 1.0


@dataclass(frozen=True)
class Bernoulli(TwoClass):
    """P(y = 1) = 1 / (1 + exp(-f)) (GBCM paper, section 5.2)."""

    name = "bernoulli"

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * log_expit(sign(obs) * f)

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * (obs.y - expit(f))

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * expit(f) * expit(-f)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return -obs.weight * expit(f) * expit(-f) * (1.0 - 2.0 * expit(f))

    def probability(self, f: FloatArray) -> FloatArray:
        return expit(f)

    def average(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        return logistic_average(mean, variance)


@dataclass(frozen=True)
class Probit(TwoClass):
    """P(y = 1) = Phi(f), the normal distribution function.

    With z = +-f and the ratio r = phi(z) / Phi(z): score +-r, curvature r (r + z)
    (Rasmussen & Williams 2006, eq. 3.16). r is computed by the scaled error function, which does not underflow.
    """

    name = "probit"

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * log_ndtr(sign(obs) * f)

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * sign(obs) * _mills(sign(obs) * f)

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        z = sign(obs) * f
        r = _mills(z)
        return obs.weight * r * (r + z)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        z = sign(obs) * f
        r = _mills(z)
        return obs.weight * sign(obs) * r * ((r + z) * (2.0 * r + z) - 1.0)

    def probability(self, f: FloatArray) -> FloatArray:
        return ndtr(f)

    def average(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        return ndtr(mean / np.sqrt(1.0 + variance))


def _mills(z: FloatArray) -> FloatArray:
    """phi(z) / Phi(z)."""
    ratio: FloatArray = np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0))
    return ratio


@dataclass(frozen=True)
class SVM(TwoClass):
    """Minus the cost of a support vector machine (GBCM paper, section 6.7): a pseudo-likelihood.

    log p = -cost h(1 - s f) with s = +-1 and the hinge h(u) = max(u, 0), quadratic for |u| < FLOOR:

    h(u) = u/2 + u^2/(4 z) + z/4 <= u/2 + u^2/(4 z') + z'/4 for any z' >= FLOOR,  z = max(|u|, FLOOR)

    so the curvature cost/(2 z) is a majoriser, and undamped steps never raise the cost (SYSTEMS G14). exp(log p) does
    not sum to one over y: its evidence cannot be compared with that of likelihoods, and `cost` is not learned.
    Probabilities are proportional to exp(-cost) of the two classes, a rough indication only.
    """

    cost: float = 1.0
    name = "svm"
    needs_calibration = True

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        return -obs.weight * self.cost * _hinge(1.0 - sign(obs) * f)

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        u = 1.0 - sign(obs) * f
        return obs.weight * self.cost * sign(obs) * (0.5 + 0.5 * u / _floored(u))

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * self.cost * 0.5 / _floored(1.0 - sign(obs) * f)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        u = 1.0 - sign(obs) * f
        outside = np.abs(u) > FLOOR
        return -obs.weight * self.cost * sign(obs) * np.sign(u) * outside * 0.5 / _floored(u) ** 2

    def hessian(self, obs: Observations, f: FloatArray) -> FloatArray:
        inside = np.abs(1.0 - sign(obs) * f) < FLOOR
        return obs.weight * self.cost * inside * 0.5 / FLOOR

    def learned_as(self) -> OneHot:
        return OneHot.default(2)

    def probability(self, f: FloatArray) -> FloatArray:
        return expit(self.cost * (_hinge(1.0 + f) - _hinge(1.0 - f)))

    def average(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        nodes, weights = roots_hermitenorm(HERMITE_NODES)
        f = np.sqrt(variance)[:, None] * nodes + np.asarray(mean)[:, None]
        shares: FloatArray = weights / weights.sum()
        return self.probability(f) @ shares


def _floored(u: FloatArray) -> FloatArray:
    return np.maximum(np.abs(u), FLOOR)


def _hinge(u: FloatArray) -> FloatArray:
    z = _floored(u)
    return 0.5 * u + 0.25 * u**2 / z + 0.25 * z


def logistic_average(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Average of 1 / (1 + exp(-f)) over f ~ N(mean, variance), (n,), by quadrature.

    Narrow Gaussians are integrated by Gauss-Hermite quadrature. For wide ones the logistic function is nearly a step,
    and the roles are exchanged: with a logistic variable t the average is that of P(f > t) = Phi((mean - t) / sd),
    computed by the trapezoid rule, which converges exponentially. Averaging moves a probability towards 1/2, so 1 / (1
    + exp(-mean)) is a lower bound of a small one, used where the rule underflows.
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

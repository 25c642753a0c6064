"""Likelihoods of counts: Poisson, negative binomial (over-dispersed), and successes among trials."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import BoolArray, FloatArray
from bcmdist.model.likelihoods.distribution import Distribution
from bcmdist.model.likelihoods.interface import (
    LARGEST_EXPONENT,
    NUMBERS,
    SHAPE_BOUNDS,
    OneProcess,
    aligned,
    bounded_exp,
    bounded_log,
    parameter,
    positive,
    whole,
)
from bcmdist.model.special import betaln, expit, gammaln, log_expit, logit
from bcmdist.model.units import COUNTED, RATE


@dataclass(frozen=True)
class Counts(OneProcess):
    """Counts with mean exposure exp(f)."""

    task = "counts"
    support = "counts 0, 1, 2, ... with positive exposures"
    companions = ("exposure",)
    units = RATE
    events = True
    discrete = True

    def unsupported(self, obs: Observations) -> BoolArray:
        return ~(whole(obs.y) & positive(obs.exposure))

    def saturated(self, obs: Observations) -> FloatArray:
        return bounded_log(obs.y / obs.exposure)

    def link(self, obs: Observations, mean: FloatArray) -> FloatArray:
        return bounded_log(mean / obs.exposure)


@dataclass(frozen=True)
class Poisson(Counts):
    """Counts with mean and variance mu = exposure exp(f)."""

    name = "poisson"

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        eta = np.log(obs.exposure) + f
        return obs.weight * (obs.y * eta - bounded_exp(eta) - gammaln(obs.y + 1.0))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * (obs.y - self.mean(obs, f))

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * self.mean(obs, f)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return -obs.weight * self.mean(obs, f)

    def mean(self, obs: Observations, f: FloatArray) -> FloatArray:
        """mu, (n,)."""
        return bounded_exp(np.log(obs.exposure) + f)

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        law: Distribution = stats.poisson(self.mean(aligned(obs, f), f))
        return law


@dataclass(frozen=True)
class NegativeBinomial(Counts):
    """Counts with mean mu = exposure exp(f) and variance mu + mu^2 / shape; Poisson in the limit of large shape.

    With q = mu / (mu + shape), a logistic function of f:
    p = binom(y + shape - 1, y) q^y (1 - q)^shape,  score y (1 - q) - shape q,  curvature (y + shape) q (1 - q)
    """

    shape: FloatArray = parameter(1.0, SHAPE_BOUNDS, widens=-1.0)
    name = "negative_binomial"

    def log_odds(self, obs: Observations, f: FloatArray) -> FloatArray:
        """log(mu / shape), the log odds of q."""
        return np.log(obs.exposure) + f - np.log(self.shape)

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        eta = self.log_odds(obs, f)
        constant = -betaln(self.shape, obs.y + 1.0) - np.log(self.shape + obs.y)
        return obs.weight * (constant + obs.y * log_expit(eta) + self.shape * log_expit(-eta))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        eta = self.log_odds(obs, f)
        return obs.weight * (obs.y * expit(-eta) - self.shape * expit(eta))

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        eta = self.log_odds(obs, f)
        return obs.weight * (obs.y + self.shape) * expit(eta) * expit(-eta)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return -self.curvature(obs, f) * (1.0 - 2.0 * expit(self.log_odds(obs, f)))

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        eta = np.clip(self.log_odds(aligned(obs, f), f), -LARGEST_EXPONENT, LARGEST_EXPONENT)
        law: Distribution = stats.nbinom(self.shape, expit(-eta))
        return law

    def compared(self) -> "Poisson":
        return Poisson()  # the deviance of the negative binomial decreases with its shape


@dataclass(frozen=True)
class Binomial(OneProcess):
    """Successes among trials with success probability 1 / (1 + exp(-f))."""

    name = "binomial"
    task = "binomial"
    support = "counts 0, 1, 2, ... of successes, not above their whole numbers of trials"
    companions = ("trials",)
    units = COUNTED
    columns = (*NUMBERS, "probability")
    events = True
    discrete = True

    def unsupported(self, obs: Observations) -> BoolArray:
        return ~(whole(obs.y) & whole(obs.trials) & (obs.trials >= obs.y))

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        fails = obs.trials - obs.y
        constant = -betaln(fails + 1.0, obs.y + 1.0) - np.log(obs.trials + 1.0)
        return obs.weight * (constant + obs.y * log_expit(f) + fails * log_expit(-f))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * (obs.y * expit(-f) - (obs.trials - obs.y) * expit(f))

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * obs.trials * expit(f) * expit(-f)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return -self.curvature(obs, f) * (1.0 - 2.0 * expit(f))

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        law: Distribution = stats.binom(aligned(obs, f).trials.astype(int), expit(f))
        return law

    def saturated(self, obs: Observations) -> FloatArray:
        odds = bounded_log(obs.y) - bounded_log(obs.trials - obs.y)
        return np.clip(odds, -LARGEST_EXPONENT, LARGEST_EXPONENT)

    def link(self, obs: Observations, mean: FloatArray) -> FloatArray:
        # Rows without trials carry no information, whatever their share.
        return logit(np.clip(mean / np.maximum(np.asarray(obs.trials), 1.0), 1e-15, 1.0 - 1e-15))

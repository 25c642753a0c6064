"""Likelihoods of right-censored lifetimes: exponential and Weibull.

A censored row contributes the probability of surviving beyond its time. With H the cumulative hazard at time t and h
its derivative: log p = event log h(t) - H(t). A time of 0 is replaced by `LEAST_TIME`; no other time is changed.
"""

from abc import abstractmethod
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
    bounded_exp,
    bounded_log,
    parameter,
)
from bcmdist.model.special import gammaln
from bcmdist.model.units import POSITIVE

# Times are scaled to mean 1. A recorded 0 (died on the day of entry) means a time below the unit of the clock; at 0
# the densities of Weibull shapes other than 1 are 0 or infinite. This value is below the unit of every clock with fewer
# than 10,000 steps per mean lifetime; finer clocks are rare.
LEAST_TIME = 1e-4

COLUMNS = (*NUMBERS, "median")


def _log_time(obs: Observations) -> FloatArray:
    """Logs of the times, (n,), with zeros replaced by `LEAST_TIME`."""
    return np.log(np.where(obs.y > 0, obs.y, LEAST_TIME))


@dataclass(frozen=True)
class Lifetime(OneProcess):
    """Times until an event, possibly censored:  log p = event log h - H  with the hazard h and its integral H."""

    task = "lifetimes"
    support = "times not below 0 with events 0 or 1"
    companions = ("event",)
    units = POSITIVE
    columns = COLUMNS
    events = True
    zero_counts_as = LEAST_TIME

    def unsupported(self, obs: Observations) -> BoolArray:
        supported: BoolArray = np.isfinite(obs.y) & (obs.y >= 0) & ((obs.event == 0) | (obs.event == 1))
        return ~supported

    def densities(self, obs: Observations) -> FloatArray:
        return obs.weight * obs.event  # a censored row contributes a probability, not a density

    @abstractmethod
    def cumulative_hazard(self, obs: Observations, f: FloatArray) -> FloatArray:
        """H, (n,)."""

    def saturated(self, obs: Observations) -> FloatArray:
        """H = 1 for an observed event, and +`LARGEST_EXPONENT` (never) for a censored row."""
        return np.where(obs.event == 1, _log_time(obs), LARGEST_EXPONENT)


@dataclass(frozen=True)
class Exponential(Lifetime):
    """Constant hazard exp(-f), mean exp(f):  log p = -event f - H,  H = t exp(-f)."""

    name = "exponential"

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * (-obs.event * f - self.cumulative_hazard(obs, f))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * (self.cumulative_hazard(obs, f) - obs.event)

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * self.cumulative_hazard(obs, f)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return self.curvature(obs, f)

    def cumulative_hazard(self, obs: Observations, f: FloatArray) -> FloatArray:
        return bounded_exp(_log_time(obs) - f)

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        law: Distribution = stats.expon(scale=bounded_exp(f))
        return law

    def link(self, obs: Observations, mean: FloatArray) -> FloatArray:
        return bounded_log(mean)


@dataclass(frozen=True)
class Weibull(Lifetime):
    """Hazard increasing (shape k > 1) or decreasing (k < 1) with age, scale exp(f).

    log p = event (log k - k f + (k - 1) log t) - H,  H = (t exp(-f))^k.
    """

    shape: FloatArray = parameter(1.0, SHAPE_BOUNDS, widens=-1.0)
    name = "weibull"

    def log_density(self, obs: Observations, f: FloatArray) -> FloatArray:
        k, log_t = self.shape, _log_time(obs)
        log_hazard = np.log(k) - k * f + (k - 1.0) * log_t
        return obs.weight * (obs.event * log_hazard - self.cumulative_hazard(obs, f))

    def score(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * self.shape * (self.cumulative_hazard(obs, f) - obs.event)

    def curvature(self, obs: Observations, f: FloatArray) -> FloatArray:
        return obs.weight * self.shape**2 * self.cumulative_hazard(obs, f)

    def third(self, obs: Observations, f: FloatArray) -> FloatArray:
        return self.shape * self.curvature(obs, f)

    def cumulative_hazard(self, obs: Observations, f: FloatArray) -> FloatArray:
        return bounded_exp(self.shape * (_log_time(obs) - f))

    def distribution(self, obs: Observations, f: FloatArray) -> Distribution:
        law: Distribution = stats.weibull_min(self.shape, scale=bounded_exp(f))
        return law

    def link(self, obs: Observations, mean: FloatArray) -> FloatArray:
        return bounded_log(mean) - gammaln(1.0 + 1.0 / self.shape)

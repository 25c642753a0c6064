"""A likelihood of your own: shares between 0 and 1 with a beta distribution, whose precision is learned.

One class with the log density and its derivatives, and `register_likelihood`, which checks them against finite
differences. Task, units, options, predictions and scores follow.
"""

import sys
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import digamma, expit, gammaln, logit, polygamma

from bcmdist import GBCM, Settings, register_likelihood
from bcmdist.model.likelihoods import OneProcess, parameter
from bcmdist.model.units import SHARE
from bcmdist.testing import check_likelihood


@register_likelihood
@dataclass(frozen=True)
class Beta(OneProcess):
    """Shares of mean m = 1 / (1 + exp(-f)): beta(a, b) with a = m precision, b = (1 - m) precision."""

    precision: np.ndarray = parameter(8.0, (1e-1, 1e5), widens=-1.0)
    name = "beta"
    task = "shares"
    support = "numbers between 0 and 1"
    units = SHARE
    log_concave = False  # `curvature` is an expectation

    def unsupported(self, obs):
        return ~((obs.y > 0) & (obs.y < 1))

    def parts(self, f):
        """a, b, da/df and the derivative of its logarithm."""
        m, rest = expit(np.clip(f, -300.0, 300.0)), expit(-np.clip(f, -300.0, 300.0))
        return m * self.precision, rest * self.precision, m * rest * self.precision, rest - m

    def log_density(self, obs, f):
        a, b, _, _ = self.parts(f)
        constant = gammaln(self.precision) - gammaln(a) - gammaln(b)
        return obs.weight * (constant + (a - 1.0) * np.log(obs.y) + (b - 1.0) * np.log1p(-obs.y))

    def score(self, obs, f):
        a, b, v, _ = self.parts(f)
        return obs.weight * v * (logit(obs.y) - digamma(a) + digamma(b))

    def curvature(self, obs, f):
        a, b, v, _ = self.parts(f)
        return obs.weight * v**2 * (polygamma(1, a) + polygamma(1, b))

    def third(self, obs, f):
        a, b, v, tilt = self.parts(f)
        slope = v * (polygamma(2, a) - polygamma(2, b))
        return -obs.weight * v**2 * (2.0 * tilt * (polygamma(1, a) + polygamma(1, b)) + slope)

    def hessian(self, obs, f):
        return self.curvature(obs, f) - self.score(obs, f) * self.parts(f)[3]

    def distribution(self, obs, f):
        a, b, _, _ = self.parts(f)
        return stats.beta(a, b)

    def saturated(self, obs):
        low, high = np.full(len(obs), -300.0), np.full(len(obs), 300.0)
        for _ in range(64):
            f = 0.5 * (low + high)
            above = self.score(obs, f) < 0
            low, high = np.where(above, low, f), np.where(above, f, high)
        return 0.5 * (low + high)


def shares(rows, rng):
    X = rng.uniform(-2, 2, (rows, 2))
    m = expit(np.sin(2 * X[:, 0]) + 0.8 * X[:, 1] - 1.0)
    return X, rng.beta(12.0 * m, 12.0 * (1.0 - m)).clip(1e-6, 1.0 - 1e-6)


def main(rows):
    check_likelihood(Beta(3.0))  # what `register_likelihood` did at the default, at another precision
    rng = np.random.default_rng(0)
    gbcm = GBCM.fit(shares(rows, rng), Settings(task="shares", kernel="se", query=50, effort="quick"))
    print(f"precision {gbcm.model.likelihood.precision[0]:.1f}, in truth 12")
    X, y = shares(1000, rng)
    found = gbcm.predict(X)
    inside = np.mean((found["lower95"] <= y) & (y <= found["upper95"]))
    print(f"mean error {np.mean(np.abs(found['observation_mean'] - y)):.3f}; in 95 % intervals: {inside:.3f}")


if __name__ == "__main__":
    main(400 if "--quick" in sys.argv else 4000)

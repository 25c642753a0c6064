"""Probabilities of two classes, corrected by rows left out: a logistic regression on what was said of each (Cox 1958).

    logit P(y = 1) = intercept + slope logit p

with p what the likelihood says on its own. One pass of Laplace approximations errs where classes are nearly separable;
rows left out tell by how much. The hyper-parameters have seen these rows, though: a slope above 1, which makes
probabilities more extreme, is shrunk by the share of the likelihood ratio that as many parameters may gain where there
is nothing to learn (van Houwelingen & le Cessie 1990; here, as in Akaike's criterion, twice their number). Targets are
smoothed (Platt 2000), so that classes which rows left out separate get no probabilities of 0.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

from bcmdist.model.likelihoods import Likelihood
from bcmdist.prediction.errors.platt_scaling import HeldOutRows

# A correction is taken where rows of the other half gain more than so many standard errors: of what is right already 5
# in 100 would be corrected at 1, none of 1800 are at 2 (200 to 2000 rows).
DECISIVE = 2.0
# What a learned hyper-parameter may gain, in units of twice a nat: on rows held out of training rows of sonar and
# ionosphere, with 60 and 34 lengthscales for some 200 rows, 1 harms, 2 does not.
SHRINKING = 2.0
# Rows of each class in each half without which nothing is corrected.
LEAST_ROWS = 10
LARGEST_LOGIT = 700.0
BOUNDS = [(1e-2, 1e2), (-50.0, 50.0)]
HALVES_SEED = 20002


@dataclass(frozen=True)
class Recalibration:
    """Slope and intercept of the map from what was said to what is."""

    slope: float
    intercept: float

    def corrected(self, probability) -> np.ndarray:
        """Probabilities (n, 2) from those that were said, (n, 2)."""
        f = self.intercept + self.slope * _logits(probability)
        return np.column_stack([expit(-f), expit(f)])


@dataclass(frozen=True)
class Recalibrated:
    """A likelihood of two classes whose probabilities are corrected."""

    likelihood: Likelihood
    by: Recalibration

    def probability(self, mean, variance) -> np.ndarray:
        """Class probabilities (n, 2) from latent means and variances, (n,)."""
        return self.by.corrected(self.likelihood.class_probability(mean, variance))


def recalibrated_from(facts: dict[str, Any] | None, likelihood) -> Recalibrated | None:
    """What the facts of a commit hold, if anything."""
    return None if facts is None else Recalibrated(likelihood, Recalibration(facts["slope"], facts["intercept"]))


def fit_recalibration(left_out: HeldOutRows, likelihood: Likelihood, learned: int) -> Recalibration | None:
    """The correction at which rows left out are likeliest; None unless rows of the other half gain by it.

    Each half of the rows judges what was fitted to the other one, by `DECISIVE` standard errors of the gain.

    Parameters
    ----------
    learned : number of hyper-parameters that were learned with these rows
    """
    seen = (left_out.mean, left_out.variance, left_out.target, left_out.weight)
    mean, variance, target, weight = (values[np.lexsort(seen)] for values in seen)  # in whatever order they came
    f, sign = _logits(likelihood.class_probability(mean, variance)), 2.0 * target - 1.0
    half = np.zeros(len(f), dtype=bool)
    for own in (sign > 0, sign < 0):  # of each class
        rows = np.random.default_rng(HALVES_SEED).permutation(np.flatnonzero(own))
        if len(rows) < 2 * LEAST_ROWS:
            return None
        half[rows[::2]] = True
    gain = np.zeros(len(f))
    for judged in (half, ~half):
        found = _fitted(f[~judged], sign[~judged], weight[~judged], learned * np.mean(~judged))
        gain[judged] = weight[judged] * (_log_density(found, f, sign) - log_expit(sign * f))[judged]
    error = math.sqrt(np.sum((gain - gain.mean()) ** 2))
    return _fitted(f, sign, weight, learned) if gain.sum() > DECISIVE * error else None


def _logits(probability):
    """log p_1 / p_0, exact for small probabilities of either."""
    with np.errstate(divide="ignore"):
        return np.where(
            probability[:, 1] < probability[:, 0], logit(probability[:, 1]), -logit(probability[:, 0])
        ).clip(-LARGEST_LOGIT, LARGEST_LOGIT)


def _log_density(found: Recalibration, f, sign):
    return log_expit(sign * (found.intercept + found.slope * f))


def _smoothed_targets(sign, weight) -> np.ndarray:
    """Probabilities of the second class that a fit aims at (n,): (N + 1) / (N + 2) of a row's own one (Platt 2000).

    N is the weight of the rows of its class. Where rows left out separate the classes, labels alone would have no
    finite slope of highest likelihood.
    """
    count = np.where(sign > 0, weight @ (sign > 0), weight @ (sign < 0))
    own = (count + 1.0) / (count + 2.0)
    return np.where(sign > 0, own, 1.0 - own)


def _fitted(f, sign, weight, learned) -> Recalibration:
    """Slope and intercept of highest likelihood, the slope shrunk; of a slope of 1 or less as it is."""
    target, total = _smoothed_targets(sign, weight), weight.sum()
    share = (weight @ target) / total
    nothing = total * (share * math.log(share) + (1.0 - share) * math.log1p(-share))
    slope, intercept = _maximum(f, target, weight, BOUNDS)
    ratio = 2.0 * (weight @ _expected_log_density(intercept + slope * f, target) - nothing)
    shrunk = max(min(slope, 1.0), slope * (1.0 - SHRINKING * learned / max(ratio, SHRINKING * learned, 1e-300)))
    if shrunk < slope:
        slope, intercept = _maximum(f, target, weight, [(shrunk, shrunk), BOUNDS[1]])
    return Recalibration(slope, intercept)


def _expected_log_density(at, target):
    """Of labels whose probability is `target`, by log odds `at`, (n,)."""
    return target * log_expit(at) + (1.0 - target) * log_expit(-at)


def _maximum(f, target, weight, bounds) -> tuple[float, float]:
    def loss(parameters):
        slope, intercept = parameters
        at = intercept + slope * f
        pull = weight * (expit(at) - target)
        return -weight @ _expected_log_density(at, target), np.array([pull @ f, pull.sum()])

    start = np.clip([1.0, 0.0], *np.transpose(bounds))
    slope, intercept = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return float(slope), float(intercept)

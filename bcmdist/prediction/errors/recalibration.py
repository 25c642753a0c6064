"""Recalibration of two-class probabilities by logistic regression on leave-one-out predictions (Cox 1958).

    logit P(y = 1) = intercept + slope logit p

where p is the probability that the likelihood gives. One pass of Laplace approximations errs where classes are nearly
separable; left-out rows show by how much. The hyper-parameters were learned with these rows, though. Therefore a slope
above 1, which makes probabilities more extreme, is shrunk by the share of the likelihood ratio that as many parameters
gain from noise (van Houwelingen & le Cessie 1990; here twice their number, as in Akaike's criterion). Targets are
smoothed (Platt 2000), so that separable classes do not get probabilities of 0.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

from bcmdist.model.likelihoods import Likelihood
from bcmdist.prediction.errors.platt_scaling import HeldOutRows

# A correction is applied if its cross-validated gain exceeds this many standard errors: correct probabilities hardly
# ever have such a gain.
DECISIVE = 2.0
# Gain from noise per learned hyper-parameter, as twice the log likelihood ratio; less does harm with many
# lengthscales and few rows.
SHRINKING = 2.0
# Least number of rows of each class in each half; with fewer, nothing is corrected.
LEAST_ROWS = 10
LARGEST_LOGIT = 700.0
BOUNDS = [(1e-2, 1e2), (-50.0, 50.0)]
HALVES_SEED = 20002


@dataclass(frozen=True)
class Recalibration:
    """Slope and intercept of the map from predicted to corrected log odds."""

    slope: float
    intercept: float

    def corrected(self, probability) -> np.ndarray:
        """Corrected probabilities (n, 2) of predicted ones, (n, 2)."""
        f = self.intercept + self.slope * _logits(probability)
        return np.column_stack([expit(-f), expit(f)])


@dataclass(frozen=True)
class Recalibrated:
    """A two-class likelihood with corrected probabilities."""

    likelihood: Likelihood
    by: Recalibration

    def probability(self, mean, variance) -> np.ndarray:
        """Class probabilities (n, 2) from latent means and variances, (n,)."""
        return self.by.corrected(self.likelihood.class_probability(mean, variance))


def recalibrated_from(facts, likelihood) -> Recalibrated | None:
    """The likelihood with the recalibration stored in a commit's facts; None if there is none."""
    return None if facts is None else Recalibrated(likelihood, Recalibration(facts.slope, facts.intercept))


def fit_recalibration(left_out: HeldOutRows, likelihood: Likelihood, learned: int) -> Recalibration | None:
    """Fit slope and intercept to left-out rows; None unless two-fold cross-validation shows a gain.

    A correction is fitted to each half of the rows and scored on the other; the total gain must exceed `DECISIVE`
    standard errors.

    Parameters
    ----------
    left_out : leave-one-out latent predictions and targets
    learned : number of hyper-parameters that were learned with these rows
    """
    seen = (left_out.mean, left_out.variance, left_out.target, left_out.weight)
    mean, variance, target, weight = (values[np.lexsort(seen)] for values in seen)  # sorted: order-independent
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
    """Smoothed probabilities (n,) of the second class as targets: (N + 1) / (N + 2) for a row's own class (Platt 2000).

    N is the total weight of the rows of that class. With plain labels, separable classes would have no finite
    maximum-likelihood slope.
    """
    count = np.where(sign > 0, weight @ (sign > 0), weight @ (sign < 0))
    own = (count + 1.0) / (count + 2.0)
    return np.where(sign > 0, own, 1.0 - own)


def _fitted(f, sign, weight, learned) -> Recalibration:
    """Maximum-likelihood slope and intercept; a slope above 1 is shrunk towards 1."""
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
    """Expected log density (n,), under log odds `at`, of labels that have probability `target`."""
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

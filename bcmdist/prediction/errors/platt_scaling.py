"""Class probabilities from uncalibrated scores: Platt scaling on held-out predictions.

Regression on one-hot targets and the support vector machine decide by the largest latent value and have no class
probabilities. With the committee's mean m_c and variance v_c at rows that it has not absorbed,

    P(y = c) = softmax_c of (slope m_c + bias_c) / sqrt(1 + pi slope^2 v_c / 8)

(Platt 2000, for C classes; the root averages over the latent function as in MacKay 1992). Slope and biases maximise
the likelihood of Platt's smoothed targets.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax


@dataclass(frozen=True)
class HeldOutRows:
    """Latent predictions and classes at held-out rows; `+` concatenates."""

    mean: np.ndarray
    """(n,) or (n, C), like the variance"""
    variance: np.ndarray
    target: np.ndarray
    """class numbers, (n,)"""
    weight: np.ndarray
    """(n,)"""

    def __add__(self, other: "HeldOutRows") -> "HeldOutRows":
        return HeldOutRows(
            np.concatenate([self.mean, other.mean]),
            np.concatenate([self.variance, other.variance]),
            np.concatenate([self.target, other.target]),
            np.concatenate([self.weight, other.weight]),
        )


class Probabilities(Protocol):
    """Interface of calibrations that map latent predictions to class probabilities in place of the likelihood."""

    def probability(self, mean, variance) -> np.ndarray:
        """Class probabilities (n, C) from latent means and variances, (n, C), or (n,) for two classes."""


@dataclass(frozen=True)
class Calibration:
    """Slope and biases of the map from latent predictions to class probabilities."""

    slope: float
    bias: tuple[float, ...]
    """one per class"""

    def probability(self, mean, variance) -> np.ndarray:
        """Class probabilities (n, C) from latent means and variances, (n, C), or (n,) for two classes."""
        mean, variance = per_class(mean, variance)
        return softmax(_moderated(mean, variance, self.slope, np.array(self.bias)), axis=1)


def uncalibrated(classes) -> Calibration:
    """The calibration of a committee without held-out rows: slope 1 and biases 0."""
    return Calibration(1.0, (0.0,) * classes)


def per_class(mean, variance) -> tuple[np.ndarray, np.ndarray]:
    """Return latent means and variances per class, (n, C) each.

    For two classes with a single latent f = f_1 - f_0, (n,), the means are -f/2 and f/2, with half the variance each.
    """
    if mean.ndim == 2:
        return mean, variance
    return np.column_stack([-0.5 * mean, 0.5 * mean]), np.column_stack([0.5 * variance] * 2)


def _moderated(mean, variance, slope, bias):
    return (slope * mean + bias) / np.sqrt(1.0 + np.pi / 8.0 * slope**2 * variance)


def fit_calibration(held_out: HeldOutRows) -> Calibration:
    """Slope and biases by maximum likelihood of smoothed targets (Platt 2000, eqs. 6-7).

    A row of class c, which has N_c rows, has the target (N_c + 1) / (N_c + 2) for c, and equal shares of the rest for
    the others, so that the slope stays finite for separable classes. The first class with rows has a bias of 0; classes
    without rows get the mean bias of those with rows.
    """
    mean, variance = per_class(held_out.mean, held_out.variance)
    C, target = mean.shape[1], held_out.target.astype(int)
    smoothed, shares = _smoothed_targets(target, C), _bias_shares(target, C)

    def loss(parameters):
        slope, bias = parameters[0], shares @ parameters[1:]
        return -(
            held_out.weight[:, None] * smoothed * log_softmax(_moderated(mean, variance, slope, bias), axis=1)
        ).sum()

    free = shares.shape[1]
    start = np.concatenate([[2.0], np.zeros(free)])
    best = minimize(loss, start, method="L-BFGS-B", bounds=[(1e-3, 1e3)] + [(-50.0, 50.0)] * free).x
    return Calibration(float(best[0]), tuple(map(float, shares @ best[1:])))


def _bias_shares(target, classes):
    """Matrix (C, free) from fitted biases to those of all classes; all classes with rows but the first are fitted.

    A class without rows gets the mean of the others: if fitted, its bias would fall until the class is never predicted.
    """
    own = np.eye(classes)[:, np.unique(target)]
    unseen = own.sum(axis=1) == 0.0
    own[unseen] = own[~unseen].mean(axis=0)
    return own[:, 1:]


def _smoothed_targets(target, classes):
    count = np.bincount(target, minlength=classes)
    own = (count + 1.0) / (count + 2.0)
    other = (1.0 - own) / max(classes - 1, 1)
    return np.where(np.arange(classes) == target[:, None], own[target][:, None], other[target][:, None])


def calibration_from(facts) -> Calibration | None:
    """The calibration stored in a commit's facts; None if there is none."""
    return None if facts is None else Calibration(facts.slope, tuple(facts.bias))

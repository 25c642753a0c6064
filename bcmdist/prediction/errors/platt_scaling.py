"""Class probabilities from scores that are none: Platt's calibration on held-out predictions.

Regression on one-hot targets and the support vector machine decide by the largest latent but say
nothing of probabilities. With the committee's mean m_c and variance v_c at rows it has not absorbed,

    P(y = c) = softmax_c of (slope m_c + bias_c) / sqrt(1 + pi slope^2 v_c / 8)

(Platt 2000, for C classes; the root averages over the latent as MacKay 1992 does). Slope and
biases maximise the likelihood of Platt's smoothed targets.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax


@dataclass(frozen=True)
class HeldOutRows:
    """Predictions at rows that were not absorbed; `+` puts them together."""

    mean: np.ndarray
    """(n,) or (n, C)"""
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
    """What makes class probabilities of latents where the likelihood does not do so alone."""

    def probability(self, mean, variance) -> np.ndarray:
        """Class probabilities (n, C) from latent means and variances, (n, C), or (n,) for two classes."""


@dataclass(frozen=True)
class Calibration:
    """Slope and biases of the map from latents to probabilities."""

    slope: float
    bias: tuple[float, ...]
    """one per class"""

    def probability(self, mean, variance) -> np.ndarray:
        """Class probabilities (n, C) from latent means and variances, (n, C), or (n,) for two classes."""
        mean, variance = per_class(mean, variance)
        return softmax(_moderated(mean, variance, self.slope, np.array(self.bias)), axis=1)


def uncalibrated(classes) -> Calibration:
    """What a committee says that has absorbed nothing to calibrate with: its latents as they are."""
    return Calibration(1.0, (0.0,) * classes)


def per_class(mean, variance) -> tuple[np.ndarray, np.ndarray]:
    """Latents as (n, C): one latent of two classes stands for f_1 - f_0."""
    if mean.ndim == 2:
        return mean, variance
    return np.column_stack([-0.5 * mean, 0.5 * mean]), np.column_stack([0.5 * variance] * 2)


def _moderated(mean, variance, slope, bias):
    return (slope * mean + bias) / np.sqrt(1.0 + np.pi / 8.0 * slope**2 * variance)


def fit_calibration(held_out: HeldOutRows) -> Calibration:
    """Slope and biases by maximum likelihood of smoothed targets (Platt 2000, eqs. 6-7).

    A row of class c with N_c rows counts (N_c + 1) / (N_c + 2) for c and the rest for the others, so
    that separable classes leave the slope finite. The first class with rows has a bias of 0, classes without rows
    have the mean of those with rows.
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
    """How the biases of all classes follow from those that are fitted, (C, free): of the classes with rows all but one.

    A class without rows has the mean of the others: fitted, its bias would fall until the class is never predicted.
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
    """The calibration that a commit's facts hold, if any."""
    return None if facts is None else Calibration(facts["slope"], tuple(facts["bias"]))

"""Scale of errors at rows with gaps, relative to rows without.

A gap is filled with the mean of its column and marked by an indicator input (`bcmdist.data.tables.coding`). What the
missing value would have explained adds to the errors of such rows. The factor on their variance is that of largest

    sum_i log p(z_i / sqrt(factor)) - 1/2 n log factor - RATE |log factor - log prior|

over standardised left-out residuals z (n,), with p the shape of errors at rows without gaps. The prior is a Laplace
distribution: a few residuals leave the factor where it was, and many are hardly shrunk. Rows that miss a single value
have a factor for each column, rows that miss several values share one. The prior of each is the factor of all rows with
gaps, and the prior of that one is 1.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from bcmdist.committee.measurements import GapIndicators
from bcmdist.model.model import Model
from bcmdist.prediction.errors.scale_mixture import Shape, fit_shape, histogram

# Rate of the prior, in nats per unit of log variance: with normal errors, n residuals must differ in log variance by
# 2 RATE / n before the factor moves, and it is shrunk by as much: 3.2 for 5 residuals, .05 for 300.
RATE = 8.0
# Largest |log factor|: a factor of 55 in variance, 7 in standard deviation.
LARGEST_LOG = 4.0
# Decimals of log factors: nearly equal residuals, summed in another order, must give the same factors.
DECIMALS = 2


@dataclass(frozen=True)
class GapScale:
    """Factors on the variance of errors at rows with gaps."""

    inputs: np.ndarray
    """numbers of the k indicators among the inputs, (k,)"""
    thresholds: np.ndarray
    """scaled indicators above these mark a gap, (k,)"""
    log_factors: np.ndarray
    """of rows without gaps (0), with a gap in a single column, and with several gaps, (k + 2,)"""

    def factor(self, X) -> np.ndarray:
        """Factor (n,) on the variance of errors at scaled inputs, whose first columns are X (n, D)."""
        return np.exp(self.log_factors[_groups(self, X)])


def find_indicators(model: Model) -> GapIndicators | None:
    """The inputs of a model that mark gaps; None if there are none."""
    inputs = list(model.schema.gaps)
    if not inputs:
        return None
    ends = model.scaling.inputs(np.tile([[0.0], [1.0]], model.inputs))
    return GapIndicators(inputs, ends.mean(axis=0)[inputs].tolist())


def fit_gap_scale(indicators: GapIndicators, places, z, weights) -> GapScale:
    """Fit the factors to standardised residuals z (n,) with weights (n,) at places (n, D + 1)."""
    nothing = GapScale(np.array(indicators.inputs), np.array(indicators.thresholds), np.zeros(indicators.count + 2))
    group = _groups(nothing, places)
    shape = fit_shape(histogram(z[group == 0], weight=weights[group == 0]))
    pooled = _fitted(shape, z[group > 0], weights[group > 0], 0.0)
    several = [_fitted(shape, z[group == k], weights[group == k], pooled) for k in range(1, indicators.count + 2)]
    return GapScale(nothing.inputs, nothing.thresholds, np.array([0.0, *several]))


def _groups(scale: GapScale, X) -> np.ndarray:
    """Position (n,) of each row's log factor."""
    gaps = X[:, scale.inputs] > scale.thresholds
    count = gaps.sum(axis=1)
    return np.where(count > 1, len(scale.inputs) + 1, count * (1 + gaps.argmax(axis=1)))


def _fitted(shape: Shape, z, weights, prior: float) -> float:
    """The log factor of largest posterior density."""

    def loss(log):
        return RATE * abs(log - prior) - weights @ (shape.log_density(z * np.exp(-0.5 * log)) - 0.5 * log)

    found = float(minimize_scalar(loss, bounds=(-LARGEST_LOG, LARGEST_LOG), method="bounded").x)
    return round(found, DECIMALS) if len(z) and loss(found) < loss(prior) else prior

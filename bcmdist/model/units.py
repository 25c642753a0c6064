"""Units of targets: scaling of targets for the model, and of predictions back to original units.

Units depend on the type of target: real numbers, positive numbers, counts, shares. A likelihood names its units; a
model stores the two numbers `mean` and `scale` that the units computed from the training data.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, Protocol

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import FloatArray, FloatOrArray
from bcmdist.model.special import expit, logit

# Positions (`Units.place`) are clipped here before exp, so that every target is finite.
LARGEST_PLACE = 600.0


class ColumnMoments(Protocol):
    """What units need of the moments of one column, (1,) each (`model.scaling.Moments`)."""

    @property
    def mean(self) -> FloatArray: ...

    @property
    def scale(self) -> FloatArray:
        """Standard deviation, 1 for a constant column."""


class Units(ABC):
    """Conversions between original and model units, given two numbers `mean` and `scale`; the identity by default."""

    name: ClassVar[str]
    dimensional: ClassVar[bool] = False
    """True where targets have a unit of measurement, so that their densities have one too"""

    @abstractmethod
    def found(self, y: ColumnMoments, exposure: ColumnMoments) -> tuple[float, float]:
        """Return `mean` and `scale` from the moments of targets and of exposures."""

    def observations(self, obs: Observations, mean: FloatOrArray, scale: FloatOrArray) -> Observations:
        """Observations in model units."""
        return obs

    def latent(self, f: FloatArray, mean: FloatOrArray, scale: FloatOrArray) -> FloatArray:
        """Latent values in original units."""
        return f

    def latent_length(self, scale: FloatOrArray) -> FloatOrArray:
        """Factor for standard deviations of f from model to original units; square it for variances."""
        return 1.0

    def target(self, y: FloatArray, mean: FloatOrArray, scale: FloatOrArray) -> FloatArray:
        """Targets, or summaries such as their quantiles, in original units."""
        return y

    def length(self, scale: FloatOrArray) -> FloatOrArray:
        """Factor for standard deviations of targets from model to original units; square it for variances."""
        return 1.0

    def training_mean(self, mean: float, scale: float) -> float:
        """Mean of the training targets in original units, where predictions are compared with it."""
        return mean

    @abstractmethod
    def place(self, y: FloatArray) -> FloatArray:
        """Position of targets on a scale on which distributions are roughly symmetric, for the search of quantiles."""

    @abstractmethod
    def at(self, place: FloatArray) -> FloatArray:
        """Targets at positions on that scale, the inverse of `place`; finite for every finite position."""


class _Affine(Units):
    """Real numbers, standardised to mean 0 and standard deviation 1. The latent has the unit of the target."""

    name = "affine"
    dimensional = True

    def found(self, y: ColumnMoments, exposure: ColumnMoments) -> tuple[float, float]:
        return float(y.mean[0]), float(y.scale[0])

    def observations(self, obs: Observations, mean: FloatOrArray, scale: FloatOrArray) -> Observations:
        return replace(obs, y=(obs.y - mean) / scale, target_variance=obs.target_variance / scale**2)

    def latent(self, f: FloatArray, mean: FloatOrArray, scale: FloatOrArray) -> FloatArray:
        return f * scale + mean

    def latent_length(self, scale: FloatOrArray) -> FloatOrArray:
        return scale

    def target(self, y: FloatArray, mean: FloatOrArray, scale: FloatOrArray) -> FloatArray:
        return y * scale + mean

    def length(self, scale: FloatOrArray) -> FloatOrArray:
        return scale

    def place(self, y: FloatArray) -> FloatArray:
        return y

    def at(self, place: FloatArray) -> FloatArray:
        return place


class _Positive(Units):
    """Positive numbers, divided by their mean. The latent is the log of a scale; 0 corresponds to the mean."""

    name = "scale"
    dimensional = True

    def found(self, y: ColumnMoments, exposure: ColumnMoments) -> tuple[float, float]:
        return 0.0, _positive(y.mean[0])

    def observations(self, obs: Observations, mean: FloatOrArray, scale: FloatOrArray) -> Observations:
        return replace(obs, y=obs.y / scale)

    def latent(self, f: FloatArray, mean: FloatOrArray, scale: FloatOrArray) -> FloatArray:
        return f + np.log(scale)

    def target(self, y: FloatArray, mean: FloatOrArray, scale: FloatOrArray) -> FloatArray:
        return y * scale

    def length(self, scale: FloatOrArray) -> FloatOrArray:
        return scale

    def training_mean(self, mean: float, scale: float) -> float:
        return scale

    def place(self, y: FloatArray) -> FloatArray:
        return np.log(y)

    def at(self, place: FloatArray) -> FloatArray:
        return np.exp(np.clip(place, -LARGEST_PLACE, LARGEST_PLACE))


class _Counted(Units):
    """Whole numbers bounded by trials or classes, unscaled."""

    name = "none"

    def found(self, y: ColumnMoments, exposure: ColumnMoments) -> tuple[float, float]:
        return 0.0, 1.0

    def place(self, y: FloatArray) -> FloatArray:
        return _place_of_count(y)

    def at(self, place: FloatArray) -> FloatArray:
        return _count_at(place)


class _Rate(Units):
    """Counts; exposures are multiplied by the base rate. The latent is the log of a rate; 0 is the base rate."""

    name = "exposure"

    def found(self, y: ColumnMoments, exposure: ColumnMoments) -> tuple[float, float]:
        return 0.0, _positive(y.mean[0] / exposure.mean[0])

    def observations(self, obs: Observations, mean: FloatOrArray, scale: FloatOrArray) -> Observations:
        return replace(obs, exposure=obs.exposure * scale)

    def latent(self, f: FloatArray, mean: FloatOrArray, scale: FloatOrArray) -> FloatArray:
        return f + np.log(scale)

    def place(self, y: FloatArray) -> FloatArray:
        return _place_of_count(y)

    def at(self, place: FloatArray) -> FloatArray:
        return _count_at(place)


class _Share(Units):
    """Numbers between 0 and 1, unscaled. The latent has no unit."""

    name = "share"

    def found(self, y: ColumnMoments, exposure: ColumnMoments) -> tuple[float, float]:
        return float(y.mean[0]), 1.0

    def place(self, y: FloatArray) -> FloatArray:
        return logit(y)

    def at(self, place: FloatArray) -> FloatArray:
        return expit(place)


def _place_of_count(y: FloatArray) -> FloatArray:
    return np.log(y + 2.0)  # starts at -1, below all counts


def _count_at(place: FloatArray) -> FloatArray:
    return np.exp(np.clip(place, -LARGEST_PLACE, LARGEST_PLACE)) - 2.0


def _positive(base: float) -> float:
    return float(base) if base > 0 else 1.0


AFFINE, POSITIVE, COUNTED, RATE, SHARE = _Affine(), _Positive(), _Counted(), _Rate(), _Share()

"""Units of targets: how they are scaled for a model, and how what it predicts comes back.

What targets can be decides it: numbers of any size, positive numbers, counts, shares. A likelihood names its units; a
model records the two numbers `mean` and `scale` that they found in the training data.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.special import expit, logit

from bcmdist.data.observations import Observations

# Exponents on a ruler are cut here, so that no place on it is infinite.
LARGEST_PLACE = 600.0


class Units(ABC):
    """Two numbers of the training targets, and what follows from them; as they are, unless a method says otherwise."""

    name: ClassVar[str]
    dimensional: ClassVar[bool] = False
    """True where targets have a unit of length, in which their densities are measured too"""

    @abstractmethod
    def found(self, y, exposure) -> tuple[float, float]:
        """`mean` and `scale` of targets with these moments (`model.scaling.Moments`), and of their exposures."""

    def observations(self, obs, mean, scale) -> Observations:
        """Observations in the units of the model."""
        return obs

    def latent(self, f, mean, scale) -> np.ndarray:
        """Latent values in original units."""
        return f

    def latent_length(self, scale) -> float:
        """A length of 1 along f in original units; of variances the root."""
        return 1.0

    def target(self, y, mean, scale) -> np.ndarray:
        """Targets, and what is said of their places, in original units."""
        return y

    def length(self, scale) -> float:
        """A length of 1 along targets in original units; of variances the root."""
        return 1.0

    def training_mean(self, mean, scale) -> float:
        """Mean of the training targets in original units, where that is what predictions are compared with."""
        return mean

    @abstractmethod
    def place(self, y) -> np.ndarray:
        """Where targets lie on a ruler along which distributions are about symmetric: quantiles are searched there."""

    @abstractmethod
    def at(self, place) -> np.ndarray:
        """The targets at places on the ruler, the inverse of `place`; finite, and possible, for all that are finite."""


class _Affine(Units):
    """Numbers of any size: mean 0 and standard deviation 1. The latent has the unit of the target."""

    name = "affine"
    dimensional = True

    def found(self, y, exposure):
        return float(y.mean[0]), float(y.scale[0])

    def observations(self, obs, mean, scale):
        return replace(obs, y=(obs.y - mean) / scale)

    def latent(self, f, mean, scale) -> np.ndarray:
        return f * scale + mean

    def latent_length(self, scale) -> float:
        return scale

    def target(self, y, mean, scale) -> np.ndarray:
        return y * scale + mean

    def length(self, scale) -> float:
        return scale

    def place(self, y) -> np.ndarray:
        return y

    def at(self, place) -> np.ndarray:
        return place


class _Positive(Units):
    """Positive numbers: divided by their mean. The latent is the log of a scale, and 0 that of the mean."""

    name = "scale"
    dimensional = True

    def found(self, y, exposure):
        return 0.0, _positive(y.mean[0])

    def observations(self, obs, mean, scale):
        return replace(obs, y=obs.y / scale)

    def latent(self, f, mean, scale) -> np.ndarray:
        return f + np.log(scale)

    def target(self, y, mean, scale) -> np.ndarray:
        return y * scale

    def length(self, scale) -> float:
        return scale

    def training_mean(self, mean, scale) -> float:
        return scale

    def place(self, y) -> np.ndarray:
        return np.log(y)

    def at(self, place) -> np.ndarray:
        return np.exp(np.clip(place, -LARGEST_PLACE, LARGEST_PLACE))


class _Counted(Units):
    """Whole numbers that are bounded by something else, trials or classes: as they are."""

    name = "none"

    def found(self, y, exposure):
        return 0.0, 1.0

    def place(self, y):
        return _place_of_count(y)

    def at(self, place) -> np.ndarray:
        return _count_at(place)


class _Rate(Units):
    """Counts: exposures are multiplied by the base rate. The latent is the log of a rate, 0 that of the base one."""

    name = "exposure"

    def found(self, y, exposure):
        return 0.0, _positive(y.mean[0] / exposure.mean[0])

    def observations(self, obs, mean, scale):
        return replace(obs, exposure=obs.exposure * scale)

    def latent(self, f, mean, scale) -> np.ndarray:
        return f + np.log(scale)

    def place(self, y):
        return _place_of_count(y)

    def at(self, place) -> np.ndarray:
        return _count_at(place)


class _Share(Units):
    """Numbers between 0 and 1: as they are. The latent has no unit."""

    name = "share"

    def found(self, y, exposure):
        return float(y.mean[0]), 1.0

    def place(self, y) -> np.ndarray:
        return logit(y)

    def at(self, place) -> np.ndarray:
        return expit(place)


def _place_of_count(y):
    return np.log(y + 2.0)  # from -1 on, which lies below all counts


def _count_at(place):
    return np.exp(np.clip(place, -LARGEST_PLACE, LARGEST_PLACE)) - 2.0


def _positive(base) -> float:
    return float(base) if base > 0 else 1.0


AFFINE, POSITIVE, COUNTED, RATE, SHARE = _Affine(), _Positive(), _Counted(), _Rate(), _Share()

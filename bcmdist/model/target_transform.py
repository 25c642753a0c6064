"""Transform of positive targets before they are scaled: a logarithm, or a power of Box & Cox (1964, eq. 1).

    T(y) = (y^p - 1) / p,    T(y) = log y for p = 0

A skewed positive target is modelled as T(y) = f + error. Quantiles of y are T^-1 of those of T(y), moments are averages
(`bcmdist.prediction.transformed_moments`), and densities are multiplied by T'(y). Latent values are those of T(y), as
those of a log link are logarithms.

Below a tenth of the least training target T continues as its tangent, so that later targets of 0 have images, too.
"""

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from bcmdist.linalg.arrays import FloatArray
from bcmdist.storage.fields import Positive

# Share of the least training target below which the transform becomes linear. Arbitrary.
LINEAR_BELOW = 0.1
# Powers that are tried, and the distance from 0 or 1 within which a power is a logarithm or no transform.
POWERS, NEGLIGIBLE = np.linspace(0.0, 1.0, 41), 0.05
# exp of more would overflow when squared.
LARGEST_EXPONENT = 300.0


@dataclass(frozen=True)
class TargetTransform:
    """A strictly increasing map of targets, defined for every number."""

    power: Annotated[float, Meta(ge=0.0, le=1.0)]
    """p, from 0, the logarithm, to 1"""
    floor: Positive
    """positive; the map is linear below"""
    mean: Positive
    """mean of the training targets, before the transform"""

    @classmethod
    def of_targets(cls, power: float, *, least: float, mean: float) -> Self:
        """Return the transform for training targets with this least value, which is positive, and mean."""
        return cls(float(power), LINEAR_BELOW * float(least), float(mean))

    @property
    def kind(self) -> str:
        """The name of the transform in settings."""
        return "power" if self.power else "log"

    def __call__(self, y: FloatArray) -> FloatArray:
        """Return the images of targets, in the shape of y."""
        y = np.asarray(y, dtype=float)
        return self._curve(np.maximum(y, self.floor)) + self._steepest * np.minimum(y - self.floor, 0.0)

    def inverse(self, z: FloatArray) -> FloatArray:
        """Return the targets with images z, in the shape of z; at most e^`LARGEST_EXPONENT` from a logarithm."""
        z, edge = np.asarray(z, dtype=float), float(self._curve(np.asarray(self.floor)))
        upper: FloatArray = np.maximum(z, edge)
        if self.power:
            upper = (1.0 + self.power * upper) ** (1.0 / self.power)
        else:
            upper = np.exp(np.minimum(upper, LARGEST_EXPONENT))
        return upper + np.minimum(z - edge, 0.0) / self._steepest

    def log_slope(self, y: FloatArray) -> FloatArray:
        """Return log T'(y), in the shape of y."""
        return (self.power - 1.0) * np.log(np.maximum(y, self.floor))

    @property
    def _steepest(self) -> float:
        return float(self.floor ** (self.power - 1.0))

    def _curve(self, y: FloatArray) -> FloatArray:
        return (y**self.power - 1.0) / self.power if self.power else np.log(y)


def likeliest_power(y: FloatArray) -> float:
    """Return the power under which targets (n,), all positive, are most likely normal (Box & Cox 1964, eq. 8)."""
    logs = np.log(y / np.exp(np.mean(np.log(y))))  # a common factor changes nothing but the scale of T

    def log_likelihood(power: float) -> float:
        images = np.expm1(power * logs) / power if power else logs
        return float((power - 1.0) * logs.mean() - 0.5 * np.log(max(images.var(), np.finfo(float).tiny)))

    return float(max(POWERS, key=log_likelihood))

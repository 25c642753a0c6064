"""Column moments as a sum over partitions, and the scaling of X and y that follows.

Moments are merged by the pairwise update of Chan, Golub & LeVeque (1983), which keeps the digits
of a column far from zero. They form a commutative monoid up to rounding, like messages.
"""

from dataclasses import dataclass, replace

import numpy as np

# A column whose standard deviation is below this share of its largest value is constant to
# rounding; it is divided by 1 instead.
CONSTANT_SHARE = 1e-12


@dataclass(frozen=True)
class Moments:
    """Count, means, centred sums of squares, smallest and largest value of K columns."""

    count: int
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __add__(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        share = other.count / count
        gap = other.mean - self.mean
        return Moments(
            count,
            self.mean + share * gap,
            self.squares + other.squares + self.count * share * gap**2,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def scale(self):
        """Standard deviations, with 1 for constant columns, (K,)."""
        sd = np.sqrt(self.squares / self.count)
        return np.where(self.constant, 1.0, sd)

    @property
    def constant(self):
        """True for columns that do not vary, (K,)."""
        sd = np.sqrt(self.squares / self.count)
        return sd <= CONSTANT_SHARE * np.maximum(np.abs(self.low), np.abs(self.high))


def column_moments(table) -> Moments:
    """Moments of the columns of (n, K), n >= 1."""
    mean = table.mean(axis=0)
    return Moments(len(table), mean, ((table - mean) ** 2).sum(axis=0), table.min(axis=0), table.max(axis=0))


@dataclass(frozen=True)
class Scaling:
    """Affine maps between original units and the units of the model; part of the model."""

    x_mean: np.ndarray
    """(D,)"""
    x_scale: np.ndarray
    """(D,)"""
    y_mean: float
    y_scale: float

    def inputs(self, X):
        """Scaled inputs, (n, D)."""
        return (X - self.x_mean) / self.x_scale

    def observations(self, obs, kind):
        """Observations in the units of the model; `kind` is the likelihood's `scaling`."""
        match kind:
            case "affine":
                return replace(obs, y=(obs.y - self.y_mean) / self.y_scale)
            case "scale":
                return replace(obs, y=obs.y / self.y_scale)
            case "exposure":
                return replace(obs, exposure=obs.exposure * self.y_scale)
            case _:
                return obs

    def log_jacobian(self, kind):
        """What a log density of an observation gains on the way back to original units."""
        return -np.log(self.y_scale) if kind in ("affine", "scale") else 0.0

    def original(self, name, values, kind):
        """A predicted quantity in original units, by its name.

        The latent f of positive targets and of counts is the log of a scale or a rate.
        """
        latent, squared = name in ("mean", "variance"), name.endswith("variance")
        if name in ("probability", "label") or kind == "none":
            return values
        if kind == "affine":
            return values * self.y_scale**2 if squared else values * self.y_scale + self.y_mean
        if latent:
            return values if squared else values + np.log(self.y_scale)
        if kind == "exposure":
            return values
        return values * (self.y_scale**2 if squared else self.y_scale)


def scaling_from(x: Moments, y: Moments, exposure: Moments, kind) -> Scaling:
    """Inputs to mean 0 and standard deviation 1; targets so that a latent of 0 is their mean."""
    if kind == "affine":
        return Scaling(x.mean, x.scale, float(y.mean[0]), float(y.scale[0]))
    base = {"scale": y.mean[0], "exposure": y.mean[0] / exposure.mean[0]}.get(kind, 1.0)
    return Scaling(x.mean, x.scale, 0.0, float(base) if base > 0 else 1.0)


def scaling_to_array(scaling: Scaling):
    """One vector (2 D + 2,) from which `scaling_from_array` makes the same scaling."""
    return np.concatenate([scaling.x_mean, scaling.x_scale, [scaling.y_mean, scaling.y_scale]])


def scaling_from_array(vector) -> Scaling:
    """The scaling that `scaling_to_array` described."""
    x_mean, x_scale = np.split(vector[:-2], 2)
    return Scaling(x_mean, x_scale, float(vector[-2]), float(vector[-1]))

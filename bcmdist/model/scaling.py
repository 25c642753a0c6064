"""Column moments, which add over partitions, and the scaling of X and y derived from them.

Inputs may be warped first (`bcmdist.model.warping`): moments of inputs are then those of warped inputs.

Moments are merged by the pairwise update of Chan, Golub & LeVeque (1983), which keeps the digits of a column far from
zero. They form a commutative monoid up to rounding, like messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import BoolArray, FloatArray, FloatOrArray
from bcmdist.model.outputs import Outputs
from bcmdist.model.target_transform import TargetTransform
from bcmdist.model.units import Units
from bcmdist.model.warping import UNWARPED, Warping, warping_from_array

# A column whose standard deviation is below this share of its largest absolute value, a few units in the last place of
# float64, is constant up to rounding; its scale is 1.
CONSTANT_SHARE = 1e-15
# Columns of two values, one of them rare, have a scale of at least this share of the distance between the values. And
# the relative difference from the largest possible variance below which a column is two-valued.
RARE_SHARE = 0.1
TWO_VALUED_SHARE = 1e-6
# Points of the search for the variance of targets without their errors, and the least share of that with them.
GRID_POINTS, LEAST_VARIANCE = 60, 1e-12
# Number that stands in stored scalings where warps of inputs have the number of their column.
OF_TARGET = -1.0
# As above, of the targets of an output, and of their means before a transform.
OF_OUTPUT, OF_MEAN = -2.0, -3.0


@dataclass(frozen=True)
class Moments:
    """Count, means, centred sums of squares, minima and maxima of K columns."""

    count: int
    mean: FloatArray
    squares: FloatArray
    low: FloatArray
    high: FloatArray

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
    def scale(self) -> FloatArray:
        """Standard deviations, with 1 for constant columns, (K,)."""
        sd = np.sqrt(self.squares / self.count)
        return np.where(self.constant, 1.0, sd)

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """Smallest and largest value of each column, (K,)."""
        return list(zip(self.low.tolist(), self.high.tolist(), strict=True))

    @property
    def constant(self) -> BoolArray:
        """True for columns that do not vary, (K,)."""
        sd = np.sqrt(self.squares / self.count)
        rounding = CONSTANT_SHARE * np.maximum(np.abs(self.low), np.abs(self.high))
        constant: BoolArray = (self.low == self.high) | (sd <= rounding)
        return constant

    @property
    def input_scale(self) -> FloatArray:
        """Divisors of inputs, (K,): `scale`, with a lower limit for two-valued columns.

        Divided by its standard deviation, a column that is 1 in one of 1000 rows and 0 in the others would move that
        row 32 units away from similar rows. With a scale of at least a tenth of their distance, two values are at most
        10 apart; a value that occurs in one row of 100 or more is scaled by the standard deviation.
        """
        return np.where(self.two_valued, np.maximum(self.scale, RARE_SHARE * (self.high - self.low)), self.scale)

    @property
    def two_valued(self) -> BoolArray:
        """True for columns of two different values, (K,).

        No variance exceeds (high - mean) (mean - low), and only two values reach it (Bhatia & Davis 2000).
        """
        most = self.count * (self.high - self.mean) * (self.mean - self.low)
        two_valued: BoolArray = ~self.constant & (self.squares >= (1.0 - TWO_VALUED_SHARE) * most)
        return two_valued


def without_errors(y: Moments, obs: Observations) -> Moments:
    """Moments (1,) of targets as they would be without their known errors, estimated from a sample of rows.

    With y_i ~ N(m, v + t_i), t_i the known variances, the m and v of largest likelihood (the random-effects model of
    meta-analysis): rows with large errors then change neither the origin nor the unit of targets. Unchanged without
    errors in the sample.
    """
    t = obs.target_variance
    if not np.any(t > 0.0) or y.constant[0]:
        return y
    v = likeliest_variance(obs.y, t, centred=False)
    return replace(y, mean=np.array([np.average(obs.y, weights=1.0 / (v + t))]), squares=np.array([y.count * v]))


def likeliest_variance(e: FloatArray, t: FloatArray, *, centred: bool = True) -> float:
    """The v of largest likelihood for e_i ~ N(m, v + t_i), (n,) each, with m = 0 or, not `centred`, the likeliest m.

    The mean square of e where t is 0; positive, and at least the standard error of v at 0, sqrt(2 / sum t_i^-2).
    """
    tiny = np.finfo(float).tiny
    most = max(float(np.mean(e**2) if centred else np.var(e)), tiny)
    if not np.any(t > 0.0):
        return most
    error = float(np.sqrt(2.0 / np.sum(1.0 / np.maximum(t, LEAST_VARIANCE * most) ** 2)))
    least = max(LEAST_VARIANCE * most, error)
    if least >= most:  # the errors say nothing of v
        return most
    grid = np.geomspace(least, most, GRID_POINTS)

    def loss(v: float) -> float:
        w = 1.0 / (v + t)
        m = 0.0 if centred else w @ e / w.sum()
        return float(w @ (e - m) ** 2 - np.log(w).sum())

    best = int(np.argmin([loss(v) for v in grid]))
    ends = np.log(grid[[max(best - 1, 0), min(best + 1, GRID_POINTS - 1)]])
    return float(np.exp(minimize_scalar(lambda x: loss(np.exp(x)), bounds=ends, method="bounded").x))


def column_moments(table: FloatArray) -> Moments:
    """Moments of the columns of (n, K), n >= 1."""
    mean = table.mean(axis=0)
    return Moments(len(table), mean, ((table - mean) ** 2).sum(axis=0), table.min(axis=0), table.max(axis=0))


@dataclass(frozen=True)
class Scaling:
    """Maps between original and model units, affine but for warped inputs and a transformed target; part of the model.

    Quantities of targets are in original units only where that is said: `original` converts moments of observations
    as if targets were not transformed (see `bcmdist.prediction.transformed_moments`).
    """

    x_mean: FloatArray
    """means of warped inputs, (D,)"""
    x_scale: FloatArray
    """divisors of warped inputs, (D,)"""
    y_mean: FloatOrArray
    y_scale: FloatOrArray
    """numbers, or (n,) in the scaling `of_rows`"""
    warping: Warping = UNWARPED
    transform: TargetTransform | None = None
    """of targets, before they are scaled by `y_mean` and `y_scale`"""
    outputs: Outputs | None = None
    """where rows observe several outputs, the scaling of each; `y_mean` and `y_scale` are those of all targets"""

    def of_rows(self, obs: Observations) -> "Scaling":
        """The scaling of targets at rows with these outputs: `y_mean` and `y_scale` are (n,) where there are several.

        Quantities of targets at rows are converted by it; their last axis is that of the rows.
        """
        if self.outputs is None:
            return self
        mean, scale = np.array(self.outputs.mean)[obs.output], np.array(self.outputs.scale)[obs.output]
        return replace(self, y_mean=mean, y_scale=scale)

    def with_outputs(self, obs: Observations, X: FloatArray | None) -> Observations:
        """Observations with the number of each row's output, from inputs X (n, D), scaled or not."""
        if self.outputs is None:
            return obs
        assert X is not None, "rows of several outputs have inputs that name them"
        return replace(obs, output=self.outputs.number(X))

    def inputs(self, X: FloatArray) -> FloatArray:
        """Scaled inputs, (n, D)."""
        return (self.warping(X) - self.x_mean) / self.x_scale

    def original_inputs(self, X: FloatArray) -> FloatArray:
        """Scaled inputs back in original units, (n, D)."""
        return self.warping.inverse(self.x_mean + self.x_scale * X)

    def slopes(self, X: FloatArray) -> FloatArray:
        """Derivative of each scaled input by its original, (n, D), at inputs (n, D) in original units."""
        return self.warping.slopes(X) / self.x_scale

    @property
    def input_units(self) -> FloatArray:
        """Lengths of one scaled unit along each input, (D,), in original units; of warped inputs at their mean."""
        slopes = self.slopes(self.original_inputs(np.zeros((1, len(self.x_mean)))))
        return 1.0 / slopes[0, :]

    def input_covariances(self, X: FloatArray, variance: FloatArray) -> FloatArray:
        """Covariances of scaled inputs, (n, D, D), from variances (n, D) or covariances (n, D, D) of inputs X (n, D).

        All in original units. Exact for inputs that are not warped, otherwise to first order.
        """
        slopes = self.slopes(X)
        if variance.ndim == 3:
            return variance * (slopes[:, :, None] * slopes[:, None, :])
        return (variance * slopes**2)[:, None, :] * np.eye(len(self.x_scale))

    def observations(self, obs: Observations, units: Units, X: FloatArray | None = None) -> Observations:
        """Observations in model units.

        X (n, D): their inputs, scaled or not, needed where there are several outputs.

        Raises
        ------
        InvalidData
            A row observes an output that the training data lack.
        """
        obs = self.with_outputs(obs, X)
        if self.transform:
            obs = replace(obs, y=self.transform(obs.y))
        own = self.of_rows(obs)
        return units.observations(obs, own.y_mean, own.y_scale)

    def targets(self, y: FloatArray, units: Units) -> FloatArray:
        """Targets in original units."""
        found = units.target(y, self.y_mean, self.y_scale)
        return self.transform.inverse(found) if self.transform else found

    def with_transform(self, transform: TargetTransform, y: FloatArray, X: FloatArray | None = None) -> "Scaling":
        """This scaling with targets that are transformed, and scaled by their moments in a sample y (n,).

        X (n, D): inputs of the sample, needed where there are several outputs.
        """
        images = column_moments(transform(y)[:, None])
        found = replace(self, transform=transform, y_mean=float(images.mean[0]), y_scale=float(images.scale[0]))
        if self.outputs is None:
            return found
        assert X is not None, "rows of several outputs have inputs that name them"
        number, P = self.outputs.number(X), len(self.outputs)
        each = [column_moments(transform(y[number == k])[:, None]) if np.any(number == k) else images for k in range(P)]
        mean, scale = (tuple(float(getattr(one, name)[0]) for one in each) for name in ("mean", "scale"))
        return replace(found, outputs=replace(self.outputs, mean=mean, scale=scale))

    def training_mean(self, units: Units) -> float:
        """Mean of the training targets in original units; see `Units.training_mean`."""
        if self.transform:
            return self.transform.mean
        return units.training_mean(float(self.y_mean), float(self.y_scale))

    def length(self, units: Units) -> FloatOrArray:
        """Factor for lengths along targets from model to original units, or to those of transformed targets."""
        return units.length(self.y_scale)

    def log_jacobian(self, units: Units) -> FloatOrArray:
        """Term to add to the log density of an observation on conversion to its units, transformed if targets are.

        (n,) for the scaling of rows.
        """
        logs: FloatOrArray = 0.0 - np.log(self.length(units))
        return logs

    def log_jacobians(self, y: FloatArray, units: Units) -> FloatOrArray:
        """Terms to add to the log densities of targets y (n,), in original units, on conversion to these; or the same
        for all."""
        return self.log_jacobian(units) + (self.transform.log_slope(y) if self.transform else 0.0)

    def original(self, name: str, values: np.ndarray, units: Units) -> np.ndarray:
        """Convert a predicted quantity, given by name, to original units."""
        match name:
            case "probability" | "label":
                return values
            case "mean":
                return units.latent(values, self.y_mean, self.y_scale)
            case "variance":
                return values * units.latent_length(self.y_scale) ** 2
            case "observation_variance":
                return values * self.length(units) ** 2
            case _:
                found = self.targets(values, units)
                return np.maximum(found, 0.0) if self.transform else found


def scaling_from(
    x: Moments,
    y: Moments,
    exposure: Moments,
    units: Units,
    groups: Sequence[int] = (),
    warping: Warping = UNWARPED,
    gaps: Sequence[int] = (),
) -> Scaling:
    """Scaling of inputs to mean 0 and `Moments.input_scale`, and of targets by their units.

    Parameters
    ----------
    x : moments of the warped inputs
    groups : (D,), group number of each input. Inputs of a group with several members, the one-hot columns of a
        category, are not divided, so that a rare level is no farther from the others than a frequent one. The squared
        distance of two rows of different levels is 2, like the mean for two rows in an input of variance 1. Those of a
        point on a sphere, whose number is below 0, have one divisor, so that distances do not depend on directions.
    gaps : numbers of the inputs that mark missing values, or name outputs, which are not centred: 0 where the value is
        known, so that a kernel linear in them is one of rows with gaps alone
    """
    scale = np.array(x.input_scale)
    for group in set(groups):
        own = np.equal(groups, group)
        if group < 0:
            scale[own] = np.sqrt(np.mean(x.squares[own] / x.count)) if not x.constant[own].all() else 1.0
        elif own.sum() > 1:
            scale[own] = 1.0
    mean = np.array(x.mean)
    mean[list(gaps)] = 0.0
    return Scaling(mean, scale, *units.found(y, exposure), warping)


def scaling_to_array(scaling: Scaling) -> FloatArray:
    """Store a scaling in one vector (2 D + 3 + 4 K,) with K knots of warps; inverse of `scaling_from_array`.

    The transform of targets is four more numbers, beginning with `OF_TARGET`, and each output is eight.
    """
    numbers = [len(scaling.x_mean), scaling.y_mean, scaling.y_scale]
    tables = [scaling.warping.to_array().ravel()]
    if scaling.transform:
        made = scaling.transform
        tables.append(np.array([OF_TARGET, made.power, made.floor, made.mean]))
    if scaling.outputs:
        of = scaling.outputs
        tables += [np.array([OF_OUTPUT, *one]) for one in zip(of.columns, of.mean, of.scale, strict=True)]
        tables += [np.array([OF_MEAN, k, mean, 0.0]) for k, mean in zip(of.columns, of.training_mean, strict=True)]
    return np.concatenate([numbers, scaling.x_mean, scaling.x_scale, *tables])


def scaling_from_array(vector: FloatArray) -> Scaling:
    """Scaling from the vector of `scaling_to_array`."""
    D, y_mean, y_scale = int(vector[0]), float(vector[1]), float(vector[2])
    x_mean, x_scale, table = np.split(vector[3:], [D, 2 * D])
    table = table.reshape(-1, 4)
    of_inputs, of_target = table[table[:, 0] >= 0.0], table[table[:, 0] == OF_TARGET, 1:].ravel().tolist()
    transform = TargetTransform(*of_target) if of_target else None
    columns, mean, scale = table[table[:, 0] == OF_OUTPUT, 1:].T.tolist()
    means = table[table[:, 0] == OF_MEAN, 2].tolist()
    outputs = Outputs(tuple(map(int, columns)), tuple(mean), tuple(scale), tuple(means)) if columns else None
    return Scaling(x_mean, x_scale, y_mean, y_scale, warping_from_array(of_inputs), transform, outputs)

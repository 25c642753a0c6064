"""Warping of inputs: a monotone map of each column, applied before it is scaled, and stored with the model.

    log          log x of a positive column, whose least training value is a; below c = a / 10 the tangent
                 log c + (x - c) / c
    log1p        log(1 + x) of a column without negative values, and x below 0
    signed-log   sign(x) log(1 + |x|)
    rank         piecewise linear, from quantiles of the training values to the normal scores of their ranks

All are continuous, strictly increasing and defined for every number, so that each has an inverse.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from scipy.special import ndtri

from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray

# Kinds that users name: `log` is log, log1p or signed-log, by the values of the column; `auto` leaves it to learning.
AUTO = "auto"
NONE, LOG, SIGNED_LOG, RANK = "none", "log", "signed-log", "rank"
KINDS = (NONE, LOG, SIGNED_LOG, RANK)
# Share of the least training value of a positive column below which its logarithm becomes linear, so that new rows may
# have values of 0 and less. Arbitrary.
LINEAR_BELOW = 0.1
# Largest number of knots of `rank`: normal scores about .1 apart.
MOST_KNOTS = 64


class Warp(Protocol):
    """Strictly increasing map of the values of one column."""

    kind: ClassVar[str]

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the images of values x, (n,)."""

    def inverse(self, z: FloatArray) -> FloatArray:
        """Return the values with images z, (n,)."""

    def slope(self, x: FloatArray) -> FloatArray:
        """Return the derivative at x, (n,)."""

    @property
    def knots(self) -> FloatArray:
        """Values and their images from which `from_knots` makes the same map, (k, 2), k >= 1."""


@dataclass(frozen=True)
class Log:
    """Logarithm of a positive column; linear below `floor`."""

    kind: ClassVar[str] = "log"
    floor: float

    def __call__(self, x: FloatArray) -> FloatArray:
        return np.log(np.maximum(x, self.floor)) + np.minimum(x - self.floor, 0.0) / self.floor

    def inverse(self, z: FloatArray) -> FloatArray:
        level = np.log(self.floor)
        return np.where(z < level, self.floor * (1.0 + z - level), np.exp(np.maximum(z, level)))

    def slope(self, x: FloatArray) -> FloatArray:
        return 1.0 / np.maximum(x, self.floor)

    @property
    def knots(self) -> FloatArray:
        return np.array([[self.floor, np.log(self.floor)]])

    @classmethod
    def from_knots(cls, knots: FloatArray) -> "Log":
        return cls(float(knots[0, 0]))


@dataclass(frozen=True)
class Log1p:
    """log(1 + x) of a column without negative values; x below 0."""

    kind: ClassVar[str] = "log1p"

    def __call__(self, x: FloatArray) -> FloatArray:
        return np.log1p(np.maximum(x, 0.0)) + np.minimum(x, 0.0)

    def inverse(self, z: FloatArray) -> FloatArray:
        return np.expm1(np.maximum(z, 0.0)) + np.minimum(z, 0.0)

    def slope(self, x: FloatArray) -> FloatArray:
        return 1.0 / (1.0 + np.maximum(x, 0.0))

    @property
    def knots(self) -> FloatArray:
        return np.zeros((1, 2))

    @classmethod
    def from_knots(cls, knots: FloatArray) -> "Log1p":
        return cls()


@dataclass(frozen=True)
class SignedLog:
    """sign(x) log(1 + |x|)."""

    kind: ClassVar[str] = SIGNED_LOG

    def __call__(self, x: FloatArray) -> FloatArray:
        return np.sign(x) * np.log1p(np.abs(x))

    def inverse(self, z: FloatArray) -> FloatArray:
        return np.sign(z) * np.expm1(np.abs(z))

    def slope(self, x: FloatArray) -> FloatArray:
        return 1.0 / (1.0 + np.abs(x))

    @property
    def knots(self) -> FloatArray:
        return np.zeros((1, 2))

    @classmethod
    def from_knots(cls, knots: FloatArray) -> "SignedLog":
        return cls()


@dataclass(frozen=True)
class Rank:
    """Piecewise linear between knots; beyond them with the mean slope from the middle knot to the last one."""

    kind: ClassVar[str] = RANK
    knots: FloatArray
    """values and their normal scores, ascending in both, (k, 2), k >= 2"""

    def __call__(self, x: FloatArray) -> FloatArray:
        values, scores = self.knots.T
        below, above = self.tails
        beyond: FloatArray = below * np.minimum(x - values[0], 0.0) + above * np.maximum(x - values[-1], 0.0)
        between: FloatArray = np.interp(x, values, scores)
        return between + beyond

    def inverse(self, z: FloatArray) -> FloatArray:
        values, scores = self.knots.T
        below, above = self.tails
        beyond: FloatArray = np.minimum(z - scores[0], 0.0) / below + np.maximum(z - scores[-1], 0.0) / above
        between: FloatArray = np.interp(z, scores, values)
        return between + beyond

    def slope(self, x: FloatArray) -> FloatArray:
        below, above = self.tails
        slopes = np.concatenate([[below], np.divide(*np.diff(self.knots, axis=0).T[::-1]), [above]])
        return slopes[np.searchsorted(self.knots[:, 0], x, side="right")]

    @property
    def tails(self) -> tuple[float, float]:
        """Slopes below the first and above the last knot."""
        first, middle, last = self.knots[0], self.knots[len(self.knots) // 2], self.knots[-1]
        lower, upper = (middle, middle) if len(self.knots) > 2 else (last, first)
        (run_below, rise_below), (run_above, rise_above) = lower - first, last - upper
        return rise_below / run_below, rise_above / run_above

    @classmethod
    def from_knots(cls, knots: FloatArray) -> "Rank":
        return cls(knots)

    @classmethod
    def of_sample(cls, x: FloatArray) -> "Rank | None":
        """Return the map of a sample's values (n,) to normal scores; None if they are all equal.

        A value that occurs k times, with l smaller ones, has the score of its mean rank, Phi^-1((l + k / 2) / n). Knots
        are at all values, or at those whose scores are nearest to `MOST_KNOTS` evenly spaced ones.
        """
        values, counts = np.unique(x, return_counts=True)
        if len(values) < 2:
            return None
        scores = ndtri((np.cumsum(counts) - 0.5 * counts) / len(x))
        if len(values) > MOST_KNOTS:
            spaced = np.linspace(scores[0], scores[-1], MOST_KNOTS)
            right = np.searchsorted(scores, spaced).clip(1, len(scores) - 1)
            nearest = np.where(spaced - scores[right - 1] < scores[right] - spaced, right - 1, right)
            values, scores = values[kept := np.unique(nearest)], scores[kept]
        return cls(np.column_stack([values, scores]))


WARPS: tuple[type[Log | Log1p | SignedLog | Rank], ...] = (Log, Log1p, SignedLog, Rank)


@dataclass(frozen=True)
class Warping:
    """The warps of a model's columns, by number; other columns stay as they are."""

    warps: Mapping[int, Warp]

    def __bool__(self) -> bool:
        return bool(self.warps)

    def __call__(self, X: FloatArray) -> FloatArray:
        """Return warped inputs, (..., D), of inputs in original units."""
        return self._by_column(X, lambda warp: warp)

    def inverse(self, Z: FloatArray) -> FloatArray:
        """Return the inputs (..., D) in original units that become Z."""
        return self._by_column(Z, lambda warp: warp.inverse)

    def slopes(self, X: FloatArray) -> FloatArray:
        """Return the derivative of each warped input by its original, (..., D), at inputs in original units."""
        slopes = np.ones(np.shape(X))
        for k, warp in self.warps.items():
            slopes[..., k] = warp.slope(np.asarray(X)[..., k])
        return slopes

    def _by_column(self, X: FloatArray, map_of: Callable[[Warp], Callable[[FloatArray], FloatArray]]) -> FloatArray:
        if not self.warps:
            return X
        X = np.array(X, dtype=float)
        for k, warp in self.warps.items():
            X[..., k] = map_of(warp)(X[..., k])
        return X

    def kinds(self) -> dict[int, str]:
        """Return the kind of each warped column, by number."""
        return {k: warp.kind for k, warp in sorted(self.warps.items())}

    def to_array(self) -> FloatArray:
        """Store all warps in one table (K, 4) of column, index of the kind in `WARPS`, value and image of each knot."""
        tables = [np.zeros((0, 4))]
        for k, warp in sorted(self.warps.items()):
            place = np.tile([float(k), float(WARPS.index(type(warp)))], (len(warp.knots), 1))
            tables.append(np.hstack([place, warp.knots]))
        return np.concatenate(tables)


UNWARPED = Warping({})


def warping_from_array(table: FloatArray) -> Warping:
    """Restore warps from the table of `Warping.to_array`."""
    columns = np.unique(table[:, 0]).astype(int).tolist()
    rows = {k: table[table[:, 0] == k] for k in columns}
    return Warping({k: WARPS[int(own[0, 1])].from_knots(own[:, 2:].copy()) for k, own in rows.items()})


def parse_warp(text: str) -> tuple[str, dict[str, str]]:
    """Read the setting `warp`: the kind of all columns, and kinds by column: ("rank", {"age": "log"}) of rank,age=log.

    Raises
    ------
    InvalidOption
    """
    kinds = (AUTO, *KINDS)
    common, by_column = AUTO, {}
    for position, entry in enumerate(text.split(",")):
        column, equals, kind = entry.rpartition("=")
        column, kind = column.strip(), kind.strip()
        if kind not in kinds or (equals and (not column or column in by_column)) or (position and not equals):
            raise InvalidOption(
                f"warp: expected one of {', '.join(kinds)}, then COLUMN=KIND for single columns, each once, such as "
                f"auto,income=log,rooms=none, got {text!r:.200}; correct {entry!r:.80}"
            )
        if equals:
            by_column[column] = kind
        else:
            common = kind
    return common, by_column

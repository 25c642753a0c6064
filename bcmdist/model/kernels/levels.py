"""Kernels of categories, whose levels have no order, of independent values, and of cycles."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.kernels.interface import Leaf, Pullback
from bcmdist.model.kernels.stationary import distance_gradient, squared_distance

# Bounds of the correlation of two levels: beyond them levels are as good as independent, or as good as one.
CORRELATIONS = (1e-3, 0.999)


@dataclass(frozen=True)
class Exchangeable(Leaf):
    """`variance * correlation^d` of rows that differ in d categories: any two levels are equally alike."""

    variance: FloatArray
    correlation: FloatArray
    bounds = Leaf.bounds | {"correlation": CORRELATIONS}

    @classmethod
    def defaults(cls, inputs: int) -> dict[str, FloatArray]:
        return {"variance": np.ones(1), "correlation": np.array([0.5])}

    @abstractmethod
    def differences(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        """The number d of categories in which rows differ: (n, D), (m, D) -> (n, m), Fortran-ordered."""

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        return self.variance * self.correlation ** self.differences(X, Z)

    def diagonal(self, X: FloatArray) -> FloatArray:
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        d = self.differences(X, Z)
        K = self.variance * self.correlation**d
        return K, lambda G: np.array([np.vdot(G.T, K.T), np.vdot(G.T, (K * d).T)])


class Levels(Exchangeable):
    """Categories stored as numbers, one column each: equal numbers are the same level."""

    name = "category"

    def level_columns(self, inputs: int) -> IntArray:
        return np.arange(inputs)

    def differences(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        count = np.zeros((len(X), len(Z)), order="F")
        for x, z in zip(X.T, Z.T, strict=True):
            count += x[:, None] != z
        return count

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        return np.zeros_like(Z)


class OneHot(Exchangeable):
    """Categories stored as one-hot columns, which are not rescaled: d is half the squared distance of two rows.

    Rows of different levels have r^2 = 2, those of a level that training lacks too (`data.tables.coding`). Between
    levels, as at query points, it is a squared exponential kernel with correlation = exp(-1 / lengthscale^2).
    """

    name = "onehot"

    def metric(self, inputs: int) -> FloatArray:
        return np.full(inputs, 1.0 / np.sqrt(-np.log(np.minimum(self.correlation, CORRELATIONS[1]))))

    def differences(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        return 0.5 * squared_distance(X, Z, 1.0)

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        return distance_gradient(X, Z, 0.5 * np.log(self.correlation) * self.cross(X, Z) * G, 1.0)


@dataclass(frozen=True)
class White(Leaf):
    """`variance` of equal rows, else 0: independent values at distinct inputs, as of noise; equal rows share theirs."""

    variance: FloatArray
    name = "white"

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        equal = np.ones((len(Z), len(X)), dtype=bool)  # transposed, which numpy compares without a change of order
        for x, z in zip(X.T, Z.T, strict=True):
            equal &= z[:, None] == x
            if not equal.any():
                break
        return (self.variance * equal).T

    def diagonal(self, X: FloatArray) -> FloatArray:
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        K = self.cross(X, Z)
        return K, lambda G: np.array([np.vdot(G.T, K.T)])

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        return np.zeros_like(Z)


@dataclass(frozen=True)
class Periodic(Leaf):
    """`variance * exp(-2 sin^2(pi (x - z) / period) / angle^2)` of one column (MacKay 1998, eq. 47).

    It repeats after each period. `angle` is the lengthscale along the cycle in radians: at angle 1 values a sixth of a
    period apart have the correlation exp(-1/2), nearly.
    """

    variance: FloatArray
    angle: FloatArray
    period: FloatArray
    name = "periodic"
    bounds = Leaf.bounds | {"angle": (0.03, 100.0), "period": (1e-6, 1e6)}
    options: ClassVar[tuple[str, ...]] = ("period",)

    @classmethod
    def defaults(cls, inputs: int) -> dict[str, FloatArray]:
        return {"variance": np.ones(1), "angle": np.ones(1), "period": np.ones(1)}

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        return self._with_turns(X, Z)[0]

    def diagonal(self, X: FloatArray) -> FloatArray:
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        K, turns, square = self._with_turns(X, Z)

        def pullback(G: FloatArray) -> FloatArray:
            GK = G * K
            angle = 2.0 * np.vdot(GK.T, square.T)
            period = 2.0 / self.angle[0] ** 2 * np.vdot(GK.T, (turns * np.sin(2.0 * turns)).T)
            return np.array([GK.sum(), angle, period])

        return K, pullback

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        K, turns, _ = self._with_turns(X, Z)
        slope = 2.0 * np.pi / (self.period * self.angle**2) * np.sin(2.0 * turns) * K  # dk / d(x - z) = -slope
        gradient: FloatArray = (G * slope).sum(axis=0)
        return gradient[:, None]

    def _with_turns(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Covariances, pi (x - z) / period, and 2 sin^2 of it over angle^2, (n, m) each."""
        turns = np.asfortranarray(np.pi * (X - Z.T) / self.period)
        square = 2.0 * np.sin(turns) ** 2 / self.angle**2
        return self.variance * np.exp(-square), turns, square

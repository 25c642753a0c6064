"""Kernels of a finite basis, k(x, z) = phi(x)' Sigma_w phi(z) (GBCM paper, section 6.6, eq. 11).

The process is a regression on B fixed functions with weights w ~ N(0, Sigma_w). B query points in general position
determine it everywhere. With B or more query points the committee is therefore the exact posterior for any
partitioning of the rows, and `select_points` omits the redundant points.

User-defined bases have no kernel here, because a Python function cannot be stored in a model. Store phi(x) as the
columns of X and use `linear`: its lengthscales are the weights' 1 / sd.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bcmdist.linalg.arrays import BoolArray, FloatArray
from bcmdist.model.kernels.expected import Form
from bcmdist.model.kernels.interface import Leaf, Pullback, per_lengthscale


def inner_products(X: FloatArray, Z: FloatArray, lengthscale: FloatArray) -> FloatArray:
    """Sums over d of `x_d z_d / lengthscale_d^2`, (n, m), Fortran-ordered."""
    return ((Z / lengthscale) @ (X / lengthscale).T).T


def inner_pullback(X: FloatArray, Z: FloatArray, H: FloatArray, lengthscale: FloatArray) -> FloatArray:
    """Derivatives of the sum of `H_ij inner_ij` with respect to the log lengthscales."""
    per_input = ((X / lengthscale) * (H @ (Z / lengthscale))).sum(axis=0)
    return -2.0 * per_lengthscale(per_input, lengthscale)


@dataclass(frozen=True)
class Linear(Leaf):
    """`sum_d x_d z_d / lengthscale_d^2`: a plane through the origin of the scaled inputs."""

    lengthscale: FloatArray
    name = "linear"

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        return inner_products(X, Z, self.lengthscale)

    def diagonal(self, X: FloatArray) -> FloatArray:
        squares: FloatArray = ((X / self.lengthscale) ** 2).sum(axis=1)
        return squares

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        return self.cross(X, Z), lambda G: inner_pullback(X, Z, G, self.lengthscale)

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        return G.T @ X / self.lengthscale**2

    def random_function(self, rng: np.random.Generator, count: int, inputs: int) -> Callable[[FloatArray], FloatArray]:
        slopes = rng.standard_normal(inputs) / self.lengthscale
        return lambda X: X @ slopes

    def forms(self, inputs: int) -> tuple[Form, ...]:
        return (Form("plane", 1.0, np.broadcast_to(self.lengthscale**-2.0, inputs)),)


@dataclass(frozen=True)
class Polynomial(Leaf):
    """`variance * (1 + sum_d x_d z_d / lengthscale_d^2)^degree`: all monomials up to the degree.

    Their number is B = (D + degree)! / (D! degree!).
    """

    variance: FloatArray
    lengthscale: FloatArray
    degree: ClassVar[int]

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        base = 1.0 + inner_products(X, Z, self.lengthscale)
        K = base ** (self.degree - 1)
        K *= base
        K *= self.variance
        return K

    def diagonal(self, X: FloatArray) -> FloatArray:
        squares: FloatArray = ((X / self.lengthscale) ** 2).sum(axis=1)
        return self.variance * (1.0 + squares) ** self.degree

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        base = 1.0 + inner_products(X, Z, self.lengthscale)
        slope = self.variance * base ** (self.degree - 1)
        K = slope * base

        def pullback(G: FloatArray) -> FloatArray:
            lengthscale = inner_pullback(X, Z, G * slope, self.lengthscale)
            return np.concatenate([[np.vdot(G.T, K.T)], self.degree * lengthscale])

        return K, pullback

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        base = 1.0 + inner_products(X, Z, self.lengthscale)
        slope = self.degree * self.variance * base ** (self.degree - 1)
        return (G * slope).T @ X / self.lengthscale**2


class Quadratic(Polynomial):
    """A polynomial of degree 2."""

    name = "poly2"
    degree = 2


class Cubic(Polynomial):
    """A polynomial of degree 3."""

    name = "poly3"
    degree = 3


@dataclass(frozen=True)
class Constant(Leaf):
    """`variance` everywhere: a constant offset."""

    variance: FloatArray
    name = "constant"

    def covered(self, inputs: int) -> BoolArray:
        return np.zeros(inputs, dtype=bool)

    def random_frequencies(self, rng: np.random.Generator, count: int, inputs: int) -> FloatArray:
        return np.zeros((count, inputs))

    def forms(self, inputs: int) -> tuple[Form, ...]:
        return (Form("level", float(self.variance[0]), np.zeros(inputs)),)

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        return np.full((len(X), len(Z)), self.variance[0], order="F")

    def diagonal(self, X: FloatArray) -> FloatArray:
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        return self.cross(X, Z), lambda G: self.variance * G.sum()

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        return np.zeros_like(Z)

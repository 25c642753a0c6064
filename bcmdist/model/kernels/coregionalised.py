"""Covariance of several outputs, of which each row observes one: the intrinsic model of coregionalisation.

    k((x, a), (z, b)) = B[a, b] k(x, z),    B = W W' + diag(kappa)

(Goovaerts 1997, section 4.2.3; Bonilla, Chai & Williams 2008, eq. 2, which call kappa 0 and W the task factor.)
`coregionalised(metal, rank=2)*matern32(east, north)` is this product; a sum of such terms is the linear model.

Kernel parameters are positive, and loadings W are not. So B is a correlation matrix between standard deviations s_a,
with each output's direction in spherical coordinates, angles t_1 ... t_R from 0 to pi (R the rank):

    B[a, b] = s_a s_b (l_a'l_b + [a = b] u_a^2),   l_a = (cos t_1, sin t_1 cos t_2, ...),   u_a = sin t_1 ... sin t_R

with |l_a|^2 + u_a^2 = 1: W = diag(s) l, and kappa_a = s_a^2 u_a^2 is the variance of output a that no factor explains.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.kernels.interface import Leaf, Pullback

# Angles from which learning starts: half of the variance is common, and further factors are small and different.
FIRST_ANGLE, FURTHER = np.pi / 4.0, 0.4
# Distance of angles from 0 and pi: correlations of outputs are below cos^2, .9996.
LEAST_ANGLE = 0.02


@dataclass(frozen=True)
class Coregionalised(Leaf):
    """`x'B z` for inputs that are one-hot, 1 in the input of the row's output: B[a, b] of two outputs."""

    output_variance: FloatArray
    """s^2, (P,): the diagonal of B"""
    loading_angle: FloatArray
    """(P R,), output by output"""
    name = "coregionalised"
    bounds = Leaf.bounds | {
        "output_variance": (1e-3, 1e3),
        "loading_angle": (LEAST_ANGLE, np.pi - LEAST_ANGLE),
    }
    counts: ClassVar[tuple[str, ...]] = ("rank",)

    @classmethod
    def defaults(cls, inputs: int) -> dict[str, FloatArray]:
        return {"output_variance": np.ones(inputs), "loading_angle": first_angles(inputs, 1).ravel()}

    @classmethod
    def made(cls, inputs: int, **counts: int) -> Self:
        return cls(np.ones(inputs), first_angles(inputs, counts.get("rank", 1)).ravel())

    @property
    def rank(self) -> int:
        return len(self.loading_angle) // len(self.output_variance)

    @property
    def counted(self) -> dict[str, int]:
        return {"rank": self.rank} if self.rank > 1 else {}

    @property
    def loadings(self) -> FloatArray:
        """W, (P, R)."""
        return np.sqrt(self.output_variance)[:, None] * self._directions[:, :-1]

    @property
    def own_variance(self) -> FloatArray:
        """kappa, (P,)."""
        return self.output_variance * self._directions[:, -1] ** 2

    @property
    def covariance(self) -> FloatArray:
        """B, (P, P)."""
        return self.loadings @ self.loadings.T + np.diag(self.own_variance)

    @property
    def _angles(self) -> FloatArray:
        return self.loading_angle.reshape(len(self.output_variance), -1)

    @property
    def _directions(self) -> FloatArray:
        """Unit vectors (l_a, u_a), (P, R + 1)."""
        ones = np.ones((len(self.output_variance), 1))
        return np.hstack([np.cos(self._angles), ones]) * np.cumprod(np.hstack([ones, np.sin(self._angles)]), axis=1)

    def output_columns(self, inputs: int) -> IntArray:
        return np.arange(inputs)

    def along(self, d: int) -> "Coregionalised":
        """The kernel of one output."""
        return type(self)(self.output_variance[d : d + 1], self._angles[d])

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        return (Z @ self.covariance @ X.T).T

    def diagonal(self, X: FloatArray) -> FloatArray:
        variances: FloatArray = np.einsum("ia,ab,ib->i", X, self.covariance, X)
        return variances

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        return self.cross(X, Z), lambda G: self._gradient(X.T @ G @ Z)

    def _gradient(self, G: FloatArray) -> FloatArray:
        """Derivatives of the sum of G_ab B_ab, (P, P), in the log parameters."""
        B, U, angles = self.covariance, self._directions, self._angles
        G = G + G.T
        of_variance = 0.5 * np.einsum("ab,ab->a", G, B)
        s = np.sqrt(self.output_variance)
        scaled = G * np.outer(s, s)
        to_direction = np.hstack([scaled @ U[:, :-1], np.diag(scaled)[:, None] * U[:, -1:]])
        sine, cosine = np.sin(angles), np.cos(angles)
        of_angle = np.empty_like(angles)
        for r in range(self.rank):
            slope = np.zeros_like(U)  # d direction / d angle r: cos becomes -sin, later sines become cosines
            before = np.prod(sine[:, :r], axis=1)
            slope[:, r] = -before * sine[:, r]
            later = np.cumprod(np.hstack([(before * cosine[:, r])[:, None], sine[:, r + 1 :]]), axis=1)
            slope[:, r + 1 :] = later * np.hstack([cosine[:, r + 1 :], np.ones((len(U), 1))])
            of_angle[:, r] = (to_direction * slope).sum(axis=1)
        return np.concatenate([of_variance, (of_angle * angles).ravel()])

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        return G.T @ X @ self.covariance


def first_angles(outputs: int, rank: int) -> FloatArray:
    """Angles from which learning starts, (P, R): equal first loadings, and small further ones of different signs."""
    found = np.full((outputs, rank), FIRST_ANGLE)
    place = (np.arange(outputs) + 0.5) / outputs
    for r in range(1, rank):
        found[:, r] = 0.5 * np.pi - FURTHER * np.cos(np.pi * r * place)
    return found

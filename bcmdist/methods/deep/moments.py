"""Output moments of a layer with uncertain input, and their gradients.

(Bui et al. 2016, section 5 and appendix D; SYSTEMS D6.) A layer has U processes with one squared exponential kernel a
exp(-r^2/2) and M centres z. With input N(m, s), independent between dimensions, E and V the mean and covariance of the
processes at the centres, and K their prior covariance:

    mean = psi1' A,      A = K^-1 E
    var  = noise + a + tr(B psi2) - mean^2,      B = K^-1 (V + E E') K^-1 - K^-1
    psi1_j  = a   prod_d (1 +   s/l^2)^-1/2 exp(-(m - z_j)^2 / 2 (l^2 + s))
    psi2_jk = a^2 prod_d (1 + 2 s/l^2)^-1/2 exp(-(z_j - z_k)^2 / 4 l^2 - (m - (z_j + z_k)/2)^2 / (l^2 + 2 s))

psi2 is symmetric and stored for pairs j <= k only. For a certain input it equals psi1 psi1' and is never formed.
Gradients are computed backwards through the same matrix products.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Stage:
    """A layer in the form used to propagate rows."""

    centres: np.ndarray
    """z, (M, D)"""
    lengthscale: np.ndarray
    """l, (D,)"""
    variance: float
    """a"""
    noise: float
    """noise variance of each output"""
    alpha: np.ndarray
    """A, (U, M)"""
    quadratic: np.ndarray
    """B, (U, M, M), symmetric"""

    @cached_property
    def pairs(self) -> "Pairs":
        return Pairs.of(self.centres, self.lengthscale)

    @cached_property
    def packed(self) -> np.ndarray:
        """B with the weights of pairs, (U, p)."""
        j, k = self.pairs.first, self.pairs.second
        return self.quadratic[:, j, k] * np.where(j == k, 1.0, 2.0)


@dataclass(frozen=True)
class Pairs:
    """Pairs of centres j <= k; p = M (M + 1) / 2."""

    first: np.ndarray
    second: np.ndarray
    middle: np.ndarray
    """(p, D)"""
    difference: np.ndarray
    """z_j - z_k, (p, D)"""
    exponent: np.ndarray
    """-(z_j - z_k)^2 / 4 l^2, summed, (p,)"""

    @classmethod
    def of(cls, Z, lengthscale) -> "Pairs":
        j, k = np.triu_indices(len(Z))
        difference = Z[j] - Z[k]
        return cls(j, k, 0.5 * (Z[j] + Z[k]), difference, -0.25 * ((difference / lengthscale) ** 2).sum(axis=1))


@dataclass(frozen=True)
class Pull:
    """Gradient of a sum over rows in the fields of a `Stage`; objects add."""

    centres: np.ndarray
    log_lengthscale: np.ndarray
    log_variance: float
    noise: float
    """in the variance itself, not its logarithm"""
    alpha: np.ndarray
    quadratic: np.ndarray

    def __add__(self, other: "Pull") -> "Pull":
        return Pull(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, weight) -> "Pull":
        """The same for rows that each count `weight` times."""
        return Pull(*(weight * getattr(self, f.name) for f in fields(self)))


def nothing(stage: Stage) -> Pull:
    """Gradient of a sum over no rows."""
    arrays = (stage.centres, stage.lengthscale, stage.alpha, stage.quadratic)
    Z, lengthscale, alpha, quadratic = (np.zeros_like(one) for one in arrays)
    return Pull(Z, lengthscale, 0.0, 0.0, alpha, quadratic)


@dataclass(frozen=True)
class Passed:
    """Moments of rows propagated through a layer, with intermediate results for the gradient."""

    m: np.ndarray
    """(n, D)"""
    s: np.ndarray | None
    """(n, D); None where the input is certain"""
    mean: np.ndarray
    """(n, U)"""
    variance: np.ndarray
    """(n, U)"""
    psi1: np.ndarray
    """(n, M)"""
    psi2: np.ndarray | None
    """(n, p); None where the input is certain"""


def passed(stage: Stage, m, s=None) -> Passed:
    """Propagate rows with inputs N(m, s), (n, D) each, through a layer."""
    psi1 = _psi1(stage, m, s)
    mean = psi1 @ stage.alpha.T
    if s is None:
        psi2 = None
        quadratic = np.stack([np.einsum("ij,ij->i", psi1 @ B, psi1) for B in stage.quadratic], axis=1)
    else:
        psi2 = _psi2(stage, m, s)
        quadratic = psi2 @ stage.packed.T
    return Passed(m, s, mean, stage.noise + stage.variance + quadratic - mean**2, psi1, psi2)


def _psi1(stage, m, s):
    square = stage.lengthscale**2
    w = 0.5 / (square + (np.zeros_like(m) if s is None else s))
    level = np.log(stage.variance) + 0.5 * np.log(2.0 * square * w).sum(axis=1)
    return np.exp(_exponents(w, m, stage.centres, level))


def _psi2(stage, m, s):
    square, pairs = stage.lengthscale**2, stage.pairs
    w = 1.0 / (square + 2.0 * s)
    level = 2.0 * np.log(stage.variance) + 0.5 * np.log(square * w).sum(axis=1)
    found = _exponents(w, m, pairs.middle, level)
    found += pairs.exponent
    return np.exp(found, out=found)


def _exponents(w, m, z, level):
    """level - sum_d w_d (m_d - z_jd)^2 as one matrix product, (n, j), for w and m (n, D), z (j, D) and level (n,)."""
    left = np.column_stack([2.0 * w * m, -w, level - (w * m**2).sum(axis=1)])
    return left @ np.column_stack([z, z**2, np.ones(len(z))]).T


def pulled(stage: Stage, rows: Passed, to_mean, to_variance) -> tuple[Pull, np.ndarray, np.ndarray]:
    """Gradients in the layer and in its input's m and s, (n, D) each, from those in the output moments, (n, U) each.

    For a certain input the gradients in m and s include psi1 only, and are not used.
    """
    psi1, psi2 = rows.psi1, rows.psi2
    to_mean = to_mean - 2.0 * to_variance * rows.mean
    to_psi1 = to_mean @ stage.alpha
    M = len(stage.centres)
    if psi2 is None:
        to_quadratic = np.stack([psi1.T @ (psi1 * g[:, None]) for g in to_variance.T])
        for g, B in zip(to_variance.T, stage.quadratic, strict=True):
            to_psi1 += 2.0 * g[:, None] * (psi1 @ B)
    else:
        to_quadratic = np.empty((len(stage.alpha), M, M))
        j, k = stage.pairs.first, stage.pairs.second
        to_quadratic[:, j, k] = to_quadratic[:, k, j] = to_variance.T @ psi2
    square = stage.lengthscale**2
    one = to_psi1 * psi1
    w = 0.5 / (square + (np.zeros_like(rows.m) if rows.s is None else rows.s))
    to_m, to_w, to_Z = _through(one, w, rows.m, stage.centres)
    to_s = -2.0 * w**2 * to_w
    to_square = to_s.sum(axis=0) + 0.5 * one.sum() / square
    to_variance_log = stage.variance * to_variance.sum() + one.sum()
    if psi2 is not None and rows.s is not None:
        two, pairs, w = to_variance @ stage.packed, stage.pairs, 1.0 / (square + 2.0 * rows.s)
        two *= psi2
        to_m2, to_w, to_middle = _through(two, w, rows.m, pairs.middle)
        to_m, to_s = to_m + to_m2, to_s - 2.0 * w**2 * to_w
        each = two.sum(axis=0)
        to_square += (
            0.25 * (each @ pairs.difference**2) / square**2 + 0.5 * each.sum() / square - (w**2 * to_w).sum(axis=0)
        )
        to_difference = -0.5 * each[:, None] * pairs.difference / square
        np.add.at(to_Z, pairs.first, 0.5 * to_middle + to_difference)
        np.add.at(to_Z, pairs.second, 0.5 * to_middle - to_difference)
        to_variance_log += 2.0 * each.sum()
    noise = float(to_variance.sum())
    pull = Pull(to_Z, 2.0 * square * to_square, float(to_variance_log), noise, to_mean.T @ psi1, to_quadratic)
    return pull, to_m, to_s


def _through(g, w, m, z):
    """Gradients in m, w and z of terms |w|^1/2 exp(-sum_d w (m - z)^2), from g (n, j), gradient times term."""
    D = m.shape[1]
    row = g.sum(axis=1)[:, None]
    left = g @ np.column_stack([z, z**2])
    to_w = 0.5 * row / w - (row * m**2 - 2.0 * m * left[:, :D] + left[:, D:])
    right = g.T @ np.column_stack([w * m, w])
    to_z = 2.0 * (right[:, :D] - z * right[:, D:])
    return -2.0 * w * (row * m - left[:, :D]), to_w, to_z

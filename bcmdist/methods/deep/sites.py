"""Factors of rows about all layers by expectation propagation (Bui et al. 2016, section 4.1, appendices B, C; D3, D4).

    q(v) = N(v; 0, I) prod_i g_i(v)^n_i,   cavity of a row  q / g_i^p,   Z_n = E p(y_n | f)^p under the cavity

Groups i of n_i rows share the average factor of their rows: with groups of one row this is expectation propagation,
with a single group stochastic expectation propagation. p is a power; the paper uses 1. A factor has natural parameters
(eta, P) of the whitened v = L^-1 u of each process, so factors add like messages. With m and C of the cavity, g = d log
Z / dm and W = g g' - 2 d log Z / dC, the moments of cavity times row are m + C g and C - C W C, hence

    P_n = (I - W C)^-1 W,   eta_n = g + P_n (m + C g),   both divided by p

No covariance is inverted. As log Z is approximated by the moments of layers, I - W C may be indefinite: then no
Gaussian has these moments, and the row's factor is not updated (SYSTEMS I.7). P_n need not be definite; with damping,
the total including the prior is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.errors import NotPositiveDefinite
from bcmdist.methods.deep.layer import Belief, Layer
from bcmdist.methods.deep.moments import Passed, Stage, pulled
from bcmdist.methods.deep.outputs import log_expectation
from bcmdist.methods.deep.rows import blocks, through

LEAST_PRECISION = 1e-9  # lower bound of the total precision in any direction, when it becomes a layer's


@dataclass(frozen=True)
class Factor:
    """Natural parameters of a factor about the v of a layer; leading axes for several factors."""

    eta: np.ndarray
    """(..., U, M)"""
    precision: np.ndarray
    """(..., U, M, M)"""

    @property
    def total_precision(self) -> np.ndarray:
        """I + P: the precision including the prior, (..., U, M, M)."""
        return np.eye(self.eta.shape[-1]) + self.precision

    def believed(self) -> Belief:
        """Belief N(m, C) from factor and prior.

        Raises
        ------
        NotPositiveDefinite
            The precision of prior and factor is indefinite.
        """
        if not definite(self.total_precision).all():
            raise NotPositiveDefinite(
                "sites: expected a positive definite precision of all layers, got another one; take smaller steps"
            )
        covariance = np.linalg.inv(self.total_precision)
        covariance = 0.5 * (covariance + np.swapaxes(covariance, -1, -2))
        return Belief(1.0, np.einsum("...jk,...k->...j", covariance, self.eta), covariance)


def packed(factors: Sequence[Factor]) -> np.ndarray:
    """Factors of all layers in one array, (..., K); lower triangles of the precisions."""
    parts = []
    for one in factors:
        j, k = np.tril_indices(one.eta.shape[-1])
        numbers = np.concatenate([one.eta, one.precision[..., j, k]], axis=-1)
        parts.append(numbers.reshape(*numbers.shape[:-2], -1))
    return np.concatenate(parts, axis=-1)


def unpacked(numbers, layers: Sequence[Layer]) -> list[Factor]:
    """Factors from the result of `packed`."""
    found = []
    for U, M in (layer.mean.shape for layer in layers):
        size = site_numbers(M)
        own, numbers = numbers[..., : U * size], numbers[..., U * size :]
        own = own.reshape(*own.shape[:-1], U, size)
        j, k = np.tril_indices(M)
        precision = np.empty((*own.shape[:-1], M, M))
        precision[..., j, k] = precision[..., k, j] = own[..., M:]
        found.append(Factor(own[..., :M], precision))
    return found


def site_numbers(centres: int) -> int:
    """Number of values in a factor of one process."""
    return centres + centres * (centres + 1) // 2


def site_totals(layers: Sequence[Layer]) -> np.ndarray:
    """Total of the rows' factors in trained layers, (K,)."""
    return packed([Factor(layer.eta, layer.precision) for layer in layers])


def with_site_totals(layers: Sequence[Layer], total) -> list[Layer]:
    """Layers with the posterior given the total of the rows' factors, (K,).

    Directions of negative precision are projected to `LEAST_PRECISION`: a layer stores a root of the precision.
    """
    found = []
    for layer, factor in zip(layers, unpacked(total, layers), strict=True):
        value, vector = np.linalg.eigh(factor.precision)
        precision = (vector * np.maximum(value, LEAST_PRECISION)[:, None]) @ vector.transpose(0, 2, 1)
        mean = Factor(factor.eta, precision).believed().mean
        found.append(replace(layer, mean=mean, root=np.linalg.cholesky(precision)))
    return found


def definite(A) -> np.ndarray:
    """Whether symmetric matrices (..., M, M) are positive definite, (...)."""
    try:
        np.linalg.cholesky(A)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.eigvalsh(A)[..., 0] > 0.0)
    return np.ones(A.shape[:-2], dtype=bool)


def normaliser(factors: Sequence[Factor], beliefs: Sequence[Belief]) -> float:
    """phi of factors and prior, summed over layers and processes; that of the prior is 0."""
    return sum(believed.normaliser(one.eta) for one, believed in zip(factors, beliefs, strict=True))


@dataclass(frozen=True)
class RowFactors:
    """Factors of some rows."""

    log_z: float
    """sum of 1/p log Z"""
    factors: np.ndarray
    """(n, K)"""
    proper: np.ndarray
    """whether the moments are those of a Gaussian and all numbers are finite, (n,)"""


def row_factors(
    layers: Sequence[Layer], cavity: Sequence[Belief], X, obs: Observations, likelihood, power=1.0
) -> Iterator[RowFactors]:
    """Yield the factors of the rows X (n, D), in blocks, for a common cavity."""
    stages = [layer.seen(believed) for layer, believed in zip(layers, cavity, strict=True)]
    for some in blocks(stages, len(X)):
        rows = through(stages, X[some])
        found = log_expectation(likelihood, obs[some], rows[-1].mean, rows[-1].variance, stages[-1].noise, power)
        slopes = power * found.mean, power * found.variance
        factors, proper = [], np.ones(len(rows[0].m), dtype=bool)
        for k in reversed(range(len(layers))):
            factor, able = _matched(layers[k], cavity[k], stages[k], rows[k], *slopes)
            factors.append(Factor(factor.eta / power, factor.precision / power))
            proper &= able
            if k:
                slopes = pulled(stages[k], rows[k], *slopes)[1:]
        numbers = packed(factors[::-1])
        yield RowFactors(found.value, numbers, proper & np.isfinite(numbers).all(axis=1))


def _matched(layer, believed, stage: Stage, rows: Passed, to_mean, to_variance) -> tuple[Factor, np.ndarray]:
    """Factors of rows about one layer, and whether they are proper, (n,).

    to_mean, to_variance : gradients of log Z in the mean and variance of the layer's output, (n, U) each
    """
    b = np.linalg.solve(layer.factor, rows.psi1.T).T
    if rows.psi2 is None:
        return _matched_at(b, believed, to_mean, to_variance)
    m, C = believed.mean, believed.covariance
    psi2 = _whitened(layer, stage, rows.psi2)[:, None]
    t = to_variance[:, :, None]
    g = (to_mean - 2.0 * to_variance * rows.mean)[:, :, None] * b[:, None] + 2.0 * t * (psi2 @ m[..., None])[..., 0]
    W = g[..., None] * g[..., None, :] - 2.0 * t[..., None] * psi2
    A, one = np.linalg.cholesky(C), np.eye(len(b.T))
    proper = definite(one - A.transpose(0, 2, 1) @ W @ A)
    W = np.where(proper[..., None, None], W, 0.0)
    P = np.linalg.solve(one - W @ C, W)
    P = 0.5 * (P + np.swapaxes(P, -1, -2))
    eta = g + (P @ (m + (C @ g[..., None])[..., 0])[..., None])[..., 0]
    return Factor(eta, P), np.all(proper, axis=1)


def _matched_at(b, believed, to_mean, to_variance):
    """As `_matched` for certain inputs, where g = d b and W = w b b' with scalars d and w."""
    bC = np.einsum("ij,ujk->iuk", b, believed.covariance)
    c, mean = np.einsum("iuk,ik->iu", bC, b), b @ believed.mean.T
    w = to_mean**2 - 2.0 * to_variance
    proper: np.ndarray = w * c < 1.0
    tau = np.where(proper, w, 0.0) / np.where(proper, 1.0 - w * c, 1.0)
    eta = (to_mean + tau * (mean + c * to_mean))[:, :, None] * b[:, None]
    P = tau[:, :, None, None] * (b[:, None, :, None] * b[:, None, None, :])
    return Factor(eta, P), np.all(proper, axis=1)


def _whitened(layer, stage, packed):
    """Return L^-1 psi2 L'^-1, (n, M, M)."""
    M = len(stage.centres)
    psi2 = np.empty((len(packed), M, M))
    psi2[:, stage.pairs.first, stage.pairs.second] = psi2[:, stage.pairs.second, stage.pairs.first] = packed
    inverse = np.linalg.solve(layer.factor, np.eye(M))
    return inverse @ psi2 @ inverse.T

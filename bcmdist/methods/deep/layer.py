"""A layer of Gaussian processes with its posterior in natural parameters (SYSTEMS D2, D5).

    u = L v,   L L' = K = k(z, z),   v ~ N(0, I) a priori,   q(v) = N(mu, (I + P)^-1),  P = R R'

for each of U processes, which share the kernel and the centres z. (P, P mu + mu) is the sum of the rows' contributions
to the natural parameters. Under the tied approximation each of N rows contributes the same, so a share c is that of c N
rows; c = 1 - 1 / N is the cavity, for predicting one row from the others.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from bcmdist import linalg
from bcmdist.methods.deep.moments import Pull, Stage

# Share of the variance added to the diagonal, because centres may coincide as they move. Part of the model.
JITTER = 1e-6


@dataclass(frozen=True)
class Layer:
    """U processes with D inputs."""

    centres: np.ndarray
    """z, (M, D)"""
    log_lengthscale: np.ndarray
    """(D,)"""
    log_variance: np.ndarray
    """()"""
    log_noise: np.ndarray
    """log noise variance, common to all outputs, ()"""
    mean: np.ndarray
    """mu, (U, M)"""
    root: np.ndarray
    """R, lower triangular, (U, M, M)"""

    @classmethod
    def of_shape(cls, M, D, U) -> "Layer":
        """A layer with M centres of D inputs and U processes; all parameters are 0."""
        return cls(np.zeros((M, D)), np.zeros(D), np.zeros(()), np.zeros(()), np.zeros((U, M)), np.zeros((U, M, M)))

    @property
    def units(self) -> int:
        return len(self.mean)

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, D and U of `of_shape`."""
        return *self.centres.shape, self.units

    @cached_property
    def covariance(self) -> np.ndarray:
        """K, with jitter, (M, M)."""
        scaled = self.centres / np.exp(self.log_lengthscale)
        square = ((scaled[:, None] - scaled[None]) ** 2).sum(axis=2)
        return np.exp(self.log_variance) * (np.exp(-0.5 * square) + JITTER * np.eye(len(scaled)))

    @cached_property
    def factor(self) -> np.ndarray:
        """L, (M, M)."""
        return linalg.cholesky(np.asfortranarray(self.covariance), name="covariance at the centres of a layer")

    @cached_property
    def whitener(self) -> np.ndarray:
        """L^-1, (M, M)."""
        return linalg.solve_lower(self.factor, np.eye(len(self.factor)))

    @cached_property
    def precision(self) -> np.ndarray:
        """P, (U, M, M)."""
        return self.root @ self.root.transpose(0, 2, 1)

    @cached_property
    def eta(self) -> np.ndarray:
        """P mu + mu, (U, M)."""
        return self.mean + np.einsum("ujk,uk->uj", self.precision, self.mean)

    def share(self, c) -> "Belief":
        """Posterior N(m, C) given a share c of the rows' contributions."""
        if c not in self._shares:
            self._shares[c] = self._believed(c)
        return self._shares[c]

    @cached_property
    def _shares(self) -> dict[float, "Belief"]:
        return {}

    def _believed(self, c):
        covariance = np.linalg.inv(np.eye(len(self.centres)) + c * self.precision)
        covariance = 0.5 * (covariance + covariance.transpose(0, 2, 1))
        return Belief(c, c * np.einsum("ujk,uk->uj", covariance, self.eta), covariance)

    def stage(self, c=1.0) -> Stage:
        """The layer as used in propagation, given a share c of the rows' contributions."""
        return self.seen(self.share(c))

    def seen(self, believed: "Belief") -> Stage:
        """The layer as used in propagation, given a belief about v."""
        W = self.whitener
        alpha = believed.mean @ W
        covariance = W.T @ (believed.second - np.eye(len(W))) @ W
        lengthscale = np.exp(self.log_lengthscale)
        variance, noise = float(np.exp(self.log_variance)), float(np.exp(self.log_noise))
        return Stage(
            self.centres, lengthscale, variance, noise, alpha, 0.5 * (covariance + covariance.transpose(0, 2, 1))
        )

    def numbers(self) -> np.ndarray:
        """All parameters in one vector, for optimisation; only the lower triangle of R."""
        j, k = np.tril_indices(len(self.centres))
        each = [getattr(self, f.name) for f in fields(self)[:-1]] + [self.root[:, j, k]]
        return np.concatenate([np.ravel(one) for one in each])

    def moved(self, numbers) -> "Layer":
        """The layer with other parameters, given as in `numbers`."""
        j, k = np.tril_indices(len(self.centres))
        shapes = [getattr(self, f.name).shape for f in fields(self)[:-1]] + [(self.units, len(j))]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        parts = [one.reshape(shape) for one, shape in zip(np.split(numbers, ends[:-1]), shapes, strict=True)]
        root = np.zeros_like(self.root)
        root[:, j, k] = parts[5]
        return Layer(parts[0], parts[1], parts[2], parts[3], parts[4], root)


@dataclass(frozen=True)
class Belief:
    """Posterior of the v of each process given a share of the rows' contributions."""

    share: float
    mean: np.ndarray
    """m, (U, M)"""
    covariance: np.ndarray
    """C, (U, M, M)"""

    @property
    def second(self) -> np.ndarray:
        """C + m m', (U, M, M)."""
        return self.covariance + self.mean[:, :, None] * self.mean[:, None]

    def normaliser(self, eta) -> float:
        """phi = 1/2 h' C h + 1/2 log |C|, h = share eta, summed over processes."""
        return 0.5 * float(np.vdot(self.share * eta, self.mean) + np.linalg.slogdet(self.covariance)[1].sum())


def tied_energy(layer: Layer, rows) -> float:
    """(1 - N) phi + N phi of the cavity - phi of the prior (which is 0), summed over processes (SYSTEMS D5)."""
    all_of_it, cavity = layer.share(1.0), layer.share(1.0 - 1.0 / rows)
    return (1.0 - rows) * all_of_it.normaliser(layer.eta) + rows * cavity.normaliser(layer.eta)


def gradient(layer: Layer, rows, pull: Pull) -> Layer:
    """Gradient, in a layer's parameters, of the tied energy plus a sum over rows with gradient `pull` in the stage.

    Uses dphi/dh = m and dphi/dLambda = -(C + m m') / 2; the sum over rows uses the cavity.
    """
    c = 1.0 - 1.0 / rows
    all_of_it, cavity = layer.share(1.0), layer.share(c)
    to_eta = (1.0 - rows) * all_of_it.mean + rows * c * cavity.mean
    to_precision = -0.5 * ((1.0 - rows) * all_of_it.second + rows * c * cavity.second)
    to_mean, to_covariance, to_factor = _through_stage(layer, cavity, pull)
    solved = np.einsum("ujk,uk->uj", cavity.covariance, to_mean)
    to_eta = to_eta + c * solved
    outer = solved[:, :, None] * cavity.mean[:, None]
    to_precision = to_precision - c * (_symmetric(outer) + cavity.covariance @ to_covariance @ cavity.covariance)
    to_precision = to_precision + _symmetric(to_eta[:, :, None] * layer.mean[:, None])
    to_own_mean = to_eta + np.einsum("ujk,uk->uj", layer.precision, to_eta)
    to_root = np.tril(2.0 * to_precision @ layer.root)
    to_centres, to_lengthscale, to_variance = _through_kernel(layer, _through_cholesky(layer, to_factor))
    return Layer(
        pull.centres + to_centres,
        pull.log_lengthscale + to_lengthscale,
        np.array(pull.log_variance + to_variance),
        np.exp(layer.log_noise) * pull.noise,
        to_own_mean,
        to_root,
    )


def _through_stage(layer, believed, pull):
    """Gradients in m, C and L from those in A = L'^-1 m and B = L'^-1 (C + m m' - I) L^-1."""
    W = layer.whitener
    to_alpha = pull.alpha @ W.T
    to_second = W @ pull.quadratic @ W.T
    inner = believed.second - np.eye(len(W))
    to_factor = -W.T @ (believed.mean.T @ to_alpha + 2.0 * (inner @ to_second).sum(axis=0))
    to_mean = to_alpha + 2.0 * np.einsum("ujk,uk->uj", to_second, believed.mean)
    return to_mean, to_second, np.tril(to_factor)


def _through_cholesky(layer, to_factor):
    """Gradient in K = L L', symmetric, from that in L."""
    inner = np.tril(layer.factor.T @ to_factor)
    inner[np.diag_indices_from(inner)] *= 0.5
    return _symmetric(layer.whitener.T @ inner @ layer.whitener)


def _through_kernel(layer, to_covariance):
    """Gradients in centres, log lengthscale and log variance from that in K."""
    weighed = to_covariance * layer.covariance
    to_variance = weighed.sum()
    weighed[np.diag_indices_from(weighed)] = 0.0
    Z, square = layer.centres, np.exp(2.0 * layer.log_lengthscale)
    row = weighed.sum(axis=1)[:, None]
    to_centres = -2.0 * (row * Z - weighed @ Z) / square
    to_lengthscale = (2.0 * (row * Z**2).sum(axis=0) - 2.0 * (Z * (weighed @ Z)).sum(axis=0)) / square
    return to_centres, to_lengthscale, to_variance


def _symmetric(A):
    return 0.5 * (A + np.swapaxes(A, -1, -2))

"""Shared variables: the last layer of a deep Gaussian process, with the other layers fixed.

    f(x) = b(x)' v + r(x),    b(x) = L^-1 E k(z, h),    h ~ N(m(x), s(x)) from the previous layers

v are the whitened values of the last layer at its centres, so messages about v add: rows are absorbed, forgotten and
merged through v, while the previous layers stay as trained (`bcmdist.methods.deep`). The residual variance given v is,
with P2 = L^-1 E k(z, h) k(h, z) L'^-1,

    var r = a - tr P2 + tr((C + m m')(P2 - b b'))

It consists of the part of the last layer that its centres do not explain and of the uncertainty of h; for the latter,
the trained belief N(m, C) about v is used instead of the current one. With the trained belief, predictions equal the
moments of all layers (SYSTEMS D8). With several classes there are as many v and f with the same b(x); the residual
variance is averaged over classes.

Messages about the last layer are linearised at the trained layers. Each non-Gaussian row has a site
exp(nu f - tau f^2 / 2) that gives the trained layers' belief N(m, v) in f the moments of belief times likelihood
(expectation propagation; SYSTEMS D9):

    tau = t / (1 - v t),    t = (d log Z / dm)^2 - 2 d log Z / dv,    nu = (1 + v tau) d log Z / dm + tau m

with Z = E p(y | f), for each class separately where there are several. A site depends only on the row and the layers,
so messages add and subtract exactly, in one pass. Linearising at the mode would be worse: where classes are well
separated the belief around the mode is much wider than the trained one.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from bcmdist import linalg
from bcmdist.experts.expert import Linearised, expert_message
from bcmdist.experts.laplace import site_message
from bcmdist.experts.message import Message, stacked
from bcmdist.experts.residual import kind_of
from bcmdist.methods.deep.classes import log_averages
from bcmdist.methods.deep.layer import Layer
from bcmdist.methods.deep.rows import blocks, through
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import LIKELIHOODS
from bcmdist.model.likelihoods.tilted import tilted_site
from bcmdist.model.mean import Mean
from bcmdist.model.shared.interface import Arrays, Shared
from bcmdist.storage.arrays import check_array, require_arrays
from bcmdist.storage.fields import damaged

LEAST_LEFT = 1e-6  # lower bound of the variance that one row leaves, as a share; less is an error of the expectation


def trained_message(shared, likelihood, X, obs) -> Message:
    """Message of the rows X (n, D), n >= 1, by their sites: eta (S,), or (C, S) for C classes.

    Parameters
    ----------
    shared : `Deep`
    """
    m, v = shared.believed(X)
    log_z, tau, nu = _of_classes(likelihood, obs, m, v) if likelihood.per_class else _of_one(likelihood, obs, m, v)
    # Constant of each site: log Z minus the log of the site's average.
    shrunk = 1.0 + tau * v
    average = 0.5 * ((2.0 * nu * m + nu**2 * v - tau * m**2) / shrunk - np.log(shrunk))
    V = shared.design(X)
    Lam, constant = kind_of(shared).residual(shared, V, X), log_z - average.sum()
    each = [site_message(V, Lam, t, n, 0.0) for t, n in zip(tau.T, nu.T, strict=True)]
    message = stacked(each) if likelihood.per_class else each[0]
    return Message(message.eta, message.precision, message.evidence + float(constant), len(X))


def _of_one(likelihood, obs, m, v):
    """The sum of log Z; tau and nu, (n, 1) each."""
    log_z, tau, nu = tilted_site(likelihood, obs, m[:, 0], v[:, 0])
    return log_z.sum(), tau[:, None], nu[:, None]


def _of_classes(likelihood, obs, m, v):
    """As `_of_one` for classes, (n, C) each; a row of weight w counts w times."""
    log_z, to_m, to_v = log_averages(obs.y, 1.0, m, v)
    shrink = np.maximum(to_m**2 - 2.0 * to_v, 0.0)
    tau = shrink / np.maximum(1.0 - v * shrink, LEAST_LEFT)
    nu = (1.0 + v * tau) * to_m + tau * m
    return log_z @ obs.weight, tau * obs.weight[:, None], nu * obs.weight[:, None]


PARTS = ("centres", "log_lengthscale", "log_variance", "log_noise", "mean", "root")


def array_name(layer, part) -> str:
    """Name of the stored array of a part of a layer, counted from 1."""
    return f"layer{layer}_{part}"


@dataclass(frozen=True)
class Deep(Shared):
    """A deep Gaussian process whose last layer is shared."""

    kind: ClassVar[str] = "deep"
    noun: ClassVar[str] = "centres of the last layer"
    exhaustive: ClassVar[bool] = False
    layers: tuple[Layer, ...]
    kernel: Kernel
    """kernel of the inputs, from whose lengthscales the first layer started"""
    mean: Mean
    residual: str = "diagonal"
    jitter: float = 0.0

    @property
    def inputs(self) -> int:
        return self.layers[0].centres.shape[1]

    @property
    def functions(self) -> int:
        return len(self.layers[-1].centres)

    @property
    def units(self) -> int:
        """Number of hidden units per layer; 0 for a single layer."""
        return self.layers[0].units if len(self.layers) > 1 else 0

    @cached_property
    def _stages(self):
        return [layer.stage() for layer in self.layers]

    @cached_property
    def _trained(self):
        """Covariance C of the trained belief about v, (M, M); averaged over classes."""
        return self.layers[-1].share(1.0).covariance.mean(axis=0)

    def fill(self, X, V) -> None:
        last = self.layers[-1]
        for some in blocks(self._stages, len(X)):
            V[some] = linalg.solve_lower(last.factor, np.array(self._last(X[some]).psi1.T, order="F")).T

    def _last(self, X):
        return through(self._stages, X)[-1]

    def believed(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at the rows X (n, D) under the trained layers, (n, U) each."""
        found = [self._last(X[some]) for some in blocks(self._stages, len(X))]
        variance = np.concatenate([one.variance for one in found]) - self._stages[-1].noise
        return np.concatenate([one.mean for one in found]), variance

    def residual_variance(self, V, X) -> np.ndarray:
        found, last = np.empty(len(X)), self._stages[-1]
        for some in blocks(self._stages, len(X)):
            b = V[some, : self.functions]
            variance = self._last(X[some]).variance.mean(axis=1) - last.noise
            found[some] = variance - np.einsum("ij,jk,ik->i", b, self._trained, b)
        return found

    def expert_message(self, likelihood, X, obs, general) -> Message:
        """Message by sites at the trained layers; exact for Gaussian rows."""
        if likelihood.exact or len(X) == 0:
            return general(self, likelihood, X, obs)
        return trained_message(self, likelihood, X, obs)

    def conditional_message(self, likelihood, X, obs, mean, general) -> Linearised:
        """The same for any shared values, since sites are computed at the trained layers."""
        return Linearised(expert_message(self, likelihood, X, obs), 0.0, None)

    def summary(self, belief, original) -> dict:
        """Units, centres, variances and lengthscales of the layers, in units of their scaled inputs."""
        return {
            "layers": [
                {
                    "units": layer.units,
                    "centres": len(layer.centres),
                    "lengthscale": np.exp(layer.log_lengthscale).tolist(),
                    "variance": float(np.exp(layer.log_variance)),
                }
                for layer in self.layers
            ]
        }

    def to_arrays(self) -> tuple[Arrays, dict]:
        named = {
            array_name(k, part): np.atleast_1d(getattr(layer, part))
            for k, layer in enumerate(self.layers, 1)
            for part in PARTS
        }
        return named, {}

    @classmethod
    def from_arrays(cls, arrays, facts, kernel, mean, residual) -> "Deep":
        def layer(k):
            parts = {part: arrays[array_name(k, part)] for part in PARTS}
            single = {part: parts[part].reshape(()) for part in ("log_variance", "log_noise")}
            return Layer(**(parts | single))

        layers = tuple(layer(k) for k in range(1, _depth(arrays) + 1))
        return cls(layers, kernel, mean, residual, facts["jitter"])

    @classmethod
    def check_arrays(cls, arrays, facts, inputs, where) -> None:
        depth = _depth(arrays)
        if not depth:
            raise damaged(where, f"an array {array_name(1, PARTS[0])}", "none")
        for k in range(1, depth + 1):
            require_arrays(arrays, (array_name(k, part) for part in PARTS), where)
            centres, mean = (arrays[array_name(k, part)] for part in ("centres", "mean"))
            if centres.ndim != 2 or mean.ndim != 2 or 0 in (*centres.shape, *mean.shape):
                raise damaged(where, f"centres and units in layer {k}", f"shapes {centres.shape} and {mean.shape}")
            M, U = len(centres), _processes(facts) if k == depth else len(mean)
            shapes = ((M, inputs), (inputs,), (1,), (1,), (U, M), (U, M, M))
            for part, shape in zip(PARTS, shapes, strict=True):
                check_array(arrays[array_name(k, part)], where, array_name(k, part), shape=shape)
            inputs = U

    def check(self, where) -> None:
        for k, layer in enumerate(self.layers, 1):
            if np.any(np.triu(layer.root, 1)):
                raise damaged(where, f"lower triangles in {array_name(k, 'root')}", "other matrices")
            if not np.isfinite(layer.covariance).all():
                raise damaged(where, f"a covariance at {array_name(k, 'centres')}", "numbers that are not finite")


def _processes(facts):
    """Number of processes of the last layer."""
    return len(facts["classes"]) if LIKELIHOODS[facts["likelihood"]].per_class else 1


def _depth(arrays):
    depth = 0
    while array_name(depth + 1, PARTS[0]) in arrays:
        depth += 1
    return depth

"""Shared variables: output weights of one or several networks with one hidden layer (marginalised networks).

    f(x) = sum_r w_r erf(u_r0 + u_r'x),     w_r ~ N(0, s^2),     for each of K networks

(Lazaro-Gredilla & Figueiras-Vidal, sections III and IV; SYSTEMS N4 and N5). Given the inner weights u this is a
regression on fixed functions: messages about w add, and their sum gives the posterior for all rows. The inner weights
are trained in `bcmdist.methods.networks.training`. The networks are independent; predictions are their equal mixture.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import erf

from bcmdist.model.kernels import Kernel
from bcmdist.model.kernels.expected import Expected, expected_units
from bcmdist.model.mean import Mean
from bcmdist.model.shared.interface import Arrays, Member, Shared
from bcmdist.model.shared.weights import Basis, Weights, register_basis
from bcmdist.storage.arrays import check_array, require_arrays
from bcmdist.storage.fields import damaged

INNER, SCALE, NOISE = "network_inner", "network_scale", "network_noise"
NOISE_TOLERANCE = 1e-9  # tolerance for the mean of the noise shares, which is 1 up to rounding


@register_basis
@dataclass(frozen=True)
class Units(Basis):
    """erf(u_0 + u'x) for M hidden units."""

    name: ClassVar[str] = "units"
    inner: np.ndarray
    """(M, 1 + D), with the offset's weight u_0 first"""

    @property
    def inputs(self) -> int:
        return self.inner.shape[1] - 1

    @property
    def functions(self) -> int:
        return len(self.inner)

    def features(self, X) -> np.ndarray:
        found = activations(self.inner, X)
        return erf(found, out=found)

    def expected(self, u, S) -> Expected:
        return expected_units(u, S, self.inner)

    def to_arrays(self) -> Arrays:
        return {"inner": self.inner}

    @classmethod
    def from_arrays(cls, arrays) -> "Units":
        return cls(arrays["inner"])


def activations(inner, X) -> np.ndarray:
    """u_0 + u'x of each unit at the rows of X: (n, D) -> (n, M), Fortran-ordered."""
    found = inner[:, 1:] @ X.T
    found += inner[:, :1]
    return found.T


@dataclass(frozen=True)
class Networks(Shared):
    """K networks of M units each, with separate mean weights."""

    kind: ClassVar[str] = "networks"
    noun: ClassVar[str] = "hidden units of a network"
    exhaustive: ClassVar[bool] = False
    advised: ClassVar[str] = "set --units to {} or more"
    inner: np.ndarray
    """inner weights as in `Units`, (K, M, 1 + D)"""
    scale: np.ndarray
    """prior standard deviation s of a network's output weights, (K,)"""
    noise: np.ndarray
    """noise variance of each network relative to the likelihood's, (K,); the mean is 1"""
    kernel: Kernel
    """kernel from whose lengthscales the initial inner weights were drawn"""
    mean: Mean
    residual: str = "none"
    jitter: float = 0.0

    @property
    def inputs(self) -> int:
        return self.inner.shape[2] - 1

    @property
    def functions(self) -> int:
        return self.inner.shape[0] * self.inner.shape[1]

    @property
    def members(self) -> tuple[Member, ...]:
        return self._members

    @cached_property
    def _members(self):
        return tuple(
            Member(one_network(inner, scale, self.kernel, self.mean), float(noise))
            for inner, scale, noise in zip(self.inner, self.scale, self.noise, strict=True)
        )

    def fill(self, X, V) -> None:
        M = self.inner.shape[1]
        for k, member in enumerate(self.members):
            member.shared.fill(X, V[:, k * M : (k + 1) * M])

    def to_arrays(self) -> tuple[Arrays, dict]:
        return {INNER: self.inner, SCALE: self.scale, NOISE: self.noise}, {}

    @classmethod
    def from_arrays(cls, arrays, facts, kernel, mean, residual) -> "Networks":
        return cls(arrays[INNER], arrays[SCALE], arrays[NOISE], kernel, mean, residual, facts["jitter"])

    @classmethod
    def check_arrays(cls, arrays, facts, inputs, where) -> None:
        require_arrays(arrays, (INNER, SCALE, NOISE), where)
        K, M = arrays[INNER].shape[:2] if arrays[INNER].ndim == 3 else (0, 0)
        if not (K and M):
            raise damaged(where, "networks with units in network_inner", f"shape {arrays[INNER].shape}")
        check_array(arrays[INNER], where, INNER, shape=(K, M, 1 + inputs))
        for name in (SCALE, NOISE):
            check_array(arrays[name], where, name, shape=(K,), positive=True)

    def check(self, where) -> None:
        if abs(self.noise.mean() - 1.0) > NOISE_TOLERANCE:
            raise damaged(where, "shares of 1 in the mean in network_noise", f"{self.noise.mean():g}")


def one_network(inner, scale, kernel: Kernel, mean: Mean) -> Weights:
    """A single network: weights of its units, with prior standard deviation `scale`."""
    return Weights(Units(inner), np.full(len(inner), scale), kernel, mean)

"""What a kernel is: an immutable value of named positive parameters, with a derivative in adjoint form."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

Pullback = Callable[[np.ndarray], np.ndarray]
"""From G (n, m) to the sums over i, j of `G_ij d k(x_i, z_j) / d theta_p`, (P,)."""


class Kernel(ABC):
    """A positive semi-definite function of two inputs."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, np.ndarray]:
        """Natural parameters by name, in the order of `theta`; all positive, each 1-D."""

    @abstractmethod
    def with_parameters(self, values: dict[str, np.ndarray]) -> "Kernel":
        """The same kernel with other parameter values."""

    @abstractmethod
    def cross(self, X, Z):
        """Covariances k(x_i, z_j): (n, D), (m, D) -> (n, m), Fortran-ordered."""

    @abstractmethod
    def diagonal(self, X):
        """Variances k(x_i, x_i): (n, D) -> (n,)."""

    @abstractmethod
    def cross_and_pullback(self, X, Z) -> "tuple[np.ndarray, Pullback]":
        """`cross(X, Z)` and its `Pullback`."""

    @abstractmethod
    def input_gradient(self, X, Z, G):
        """Derivatives of the sum of `G_ij k(x_i, z_j)` in the coordinates of Z: (n, D), (m, D), (n, m) -> (m, D).

        Where a rough kernel has no derivative, at coincident points, it is 0.
        """

    @abstractmethod
    def isotropic(self) -> "Kernel":
        """One lengthscale for all inputs: the geometric mean."""

    @property
    def theta(self):
        """Log parameters, (P,)."""
        return np.log(np.concatenate(list(self.parameters.values())))

    def with_theta(self, theta):
        """The same kernel at log parameters `theta`."""
        return self.with_parameters(split_parameters(self.parameters, np.exp(theta)))


def split_parameters(like, flat):
    """Cut a flat vector into the named pieces of `like`."""
    out, start = {}, 0
    for name, value in like.items():
        out[name] = flat[start : start + len(value)]
        start += len(value)
    return out


def per_lengthscale(per_input, lengthscale):
    """Sums over the inputs that share a lengthscale."""
    return per_input if len(lengthscale) == len(per_input) else per_input.sum(keepdims=True)


@dataclass(frozen=True)
class Leaf(Kernel):
    """A kernel whose parameters are its own fields that hold arrays."""

    def __post_init__(self):
        for name in self._names():
            object.__setattr__(self, name, np.atleast_1d(np.asarray(getattr(self, name), dtype=float)))

    def _names(self):
        return [f.name for f in fields(self) if f.type is np.ndarray]

    @property
    def parameters(self):
        return {name: getattr(self, name) for name in self._names()}

    def with_parameters(self, values):
        return replace(self, **values)

    def isotropic(self):
        def mean(name, value):
            return np.exp(np.log(value).mean(keepdims=True)) if name == "lengthscale" else value

        return self.with_parameters({name: mean(name, value) for name, value in self.parameters.items()})

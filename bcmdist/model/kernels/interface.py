"""What a kernel is: an immutable value of named positive parameters, with a derivative in adjoint form.

Parameters of two names mean the same in every kernel: `lengthscale`, by which inputs are divided, one for all or one
each, and `variance`, a factor of all covariances. Any other name is the kernel's own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.model.kernels.expected import Expected

Bounds = tuple[float, float]
"""The smallest and the largest value of a natural parameter while learning."""

Pullback = Callable[[np.ndarray], np.ndarray]
"""From G (n, m) to the sums over i, j of `G_ij d k(x_i, z_j) / d theta_p`, (P,)."""


BLOCK_COLUMNS = 128  # 64 to 256 do as well


class Kernel(ABC):
    """A positive semi-definite function of two inputs."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, np.ndarray]:
        """Natural parameters by name, in the order of `theta`; all positive, each 1-D."""

    @abstractmethod
    def with_parameters(self, values: dict[str, np.ndarray]) -> Self:
        """The same kernel with other parameter values."""

    @property
    @abstractmethod
    def bounds(self) -> dict[str, Bounds]:
        """Bounds of the parameters while learning, by their names."""

    @property
    @abstractmethod
    def expression(self) -> str:
        """The expression from which `parse_kernel` makes a kernel of this form (ARD or not)."""

    @property
    @abstractmethod
    def leaves(self) -> "tuple[Leaf, ...]":
        """The kernels that this one joins, or itself alone."""

    @abstractmethod
    def cross(self, X, Z) -> np.ndarray:
        """Covariances k(x_i, z_j): (n, D), (m, D) -> (n, m), Fortran-ordered."""

    @abstractmethod
    def diagonal(self, X) -> np.ndarray:
        """Variances k(x_i, x_i): (n, D) -> (n,)."""

    @abstractmethod
    def cross_and_pullback(self, X, Z) -> "tuple[np.ndarray, Pullback]":
        """`cross(X, Z)` and its `Pullback`."""

    @abstractmethod
    def input_gradient(self, X, Z, G) -> np.ndarray:
        """Derivatives of the sum of `G_ij k(x_i, z_j)` in the coordinates of Z: (n, D), (m, D), (n, m) -> (m, D).

        Where a rough kernel has no derivative, at coincident points, it is 0.
        """

    @abstractmethod
    def isotropic(self) -> "Kernel":
        """One lengthscale for all inputs: the geometric mean."""

    def spectral_density(self, W) -> np.ndarray:
        """S at the rows of W (n, D), frequencies in cycles per unit of the inputs, (n,).

        The integral of S(w) exp(2 pi i w.r) over all w is the covariance at a distance r.

        Raises
        ------
        InvalidOption
            It has none: it is not stationary, or its covariance does not fall.
        """
        raise InvalidOption(
            f"kernel: expected one with a spectral density (se, matern12, matern32, matern52, or sums of them), got "
            f"{self.expression}; give another --kernel, or --expert bcm"
        )

    def expected(self, u, S, Z) -> Expected:
        """Averages over an uncertain input N(u, S), (D,) and (D, D), of the covariances with points Z (m, D).

        Raises
        ------
        InvalidOption
            They are not known in closed form.
        """
        raise InvalidOption(
            f"inputs: expected the kernel se or linear for exact averages, got {self.expression}; give --inputs "
            "montecarlo or taylor"
        )

    @property
    def lengthscales(self) -> tuple[str, ...]:
        """Names of the parameters that are lengthscales."""
        return self._called("lengthscale")

    @property
    def variances(self) -> tuple[str, ...]:
        """Names of the parameters that are variances."""
        return self._called("variance")

    def _called(self, word):
        return tuple(name for name in self.parameters if name.rsplit(".", 1)[-1] == word)

    @property
    def theta(self) -> np.ndarray:
        """Log parameters, (P,)."""
        return np.log(np.concatenate(list(self.parameters.values())))

    def with_theta(self, theta) -> Self:
        """The same kernel at log parameters `theta`."""
        return self.with_parameters(split_parameters(self.parameters, np.exp(theta)))


def split_parameters(like, flat) -> dict[str, np.ndarray]:
    """Cut a flat vector into the named pieces of `like`."""
    out, start = {}, 0
    for name, value in like.items():
        out[name] = flat[start : start + len(value)]
        start += len(value)
    return out


def per_lengthscale(per_input, lengthscale) -> np.ndarray:
    """Sums over the inputs that share a lengthscale."""
    return per_input if len(lengthscale) == len(per_input) else per_input.sum(keepdims=True)


def kernel_parts(kernel: Kernel) -> int:
    """Number of kernels that a sum or product joins."""
    return len(kernel.leaves)


def metric(kernel: Kernel, inputs) -> np.ndarray:
    """The shortest length of each input over the leaves that look at distances, (D,); ones without."""
    scales = [found for leaf in kernel.leaves if (found := leaf.metric(inputs)) is not None]
    return np.min(scales or [np.ones(inputs)], axis=0)


def fill_cross(kernel: Kernel, X, Z, K) -> None:
    """Write `k(X, Z)` for X (n, D) and Z (m, D) into K (n, m), of whatever precision.

    By blocks of columns that a processor's cache holds, so that nothing else is as large as K.
    """
    for a in range(0, len(Z), BLOCK_COLUMNS):
        K[:, a : a + BLOCK_COLUMNS] = kernel.cross(X, Z[a : a + BLOCK_COLUMNS])


def cross_lower(kernel: Kernel, X, *, dtype=float) -> np.ndarray:
    """`k(X, X)` for X (n, D), Fortran-ordered: its lower triangle, above which some are zeros.

    By blocks of columns as in `fill_cross`: (1500, 1500) takes half to a third of the time of `cross`.
    """
    K = np.zeros((len(X), len(X)), order="F", dtype=dtype)
    for a in range(0, len(X), BLOCK_COLUMNS):
        K[a:, a : a + BLOCK_COLUMNS] = kernel.cross(X[a:], X[a : a + BLOCK_COLUMNS])
    return K


@dataclass(frozen=True)
class Leaf(Kernel):
    """A kernel of its own: its fields are its parameters, natural, positive and 1-D.

    A further one is a frozen dataclass with a `name`, the functions of `Kernel`, and, for parameters of other names
    than `variance` and `lengthscale`, `bounds` and `defaults`; `register_kernel` makes it known.
    """

    name: ClassVar[str]
    """by which users choose it"""
    # Variances beyond, or lengthscales far beyond the spread of the data, do not change predictions but ruin
    # conditioning.
    bounds: ClassVar[dict[str, Bounds]] = {"lengthscale": (1e-2, 1e3), "variance": (1e-4, 1e3)}
    """of natural parameters while learning, for scaled data; of more parameters than it has, perhaps"""

    @classmethod
    def defaults(cls, inputs: int) -> dict[str, np.ndarray]:
        """Parameters by default, for D standardised inputs; of more than it has, perhaps.

        The lengthscales sqrt(D) make two typical rows neighbours.
        """
        return {"variance": np.ones(1), "lengthscale": np.full(inputs, np.sqrt(inputs))}

    def metric(self, inputs: int) -> np.ndarray | None:
        """Lengths (D,) within which inputs are near each other; None for a kernel that does not look at distances."""
        return None

    def __post_init__(self):
        for name in self.names():
            object.__setattr__(self, name, np.atleast_1d(np.asarray(getattr(self, name), dtype=float)))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of its parameters."""
        return tuple(field.name for field in fields(cls))

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in self.names()}

    def with_parameters(self, values) -> Self:
        return replace(self, **values)

    @property
    def expression(self) -> str:
        return self.name

    @property
    def leaves(self) -> "tuple[Leaf, ...]":
        return (self,)

    def isotropic(self) -> Self:
        def mean(name, value):
            return np.exp(np.log(value).mean(keepdims=True)) if name == "lengthscale" else value

        return self.with_parameters({name: mean(name, value) for name, value in self.parameters.items()})

"""The kernel interface: an immutable value with named positive parameters and derivatives in adjoint form.

Two parameter names have the same meaning in every kernel: `lengthscale`, by which inputs are divided (one for all
inputs or one each), and `variance`, a factor of all covariances. Other names are specific to a kernel.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import BoolArray, FloatArray, IntArray
from bcmdist.model.kernels.expected import Expected, Form, expected_of

Bounds = tuple[float, float]
"""Lower and upper bound of a natural parameter during learning."""

Pullback = Callable[[FloatArray], FloatArray]
"""Maps G (n, m) to the sums over i, j of `G_ij d k(x_i, z_j) / d theta_p`, (P,)."""


BLOCK_COLUMNS = 128  # 64 to 256 are equally fast
UNUSED_LENGTH = 1e3  # length of an input without influence: the upper bound of lengthscales


class Kernel(ABC):
    """A positive semi-definite function of two inputs."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, FloatArray]:
        """Natural parameters by name, in the order of `theta`; all positive, each 1-D."""

    @abstractmethod
    def with_parameters(self, values: Mapping[str, FloatArray]) -> Self:
        """The same kernel with other parameter values."""

    @property
    @abstractmethod
    def bounds(self) -> dict[str, Bounds]:
        """Bounds of the parameters during learning, by name."""

    @property
    @abstractmethod
    def expression(self) -> str:
        """Expression from which `parse_kernel` makes a kernel of this form (ARD or isotropic)."""

    @property
    def label(self) -> str:
        """Name of the kernel within a sum or product, as in names of parameters."""
        return self.expression

    @property
    @abstractmethod
    def leaves(self) -> "tuple[Kernel, ...]":
        """The single kernels of a sum or product; for a single kernel, itself."""

    @property
    def terms(self) -> "tuple[Kernel, ...]":
        """The terms of a sum; for any other kernel, itself."""
        return (self,)

    @abstractmethod
    def along(self, d: int) -> "Kernel":
        """The kernel of one input: that between rows that differ in input d only."""

    @abstractmethod
    def level_columns(self, inputs: int) -> IntArray:
        """Numbers of the inputs whose values are levels without an order, not one-hot."""

    def output_columns(self, inputs: int) -> IntArray:
        """Numbers of the one-hot inputs that show which of several outputs a row observes."""
        each = [leaf.output_columns(inputs) for leaf in self.leaves]
        return np.unique(np.concatenate(each))

    @abstractmethod
    def lengthscale_columns(self, inputs: int) -> dict[str, IntArray]:
        """For each lengthscale, by name, the inputs that it divides, of D: those of its entries, or of its only one."""

    @abstractmethod
    def covered(self, inputs: int) -> BoolArray:
        """Whether each input changes the kernel, (D,)."""

    @abstractmethod
    def metric(self, inputs: int) -> FloatArray | None:
        """Lengths (D,) within which inputs are close, infinite for inputs without influence.

        None for a kernel that does not depend on distances.
        """

    @abstractmethod
    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        """Covariances k(x_i, z_j): (n, D), (m, D) -> (n, m), Fortran-ordered."""

    @abstractmethod
    def diagonal(self, X: FloatArray) -> FloatArray:
        """Variances k(x_i, x_i): (n, D) -> (n,)."""

    @abstractmethod
    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> "tuple[FloatArray, Pullback]":
        """`cross(X, Z)` and its `Pullback`."""

    @abstractmethod
    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        """Gradient in Z of the sum of `G_ij k(x_i, z_j)`: (n, D), (m, D), (n, m) -> (m, D).

        Where the kernel is not differentiable, at coincident points, the gradient is 0.
        """

    @abstractmethod
    def isotropic(self) -> "Kernel":
        """The kernel with a single lengthscale for all inputs, the geometric mean."""

    def spectral_density(self, W: FloatArray) -> FloatArray:
        """Spectral density S at the rows of W (n, D), frequencies in cycles per unit of the inputs: (n,).

        The integral of S(w) exp(2 pi i w.r) over all w is the covariance at distance r.

        Raises
        ------
        InvalidOption
            The kernel has no spectral density: it is not stationary, or its covariance does not decay.
        """
        raise InvalidOption(
            f"kernel: expected one with a spectral density (se, matern12, matern32, matern52, or sums of them), got "
            f"{self.expression}; give another --kernel, or --expert bcm"
        )

    def random_frequencies(self, rng: np.random.Generator, count: int, inputs: int) -> FloatArray:
        """Frequencies W (count, inputs), in radians per unit of the inputs, drawn from the spectral density.

        The mean of cos(w.r) over W is the correlation at distance r.

        Raises
        ------
        InvalidOption
            The kernel is not stationary, or its spectral density has no generator.
        """
        raise InvalidOption(
            f"kernel: expected one with random frequencies (se, matern12, matern32, matern52, rq, constant, or "
            f"products of these), got {self.expression}; give another --kernel"
        )

    def random_function(self, rng: np.random.Generator, count: int, inputs: int) -> Callable[[FloatArray], FloatArray]:
        """A random function of rows (n, D), (n,), with mean 0 and with this kernel as its covariance over all draws.

        A sum of `count` cosines of random frequencies and phases, nearly normal; see `random_frequencies`, also for
        what it raises.
        """
        W, phases = self.random_frequencies(rng, count, inputs), rng.uniform(0.0, 2.0 * np.pi, count)
        height = np.sqrt(2.0 * self.diagonal(np.zeros((1, inputs)))[0] / count)

        def function(X: FloatArray) -> FloatArray:
            angles = X @ W.T
            angles += phases
            values: FloatArray = height * np.cos(angles, out=angles).sum(axis=1)
            return values

        return function

    def expected(self, u: FloatArray, S: FloatArray, Z: FloatArray) -> Expected:
        """Expectations, over an uncertain input N(u, S), (D,) and (D, D), of the covariances with points Z (m, D).

        Raises
        ------
        InvalidOption
            No closed form is available.
        """
        return expected_of(self.forms(len(u)), u, S, Z)

    def forms(self, inputs: int) -> tuple[Form, ...]:
        """Terms whose sum is the kernel and whose expectations have closed forms; raises as `expected`."""
        raise InvalidOption(
            f"inputs: expected kernels se and linear, sums of these, or products of se for exact averages, got "
            f"{self.expression}; give --inputs montecarlo or taylor"
        )

    @property
    def lengthscales(self) -> tuple[str, ...]:
        """Names of the parameters that are lengthscales."""
        return self._called("lengthscale")

    @property
    def variances(self) -> tuple[str, ...]:
        """Names of the parameters that are variances."""
        return self._called("variance")

    def _called(self, word: str) -> tuple[str, ...]:
        return tuple(name for name in self.parameters if name.rsplit(".", 1)[-1] == word)

    @property
    def theta(self) -> FloatArray:
        """Log parameters, (P,)."""
        theta: FloatArray = np.log(np.concatenate(list(self.parameters.values())))
        return theta

    def with_theta(self, theta: FloatArray) -> Self:
        """The same kernel at log parameters `theta`."""
        return self.with_parameters(split_parameters(self.parameters, np.exp(theta)))


def split_parameters(like: Mapping[str, FloatArray], flat: FloatArray) -> dict[str, FloatArray]:
    """Split a flat vector into named pieces with the names and lengths of `like`."""
    out, start = {}, 0
    for name, value in like.items():
        out[name] = flat[start : start + len(value)]
        start += len(value)
    return out


def per_lengthscale(per_input: FloatArray, lengthscale: FloatArray) -> FloatArray:
    """Sum per-input derivatives over inputs that share a lengthscale."""
    total: FloatArray = per_input if len(lengthscale) == len(per_input) else per_input.sum(keepdims=True)
    return total


def kernel_parts(kernel: Kernel) -> int:
    """Number of single kernels in a sum or product."""
    return len(kernel.leaves)


def metric(kernel: Kernel, inputs: int) -> FloatArray:
    """Shortest length of each input over all single kernels with a metric, (D,).

    Inputs that only kernels without a metric use have the length 1, those that no kernel uses `UNUSED_LENGTH`. Those of
    outputs are infinite: the outputs of one place have no distance.
    """
    scales = [found for leaf in kernel.leaves if (found := leaf.metric(inputs)) is not None]
    lengths = np.min([*scales, np.full(inputs, np.inf)], axis=0)
    found = np.where(np.isfinite(lengths), lengths, np.where(kernel.covered(inputs), 1.0, UNUSED_LENGTH))
    found[kernel.output_columns(inputs)] = np.inf
    return found


def finite_metric(kernel: Kernel, inputs: int) -> FloatArray:
    """As `metric`, with lengths of 1 in place of infinite ones, (D,)."""
    lengths = metric(kernel, inputs)
    return np.where(np.isfinite(lengths), lengths, 1.0)


def fill_cross(kernel: Kernel, X: FloatArray, Z: FloatArray, K: np.ndarray) -> None:
    """Write `k(X, Z)` for X (n, D) and Z (m, D) into K (n, m), of any floating-point type.

    Computed in blocks of columns that fit a processor's cache, so no temporary array is as large as K.
    """
    for a in range(0, len(Z), BLOCK_COLUMNS):
        K[:, a : a + BLOCK_COLUMNS] = kernel.cross(X, Z[a : a + BLOCK_COLUMNS])


def cross_lower(kernel: Kernel, X: FloatArray, *, dtype: type[float | np.float32] = float) -> np.ndarray:
    """Lower triangle of `k(X, X)` for X (n, D), Fortran-ordered; entries above it are zeros or valid values.

    Computed in blocks of columns as in `fill_cross`: (1500, 1500) takes a third to a half of the time of `cross`.
    """
    K = np.zeros((len(X), len(X)), order="F", dtype=dtype)
    for a in range(0, len(X), BLOCK_COLUMNS):
        K[a:, a : a + BLOCK_COLUMNS] = kernel.cross(X[a:], X[a : a + BLOCK_COLUMNS])
    return K


@dataclass(frozen=True)
class Leaf(Kernel):
    """A single kernel: its fields are its parameters, natural, positive and 1-D.

    A new kernel is a frozen dataclass with a `name` and the methods of `Kernel`; parameters other than `variance` and
    `lengthscale` also need `bounds` and `defaults`. Register it with `register_kernel`.
    """

    name: ClassVar[str]
    """name in expressions"""
    # Variances beyond these bounds, or lengthscales far beyond the range of the data, do not change predictions but
    # make covariances ill-conditioned.
    bounds: ClassVar[dict[str, Bounds]] = {"lengthscale": (1e-2, 1e3), "variance": (1e-4, 1e3)}
    """bounds of natural parameters during learning, for scaled data; may include parameters that the kernel lacks"""

    @classmethod
    def defaults(cls, inputs: int) -> dict[str, FloatArray]:
        """Default parameters for D standardised inputs; may include parameters that the kernel lacks.

        The lengthscales sqrt(D) make two typical rows neighbours.
        """
        return {"variance": np.ones(1), "lengthscale": np.full(inputs, np.sqrt(inputs))}

    options: ClassVar[tuple[str, ...]] = ()
    """parameters whose values expressions must give, in the unit of the column, like the period of `periodic`"""

    counts: ClassVar[tuple[str, ...]] = ()
    """whole numbers that expressions may give, which set how many parameters there are, like the rank of
    `coregionalised`"""

    @classmethod
    def made(cls, inputs: int, **counts: int) -> Self:
        """The kernel at its default parameters for D inputs."""
        defaults = cls.defaults(inputs)
        return cls(**{name: defaults[name] for name in cls.names()})

    @property
    def counted(self) -> dict[str, int]:
        """The `counts` that are not their default, 1."""
        return {}

    def metric(self, inputs: int) -> FloatArray | None:
        return None

    def output_columns(self, inputs: int) -> IntArray:
        return np.zeros(0, dtype=int)

    def along(self, d: int) -> Self:
        lengths = {name: getattr(self, name) for name in self.lengthscales}
        own = {name: value[d : d + 1] for name, value in lengths.items() if len(value) > 1}
        return self.with_parameters(self.parameters | own)

    def level_columns(self, inputs: int) -> IntArray:
        return np.zeros(0, dtype=int)

    def lengthscale_columns(self, inputs: int) -> dict[str, IntArray]:
        return dict.fromkeys(self.lengthscales, np.arange(inputs))

    def covered(self, inputs: int) -> BoolArray:
        return np.ones(inputs, dtype=bool)

    def __post_init__(self) -> None:
        for name in self.names():
            object.__setattr__(self, name, np.atleast_1d(np.asarray(getattr(self, name), dtype=float)))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(field.name for field in fields(cls))

    @property
    def parameters(self) -> dict[str, FloatArray]:
        return {name: getattr(self, name) for name in self.names()}

    def with_parameters(self, values: Mapping[str, FloatArray]) -> Self:
        return replace(self, **values)

    @property
    def expression(self) -> str:
        return self.name

    @property
    def leaves(self) -> "tuple[Leaf, ...]":
        return (self,)

    def isotropic(self) -> Self:
        def mean(name: str, value: FloatArray) -> FloatArray:
            return np.exp(np.log(value).mean(keepdims=True)) if name == "lengthscale" else value

        return self.with_parameters({name: mean(name, value) for name, value in self.parameters.items()})

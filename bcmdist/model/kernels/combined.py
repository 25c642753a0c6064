"""Sums and products of kernels."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import BoolArray, FloatArray, IntArray
from bcmdist.model.kernels.basis import Constant
from bcmdist.model.kernels.columns import OnColumns
from bcmdist.model.kernels.expected import Form, product_of
from bcmdist.model.kernels.interface import Kernel, Pullback


@dataclass(frozen=True)
class Node(Kernel):
    """Common base of sums and products, with the concatenated parameters of the `parts`.

    Parameter names are prefixed with the part: `se.lengthscale`; repeated parts are numbered, `se2`.
    """

    parts: tuple[Kernel, ...]
    sign: ClassVar[str]
    """operator between parts in an expression"""

    @property
    def expression(self) -> str:
        return self.sign.join(part.expression for part in self.parts)

    @property
    def label(self) -> str:
        return self.sign.join(part.label for part in self.parts)

    @property
    def leaves(self) -> tuple[Kernel, ...]:
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        return {f"{label}.{n}": part.bounds[n] for label, part in self._labelled() for n in part.parameters}

    @property
    def parameters(self) -> dict[str, FloatArray]:
        return {f"{label}.{n}": v for label, part in self._labelled() for n, v in part.parameters.items()}

    def with_parameters(self, values: Mapping[str, FloatArray]) -> Self:
        def under(label: str) -> dict[str, FloatArray]:
            return {n.removeprefix(label): v for n, v in values.items() if n.startswith(label)}

        return type(self)(tuple(part.with_parameters(under(f"{label}.")) for label, part in self._labelled()))

    def lengthscale_columns(self, inputs: int) -> dict[str, IntArray]:
        return {
            f"{label}.{n}": c for label, part in self._labelled() for n, c in part.lengthscale_columns(inputs).items()
        }

    def along(self, d: int) -> Self:
        return type(self)(tuple(part.along(d) for part in self.parts))

    def level_columns(self, inputs: int) -> IntArray:
        return np.unique(np.concatenate([part.level_columns(inputs) for part in self.parts]))

    def covered(self, inputs: int) -> BoolArray:
        covered: BoolArray = np.any([part.covered(inputs) for part in self.parts], axis=0)
        return covered

    def metric(self, inputs: int) -> FloatArray | None:
        found = [own for part in self.parts if (own := part.metric(inputs)) is not None]
        return np.min(found, axis=0) if found else None

    def isotropic(self) -> Self:
        return type(self)(tuple(part.isotropic() for part in self.parts))

    def _labelled(self) -> list[tuple[str, Kernel]]:
        labels = [part.label for part in self.parts]
        return [
            (label if labels.count(label) == 1 else f"{label}{labels[: k + 1].count(label)}", self.parts[k])
            for k, label in enumerate(labels)
        ]


@dataclass(frozen=True)
class Sum(Node):
    """`parts[0] + parts[1] + ...`."""

    sign = "+"

    @property
    def terms(self) -> tuple[Kernel, ...]:
        return self.parts

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        return _sum(part.cross(X, Z) for part in self.parts)

    def diagonal(self, X: FloatArray) -> FloatArray:
        return _sum(part.diagonal(X) for part in self.parts)

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        Ks, pullbacks = zip(*(part.cross_and_pullback(X, Z) for part in self.parts), strict=True)
        return _sum(Ks), lambda G: np.concatenate([pullback(G) for pullback in pullbacks])

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        return _sum(part.input_gradient(X, Z, G) for part in self.parts)

    def random_function(self, rng: np.random.Generator, count: int, inputs: int) -> Callable[[FloatArray], FloatArray]:
        functions = [part.random_function(rng, count, inputs) for part in self.parts]
        return lambda X: _sum(function(X) for function in functions)

    def spectral_density(self, W: FloatArray) -> FloatArray:
        return _sum(part.spectral_density(W) for part in self.parts)

    def forms(self, inputs: int) -> tuple[Form, ...]:
        return tuple(form for part in self.parts for form in part.forms(inputs))


@dataclass(frozen=True)
class Product(Node):
    """`parts[0] * parts[1] * ...`."""

    sign = "*"

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        return _product(part.cross(X, Z) for part in self.parts)

    def diagonal(self, X: FloatArray) -> FloatArray:
        return _product(part.diagonal(X) for part in self.parts)

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        Ks, pullbacks = zip(*(part.cross_and_pullback(X, Z) for part in self.parts), strict=True)

        def pullback(G: FloatArray) -> FloatArray:
            return np.concatenate([part(G * _others(Ks, k)) for k, part in enumerate(pullbacks)])

        return _product(Ks), pullback

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        Ks = [part.cross(X, Z) for part in self.parts]
        return _sum(part.input_gradient(X, Z, G * _others(Ks, k)) for k, part in enumerate(self.parts))

    def random_frequencies(self, rng: np.random.Generator, count: int, inputs: int) -> FloatArray:
        return _sum(part.random_frequencies(rng, count, inputs) for part in self.parts)

    def spectral_density(self, W: FloatArray) -> FloatArray:
        """Product of the parts' densities in their own columns, which must be disjoint and cover all."""
        level: float = math.prod(part.variance[0] for part in self.parts if isinstance(part, Constant))
        parts = [part for part in self.parts if not isinstance(part, Constant)]
        each = [part.columns for part in parts if isinstance(part, OnColumns)]
        if len(parts) == 1:
            return level * parts[0].spectral_density(W)
        if len(each) < len(parts) or sorted(itertools.chain(*each)) != list(range(W.shape[1])):
            raise InvalidOption(
                f"kernel: expected factors of separate columns, of all {W.shape[1]} together, for a spectral density, "
                f"got {self.expression}; give each column to one factor, or take --expert bcm"
            )
        of_each = (
            part.kernel.spectral_density(W[:, list(part.columns)]) for part in parts if isinstance(part, OnColumns)
        )
        return level * _product(of_each)

    def forms(self, inputs: int) -> tuple[Form, ...]:
        return product_of([part.forms(inputs) for part in self.parts], self.expression)


def _sum(arrays: Iterable[FloatArray]) -> FloatArray:
    return cast(FloatArray, sum(arrays))  # the sum of no arrays would be a number


def _product(arrays: Iterable[FloatArray]) -> FloatArray:
    return cast(FloatArray, math.prod(arrays))  # the product of no arrays would be a number


def _others(Ks: Sequence[FloatArray], k: int) -> FloatArray | int:
    """Product of all factors but factor k."""
    return math.prod(K for j, K in enumerate(Ks) if j != k)

"""Sums and products of kernels."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from bcmdist.model.kernels.interface import Kernel, Leaf, Pullback


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
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        return {f"{label}.{n}": part.bounds[n] for label, part in self._labelled() for n in part.parameters}

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        return {f"{label}.{n}": v for label, part in self._labelled() for n, v in part.parameters.items()}

    def with_parameters(self, values) -> Self:
        def own(label):
            return {n.removeprefix(label): v for n, v in values.items() if n.startswith(label)}

        return type(self)(tuple(part.with_parameters(own(f"{label}.")) for label, part in self._labelled()))

    def isotropic(self) -> Self:
        return type(self)(tuple(part.isotropic() for part in self.parts))

    def _labelled(self):
        labels = [part.expression for part in self.parts]
        return [
            (label if labels.count(label) == 1 else f"{label}{labels[: k + 1].count(label)}", self.parts[k])
            for k, label in enumerate(labels)
        ]


@dataclass(frozen=True)
class Sum(Node):
    """`parts[0] + parts[1] + ...`."""

    sign = "+"

    def cross(self, X, Z) -> np.ndarray:
        return _sum(part.cross(X, Z) for part in self.parts)

    def diagonal(self, X) -> np.ndarray:
        return _sum(part.diagonal(X) for part in self.parts)

    def cross_and_pullback(self, X, Z) -> tuple[np.ndarray, Pullback]:
        Ks, pullbacks = zip(*(part.cross_and_pullback(X, Z) for part in self.parts), strict=True)
        return _sum(Ks), lambda G: np.concatenate([pullback(G) for pullback in pullbacks])

    def input_gradient(self, X, Z, G) -> np.ndarray:
        return _sum(part.input_gradient(X, Z, G) for part in self.parts)

    def spectral_density(self, W) -> np.ndarray:
        return _sum(part.spectral_density(W) for part in self.parts)


@dataclass(frozen=True)
class Product(Node):
    """`parts[0] * parts[1] * ...`."""

    sign = "*"

    def cross(self, X, Z) -> np.ndarray:
        return _product(part.cross(X, Z) for part in self.parts)

    def diagonal(self, X) -> np.ndarray:
        return _product(part.diagonal(X) for part in self.parts)

    def cross_and_pullback(self, X, Z) -> tuple[np.ndarray, Pullback]:
        Ks, pullbacks = zip(*(part.cross_and_pullback(X, Z) for part in self.parts), strict=True)

        def pullback(G):
            return np.concatenate([part(G * _others(Ks, k)) for k, part in enumerate(pullbacks)])

        return _product(Ks), pullback

    def input_gradient(self, X, Z, G) -> np.ndarray:
        Ks = [part.cross(X, Z) for part in self.parts]
        return _sum(part.input_gradient(X, Z, G * _others(Ks, k)) for k, part in enumerate(self.parts))


def _sum(arrays) -> np.ndarray:
    total: Any = sum(arrays)  # for typing: the sum of no arrays would be a number
    return total


def _product(arrays) -> np.ndarray:
    total: Any = math.prod(arrays)  # for typing: the product of no arrays would be a number
    return total


def _others(Ks, k):
    """Product of all factors but factor k."""
    return math.prod(K for j, K in enumerate(Ks) if j != k)

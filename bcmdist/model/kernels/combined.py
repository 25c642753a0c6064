"""Sums and products of kernels, and the expression that names them."""

import math
from dataclasses import dataclass

import numpy as np

from bcmdist.model.kernels.basis import Polynomial
from bcmdist.model.kernels.interface import Kernel
from bcmdist.model.kernels.stationary import RationalQuadratic, Stationary


@dataclass(frozen=True)
class Node(Kernel):
    """What sums and products share: `parts`, whose parameters stand one after the other.

    Parameters are named after the parts: `se.lengthscale`; a repeated part is numbered, `se2`.
    """

    parts: tuple[Kernel, ...]

    @property
    def parameters(self):
        return {f"{label}.{n}": v for label, part in self._labelled() for n, v in part.parameters.items()}

    def with_parameters(self, values):
        def own(label):
            return {n.removeprefix(label): v for n, v in values.items() if n.startswith(label)}

        return type(self)(tuple(part.with_parameters(own(f"{label}.")) for label, part in self._labelled()))

    def isotropic(self):
        return type(self)(tuple(part.isotropic() for part in self.parts))

    def _labelled(self):
        labels = [expression(part) for part in self.parts]
        return [
            (label if labels.count(label) == 1 else f"{label}{labels[: k + 1].count(label)}", self.parts[k])
            for k, label in enumerate(labels)
        ]


@dataclass(frozen=True)
class Sum(Node):
    """`parts[0] + parts[1] + ...`."""

    def cross(self, X, Z):
        return sum(part.cross(X, Z) for part in self.parts)

    def diagonal(self, X):
        return sum(part.diagonal(X) for part in self.parts)

    def cross_and_pullback(self, X, Z):
        Ks, pullbacks = zip(*(part.cross_and_pullback(X, Z) for part in self.parts), strict=True)
        return sum(Ks), lambda G: np.concatenate([pullback(G) for pullback in pullbacks])

    def input_gradient(self, X, Z, G):
        return sum(part.input_gradient(X, Z, G) for part in self.parts)


@dataclass(frozen=True)
class Product(Node):
    """`parts[0] * parts[1] * ...`."""

    def cross(self, X, Z):
        return math.prod(part.cross(X, Z) for part in self.parts)

    def diagonal(self, X):
        return math.prod(part.diagonal(X) for part in self.parts)

    def cross_and_pullback(self, X, Z):
        Ks, pullbacks = zip(*(part.cross_and_pullback(X, Z) for part in self.parts), strict=True)

        def pullback(G):
            return np.concatenate([part(G * _others(Ks, k)) for k, part in enumerate(pullbacks)])

        return math.prod(Ks), pullback

    def input_gradient(self, X, Z, G):
        Ks = [part.cross(X, Z) for part in self.parts]
        return sum(part.input_gradient(X, Z, G * _others(Ks, k)) for k, part in enumerate(self.parts))


def _others(Ks, k):
    """Product of all factors but one."""
    return math.prod(K for j, K in enumerate(Ks) if j != k)


def kernel_parts(kernel) -> int:
    """Number of kernels that a sum or product joins."""
    return sum(map(kernel_parts, kernel.parts)) if isinstance(kernel, Node) else 1


def metric(kernel, inputs):
    """The shortest lengthscale of each input over the parts of a kernel that look at distances, (D,); ones without."""
    if isinstance(kernel, Node):
        scales = [metric(part, inputs) for part in kernel.parts if _has_metric(part)]
        return np.min(scales or [np.ones(inputs)], axis=0)
    if isinstance(kernel, Stationary | RationalQuadratic):
        return np.broadcast_to(kernel.lengthscale, inputs).copy()
    return np.ones(inputs)


def _has_metric(kernel):
    if isinstance(kernel, Node):
        return any(map(_has_metric, kernel.parts))
    return isinstance(kernel, Stationary | RationalQuadratic)


def expression(kernel) -> str:
    """The expression from which `parse_kernel` makes a kernel of this form (ARD or not)."""
    match kernel:
        case Stationary():
            return kernel.profile
        case RationalQuadratic():
            return "rq"
        case Polynomial():
            return f"poly{kernel.degree}"
        case Product():
            return "*".join(expression(part) for part in kernel.parts)
        case Sum():
            return "+".join(expression(part) for part in kernel.parts)
        case _:
            return type(kernel).__name__.lower()

"""Covariance functions and their derivatives with respect to log parameters.

A kernel is an immutable value: parameters are positive numbers or vectors, and `theta` is the
concatenation of their logarithms. Derivatives come in adjoint form: `cross_and_pullback` returns K
and a function `pullback` that takes a weight matrix G (say, of the evidence with respect to K) to
the sums over i, j of `G_ij dK_ij / d theta_p` for all p at once. For D lengthscales that is one
matrix product and not D matrices of the size of K.

`parse_kernel("se + linear", inputs=3)` reads the names of the command line.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from bcmdist.errors import InvalidOption

# Squared distances below this share of the largest squared norm are recomputed from differences:
# the matrix product leaves them with a relative error above 1e-12.
CANCELLATION_SHARE = 1e-3


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


def squared_distance(X, Z, lengthscale):
    """Squared distances of inputs divided by `lengthscale`, (n, m), Fortran-ordered.

    One matrix product of augmented inputs, `[-2x, |x|^2, 1] [z, 1, |z|^2]'`; entries that lose
    too many digits in it are recomputed from differences, so that coincident points get exactly 0.
    """
    Xs, Zs = X / lengthscale, Z / lengthscale
    x2, z2 = np.einsum("ij,ij->i", Xs, Xs), np.einsum("ij,ij->i", Zs, Zs)
    left = np.column_stack([-2.0 * Xs, x2, np.ones_like(x2)])
    right = np.column_stack([Zs, np.ones_like(z2), z2])
    r2 = right @ left.T
    small = np.flatnonzero(r2.ravel() < CANCELLATION_SHARE * (x2.max(initial=0) + z2.max(initial=0)))
    j, i = np.divmod(small, len(X))
    exact = np.zeros(len(small))
    for d in range(X.shape[1]):
        exact += (Xs[i, d] - Zs[j, d]) ** 2
    r2.ravel()[small] = exact
    return r2.T


def lengthscale_pullback(X, Z, H, lengthscale):
    """Sums of `H_ij (x_id - z_jd)^2 / lengthscale_d^2` over i, j: one entry per lengthscale."""
    Xs, Zs = X / lengthscale, Z / lengthscale
    per_input = H.sum(axis=1) @ Xs**2 + H.sum(axis=0) @ Zs**2 - 2.0 * (Xs * (H @ Zs)).sum(axis=0)
    return _per_lengthscale(per_input, lengthscale)


def _per_lengthscale(per_input, lengthscale):
    return per_input if len(lengthscale) == len(per_input) else per_input.sum(keepdims=True)


# Radial profiles: the value, and its derivative with respect to the squared distance r2, from r2.
# Where r2 = 0 a slope of 0 stands for a limit that is multiplied by r2.


def _se(r2):
    value = np.exp(-0.5 * r2)
    return value, lambda: -0.5 * value


def _matern12(r2):
    r = np.sqrt(r2)
    value = np.exp(-r)
    return value, lambda: np.divide(-0.5 * value, r, out=np.zeros_like(r), where=r > 0)


def _matern32(r2):
    a = np.sqrt(3.0 * r2)
    decay = np.exp(-a)
    return (1.0 + a) * decay, lambda: -1.5 * decay


def _matern52(r2):
    a = np.sqrt(5.0 * r2)
    decay = np.exp(-a)
    return (1.0 + a + (5.0 / 3.0) * r2) * decay, lambda: (-5.0 / 6.0) * (1.0 + a) * decay


PROFILES = {"se": _se, "matern12": _matern12, "matern32": _matern32, "matern52": _matern52}


@dataclass(frozen=True)
class Leaf(Kernel):
    """A kernel whose parameters are its own dataclass fields (`profile` is no parameter)."""

    def __post_init__(self):
        for name in self._names():
            object.__setattr__(self, name, np.atleast_1d(np.asarray(getattr(self, name), dtype=float)))

    def _names(self):
        return [f.name for f in fields(self) if f.name != "profile"]

    @property
    def parameters(self):
        return {name: getattr(self, name) for name in self._names()}

    def with_parameters(self, values):
        return replace(self, **values)

    def isotropic(self):
        def mean(name, value):
            return np.exp(np.log(value).mean(keepdims=True)) if name == "lengthscale" else value

        return self.with_parameters({name: mean(name, value) for name, value in self.parameters.items()})


@dataclass(frozen=True)
class Stationary(Leaf):
    """`variance * profile(r^2)` with `r^2 = sum_d (x_d - z_d)^2 / lengthscale_d^2`.

    Profiles: `se` exp(-r^2/2), the kernel of the GBCM paper (eq. 9) with its A = variance and
    gamma = lengthscale; `matern12` exp(-r); `matern32` (1 + a) exp(-a), a = sqrt(3) r;
    `matern52` (1 + a + a^2/3) exp(-a), a = sqrt(5) r (Rasmussen & Williams 2006, eq. 4.17).
    """

    profile: str
    variance: np.ndarray
    lengthscale: np.ndarray

    def cross(self, X, Z):
        K, _ = PROFILES[self.profile](squared_distance(X, Z, self.lengthscale))
        K *= self.variance
        return K

    def diagonal(self, X):
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X, Z):
        value, slope = PROFILES[self.profile](squared_distance(X, Z, self.lengthscale))
        K = self.variance * value

        def pullback(G):
            H = slope()
            H *= G
            lengthscale = lengthscale_pullback(X, Z, H, self.lengthscale)
            return np.concatenate([[np.vdot(G.T, K.T)], -2.0 * self.variance * lengthscale])

        return K, pullback


@dataclass(frozen=True)
class RationalQuadratic(Leaf):
    """`variance * (1 + r^2 / (2 alpha))^-alpha` (Rasmussen & Williams 2006, eq. 4.19)."""

    variance: np.ndarray
    alpha: np.ndarray
    lengthscale: np.ndarray

    def cross(self, X, Z):
        u = squared_distance(X, Z, self.lengthscale) / (2.0 * self.alpha)
        return self.variance * np.exp(-self.alpha * np.log1p(u))

    def diagonal(self, X):
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X, Z):
        u = squared_distance(X, Z, self.lengthscale) / (2.0 * self.alpha)
        K = self.variance * np.exp(-self.alpha * np.log1p(u))

        def pullback(G):
            GK = G * K
            alpha = self.alpha * np.vdot(GK.T, (u / (1.0 + u) - np.log1p(u)).T)
            lengthscale = lengthscale_pullback(X, Z, GK / (1.0 + u), self.lengthscale)
            return np.concatenate([[GK.sum()], alpha, lengthscale])

        return K, pullback


@dataclass(frozen=True)
class Linear(Leaf):
    """`sum_d x_d z_d / lengthscale_d^2`: a plane through the origin of the scaled inputs."""

    lengthscale: np.ndarray

    def cross(self, X, Z):
        return ((Z / self.lengthscale) @ (X / self.lengthscale).T).T

    def diagonal(self, X):
        return ((X / self.lengthscale) ** 2).sum(axis=1)

    def cross_and_pullback(self, X, Z):
        def pullback(G):
            per_input = ((X / self.lengthscale) * (G @ (Z / self.lengthscale))).sum(axis=0)
            return -2.0 * _per_lengthscale(per_input, self.lengthscale)

        return self.cross(X, Z), pullback


@dataclass(frozen=True)
class Constant(Leaf):
    """`variance` everywhere: an unknown offset."""

    variance: np.ndarray

    def cross(self, X, Z):
        return np.full((len(X), len(Z)), self.variance[0], order="F")

    def diagonal(self, X):
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X, Z):
        return self.cross(X, Z), lambda G: self.variance * G.sum()


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


@dataclass(frozen=True)
class Product(Node):
    """`parts[0] * parts[1] * ...`."""

    def cross(self, X, Z):
        return math.prod(part.cross(X, Z) for part in self.parts)

    def diagonal(self, X):
        return math.prod(part.diagonal(X) for part in self.parts)

    def cross_and_pullback(self, X, Z):
        Ks, pullbacks = zip(*(part.cross_and_pullback(X, Z) for part in self.parts), strict=True)

        def others(k):
            return math.prod(K for j, K in enumerate(Ks) if j != k)

        def pullback(G):
            return np.concatenate([part(G * others(k)) for k, part in enumerate(pullbacks)])

        return math.prod(Ks), pullback


def kernel_parts(kernel) -> int:
    """Number of kernels that a sum or product joins."""
    return sum(map(kernel_parts, kernel.parts)) if isinstance(kernel, Node) else 1


def expression(kernel) -> str:
    """The expression from which `parse_kernel` makes a kernel of this form (ARD or not)."""
    match kernel:
        case Stationary():
            return kernel.profile
        case RationalQuadratic():
            return "rq"
        case Product():
            return "*".join(expression(part) for part in kernel.parts)
        case Sum():
            return "+".join(expression(part) for part in kernel.parts)
        case _:
            return type(kernel).__name__.lower()


KERNEL_NAMES = (*PROFILES, "rq", "linear", "constant")


def _leaf(name, inputs):
    """One kernel by its name, ARD unless it ends in `-iso`, at the default parameters.

    The default lengthscale sqrt(D) makes two typical rows of standardised inputs neighbours.
    """
    base = name.removesuffix("-iso")
    lengthscale = np.full(1 if name.endswith("-iso") else inputs, np.sqrt(inputs))
    if base in PROFILES:
        return Stationary(base, variance=np.ones(1), lengthscale=lengthscale)
    if base == "rq":
        return RationalQuadratic(variance=np.ones(1), alpha=np.ones(1), lengthscale=lengthscale)
    if base == "linear":
        return Linear(lengthscale)
    if name == "constant":
        return Constant(variance=np.ones(1))
    raise InvalidOption(
        f"kernel: expected a combination of {', '.join(KERNEL_NAMES)} (with -iso for one lengthscale) "
        f"by + and *, got {name!r}; give one of these names"
    )


def parse_kernel(expression, *, inputs):
    """Kernel from its name, such as `"matern32"`, `"se-iso"` or `"se*linear + constant"`."""
    terms = []
    for term in expression.split("+"):
        factors = tuple(_leaf(name.strip(), inputs) for name in term.split("*"))
        terms.append(factors[0] if len(factors) == 1 else Product(factors))
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))

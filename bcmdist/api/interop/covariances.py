"""Kernels and the shared variables of query points, written as graphs: the equations of `bcmdist.model`.

Squared distances are sums over inputs of squared differences, which lose no digits near coincident points.
"""

from functools import reduce, singledispatch
from operator import add, mul

import numpy as np

from bcmdist import linalg
from bcmdist.api.interop.graph import Value
from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import basis, combined, stationary
from bcmdist.model.mean import WEIGHT_SD, Mean
from bcmdist.model.shared.query import Query


@singledispatch
def cross(kernel, X: Value, Z) -> Value:
    """k(x_i, z_j) at rows of X (n, D) and of an array Z (m, D): (n, m).

    Raises
    ------
    InvalidOption
        No graph of this kernel is known.
    """
    raise InvalidOption(
        f"to_onnx: expected a kernel of se, matern12, matern32, matern52, rq, linear, poly2, poly3 and constant, or "
        f"sums and products of these, got {kernel.expression}; fit with another --kernel"
    )


@cross.register
def _(kernel: combined.Sum, X, Z):
    return reduce(add, [cross(part, X, Z) for part in kernel.parts])


@cross.register
def _(kernel: combined.Product, X, Z):
    return reduce(mul, [cross(part, X, Z) for part in kernel.parts])


@cross.register
def _(kernel: stationary.SquaredExponential, X, Z):
    return (_squared_distance(kernel, X, Z) * -0.5).exp() * kernel.variance


@cross.register
def _(kernel: stationary.Matern12, X, Z):
    return (_squared_distance(kernel, X, Z).sqrt() * -1.0).exp() * kernel.variance


@cross.register
def _(kernel: stationary.Matern32, X, Z):
    a = (_squared_distance(kernel, X, Z) * 3.0).sqrt()
    return (a + 1.0) * (a * -1.0).exp() * kernel.variance


@cross.register
def _(kernel: stationary.Matern52, X, Z):
    a = (_squared_distance(kernel, X, Z) * 5.0).sqrt()
    return (a * a / 3.0 + a + 1.0) * (a * -1.0).exp() * kernel.variance


@cross.register
def _(kernel: stationary.RationalQuadratic, X, Z):
    u = _squared_distance(kernel, X, Z) / (2.0 * kernel.alpha)
    return ((u + 1.0).log() * -kernel.alpha).exp() * kernel.variance


@cross.register
def _(kernel: basis.Linear, X, Z):
    return _inner_products(kernel, X, Z)


@cross.register
def _(kernel: basis.Polynomial, X, Z):
    return reduce(mul, [_inner_products(kernel, X, Z) + 1.0] * kernel.degree) * kernel.variance


@cross.register
def _(kernel: basis.Constant, X, Z):
    return X @ np.zeros_like(Z.T) + kernel.variance


@singledispatch
def diagonal(kernel, X: Value) -> Value:
    """k(x_i, x_i) at rows of X (n, D), (n,): the sum of variances, of kernels of distances."""
    return X.sum_of_rows() * 0.0 + kernel.variance


@diagonal.register
def _(kernel: combined.Sum, X):
    return reduce(add, [diagonal(part, X) for part in kernel.parts])


@diagonal.register
def _(kernel: combined.Product, X):
    return reduce(mul, [diagonal(part, X) for part in kernel.parts])


@diagonal.register
def _(kernel: basis.Linear, X):
    return _squared_length(kernel, X)


@diagonal.register
def _(kernel: basis.Polynomial, X):
    return reduce(mul, [_squared_length(kernel, X) + 1.0] * kernel.degree) * kernel.variance


def design(shared: Query, X: Value) -> tuple[Value, Value]:
    """Rows of the whitened design, (n, S), and its columns of the process alone, (n, Q): b_g = L^-1 k(X^q, x)."""
    whiten = linalg.solve_lower(shared.factor, np.eye(len(shared.points))).T
    own = cross(shared.kernel, X, shared.points) @ whiten
    mean = _mean(shared.mean, X)
    return (own if mean is None else own.beside(mean)), own


def _mean(mean: Mean, X: Value):
    """Basis of the prior mean times its deviation, (n, P), if it has one."""
    ones = (X.sum_of_rows() * 0.0 + WEIGHT_SD).columns()
    return {"zero": None, "constant": ones, "linear": ones.beside(X * WEIGHT_SD)}[mean.name]


def _squared_distance(kernel, X, Z):
    """Sum over d of (x_d - z_d)^2 / lengthscale_d^2, (n, m)."""
    Xs, Zs = X / kernel.lengthscale, Z / kernel.lengthscale
    gaps = [Xs.column(d) - Zs[:, d][None, :] for d in range(Z.shape[1])]
    return reduce(add, [gap * gap for gap in gaps])


def _inner_products(kernel, X, Z):
    return X / kernel.lengthscale @ (Z / kernel.lengthscale).T


def _squared_length(kernel, X):
    Xs = X / kernel.lengthscale
    return (Xs * Xs).sum_of_rows()

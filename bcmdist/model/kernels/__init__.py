"""Covariance functions and their derivatives with respect to log parameters.

A kernel is an immutable value: parameters are positive numbers or vectors, and `theta` is the
concatenation of their logarithms. Derivatives come in adjoint form: `cross_and_pullback` returns K
and a function `pullback` that takes a weight matrix G (say, of the evidence with respect to K) to
the sums over i, j of `G_ij dK_ij / d theta_p` for all p at once. For D lengthscales that is one
matrix product and not D matrices of the size of K.

`parse_kernel("se + linear", inputs=3)` reads the names of the command line.
"""

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.model.kernels.basis import DEGREES, Constant, Linear, Polynomial
from bcmdist.model.kernels.combined import Product, Sum, expression, kernel_parts, metric
from bcmdist.model.kernels.interface import Kernel, Leaf, Pullback, split_parameters
from bcmdist.model.kernels.stationary import PROFILES, RationalQuadratic, Stationary, squared_distance

__all__ = [
    "KERNEL_NAMES",
    "PROFILES",
    "Constant",
    "Kernel",
    "Leaf",
    "Linear",
    "Polynomial",
    "Product",
    "Pullback",
    "RationalQuadratic",
    "Stationary",
    "Sum",
    "expression",
    "kernel_parts",
    "metric",
    "parse_kernel",
    "split_parameters",
    "squared_distance",
]

POLYNOMIALS = {f"poly{degree}": degree for degree in DEGREES}
MOST_NAMES = 64  # in an expression; arbitrary: each has parameters of its own, which are all learned
KERNEL_NAMES = (*PROFILES, "rq", "linear", *POLYNOMIALS, "constant")


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
    if base in POLYNOMIALS:
        return Polynomial(POLYNOMIALS[base], variance=np.ones(1), lengthscale=lengthscale)
    if name == "constant":
        return Constant(variance=np.ones(1))
    raise InvalidOption(
        f"kernel: expected a combination of {', '.join(KERNEL_NAMES)} (with -iso for one lengthscale) "
        f"by + and *, got {name!r}; give one of these names"
    )


def parse_kernel(expression, *, inputs):
    """Kernel from its name, such as `"matern32"`, `"se-iso"` or `"se*linear + constant"`.

    Raises
    ------
    InvalidOption
    """
    names = 1 + expression.count("+") + expression.count("*")
    if names > MOST_NAMES:
        raise InvalidOption(
            f"kernel: expected a combination of at most {MOST_NAMES} kernels, got one of {names:,}; leave some out"
        )
    terms = []
    for term in expression.split("+"):
        factors = tuple(_leaf(name.strip(), inputs) for name in term.split("*"))
        terms.append(factors[0] if len(factors) == 1 else Product(factors))
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))

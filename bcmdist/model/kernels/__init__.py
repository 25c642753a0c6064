"""Covariance functions and their derivatives with respect to log parameters.

A kernel is an immutable value: its parameters are positive numbers or vectors, and `theta` is the concatenation of
their logarithms. Derivatives are in adjoint form: `cross_and_pullback` returns K and a function `pullback`, which maps
a weight matrix G (say, the derivative of the evidence with respect to K) to the sums over i, j of
`G_ij dK_ij / d theta_p` for all p at once. For D lengthscales this takes one matrix product instead of D matrices of
the size of K.

`parse_kernel("se + linear", inputs=3)` parses the command line's expressions. `register_kernel` adds a subclass of
`Leaf`, with its name, parameters, defaults and bounds; learning, reports and storage need nothing else.
"""

import re

import numpy as np

from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption
from bcmdist.model.kernels.basis import Constant, Cubic, Linear, Quadratic
from bcmdist.model.kernels.combined import Product, Sum
from bcmdist.model.kernels.interface import (
    Kernel,
    Leaf,
    Pullback,
    cross_lower,
    fill_cross,
    kernel_parts,
    metric,
    split_parameters,
)
from bcmdist.model.kernels.network import Arcsine
from bcmdist.model.kernels.stationary import (
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
    squared_distance,
)

__all__ = [
    "KERNEL_NAMES",
    "Arcsine",
    "Constant",
    "Cubic",
    "Kernel",
    "Leaf",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Product",
    "Pullback",
    "Quadratic",
    "RationalQuadratic",
    "SquaredExponential",
    "Stationary",
    "Sum",
    "cross_lower",
    "fill_cross",
    "kernel_parts",
    "metric",
    "parse_kernel",
    "register_kernel",
    "split_parameters",
    "squared_distance",
]

MOST_NAMES = 64  # largest number of kernels in an expression, each with its own learned parameters; arbitrary

KERNELS: Registry[type[Leaf]] = Registry("kernel")
KERNEL_NAMES = KERNELS  # the registry is a collection of names
ONE_LENGTHSCALE = "-iso"
NAME = re.compile("[a-z][a-z0-9_]*")


def register_kernel(kernel: type[Leaf]) -> type[Leaf]:
    """Register a kernel by its name, for use on its own and in sums and products; usable as a decorator.

    Raises
    ------
    InvalidOption
        The name is not valid in an expression or is taken, a parameter has no default within its bounds, or values or
        derivatives fail `bcmdist.testing.check_kernel`.
    """
    from bcmdist.testing.checked import LENIENT_ROUNDING, LENIENT_TOLERANCE  # quick start
    from bcmdist.testing.model import check_kernel  # quick start

    name = str(getattr(kernel, "name", None))
    alike = [other for other in KERNELS if _numbered(other, name) or _numbered(name, other)]
    if not NAME.fullmatch(name) or alike:
        raise InvalidOption(
            f"kernel: expected a name of lower-case letters, digits and _, other than {alike or 'any'} with a number, "
            f"got {name!r}; give {kernel.__name__} another `name`"
        )
    for parameter in kernel.names():
        _check_parameter(kernel, parameter, kernel.defaults(1).get(parameter), kernel.bounds.get(parameter))
    checked = _perturbed(_default(kernel, 2))  # fails for an abstract class
    check_kernel(checked, tolerance=LENIENT_TOLERANCE, rounding=LENIENT_ROUNDING)
    return KERNELS.add(name, kernel)


def _perturbed(kernel):
    """Kernel at parameters that differ from the defaults (often 1), within bounds."""
    values = {
        name: np.clip(value * np.linspace(1.2, 1.4, len(value)), *kernel.bounds[name])
        for name, value in kernel.parameters.items()
    }
    return kernel.with_parameters(values)


def _numbered(name, other):
    """Whether `other` is `name` with a number appended, like the label of a repeated part of a sum."""
    return re.fullmatch(re.escape(name) + "[0-9]+", other) is not None


def _check_parameter(kernel, name, default, bounds):
    low, high = bounds or (np.nan, np.nan)
    if default is None or not (np.all((low <= default) & (default <= high)) and low > 0 and high < np.inf):
        raise InvalidOption(
            f"kernel {kernel.name}: expected positive bounds of {name} and a default within them, got {bounds} and "
            f"{default}; give them in `bounds` and `defaults` of {kernel.__name__}"
        )


def _default(kernel, inputs):
    defaults = kernel.defaults(inputs)
    return kernel(**{name: defaults[name] for name in kernel.names()})


STATIONARY = (SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic)
for own in (*STATIONARY, Arcsine, Linear, Quadratic, Cubic, Constant):
    KERNELS.add(own.name, own)  # checked by the tests, not at import


def _leaf(name, inputs):
    """Single kernel by its name, at default parameters; ARD unless the name ends in `-iso`."""
    base = name.removesuffix(ONE_LENGTHSCALE)
    if base in KERNELS:
        leaf = _default(KERNELS[base], inputs)
        if base == name:
            return leaf
        if leaf.lengthscales:
            return leaf.with_parameters({"lengthscale": leaf.parameters["lengthscale"][:1]})
    raise InvalidOption(
        f"kernel: expected a combination of {', '.join(KERNEL_NAMES)} (with -iso for one lengthscale) "
        f"by + and *, got {name!r:.80}; give one of these names, or install the package that adds it"
    )


def parse_kernel(expression, *, inputs) -> Kernel:
    """Kernel from an expression such as `"matern32"`, `"se-iso"` or `"se*linear + constant"`.

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

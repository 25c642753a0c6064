"""Covariance functions and their derivatives with respect to log parameters.

A kernel is an immutable value: its parameters are positive numbers or vectors, and `theta` is the concatenation of
their logarithms. Derivatives are in adjoint form: `cross_and_pullback` returns K and a function `pullback`, which maps
a weight matrix G (say, the derivative of the evidence with respect to K) to the sums over i, j of
`G_ij dK_ij / d theta_p` for all p at once. For D lengthscales this takes one matrix product instead of D matrices of
the size of K.

`parse_kernel("se(0, 1) + linear", inputs=3)` parses expressions (`grammar`). `register_kernel` adds a `Leaf`,
with its name, parameters, defaults and bounds; learning, reports and storage need nothing else.
"""

import re
from difflib import get_close_matches

import numpy as np

from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels.basis import Constant, Cubic, Linear, Quadratic
from bcmdist.model.kernels.columns import OnColumns
from bcmdist.model.kernels.combined import Product, Sum
from bcmdist.model.kernels.coregionalised import Coregionalised
from bcmdist.model.kernels.grammar import LEARNED, MOST_NAMES, ONE_LENGTHSCALE, Factor, Terms, parsed
from bcmdist.model.kernels.interface import (
    Bounds,
    Kernel,
    Leaf,
    Pullback,
    cross_lower,
    fill_cross,
    finite_metric,
    kernel_parts,
    metric,
    split_parameters,
)
from bcmdist.model.kernels.levels import Levels, OneHot, Periodic, White
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
    "MOST_NAMES",
    "Arcsine",
    "Constant",
    "Coregionalised",
    "Cubic",
    "Kernel",
    "Leaf",
    "Levels",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "OnColumns",
    "OneHot",
    "Periodic",
    "Product",
    "Pullback",
    "Quadratic",
    "RationalQuadratic",
    "SquaredExponential",
    "Stationary",
    "Sum",
    "White",
    "check_expression",
    "cross_lower",
    "fill_cross",
    "finite_metric",
    "kernel_parts",
    "metric",
    "option_value",
    "parse_kernel",
    "register_kernel",
    "split_parameters",
    "squared_distance",
]

KERNELS: Registry[type[Leaf]] = Registry("kernel")
KERNEL_NAMES = KERNELS  # the registry is a collection of names
NAME = re.compile("[a-z][a-z0-9_]*")
# Names that other packages have for kernels, for errors.
OTHER_NAMES = {
    **dict.fromkeys(("rbf", "gaussian", "squared_exponential", "expquad"), "se"),
    **dict.fromkeys(("exponential", "ornstein_uhlenbeck", "ou"), "matern12"),
    "matern": "matern12, matern32 or matern52",
    "rational_quadratic": "rq",
    "dot_product": "linear",
    "polynomial": "poly2 or poly3",
    "bias": "constant",
    "expsinesquared": "periodic",
}


def register_kernel(kernel: type[Leaf]) -> type[Leaf]:
    """Register a kernel by its name, for use on its own and in sums and products; usable as a decorator.

    Parameters
    ----------
    kernel : a subclass of `bcmdist.model.kernels.Leaf` with a `name` of its own

    Returns
    -------
    The class.

    Raises
    ------
    InvalidOption
        The name is not valid in an expression or is taken, a parameter has no default within its bounds, or values or
        derivatives fail `bcmdist.testing.check_kernel`.

    Examples
    --------
    >>> from bcmdist.model.kernels import Matern32
    >>> @bcmdist.register_kernel
    ... class Rough(Matern32):
    ...     name = "rough"
    >>> bcmdist.Settings(kernel="rough + linear").kernel
    'rough + linear'
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
    checked = _perturbed(kernel.made(2))  # fails for an abstract class
    check_kernel(checked, tolerance=LENIENT_TOLERANCE, rounding=LENIENT_ROUNDING)
    return KERNELS.add(name, kernel)


def _perturbed(kernel: Leaf) -> Kernel:
    """Kernel at parameters that differ from the defaults (often 1), within bounds."""
    values = {
        name: np.clip(value * np.linspace(1.2, 1.4, len(value)), *kernel.bounds[name])
        for name, value in kernel.parameters.items()
    }
    return kernel.with_parameters(values)


def _numbered(name: str, other: str) -> bool:
    """Whether `other` is `name` with a number appended, like the label of a repeated part of a sum."""
    return re.fullmatch(re.escape(name) + "[0-9]+", other) is not None


def _check_parameter(kernel: type[Leaf], name: str, default: FloatArray | None, bounds: Bounds | None) -> None:
    low, high = bounds or (np.nan, np.nan)
    if default is None or not (np.all((low <= default) & (default <= high)) and low > 0 and high < np.inf):
        raise InvalidOption(
            f"kernel {kernel.name}: expected positive bounds of {name} and a default within them, got {bounds} and "
            f"{default}; give them in `bounds` and `defaults` of {kernel.__name__}"
        )


STATIONARY = (SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic)
for own in (*STATIONARY, Arcsine, Linear, Quadratic, Cubic, Constant, White, Periodic, Levels, OneHot, Coregionalised):
    KERNELS.add(own.name, own)  # checked by the tests, not at import


def _suggested(name: str) -> str:
    """Return what to give in place of an unknown kernel: by its name in other packages, or the most similar name."""
    if other := OTHER_NAMES.get(name.lower()):
        return f"{other} (the name of {name} here)"
    return next(iter(get_close_matches(name, KERNEL_NAMES, 1)), "one of these names")


def check_expression(expression: str) -> Terms:
    """Return the terms of an expression whose kernels exist and have their options; columns are not checked.

    Raises
    ------
    InvalidOption
    """
    terms = parsed(expression)
    for factor in (factor for term in terms for factor in term):
        if factor.name not in KERNELS or (factor.isotropic and "lengthscale" not in KERNELS[factor.name].names()):
            raise InvalidOption(
                f"kernel: expected a combination of {', '.join(KERNEL_NAMES)} (with -iso for one lengthscale) "
                f"by + and *, got {factor.name + ONE_LENGTHSCALE * factor.isotropic!r:.80}; give "
                f"{_suggested(factor.name)}, or install the package that adds it"
            )
        base = KERNELS[factor.name]
        expected, written = base.options, tuple(name for name, _ in factor.options if name not in base.counts)
        if written != expected:
            shown = factor.name + (f"(hour, {', '.join(f'{name}=24' for name in expected)})" if expected else "")
            raise InvalidOption(
                f"kernel: expected {' and '.join(expected or base.counts) or 'no options'} of {factor.name}, got "
                f"{' and '.join(written) or 'none'}; write it like {shown}"
            )
        for name, value in factor.options:
            (count_value if name in base.counts else option_value)(name, value, factor.name)
    return terms


def count_value(name: str, text: str, kernel: str) -> int:
    """Whole number of an option such as `rank=2`; raises `InvalidOption`."""
    if not (re.fullmatch("[0-9]{1,3}", text, re.ASCII) and int(text)):
        raise InvalidOption(f"kernel {kernel}: expected {name} as a whole number from 1, got {text!r:.80}; correct it")
    return int(text)


def option_value(name: str, text: str, kernel: str) -> float:
    """Positive number of an option such as `period=24`, or `period=~24`; raises `InvalidOption`."""
    try:
        value = float(text.removeprefix(LEARNED))
    except ValueError:
        value = np.nan
    if not 0.0 < value < np.inf:
        raise InvalidOption(
            f"kernel {kernel}: expected {name} as a positive number (with {LEARNED} in front to learn it from there), "
            f"got {text!r:.80}; correct it"
        )
    return value


def parse_kernel(expression: str, *, inputs: int) -> Kernel:
    """Kernel from an expression such as `"matern32"`, `"se(0, 1)*linear(2) + constant"`, for D inputs.

    Columns are numbers here: `bcmdist.model.kernel_columns` replaces names.

    Raises
    ------
    InvalidOption
    """
    products = []
    for term in check_expression(expression):
        factors = tuple(_kernel(factor, inputs) for factor in term)
        products.append(factors[0] if len(factors) == 1 else Product(factors))
    return products[0] if len(products) == 1 else Sum(tuple(products))


def _kernel(factor: Factor, inputs: int) -> Kernel:
    """Single kernel of an expression, at default parameters; ARD unless the name ends in `-iso`."""
    base = KERNELS[factor.name]
    columns = range(inputs) if factor.columns is None else factor.columns
    wrong = [one for one in columns if not isinstance(one, int) or one >= inputs]
    if wrong or len(set(columns)) < len(columns):
        raise InvalidOption(
            f"kernel: expected each column of {factor.text:.80} once, by its number below {inputs}, got "
            f"{wrong[0] if wrong else 'one of them twice'!r}; correct it"
        )
    if base.options and len(columns) != 1:
        raise InvalidOption(
            f"kernel: expected one column of {factor.name}, got {len(columns)} in {factor.text:.80}; multiply a kernel "
            "of each column"
        )
    counts = {name: count_value(name, value, factor.name) for name, value in factor.options if name in base.counts}
    if any(count > len(columns) for count in counts.values()):
        raise InvalidOption(
            f"kernel: expected a rank of at most the {len(columns)} outputs in {factor.text:.80}, got a larger one; "
            "lower it"
        )
    options = [(name, value) for name, value in factor.options if name not in base.counts]
    written = {name: np.array([option_value(name, value, factor.name)]) for name, value in options}
    leaf = base.made(len(columns), **counts).with_parameters(written)
    if factor.isotropic:
        leaf = leaf.with_parameters({"lengthscale": leaf.parameters["lengthscale"][:1]})
    if factor.columns is None and not factor.options:
        return leaf
    fixed = tuple(name for name, value in options if not value.startswith(LEARNED))
    return OnColumns(leaf, tuple(one for one in columns if isinstance(one, int)), fixed)

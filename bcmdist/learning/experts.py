"""Registry of methods by the names of `--expert`, and the methods whose shared variables are values at query points.

Methods with query points differ in the residual of f given the query values:

    bcm        correlated within a partition (the committee machine; PITC)
    fitc       independent for each row
    sor        none; with a kernel of a finite basis (`linear`, `poly2`, sums) and as many query points as functions,
               all of which are kept, this is exactly the regression on these functions
    rrgp_star  of a partition, represented by some of its rows

Methods with other shared variables are in `bcmdist.methods`. A method with a basis of its own is a function that makes
the shared variables from `BasisInputs`, and the name of a residual (`bcmdist.experts.residual`); a method that does
more, or has options of its own, is a subclass of `Method`:

    register_expert("mine", weights_of(basis), residual="none")
"""

from collections.abc import Callable
from dataclasses import fields

import numpy as np

from bcmdist.committee.facts import declare_report
from bcmdist.data.registry import Registry, load_plugins
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.method import Capabilities, Defaults, Method
from bcmdist.learning.method_options import NoOptions, declare_options, option_kinds
from bcmdist.learning.query_selection import select_points
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query, prepare
from bcmdist.model.shared.weights import Basis, Weights

Maker = Callable[[BasisInputs], Shared]

EXPERTS: Registry[Method] = Registry("expert")
VARIANTS: dict[type, Method] = {}
"""methods by the dataclasses of their options, for experts whose methods have others (`register_variant`)"""
FIRST = "bcm"
CHECKED_ROWS = 4  # rows of the sample at which each basis is checked


class MadeBy(Method):
    """A method whose shared variables are made by a function."""

    def __init__(self, name: str, make: Maker, residual: str, capabilities: Capabilities, defaults: Defaults):
        super().__init__(name)
        self.make, self.residual, self.capabilities, self.defaults = make, residual, capabilities, defaults

    def shared(self, basis_inputs: BasisInputs) -> Shared:
        return self.make(basis_inputs)


def register_method(method: Method) -> Method:
    """Add a method under its name for `Settings.expert`, and its options for `Settings` and `fit`.

    Parameters
    ----------
    method : an instance of a subclass of `bcmdist.learning.method.Method`

    Returns
    -------
    The method.

    Raises
    ------
    InvalidOption
        The name, or that of a report, is taken, the method's residual is not registered, or an option is not as
        `declare_options` expects.

    Examples
    --------
    >>> from bcmdist.learning.experts import Method, query_values
    >>> class Independent(Method):
    ...     residual = "diagonal"
    ...     def shared(self, basis_inputs):
    ...         return query_values(basis_inputs)
    >>> bcmdist.register_method(Independent("independent")).name
    'independent'
    """
    assert RESIDUALS[method.residual]  # raises `InvalidOption` if missing
    EXPERTS.add(method.name, method)
    if method.options is not NoOptions:
        declare_options(method.name, method.options)
    if method.report is not None:
        declare_report(*method.report)
    return method


def register_variant(expert: str, method: Method) -> Method:
    """Add a method that fits in place of an expert where one of its options is given, and these options.

    Raises
    ------
    InvalidOption
        As `register_method`.
    """
    assert RESIDUALS[method.residual]
    declare_options(expert, method.options)
    if method.report is not None:
        declare_report(*method.report)
    return VARIANTS.setdefault(method.options, method)


def method_of(settings) -> Method:
    """Return the method of a fit: that of its expert, or the variant that reads an option given.

    Raises
    ------
    InvalidOption
        No method is registered under the name.
    """
    method = EXPERTS[settings.expert]
    if settings.options:
        load_plugins()
        for kind in option_kinds(settings.expert):
            if kind in VARIANTS and settings.options.keys() & {one.name for one in fields(kind)}:
                return VARIANTS[kind]
    return method


def register_expert(
    name: str,
    shared: Maker,
    *,
    residual: str,
    capabilities: Capabilities | None = None,
    defaults: Defaults | None = None,
) -> Method:
    """Add a method under a name for `Settings.expert`, with a function that makes its shared variables.

    If its shared variables are of a new kind or have a new basis, workers need the registration too: name the
    registering module as an entry point (`bcmdist.data.registry`).

    Parameters
    ----------
    name : for `Settings(expert=name)` and `--expert`
    shared : function of `BasisInputs` that makes the shared variables of a fit
    residual : "none", "diagonal", "block" or a residual that another package added
    capabilities : what can be combined with it, such as classes or streams; default: everything
    defaults : defaults of settings that differ from those of the committee machine

    Returns
    -------
    The method, for `bcmdist.testing.check_method`.

    Raises
    ------
    InvalidOption
        As `register_method`.

    Examples
    --------
    >>> from bcmdist.learning.experts import EXPERTS
    >>> bcmdist.register_expert("fitc_again", EXPERTS["fitc"].shared, residual="diagonal").name
    'fitc_again'
    """
    return register_method(MadeBy(name, shared, residual, capabilities or Capabilities(), defaults or Defaults()))


def experts() -> dict[str, Method]:
    """Return all methods by name, including those of other packages."""
    load_plugins()
    return {name: EXPERTS[name] for name in EXPERTS}


def shared_of(method: Method, basis_inputs: BasisInputs) -> Shared:
    """Make the shared variables of a fit.

    Raises
    ------
    InvalidOption
        Their residual is not the method's.
    """
    made = method.shared(basis_inputs)
    if made.residual != method.residual:
        raise InvalidOption(
            f"expert: expected shared variables with the residual {method.residual} it was registered with, got "
            f"{made.residual}; pass on `BasisInputs.residual` where they are made"
        )
    return made


# --- Methods of values at query points ---


def query_points(basis_inputs: BasisInputs) -> np.ndarray:
    """Choose query points from the sample, (Q, D)."""
    seen = {
        "targets": basis_inputs.targets,
        "noise": basis_inputs.noise,
        "rows": basis_inputs.rows,
        "places": basis_inputs.places,
    }
    return select_points(
        basis_inputs.sample,
        basis_inputs.count,
        kernel=basis_inputs.kernel,
        method=basis_inputs.method,
        seed=basis_inputs.seed,
        **seen,
    )


def query_values(basis_inputs: BasisInputs) -> Query:
    """Values of f at query points that are chosen from the sample, with their residual."""
    return prepare(
        query_points(basis_inputs), kernel=basis_inputs.kernel, mean=basis_inputs.mean, residual=basis_inputs.residual
    )


def weights_of(basis: Callable[[BasisInputs], tuple[Basis, np.ndarray | float]]) -> Maker:
    """Return a maker of weights, from a function that returns a basis and prior standard deviations of weights (B,)."""

    def make(basis_inputs: BasisInputs) -> Weights:
        from bcmdist.testing.shared import check_basis  # quick start

        if basis_inputs.places is not None:
            raise InvalidOption(
                "query_from: expected an expert that shares values at query points, got functions of a basis; leave it "
                "out, or take --expert bcm"
            )
        functions, scale = basis(basis_inputs)
        check_basis(functions, basis_inputs.sample[:CHECKED_ROWS], scale)
        scale = np.broadcast_to(np.asarray(scale, dtype=float), functions.functions).copy()
        return Weights(functions, scale, basis_inputs.kernel, basis_inputs.mean, basis_inputs.residual)

    return make


register_expert(FIRST, query_values, residual="block", capabilities=Capabilities(climbs="block", local=True))
MOVED = Defaults(objective="committee", query_method="optimised")  # few points represent all of f: they are learned
register_expert("fitc", query_values, residual="diagonal", capabilities=Capabilities(climbs="diagonal"), defaults=MOVED)
register_expert("sor", query_values, residual="none", capabilities=Capabilities(climbs="none"), defaults=MOVED)
register_expert("rrgp_star", query_values, residual="augmented", capabilities=Capabilities(climbs="none"))

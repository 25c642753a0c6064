"""The interface of a method: what experts share, how it is trained, and what it can be combined with.

A method is registered under the name by which users choose it (`bcmdist.learning.experts`); those in folders of their
own are in `bcmdist.methods`. Everything that can be said as data is data; `shared` is the one hook that each has.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.training_context import TrainingContext
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.interface import Shared

COMMITTEE = "committee"  # the predictor from the committee's posterior alone
ROWS = 1000  # of a partition: an expert's time grows with their cube


@dataclass(frozen=True)
class Capabilities:
    """What a method can be combined with; an empty tuple stands for anything."""

    kernels: tuple[str, ...] = ()
    likelihoods: tuple[str, ...] = ()
    query_methods: tuple[str, ...] = ()
    query_from: bool = True
    """inputs at which predictions will be needed, for choosing query points"""
    mean: bool = True
    """a prior mean other than zero"""
    running: bool = True
    """rows that are linearised under the posterior so far"""
    local: bool = False
    """local predictions, from the rows around a new point (`--partition spatial`)"""
    climbs: str = ""
    """residual of the committee about the same query points whose evidence can be maximised for it, if any"""
    planned: bool = True
    """`--plan`: its work is products of matrices, whose rates are measured"""


@dataclass(frozen=True)
class Defaults:
    """What stands for options that are not given."""

    kernel: str = "auto"
    classes: str = "onehot"
    """likelihood of more than two classes"""
    predictor: str = COMMITTEE
    """by which new points are predicted (`bcmdist.prediction.predictors`)"""
    rows: int = ROWS
    """of a partition, about"""
    cell_rows: int = ROWS
    """of a partition in the order of cells, about"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """of options that are None"""


@dataclass(frozen=True)
class Training:
    """The rows that shared variables are trained on, after the hyper-parameters and before the first message."""

    rows: int = 0
    """of a uniform sample, at most; 0 for all rows of the data"""
    block: int = 0
    """rows of a partition of the sample"""
    memorises: bool = False
    """trained rows, left out of the messages alone, are predicted better than new rows are"""


@dataclass(frozen=True)
class Cost:
    """What a fit costs more than by query points, for `--plan` (`Method.cost`)."""

    models: int = 1
    """that are fitted side by side"""
    messages: float = 0.0
    """of as many rows that take as long as training one of them"""


class Method(ABC):
    """A method as users choose it by `--expert`.

    Parameters
    ----------
    name : under which it is registered
    """

    residual: str
    """a name of `bcmdist.experts.residual`"""
    options: tuple[str, ...] = ()
    """fields of `Settings` that are refused with methods which do not read them"""
    size: str = "query"
    """option that determines the number of shared variables"""
    capabilities: Capabilities = Capabilities()
    defaults: Defaults = Defaults()
    training: ClassVar[Training | None] = None
    """None where nothing is trained"""

    def __init__(self, name: str):
        self.name = name

    @abstractmethod
    def shared(self, known: BasisInputs) -> Shared:
        """The shared variables of a fit, before they are trained."""

    def train(self, shared: Any, likelihood: Any, context: TrainingContext) -> tuple[Shared, Likelihood]:
        """Shared variables and likelihood at which the evidence of the rows is higher."""
        return shared, likelihood

    def refuse(self, settings, likelihood: Likelihood | None) -> None:  # noqa: B027  (most refuse nothing more)
        """Raise `InvalidOption` for settings that it cannot be combined with, beyond its capabilities.

        Parameters
        ----------
        likelihood : None where it is not known yet
        """

    def refuse_data(self, settings, kernel: str, inputs: int, rows: int) -> None:  # noqa: B027  (as above)
        """Raise `InvalidOption` for what it cannot do with a kernel's expression and data of that shape."""

    def represents(self, kernel: Kernel, low: np.ndarray, high: np.ndarray, settings) -> bool:
        """Whether shared variables can represent a kernel for scaled inputs between `low` and `high`, (D,) each."""
        return True

    def candidates(self, settings) -> int:
        """Rows from which shared variables are made, where they are more than as many."""
        return 0

    def cost(self, settings, rows: int) -> Cost:
        """What training on so many rows takes."""
        return Cost()


def option_values(method: Method, settings) -> dict[str, Any]:
    """The options of a method, by name, with defaults in place of None."""
    return {name: option_value(method, settings, name) for name in method.options}


def option_value(method: Method, settings, name: str) -> Any:
    """A field of the settings, or the method's default where it is None."""
    value = getattr(settings, name)
    return method.defaults.options.get(name) if value is None else value


def sample_rows(method: Method, settings) -> int:
    """Rows of a uniform sample that a method needs, at most."""
    trained = method.training.rows if method.training and settings.learn else 0
    return max(method.candidates(settings), trained)


def left_out_errors(method: Method, settings) -> bool:
    """Whether rows that are left out of the messages show how large the errors of predictions will be."""
    return method.defaults.predictor == COMMITTEE and not (
        settings.learn and method.training and method.training.memorises
    )


def first_mean_of(method: Method) -> str:
    """The prior mean that stands for "auto" until it is decided."""
    return "constant" if method.capabilities.mean else "zero"

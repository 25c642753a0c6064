"""The interface of a method: what its experts share, how it is trained, and what it can be combined with.

A method is registered under the name by which users choose it (`bcmdist.learning.experts`); methods with folders of
their own are in `bcmdist.methods`. Attributes are data where possible; `shared` is the only hook that each must have.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bcmdist.committee.record import Record
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.method_options import NoOptions
from bcmdist.learning.point import Point
from bcmdist.learning.rules import OBJECTIVE, QUERY_METHOD, Rule
from bcmdist.learning.training_context import TrainingContext
from bcmdist.model.input_errors import InputErrors
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.interface import Shared

COMMITTEE = "committee"  # the predictor that uses only the committee's posterior
ROWS = 1000  # default rows of a partition: an expert's time grows with their cube


@dataclass(frozen=True)
class Capabilities:
    """What a method can be combined with; an empty tuple means everything."""

    kernels: tuple[str, ...] = ()
    likelihoods: tuple[str, ...] = ()
    query_methods: tuple[str, ...] = ()
    query_from: bool = True
    """inputs of future predictions, for choosing query points"""
    mean: bool = True
    """a prior mean other than zero"""
    running: bool = True
    """linearisation of rows at the posterior so far (`--linearise running`)"""
    local: bool = False
    """local predictions from the rows around a new point (`--partition spatial`)"""
    sums: bool = True
    """kernels with terms of some columns, which `--kernel auto` tries, too"""
    climbs: str = ""
    """residual of the committee, with the same query points, whose evidence refines the hyper-parameters; "": none"""
    input_errors: bool = False
    """training inputs with measurement errors (array X_variance), whose sizes `learn_input_errors` returns"""
    target_variance: bool = True
    """known error variances of single targets (array target_variance); without, training needs one noise for all"""


@dataclass(frozen=True)
class Defaults:
    """Defaults of options that are not given."""

    kernel: str = "auto"
    classes: str = "onehot"
    """likelihood for more than two classes"""
    predictor: str = COMMITTEE
    """name of the predictor (`bcmdist.prediction.predictive_model`)"""
    rows: int = ROWS
    """approximate rows of a partition"""
    cell_rows: int = ROWS
    """approximate rows of a partition in the order of cells"""
    query: int | None = None
    """number of query points, where it is not that of all methods"""
    objective: str = OBJECTIVE
    """what hyper-parameters maximise, where these are learned and the likelihood allows for it"""
    query_method: str = QUERY_METHOD
    """how query points are chosen with this objective"""


@dataclass(frozen=True)
class Training:
    """Rows on which shared variables are trained, after learning hyper-parameters and before the first message."""

    rows: int = 0
    """maximum rows of a uniform sample, unless an option of the method says otherwise; 0 for all rows of the data"""
    block: int = 0
    """rows per partition of the sample"""
    memorises: bool = False
    """whether trained rows, even left out of the messages, are predicted better than new rows"""


class Method(ABC):
    """A method that users choose by `--expert`.

    Parameters
    ----------
    name : name under which the method is registered
    """

    residual: str
    """a name of `bcmdist.experts.residual`"""
    options: type = NoOptions
    """dataclass of the options that only this method reads (`bcmdist.learning.method_options`)"""
    size: str = "query"
    """option that determines the number of shared variables"""
    capabilities: Capabilities = Capabilities()
    defaults: Defaults = Defaults()
    report: ClassVar[tuple[str, type[Record]] | None] = None
    """name and type of what training adds to `TrainingContext.found`: stored with the model, checked when loaded"""
    rules: tuple[Rule, ...] = ()
    """what its options, or the settings of all fits, cannot be combined with, beyond its capabilities"""
    training: ClassVar[Training | None] = None
    """None if nothing is trained"""

    def __init__(self, name: str):
        self.name = name

    @abstractmethod
    def shared(self, basis_inputs: BasisInputs) -> Shared:
        """Make the shared variables of a fit, before training."""

    def train(self, shared: Any, likelihood: Any, context: TrainingContext) -> tuple[Shared, Likelihood]:
        """Train shared variables and likelihood on rows; by default return them unchanged."""
        return shared, likelihood

    def needs_variances(self, settings) -> bool:
        """Whether data without variances of the errors of inputs are refused."""
        return False

    def learn_input_errors(
        self, start: Point, context: TrainingContext, mean: str, settings
    ) -> tuple[Point, InputErrors | None]:
        """Learn hyper-parameters that account for errors of inputs, and these errors; by default there are none.

        Parameters
        ----------
        start : hyper-parameters learned as if inputs were exact
        mean : name of the prior mean
        """
        return start, None

    def refuse(self, settings, likelihood: Likelihood | None) -> None:  # noqa: B027  (most refuse nothing more)
        """Raise `InvalidOption` for settings that the method does not support, beyond its capabilities and rules.

        Parameters
        ----------
        likelihood : None if it is not known yet
        """

    def refuse_data(self, settings, kernel: str, inputs: int, rows: int) -> None:  # noqa: B027  (as above)
        """Raise `InvalidOption` for a kernel's expression and data of this shape that the method does not support."""

    def represents(self, kernel: Kernel, low: np.ndarray, high: np.ndarray, settings) -> bool:
        """Whether shared variables can represent a kernel for scaled inputs between `low` and `high`, (D,) each."""
        return True

    def count(self, settings) -> int | None:
        """Return the number of query points or functions where `--query` is not given; None for that of all methods."""
        return self.defaults.query

    def candidates(self, settings) -> int:
        """Sampled rows from which shared variables are made, if more than there are shared variables; else 0."""
        return 0

    def trained_rows(self, settings) -> int:
        """Maximum number of rows on which shared variables are trained, `--train-rows` where it is given; 0 for all
        rows, and without training.
        """
        return settings.options.get("train_rows") or (self.training.rows if self.training else 0)

    def training_rounds(self, settings, rows: int, measured: int) -> float | None:
        """Estimate the time of training on `rows` rows in units of one round on `measured` rows, for `--plan`.

        A round is a sequence of different sums over rows, which training repeats. None if there are no such rounds:
        the whole training is measured then. 0 if nothing is trained with these settings.
        """
        return None

    def trains_in_tasks(self, settings, rows: int, inputs: int) -> bool:
        """Whether training is one round of tasks, each of which repeats the measured round over all rows."""
        return False


def sample_rows(method: Method, settings) -> int:
    """Rows of the uniform sample that a method needs at most."""
    trained = method.trained_rows(settings) if settings.learn else 0
    return max(method.candidates(settings), trained)


def left_out_errors(method: Method, settings) -> bool:
    """Whether the errors at rows left out of the messages estimate prediction errors.

    They do not where rows are memorised in training, or inputs are moved to fit their targets.
    """
    memorised = settings.learn and method.training and method.training.memorises
    return method.defaults.predictor == COMMITTEE and not method.capabilities.input_errors and not memorised


def first_mean_of(method: Method) -> str:
    """The prior mean for "auto" until it is chosen."""
    return "constant" if method.capabilities.mean else "zero"

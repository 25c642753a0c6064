"""The prepared model: everything fixed before the first message is computed.

Scaling, shared variables with their prior, and likelihood. The model is committed before experts run; workers load it
by reference. Two committees can be added if and only if their models are equal.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import msgspec
from zict import LRU

from bcmdist.data.cell_tree import CellTree
from bcmdist.data.dataset import Dataset
from bcmdist.data.registry import Registry
from bcmdist.data.schema import UNNAMED, Schema
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.input_errors import InputErrors
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.query_sets import EarlierQuery, Lift, QuerySets
from bcmdist.model.scaling import Scaling
from bcmdist.model.shared.interface import Arrays, Shared
from bcmdist.model.shared.query import Query
from bcmdist.model.shared.weights import Weights
from bcmdist.storage.cache import get_or_make, least_recently_used

KINDS: Registry[type[Shared]] = Registry("kind of shared variables")
KINDS.add(Query.kind, Query)
KINDS.add(Weights.kind, Weights)
# Models stored before these fields existed have query values and block residuals.
FIRST_KIND, FIRST_RESIDUAL = Query.kind, "block"


# Names of the arrays in a commit: the committee's; every model's, besides those of its shared variables; and the cell
# tree's, where partitions are spatial.
COMMITTEE_ARRAYS = ("eta", "precision")
SCALING_ARRAYS = ("x_mean", "x_scale")
WARPING_ARRAY = "x_warp"  # absent where inputs are not warped
FIRST_PRECISION = "double"  # the only precision of early versions; stored models omit it
LIFT_BYTES = 2**26  # memory of the maps to earlier query sets that a model keeps
CELL_ARRAYS = ("cell_direction", "cell_threshold", "cell_child", "cell_first")


@dataclass(frozen=True)
class Model:
    """Scaling, shared variables (with kernel and mean) and likelihood."""

    scaling: Scaling
    shared: Shared
    likelihood: Likelihood
    kernel_name: str
    """the expression that `parse_kernel` reads"""
    x_name: str
    y_name: str
    classes: tuple[float, ...] | None = None
    """class labels, ascending, where targets are classes that the likelihood numbers 0 to C - 1"""
    cells: CellTree | None = None
    """tree of cells of scaled inputs, where partitions are spatial"""
    schema: Schema = UNNAMED
    """names of the inputs and classes in the training data, where it has names"""
    precision: str = FIRST_PRECISION
    """floating-point precision of the experts: a name of `bcmdist.experts.precision`"""
    input_errors: InputErrors | None = None
    """measurement errors of the training inputs; None where inputs are exact"""
    earlier: QuerySets = field(default_factory=QuerySets)
    """query sets through which some partitions were absorbed before `shared` replaced them"""

    @property
    def class_labels(self) -> tuple[str, ...] | tuple[int, ...]:
        """Class names of the training data, or class numbers where it has none, in the order of the probabilities."""
        numbers = tuple(map(int, self.classes or (0, 1)))
        return tuple(self.schema.classes[k] for k in numbers) if self.schema.classes else numbers

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs that rows observe, in the order of their numbers; () where there is only one."""
        if self.scaling.outputs is None:
            return ()
        prefix, columns = f"{self.schema.output}=", [self.schema.columns[k] for k in self.scaling.outputs.columns]
        return tuple(column.removeprefix(prefix) for column in columns)

    @property
    def normal(self) -> bool:
        """Whether new observations have normal errors in the units of the data, but for the learned shape of errors."""
        return self.likelihood.normal and self.scaling.transform is None

    @property
    def error_name(self) -> str:
        """The likelihood, and the transform of targets if there is one, in words."""
        transform = self.scaling.transform
        return self.likelihood.name + (f" of targets transformed by {transform.kind}" if transform else "")

    def refuse_unknown_errors(self, data: Dataset) -> None:
        """Raise `InvalidData` where training rows lack the input error variances that experts need."""
        if self.input_errors is not None:
            self.input_errors.refuse_unknown(data)

    def refuse_moved_inputs(self, what: str) -> None:
        """Raise `InvalidOption` where experts absorbed rows at inputs other than the stored ones (input errors).

        Parameters
        ----------
        what : the refused operation, for the error
        """
        if self.input_errors is not None:
            raise InvalidOption(
                f"{what}: expected a model of exact inputs, got one whose rows were absorbed at estimated inputs "
                f"(noisy_inputs {self.input_errors.way}); score rows that were not absorbed, or fit without "
                "--noisy-inputs"
            )

    def through(self, number: int | None) -> "Model":
        """The model with the query set of this number, through which a partition was absorbed; None: the present."""
        if number is None or number == len(self.earlier):
            return self
        return replace(self, shared=self.earlier.query(number, cast(Query, self.shared)), earlier=QuerySets())

    def lift(self, number: int | None) -> Lift | None:
        """The map from the present shared variables to those of that query set; None where they are the same."""
        if number is None or number == len(self.earlier):
            return None
        return get_or_make(self._lifts, number, lambda: self.earlier.lift(number, cast(Query, self.shared)))

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the cache of lifts."""
        return {name: value for name, value in self.__dict__.items() if name != "_lifts"}

    @cached_property
    def _lifts(self) -> LRU[Hashable, Lift]:
        return least_recently_used(LIFT_BYTES, lambda lift: lift.matrix.nbytes)

    def grown(self, query: Query) -> "Model":
        """The model with a query set that begins with the present one, through which partitions stay absorbed."""
        number = len(self.earlier)
        sets = [replace(one, into=number if one.into is None else one.into) for one in self.earlier]
        return replace(self, shared=query, earlier=QuerySets([*sets, EarlierQuery(self.shared.functions, None)]))

    def reduced(self, query: Query, absorbed: Iterable[int]) -> "Model":
        """The model with a query set that lacks some of the present points (`Lift`).

        absorbed : numbers of the query sets through which partitions were absorbed; the points of others are dropped
        """
        number, present = len(self.earlier), cast(Query, self.shared)
        sets = [replace(one, into=number if one.into is None else one.into) for one in self.earlier]
        made = QuerySets([*sets, EarlierQuery(present.functions, None, stored=present)])
        return replace(self, shared=query, earlier=made.of(absorbed))

    @property
    def inputs(self) -> int:
        """Number D of input columns."""
        return self.shared.inputs

    @property
    def query(self) -> Query:
        """The query set, for a committee of Gaussian processes (the expert "bcm").

        Raises
        ------
        InvalidOption
            The shared variables are of another kind, or experts use another residual.
        """
        if (self.shared.kind, self.shared.residual) != (FIRST_KIND, FIRST_RESIDUAL):
            raise InvalidOption(
                f"model: expected values at query points as shared variables and {FIRST_RESIDUAL} residuals, as of the "
                f"expert bcm, got {self.shared.kind} and {self.shared.residual}; fit with the expert bcm for this"
            )
        return cast(Query, self.shared)

    def to_arrays(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and JSON-ready facts from which `loading.sound_model` restores the same model, bit for bit."""
        arrays, own = self.shared.to_arrays()
        arrays = arrays | {"x_mean": self.scaling.x_mean, "x_scale": self.scaling.x_scale}
        if self.scaling.warping:
            arrays[WARPING_ARRAY] = self.scaling.warping.to_array()
        if self.cells is not None:
            tree = (self.cells.direction, self.cells.threshold, self.cells.child, self.cells.first)
            arrays |= dict(zip(CELL_ARRAYS, tree, strict=True))
        facts = described(self.shared.kernel, self.likelihood) | {
            "kernel": self.kernel_name,
            "mean": self.shared.mean.name,
            "jitter": self.shared.jitter,
            "shared": self.shared.kind,
            "residual": self.shared.residual,
            "y_mean": self.scaling.y_mean,
            "y_scale": self.scaling.y_scale,
            "x": self.x_name,
            "y": self.y_name,
            "classes": self.classes,
            "columns": self.schema.columns,
            "class_names": self.schema.classes,
        }
        if self.schema.coding:
            facts["coding"] = self.schema.coding.to_json()
        if self.scaling.transform:
            facts["transform"] = msgspec.to_builtins(self.scaling.transform)
        if self.scaling.outputs:
            facts["outputs"] = msgspec.to_builtins(self.scaling.outputs)
        if self.precision != FIRST_PRECISION:
            facts["precision"] = self.precision
        if self.input_errors is not None:
            facts["input_errors"] = msgspec.to_builtins(self.input_errors)
        if self.earlier:
            more, facts["earlier"] = self.earlier.to_arrays()
            arrays |= more
        return arrays, facts | own


def described(kernel: Kernel, likelihood: Likelihood) -> dict[str, Any]:
    """Names and natural parameters of a kernel and a likelihood, JSON-ready, as in every stored or reported form."""
    return {
        "kernel": kernel.expression,
        "kernel_parameters": {name: value.tolist() for name, value in kernel.parameters.items()},
        "likelihood": likelihood.name,
        "likelihood_parameters": {name: value.tolist() for name, value in likelihood.parameters.items()},
    }


def named_parameters(kernel: Kernel, likelihood: Likelihood) -> dict[str, FloatArray]:
    """All natural parameters under the names used by `--set` and `info`."""
    named = {f"kernel.{n}": v for n, v in kernel.parameters.items()}
    return named | {f"likelihood.{n}": v for n, v in likelihood.parameters.items()}


def with_named(kernel: Kernel, likelihood: Likelihood, values: dict[str, FloatArray]) -> tuple[Kernel, Likelihood]:
    """Kernel and likelihood with the natural parameters `values`, named as in `named_parameters`."""

    def under(prefix: str) -> dict[str, FloatArray]:
        return {n.removeprefix(prefix): v for n, v in values.items() if n.startswith(prefix)}

    return kernel.with_parameters(under("kernel.")), likelihood.with_parameters(under("likelihood."))

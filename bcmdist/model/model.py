"""The prepared model: all that is settled before the first message is computed.

Scaling, prior and query set, and likelihood. It is committed before experts run; workers load it
by reference. Two committees can be added exactly where their models are equal.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np

from bcmdist.data.cell_tree import CellTree
from bcmdist.data.schema import UNNAMED, Schema
from bcmdist.data.tables.coding import from_json
from bcmdist.errors import InvalidOption
from bcmdist.model.input_errors import INPUT_ERRORS, InputErrors
from bcmdist.model.kernels import Kernel, parse_kernel
from bcmdist.model.likelihoods import Likelihood, make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.scaling import Scaling
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.kinds import FIRST_KIND, FIRST_RESIDUAL, KINDS
from bcmdist.model.shared.query import Query

# Arrays of a commit that are not of its model; those of any model, beside its shared variables; and where there are
# cells.
COMMITTEE_ARRAYS = ("eta", "precision")
SCALING_ARRAYS = ("x_mean", "x_scale")
FIRST_PRECISION = "double"  # the only one once, which models do not note
CELL_ARRAYS = ("cell_direction", "cell_threshold", "cell_child", "cell_first")


@dataclass(frozen=True)
class Model:
    """Scaling, shared variables (with kernel and mean) and likelihood."""

    scaling: Scaling
    shared: Shared
    likelihood: Likelihood
    kernel_name: str
    """the expression `parse_kernel` reads"""
    x_name: str
    y_name: str
    classes: tuple[float, ...] | None = None
    """labels of the classes, ascending, where the targets are classes that the likelihood numbers"""
    cells: CellTree | None = None
    """of scaled inputs, where partitions are spatial"""
    schema: Schema = UNNAMED
    """names of the inputs and of the classes in the training data, where they had names"""
    precision: str = FIRST_PRECISION
    """in which experts compute: a name of `bcmdist.experts.precision`"""
    input_errors: InputErrors | None = None
    """measurement errors of the inputs of training rows; None where inputs are exact"""

    @property
    def class_labels(self) -> tuple[str, ...] | tuple[int, ...]:
        """What the classes are called in the training data, in the order of their probabilities."""
        numbers = tuple(map(int, self.classes or (0, 1)))
        return tuple(self.schema.classes[k] for k in numbers) if self.schema.classes else numbers

    def refuse_unknown_errors(self, data) -> None:
        """Raise `InvalidData` where training rows lack the error variances of their inputs that experts need."""
        if self.input_errors is not None:
            self.input_errors.refuse_unknown(data)

    def refuse_moved_inputs(self, what: str) -> None:
        """Raise `InvalidOption` where experts have averaged over inputs other than the stored ones."""
        if self.input_errors is not None:
            raise InvalidOption(
                f"{what}: expected a model of inputs as they were seen, this one has absorbed its rows elsewhere "
                f"(noisy_inputs {self.input_errors.way}); score rows that were not absorbed, or fit without "
                "--noisy-inputs"
            )

    @property
    def inputs(self) -> int:
        """Number D of input columns."""
        return self.shared.inputs

    @property
    def query(self) -> Query:
        """The query set, of a committee of Gaussian processes (the expert "bcm").

        Raises
        ------
        InvalidOption
            Experts share something else, or do something else with the rest.
        """
        if (self.shared.kind, self.shared.residual) != (FIRST_KIND, FIRST_RESIDUAL):
            raise InvalidOption(
                f"model: expected values at query points as shared variables and {FIRST_RESIDUAL} residuals, as of the "
                f"expert bcm, got {self.shared.kind} and {self.shared.residual}; fit with the expert bcm for this"
            )
        return cast(Query, self.shared)

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict]:
        """Arrays and JSON-ready facts from which `from_arrays` makes the same model, bit for bit."""
        arrays, own = self.shared.to_arrays()
        arrays = arrays | {"x_mean": self.scaling.x_mean, "x_scale": self.scaling.x_scale}
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
        if self.precision != FIRST_PRECISION:
            facts["precision"] = self.precision
        if self.input_errors is not None:
            facts["input_errors"] = self.input_errors.to_json()
        return arrays, facts | own


def from_arrays(arrays, facts) -> Model:
    """The model that `to_arrays` described."""
    kernel = kernel_from(facts["kernel"], facts["kernel_parameters"], inputs=len(arrays["x_mean"]))
    kind, residual = KINDS[facts.get("shared", FIRST_KIND)], facts.get("residual", FIRST_RESIDUAL)
    shared = kind.from_arrays(arrays, facts, kernel, Mean(facts["mean"]), residual)
    classes = facts.get("classes")
    return Model(
        Scaling(arrays["x_mean"], arrays["x_scale"], facts["y_mean"], facts["y_scale"]),
        shared,
        likelihood_from(facts["likelihood"], facts["likelihood_parameters"], classes),
        facts["kernel"],
        facts["x"],
        facts["y"],
        classes and tuple(classes),
        CellTree(*(arrays[name] for name in CELL_ARRAYS)) if CELL_ARRAYS[0] in arrays else None,
        _schema(facts),
        facts.get("precision", FIRST_PRECISION),
        _input_errors(facts.get("input_errors")),
    )


def _input_errors(stored):
    return None if stored is None else INPUT_ERRORS[stored["way"]].from_json(stored)


def _schema(facts):
    coding = facts.get("coding")
    return Schema(facts.get("columns", ()), facts.get("class_names", ()), coding and from_json(coding, "model"))


def described(kernel: Kernel, likelihood: Likelihood) -> dict:
    """Names and natural parameters, JSON-ready: how a kernel and a likelihood are written, wherever they are."""
    return {
        "kernel": kernel.expression,
        "kernel_parameters": {name: value.tolist() for name, value in kernel.parameters.items()},
        "likelihood": likelihood.name,
        "likelihood_parameters": {name: value.tolist() for name, value in likelihood.parameters.items()},
    }


def kernel_from(expression, parameters, *, inputs) -> Kernel:
    """Kernel of an expression at given natural parameters."""
    return parse_kernel(expression, inputs=inputs).with_parameters(_vectors(parameters))


def likelihood_from(name, parameters, classes=None) -> Likelihood:
    """Likelihood of a name at given natural parameters, for given class labels."""
    return make_likelihood(name, classes and len(classes)).with_parameters(_vectors(parameters))


def _vectors(parameters):
    return {name: np.array(value, dtype=float) for name, value in parameters.items()}


def named_parameters(kernel: Kernel, likelihood: Likelihood) -> dict[str, np.ndarray]:
    """All natural parameters under the names of `--set` and `info`."""
    named = {f"kernel.{n}": v for n, v in kernel.parameters.items()}
    return named | {f"likelihood.{n}": v for n, v in likelihood.parameters.items()}


def with_named(kernel: Kernel, likelihood: Likelihood, values: dict[str, np.ndarray]) -> tuple[Kernel, Likelihood]:
    """Kernel and likelihood at the natural parameters that `named_parameters` would show."""

    def own(prefix):
        return {n.removeprefix(prefix): v for n, v in values.items() if n.startswith(prefix)}

    return kernel.with_parameters(own("kernel.")), likelihood.with_parameters(own("likelihood."))

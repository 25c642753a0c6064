"""ONNX graphs under construction: operators, constants, and arrays that are computed like those of numpy.

`Graph` collects ONNX operators. `Value` is an array in a graph, with arithmetic operators, so that kernels and the
design of query points read like the equations of `bcmdist.model`. All numbers are doubles. Needs the package onnx (the
extra `onnx`), which no other module imports.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.errors import MissingExtra
from bcmdist.linalg.arrays import IntArray

# Versions of operators and file format, from 2022: readable by current runtimes and by those of five years ago.
OPSET, IR_VERSION = 17, 8
INPUT = "X"
Operand: TypeAlias = "Value | ArrayLike"
"""an intermediate value of a graph, or a constant"""


def _onnx() -> Any:
    try:
        import onnx  # optional
    except ImportError as error:
        raise MissingExtra(
            "to_onnx: expected the package onnx, which is not installed; pip install 'bcmdist[onnx]'"
        ) from error
    return onnx


class Graph:
    """An ONNX graph under construction: nodes and constants in order of creation; its only input is X (n, D)."""

    def __init__(self, inputs: int) -> None:
        self.onnx, self.inputs = _onnx(), inputs
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    @property
    def rows(self) -> "Value":
        """The input X (n, D)."""
        return Value(self, INPUT)

    def constant(self, array: ArrayLike) -> "Value":
        """Add a constant array: int64 (shapes, indices) as it is, else converted to double."""
        array = np.asarray(array)
        array = array if array.dtype == np.int64 else array.astype(float)
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return Value(self, name)

    def apply(self, operator: str, *inputs: Operand, name: str | None = None, **attributes: Any) -> "Value":
        """Add a node that applies an ONNX operator to values and constants. Return its output."""
        named = [one if isinstance(one, Value) else self.constant(one) for one in inputs]
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, [one.name for one in named], [name], **attributes))
        return Value(self, name)

    def model(self, outputs: Mapping[str, "Value"], facts: Mapping[str, str], producer: tuple[str, str]) -> bytes:
        """Return the model file's contents. `outputs` (n,) and metadata `facts` by name; `producer`: name, version."""
        helper, double = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        for name, value in outputs.items():
            self.apply("Identity", value, name=name)
        graph = helper.make_graph(
            self.nodes,
            "bcmdist",
            [helper.make_tensor_value_info(INPUT, double, ["n", self.inputs])],
            [helper.make_tensor_value_info(name, double, ["n"]) for name in outputs],
            self.constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        fields = {"producer_name": producer[0], "producer_version": producer[1], "ir_version": IR_VERSION}
        made = helper.make_model(graph, opset_imports=opsets, **fields)
        helper.set_model_props(made, dict(facts))
        self.onnx.checker.check_model(made, full_check=True)
        contents: bytes = made.SerializeToString()
        return contents


@dataclass(frozen=True)
class Value:
    """An array computed by a graph."""

    graph: Graph
    name: str

    def __add__(self, other: Operand) -> "Value":
        return self.graph.apply("Add", self, other)

    def __sub__(self, other: Operand) -> "Value":
        return self.graph.apply("Sub", self, other)

    def __mul__(self, other: Operand) -> "Value":
        return self.graph.apply("Mul", self, other)

    def __truediv__(self, other: Operand) -> "Value":
        return self.graph.apply("Div", self, other)

    def __matmul__(self, other: Operand) -> "Value":
        return self.graph.apply("MatMul", self, other)

    __radd__, __rmul__ = __add__, __mul__

    def exp(self) -> "Value":
        return self.graph.apply("Exp", self)

    def log(self) -> "Value":
        return self.graph.apply("Log", self)

    def sqrt(self) -> "Value":
        return self.graph.apply("Sqrt", self)

    def power(self, exponent: float) -> "Value":
        return self.graph.apply("Pow", self, exponent)

    def clip(self, low: Operand, high: Operand) -> "Value":
        return self.graph.apply("Min", self.graph.apply("Max", self, low), high)

    def column(self, d: Sequence[int] | IntArray) -> "Value":
        """(n, D) -> (n, k), the columns with numbers d."""
        return self.graph.apply("Gather", self, np.array(d), axis=1)

    def columns(self) -> "Value":
        """(n,) -> (n, 1)."""
        return self.graph.apply("Unsqueeze", self, np.array([1]))

    def concat_columns(self, *others: "Value") -> "Value":
        """(n, K) each -> (n, sum of K)."""
        return self.graph.apply("Concat", self, *others, axis=1)

    def sum_of_rows(self) -> "Value":
        """(n, K) -> (n,)."""
        return self.graph.apply("ReduceSum", self, np.array([1]), keepdims=0)

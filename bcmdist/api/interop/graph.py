"""A graph of ONNX operators that is written as arithmetic: `Value` has the operators of an array.

All numbers are doubles. The package onnx is needed (the extra `onnx`), and imported nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.errors import MissingExtra

# Of operators and of files: of 2022, which today's run-times and those of five years ago read.
OPSET, IR_VERSION = 17, 8
INPUT = "X"


def _onnx() -> Any:
    try:
        import onnx  # optional
    except ImportError as error:
        raise MissingExtra(
            "to_onnx: expected the package onnx, which is not installed; pip install 'bcmdist[onnx]'"
        ) from error
    return onnx


class Graph:
    """Nodes and constants, in the order in which they are made; one input, the rows X (n, D)."""

    def __init__(self, inputs: int):
        self.onnx, self.inputs = _onnx(), inputs
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    @property
    def rows(self) -> "Value":
        """X (n, D)."""
        return Value(self, INPUT)

    def constant(self, array) -> "Value":
        """An array of doubles, or of whole numbers as shapes and places are."""
        array = np.asarray(array)
        array = array if array.dtype == np.int64 else array.astype(float)
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return Value(self, name)

    def apply(self, operator: str, *inputs, name: str | None = None, **attributes) -> "Value":
        """What an operator makes of values and constants."""
        named = [one if isinstance(one, Value) else self.constant(one) for one in inputs]
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, [one.name for one in named], [name], **attributes))
        return Value(self, name)

    def model(self, outputs: Mapping[str, "Value"], facts: Mapping[str, str], producer: tuple[str, str]) -> bytes:
        """The file: outputs (n,) by name, and facts by name; `producer`: name and version."""
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
        said = {"producer_name": producer[0], "producer_version": producer[1], "ir_version": IR_VERSION}
        made = helper.make_model(graph, opset_imports=opsets, **said)
        helper.set_model_props(made, dict(facts))
        self.onnx.checker.check_model(made, full_check=True)
        return made.SerializeToString()


@dataclass(frozen=True)
class Value:
    """An array that a graph computes."""

    graph: Graph
    name: str

    def __add__(self, other) -> "Value":
        return self.graph.apply("Add", self, other)

    def __sub__(self, other) -> "Value":
        return self.graph.apply("Sub", self, other)

    def __mul__(self, other) -> "Value":
        return self.graph.apply("Mul", self, other)

    def __truediv__(self, other) -> "Value":
        return self.graph.apply("Div", self, other)

    def __matmul__(self, other) -> "Value":
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

    def clip(self, low: float, high: float) -> "Value":
        return self.graph.apply("Min", self.graph.apply("Max", self, low), high)

    def column(self, d: int) -> "Value":
        """(n, D) -> (n, 1)."""
        return self.graph.apply("Gather", self, np.array([d]), axis=1)

    def columns(self) -> "Value":
        """(n,) -> (n, 1)."""
        return self.graph.apply("Unsqueeze", self, np.array([1]))

    def beside(self, *others) -> "Value":
        """(n, K) each -> (n, sum of K)."""
        return self.graph.apply("Concat", self, *others, axis=1)

    def sum_of_rows(self) -> "Value":
        """(n, K) -> (n,)."""
        return self.graph.apply("ReduceSum", self, np.array([1]), keepdims=0)

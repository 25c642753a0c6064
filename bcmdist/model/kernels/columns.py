"""A kernel on some columns of the inputs; other columns do not change it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import BoolArray, FloatArray, IntArray
from bcmdist.model.kernels.basis import Constant
from bcmdist.model.kernels.expected import Form
from bcmdist.model.kernels.grammar import LEARNED
from bcmdist.model.kernels.interface import Bounds, Kernel, Leaf, Pullback


@dataclass(frozen=True)
class OnColumns(Kernel):
    """`kernel(x[columns], z[columns])`, with some of its parameters fixed."""

    kernel: Leaf
    columns: tuple[int, ...]
    """numbers of the inputs, ascending or not, each once"""
    fixed: tuple[str, ...] = ()
    """names of parameters that are no hyper-parameters: learning does not change them"""

    @property
    def expression(self) -> str:
        learned = {name: LEARNED * (name not in self.fixed) for name in self.kernel.options}
        shown = [f"{name}={mark}{float(self.kernel.parameters[name][0])!r}" for name, mark in learned.items()]
        shown += [f"{name}={count}" for name, count in self.kernel.counted.items()]
        return f"{self.kernel.name}({', '.join([*map(str, self.columns), *shown])})"

    @property
    def label(self) -> str:
        return f"{self.kernel.name}({', '.join(map(str, self.columns))})"

    @property
    def leaves(self) -> "tuple[Kernel, ...]":
        return (self,)

    @property
    def parameters(self) -> dict[str, FloatArray]:
        return {name: value for name, value in self.kernel.parameters.items() if name not in self.fixed}

    def with_parameters(self, values: Mapping[str, FloatArray]) -> Self:
        return self._with(self.kernel.with_parameters(values))

    @property
    def bounds(self) -> dict[str, Bounds]:
        return dict(self.kernel.bounds)

    def lengthscale_columns(self, inputs: int) -> dict[str, IntArray]:
        return dict.fromkeys(self.kernel.lengthscales, np.array(self.columns))

    def along(self, d: int) -> Kernel:
        if d in self.columns:
            return self.kernel.along(self.columns.index(d))
        return Constant(self.kernel.diagonal(np.zeros((1, len(self.columns)))))

    def level_columns(self, inputs: int) -> IntArray:
        return np.array(self.columns, dtype=int)[self.kernel.level_columns(len(self.columns))]

    def output_columns(self, inputs: int) -> IntArray:
        return np.array(self.columns, dtype=int)[self.kernel.output_columns(len(self.columns))]

    def covered(self, inputs: int) -> BoolArray:
        return np.isin(np.arange(inputs), self.columns)

    def metric(self, inputs: int) -> FloatArray | None:
        own = self.kernel.metric(len(self.columns))
        if own is None:
            return None
        lengths = np.full(inputs, np.inf)
        lengths[list(self.columns)] = own
        return lengths

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        return self.kernel.cross(self._of(X), self._of(Z))

    def diagonal(self, X: FloatArray) -> FloatArray:
        return self.kernel.diagonal(self._of(X))

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        K, whole = self.kernel.cross_and_pullback(self._of(X), self._of(Z))
        free = np.repeat(
            [name not in self.fixed for name in self.kernel.parameters],
            [len(value) for value in self.kernel.parameters.values()],
        )
        return K, lambda G: whole(G)[free]

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        gradient = np.zeros_like(Z)
        gradient[:, list(self.columns)] = self.kernel.input_gradient(self._of(X), self._of(Z), G)
        return gradient

    def isotropic(self) -> Self:
        return self._with(self.kernel.isotropic())

    def spectral_density(self, W: FloatArray) -> FloatArray:
        if not self.covered(W.shape[1]).all():
            raise InvalidOption(
                f"kernel: expected terms of all {W.shape[1]} columns for a spectral density, got {self.expression}, "
                "which is constant along the others; multiply it by kernels of these, or take --expert bcm"
            )
        return self.kernel.spectral_density(self._of(W))

    def random_frequencies(self, rng: np.random.Generator, count: int, inputs: int) -> FloatArray:
        W = np.zeros((count, inputs))
        W[:, list(self.columns)] = self.kernel.random_frequencies(rng, count, len(self.columns))
        return W

    def random_function(self, rng: np.random.Generator, count: int, inputs: int) -> Callable[[FloatArray], FloatArray]:
        function = self.kernel.random_function(rng, count, len(self.columns))
        return lambda X: function(self._of(X))

    def forms(self, inputs: int) -> tuple[Form, ...]:
        return tuple(form.on(self.columns, inputs) for form in self.kernel.forms(len(self.columns)))

    def _with(self, kernel: Leaf) -> Self:
        return type(self)(kernel, self.columns, self.fixed)

    def _of(self, X: FloatArray) -> FloatArray:
        return X[:, list(self.columns)]

"""Weights of a finite basis as the shared variables: f(x) = phi(x)' w, with the same functions for all experts.

    w_j = s_j v_j,  v ~ N(0, I),     b_g(x) = s phi(x)

Messages about weights add like any others, and their sum equals that of a centralised regression on all rows (SYSTEMS
I.9): features of a network, a dictionary of relevance vectors, Fourier features, polynomials.

To add a basis, write a class with `features`, its arrays and a name, and call `register_basis`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels.expected import Expected
from bcmdist.model.kernels.interface import Kernel
from bcmdist.model.mean import Mean
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.expected import ExpectedDesign, expected_design
from bcmdist.model.shared.interface import Arrays, Shared
from bcmdist.storage.arrays import check_array, require_arrays
from bcmdist.storage.fields import damaged, decode

SCALE = "weight_scale"
PREFIX = "basis_"


class Basis(ABC):
    """B functions of scaled inputs; an immutable value defined by its arrays."""

    name: ClassVar[str]
    """name in stored models"""
    fewer: ClassVar[str | None] = None
    """why fewer functions than requested suffice, as text that precedes the requested number; None where they do not"""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Number D of input columns."""

    @property
    @abstractmethod
    def functions(self) -> int:
        """Number B of functions."""

    @abstractmethod
    def features(self, X: FloatArray) -> FloatArray:
        """Values of the functions at the rows of X: (n, D) -> (n, B)."""

    @abstractmethod
    def to_arrays(self) -> Arrays:
        """Arrays by name from which `from_arrays` restores the same basis."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Arrays) -> "Basis":
        """Restore a basis from the result of `to_arrays`."""

    def expected(self, u: FloatArray, S: FloatArray) -> Expected:
        """Expectations of the functions (in place of covariances) over a scaled input x ~ N(u, S), (D,) and (D, D).

        Raises
        ------
        InvalidOption
            No closed form is available.
        """
        raise InvalidOption(
            "inputs: expected bumps (rvm) or hidden units (mnn, mnnmix) for exact averages, got the basis "
            f"{self.name}; give --inputs montecarlo or taylor"
        )

    def summary(self, weights: FloatArray) -> dict[str, Any]:
        """Entries for `info` besides the number of functions, JSON-ready, given the posterior mean weights (..., B)."""
        return {}


BASES: Registry[type[Basis]] = Registry("basis")


def register_basis(basis: type[Basis]) -> type[Basis]:
    """Register a basis under its name, so that models with it can be loaded; usable as a decorator.

    Raises
    ------
    InvalidOption
        The name is taken.
    """
    return BASES.add(basis.name, basis)


@dataclass(frozen=True)
class Weights(Shared):
    """Weights of a basis with independent normal priors."""

    kind: ClassVar[str] = "weights"
    noun: ClassVar[str] = "basis functions"
    exhaustive: ClassVar[bool] = False
    basis: Basis
    scale: FloatArray
    """prior standard deviations of the weights, (B,)"""
    kernel: Kernel
    """kernel that the basis approximates; the residual "diagonal" is its variance minus that of the basis"""
    mean: Mean
    residual: str = "none"
    jitter: float = 0.0

    @property
    def fewer(self) -> str | None:
        return self.basis.fewer

    @property
    def inputs(self) -> int:
        return self.basis.inputs

    @property
    def functions(self) -> int:
        return self.basis.functions

    def fill(self, X: FloatArray, V: FloatArray) -> None:
        np.multiply(self.basis.features(X), self.scale, out=V)

    def expected(self, u: FloatArray, S: FloatArray) -> ExpectedDesign:
        moments, s = self.basis.expected(u, S), self.scale
        prior = float(self.kernel.diagonal(u[None])[0])
        covariance = moments.covariance * np.outer(s, s)
        return expected_design(moments.single * s, covariance, moments.with_inputs * s[:, None], prior, self.mean, u, S)

    def summary(self, belief: Belief, original: Callable[[FloatArray], FloatArray]) -> dict[str, Any]:
        return self.basis.summary(self.scale * belief.mean[..., : self.functions])

    def to_arrays(self) -> tuple[dict[str, FloatArray], dict[str, str]]:
        arrays = {f"{PREFIX}{name}": array for name, array in self.basis.to_arrays().items()}
        return arrays | {SCALE: self.scale}, {"basis": self.basis.name}

    @classmethod
    def from_arrays(cls, arrays: Arrays, facts: dict[str, Any], kernel: Kernel, mean: Mean, residual: str) -> "Weights":
        basis = BASES[facts["basis"]].from_arrays(_of_basis(arrays))
        return cls(basis, arrays[SCALE], kernel, mean, residual, facts["jitter"])

    @classmethod
    def check_arrays(cls, arrays: Arrays, facts: dict[str, Any], inputs: int, where: str) -> None:
        decode(str, facts.get("basis"), where, "basis")
        require_arrays(arrays, [SCALE], where)
        for name in [SCALE, *(name for name in arrays if name.startswith(PREFIX))]:
            check_array(arrays[name], where, name, shape=arrays[name].shape, positive=name == SCALE)
        kind = BASES[facts["basis"]]
        try:
            basis = kind.from_arrays(_of_basis(arrays))
            shape = (basis.inputs, basis.functions)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise damaged(where, f"the arrays of the basis {facts['basis']}", str(error)) from error
        if shape != (inputs, arrays[SCALE].size):
            found = f"{shape[1]} functions of {shape[0]} inputs and {arrays[SCALE].size} scales"
            raise damaged(where, f"a basis of {inputs} inputs and a scale for each function", found)

    def check(self, where: str) -> None:
        design = self.design(np.zeros((1, self.inputs)))
        if design.shape != (1, self.size) or not np.all(np.isfinite(design)):
            raise damaged(where, f"{self.size} finite functions in the basis", f"{design.shape}")


def _of_basis(arrays: Arrays) -> Arrays:
    """Arrays of the basis among those of the model, under the basis's own names."""
    return {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}

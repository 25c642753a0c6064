"""Shared variables: separate relevance vectors for each class.

    f_c(x) = sum_j w_cj phi_cj(x),     w_cj ~ N(0, s_cj^2),     for each of C classes

Each class has its own model, which absorbs all rows as the class against the rest and gives the posterior of f_c. All
classes have arrays of the same length; functions that a class lacks have scale 0 and no effect.

The functions are squared exponential bumps of equal shape, whose centres are rows of the data (Tipping 2001; thesis,
eq. 2.6):

    phi_j(x) = exp(-1/2 sum_d (x_d - c_jd)^2 / lengthscale_d^2)
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from bcmdist.model.kernels import Kernel, squared_distance
from bcmdist.model.kernels.expected import Expected, expected_bumps
from bcmdist.model.mean import Mean
from bcmdist.model.shared.interface import Arrays, Member, Shared
from bcmdist.model.shared.weights import Basis, Weights
from bcmdist.storage.arrays import check_array, require_arrays
from bcmdist.storage.fields import damaged


@dataclass(frozen=True)
class Radial(Basis):
    """Squared exponential bumps of height 1 around some rows."""

    name: ClassVar[str] = "radial"
    fewer: ClassVar[str] = "which the evidence prefers to all"
    centres: np.ndarray
    """in scaled units, (B, D)"""
    lengthscale: np.ndarray
    """(D,)"""
    rows: np.ndarray
    """row numbers of the centres in the training data, (B,)"""

    @property
    def inputs(self) -> int:
        return self.centres.shape[1]

    @property
    def functions(self) -> int:
        return len(self.centres)

    def features(self, X) -> np.ndarray:
        return np.exp(-0.5 * squared_distance(X, self.centres, self.lengthscale))

    def expected(self, u, S) -> Expected:
        return expected_bumps(u, S, self.centres, 1.0, self.lengthscale)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"centres": self.centres, "lengthscale": self.lengthscale, "rows": self.rows}

    @classmethod
    def from_arrays(cls, arrays) -> "Radial":
        centres, lengthscale, rows = arrays["centres"], arrays["lengthscale"], arrays["rows"]
        if centres.ndim != 2 or lengthscale.shape != centres.shape[1:] or rows.shape != centres.shape[:1]:
            raise ValueError(
                f"expected centres (B, D), lengthscale (D,) and rows (B,), got {centres.shape}, {lengthscale.shape} "
                f"and {rows.shape}"
            )
        return cls(centres, lengthscale, rows)

    def some(self, which) -> "Radial":
        """The functions with the given indices."""
        return Radial(self.centres[which], self.lengthscale, self.rows[which])

    def summary(self, weights) -> dict[str, dict]:
        """The relevance vectors: number, rows, and posterior means of the weights, in scaled units."""
        vectors = {"number": self.functions, "rows": [int(row) for row in self.rows], "weights": weights.tolist()}
        return {"relevance_vectors": vectors}


CENTRES, LENGTHSCALE, ROWS, SCALE = "class_centres", "class_lengthscale", "class_rows", "class_scale"


@dataclass(frozen=True)
class Dictionaries(Shared):
    """Bumps of C classes, up to B per class."""

    kind: ClassVar[str] = "dictionaries"
    noun: ClassVar[str] = "basis functions of a class"
    exhaustive: ClassVar[bool] = False
    mixture: ClassVar[bool] = False
    centres: np.ndarray
    """in scaled units, (C, B, D)"""
    lengthscale: np.ndarray
    """(D,)"""
    rows: np.ndarray
    """row numbers of the centres in the training data, (C, B)"""
    scale: np.ndarray
    """prior standard deviations of the weights, (C, B); 0 for functions that a class lacks"""
    kernel: Kernel
    mean: Mean
    residual: str = "none"
    jitter: float = 0.0

    @property
    def fewer(self) -> str:
        return Radial.fewer

    @property
    def inputs(self) -> int:
        return self.centres.shape[2]

    @property
    def functions(self) -> int:
        return self.scale.size

    @property
    def members(self) -> tuple[Member, ...]:
        return self._members

    @cached_property
    def _members(self):
        prior = (self.kernel, self.mean, self.residual)
        each = enumerate(zip(self.centres, self.rows, self.scale, strict=True))
        return tuple(
            Member(Weights(Radial(Z, self.lengthscale, rows), s, *prior), positive_class=c) for c, (Z, rows, s) in each
        )

    def fill(self, X, V) -> None:
        B = self.scale.shape[1]
        for c, member in enumerate(self.members):
            member.shared.fill(X, V[:, c * B : (c + 1) * B])

    def summary(self, belief, original) -> dict:
        """The relevance vectors of each class, in the order of the classes, in the form of `Radial.summary`."""
        having = [np.flatnonzero(scale) for scale in self.scale]
        each = list(zip(having, self.rows, self.scale, belief.mean, strict=True))
        return {
            "relevance_vectors": {
                "number": [len(some) for some in having],
                "rows": [[int(row) for row in rows[some]] for some, rows, _, _ in each],
                "weights": [(scale * v[: len(scale)])[some].tolist() for some, _, scale, v in each],
            }
        }

    def to_arrays(self) -> tuple[Arrays, dict]:
        arrays = {CENTRES: self.centres, LENGTHSCALE: self.lengthscale, ROWS: self.rows, SCALE: self.scale}
        return arrays, {}

    @classmethod
    def from_arrays(cls, arrays, facts, kernel, mean, residual) -> "Dictionaries":
        bumps = arrays[CENTRES], arrays[LENGTHSCALE], arrays[ROWS]
        return cls(*bumps, arrays[SCALE], kernel, mean, residual, facts["jitter"])

    @classmethod
    def check_arrays(cls, arrays, facts, inputs, where) -> None:
        require_arrays(arrays, (CENTRES, LENGTHSCALE, ROWS, SCALE), where)
        if arrays[SCALE].ndim != 2 or 0 in arrays[SCALE].shape:
            raise damaged(where, f"classes with functions in {SCALE}", f"shape {arrays[SCALE].shape}")
        C, B = arrays[SCALE].shape
        check_array(arrays[CENTRES], where, CENTRES, shape=(C, B, inputs))
        check_array(arrays[LENGTHSCALE], where, LENGTHSCALE, shape=(inputs,), positive=True)
        check_array(arrays[ROWS], where, ROWS, shape=(C, B))
        check_array(arrays[SCALE], where, SCALE, shape=(C, B))

    def check(self, where) -> None:
        if np.any(self.scale < 0.0):
            raise damaged(where, f"scales of at least 0 in {SCALE}", f"{self.scale.min():g}")


def side_by_side(models: list[Weights]) -> Dictionaries:
    """Join the models of all classes, which have the same lengthscales, kernel and mean."""
    first, most = models[0], max(one.functions for one in models)

    def padded(array, count):
        return np.concatenate([array, np.zeros((most - count, *array.shape[1:]))])

    bases = [cast(Radial, one.basis) for one in models]
    arrays = (
        np.stack([padded(basis.centres, basis.functions) for basis in bases]),
        bases[0].lengthscale,
        np.stack([padded(basis.rows, basis.functions) for basis in bases]),
        np.stack([padded(one.scale, one.functions) for one in models]),
    )
    return Dictionaries(*arrays, first.kernel, first.mean, first.residual)

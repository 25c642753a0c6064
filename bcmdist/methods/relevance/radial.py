"""Radial basis functions: squared exponential bumps around centres, all of one shape.

    phi_j(x) = exp(-1/2 sum_d (x_d - c_jd)^2 / lengthscale_d^2)

The dictionary of a relevance vector machine (Tipping 2001; thesis, eq. 2.6); the centres are rows of the data.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bcmdist.model.kernels import squared_distance
from bcmdist.model.kernels.expected import Expected, expected_bumps
from bcmdist.model.shared.weights import Basis


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
            raise ValueError(f"centres {centres.shape}, lengthscale {lengthscale.shape}, rows {rows.shape}")
        return cls(centres, lengthscale, rows)

    def some(self, which) -> "Radial":
        """The functions with the given indices."""
        return Radial(self.centres[which], self.lengthscale, self.rows[which])

    def summary(self, weights) -> dict[str, dict]:
        """The relevance vectors: number, rows, and posterior means of the weights, in scaled units."""
        vectors = {"number": self.functions, "rows": [int(row) for row in self.rows], "weights": weights.tolist()}
        return {"relevance_vectors": vectors}

"""The query set: the points whose function values all experts share (`query_selection` chooses the points).

`Query` is the prior prepared once for many uses: the factor L of the query covariance Kqq = L L', and everything
needed to express f at any input in terms of the shared variables

    v = (L^-1 g(X^q), w) ~ N(0, I),     f(x) = b(x)' v + remainder,   b(x) = (L^-1 k(X^q, x), h(x))

with g the process of the kernel, h and w the basis and weights of the mean. The remainder is what the query set cannot
explain; its prior covariance is `residual_lower`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bcmdist import linalg
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels.interface import Kernel, fill_cross
from bcmdist.model.mean import Mean
from bcmdist.model.shared.expected import ExpectedDesign, expected_design
from bcmdist.model.shared.interface import Arrays, Shared
from bcmdist.storage.arrays import check_array, require_arrays
from bcmdist.storage.fields import damaged

# Number of columns in which the factor is checked, and its tolerance in units of the prior standard deviations: between
# machines the kernel of nearby points may differ by the square root of rounding. Arbitrary.
COLUMNS = 8
FACTOR_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Query(Shared):
    """Query points with their prior; made by `prepare`."""

    kind: ClassVar[str] = "query"
    noun: ClassVar[str] = "query points"
    exhaustive: ClassVar[bool] = True
    nested: ClassVar[bool] = True
    points: FloatArray
    """Query inputs in scaled units, (Q, D)"""
    kernel: Kernel
    mean: Mean
    factor: FloatArray
    """L with L L' = k(X^q, X^q) + jitter I, (Q, Q)"""
    jitter: float
    """in units of the kernel"""
    residual: str = "block"

    @property
    def jitter_share(self) -> float:
        """The jitter in units of the mean variance of the query values."""
        return float(self.jitter / self.kernel.diagonal(self.points).mean())

    @property
    def inputs(self) -> int:
        return int(self.points.shape[1])

    @property
    def functions(self) -> int:
        return len(self.points)

    def fill(self, X: FloatArray, V: FloatArray) -> None:
        fill_cross(self.kernel, X, self.points, V)
        solved = linalg.solve_right_transposed(self.factor, V)
        if solved is not V:  # usually overwritten in place
            V[:] = solved

    def expected(self, u: FloatArray, S: FloatArray) -> ExpectedDesign:
        moments = self.kernel.expected(u, S, self.points)
        half = linalg.solve_lower(self.factor, np.asfortranarray(moments.covariance))
        covariance = linalg.solve_right_transposed(self.factor, np.asfortranarray(half))
        single = linalg.solve_lower(self.factor, moments.single.copy())
        with_inputs = linalg.solve_lower(self.factor, np.asfortranarray(moments.with_inputs))
        return expected_design(single, covariance, with_inputs, moments.prior, self.mean, u, S)

    def to_arrays(self) -> tuple[Arrays, dict[str, Any]]:
        return {"query_points": self.points, "query_factor": self.factor}, {}

    @classmethod
    def from_arrays(cls, arrays: Arrays, facts: dict[str, Any], kernel: Kernel, mean: Mean, residual: str) -> "Query":
        factor = np.asfortranarray(arrays["query_factor"])
        return cls(arrays["query_points"], kernel, mean, factor, facts["jitter"], residual)

    @classmethod
    def check_arrays(cls, arrays: Arrays, facts: dict[str, Any], inputs: int, where: str) -> None:
        require_arrays(arrays, ("query_points", "query_factor"), where)
        points = arrays["query_points"]
        if points.ndim != 2 or 0 in points.shape:
            raise damaged(where, "rows and columns in query_points", f"shape {points.shape}")
        Q = len(points)
        check_array(points, where, "query_points", shape=(Q, inputs))
        check_array(arrays["query_factor"], where, "query_factor", shape=(Q, Q))

    def check(self, where: str) -> None:
        """Check L L' = k(X^q, X^q) + jitter I on the diagonal and in some columns, in O(Q^2)."""
        L, Q = np.tril(self.factor), len(self.points)
        if not np.all(np.diagonal(L) > 0):
            raise damaged(where, "a positive diagonal of query_factor", "numbers of 0 or less")
        prior = self.kernel.diagonal(self.points) + self.jitter
        sd = np.sqrt(np.maximum(prior, prior.mean()))
        columns = np.unique(np.linspace(0, Q - 1, min(Q, COLUMNS)).astype(int))
        expected = self.kernel.cross(self.points, self.points[columns])
        expected[columns, np.arange(len(columns))] += self.jitter
        off_diagonal = np.abs(np.einsum("ij,ij->i", L, L) - prior) / sd**2
        off_columns = np.abs(L @ L[columns].T - expected) / sd[:, None] / sd[columns]
        if not (off_diagonal.max() <= FACTOR_TOLERANCE and off_columns.max() <= FACTOR_TOLERANCE):
            raise damaged(
                where,
                "the Cholesky factor of the kernel at query_points, with jitter, in query_factor",
                "another matrix",
            )


def prepare(
    points: FloatArray,
    *,
    kernel: Kernel,
    mean: Mean,
    residual: str = "block",
    jitters: Sequence[float] = linalg.JITTER_LADDER,
) -> Query:
    """Prepare the query set at given points, (Q, D) in scaled units.

    Parameters
    ----------
    residual : name of the residual (`bcmdist.experts.residual`)
    jitters : shares of the mean variance to try, ascending; give a single one to fix the jitter

    Raises
    ------
    NotPositiveDefinite
        None of the jitters makes the query covariance positive definite.
    """
    points = np.array(points, dtype=float)
    Kqq = kernel.cross(points, points)
    factor, jitter = linalg.cholesky_with_jitter(Kqq, name="query covariance k(X^q, X^q)", ladder=jitters)
    return Query(points, kernel, mean, factor, jitter, residual)

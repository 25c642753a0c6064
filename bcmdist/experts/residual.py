"""Residuals: how an expert treats Lam ~ cov(f | v), the part of f that the shared variables v do not explain.

    none        Lam = 0            the shared variables are the whole model (subset of regressors, weights of a basis)
    diagonal    diag(Lam)          independent residuals per row (FITC); no n x n matrix
    block       Lam                correlated residuals within a partition (BCM, PITC)
    augmented   Lam_is Lam_ss^-1 Lam_si     correlated through support rows s of a partition (RRGP*)

Their messages differ in nothing else (SYSTEMS I.2): precision = V'(Psi + Lam)^-1 V and so on. A `Kind` has a name and
is part of the model; a `Residual` holds the numbers of one partition's rows. To add a residual, write a class of each
and call `register_residual`.

With `augmented`, rows of a partition are correlated given v through some support rows (SYSTEMS I.2 and T13):

    Lam ~ Lam_is Lam_ss^-1 Lam_si = B B',    Lam_ab = k(a, b) - V_a V_b'

The reduced-rank Gaussian process of the support rows s, augmented jointly by all query points (RRGP* of Quinonero-
Candela's thesis, 3.3.3, with the sign of its variance corrected). At the query points the prior is exact, and no n x n
matrix is formed. With all rows in the support this is the block residual of the committee machine; with none it is
subset of regressors. The support has as many rows as there are query points, evenly spaced over the partition.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from bcmdist import linalg
from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption
from bcmdist.experts.factor import Rotated, Scales, Triangular
from bcmdist.experts.low_rank import LowRank
from bcmdist.experts.residual_interface import Kept, Kind, Residual, left_variance
from bcmdist.linalg.arrays import FloatArray, FloatOrArray, IntArray
from bcmdist.model.kernels import cross_lower, parse_kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.mean import Mean, prior_covariance
from bcmdist.model.shared.interface import Shared, refuse_negative
from bcmdist.model.shared.query import Query, prepare
from bcmdist.runtime import memory

# Residual variances of support rows below this share of the prior variance are rounding, or determined by the others.
LEAST_LEFT = 1e-8


@dataclass(frozen=True)
class Spanned(Residual):
    """Lam = B B'."""

    B: FloatArray
    """(n, M), Fortran-ordered"""

    @property
    def covariance(self) -> LowRank:
        return LowRank(np.zeros(len(self.B)), self.B)

    def factor(self, noise: FloatOrArray) -> Rotated:
        sd = np.sqrt(noise + np.zeros(len(self.B)))
        return Rotated(sd, self.B / sd[:, None])

    def site(self, w: FloatArray) -> Rotated:
        return Rotated(np.ones(len(self.B)), np.sqrt(w)[:, None] * self.B)

    def __matmul__(self, x: FloatArray) -> FloatArray:
        return self.B @ (self.B.T @ x)

    def pull(self, h: FloatArray, B: FloatArray) -> FloatArray:
        inner = np.eye(self.B.shape[1]) + self.B.T @ (h[:, None] * self.B)
        return B - h[:, None] * (self.B @ np.linalg.solve(inner, self.B.T @ B))

    def left(self, w: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        wB = w[:, None] * self.B
        L = linalg.cholesky(np.asfortranarray(np.eye(self.B.shape[1]) + self.B.T @ wB), name="I + B'w B of an expert")
        left = linalg.solve_right_transposed(L, self.B.copy(order="F"))
        return np.einsum("ij,ij->i", left, left), V - self.B @ linalg.cholesky_solve(L, wB.T @ V)

    def plus(self, A: FloatArray) -> LowRank:
        return LowRank(np.zeros(len(self.B)), np.hstack([self.B, A]))


class Augmented(Kept):
    """Residuals correlated through the support rows of the partition; new points keep their full residual variance."""

    couples = False

    def residual(self, shared: Shared, V: FloatArray, X: FloatArray) -> Spanned:
        some = support(len(X), shared.functions)
        Lam_ss = shared.residual_cross(V[some], X[some], V[some], X[some])
        prior = shared.kernel.diagonal(X[some])
        refuse_negative(np.diag(Lam_ss), prior)
        kept = _independent(Lam_ss, LEAST_LEFT * prior.mean())
        some, Lam_ss = some[kept], np.asfortranarray(Lam_ss[np.ix_(kept, kept)])
        L = linalg.cholesky(Lam_ss, name="cov(support rows | query) of an augmented expert")
        Lam_is = shared.residual_cross(V, X, V[some], X[some])
        return Spanned(np.asfortranarray(linalg.solve_right_transposed(L, np.asfortranarray(Lam_is))))

    def own_prior(self, shared: Shared, V: FloatArray, X: FloatArray) -> tuple[LowRank, Spanned]:
        residual = self.residual(shared, V, X)
        return residual.plus(V), residual

    def expert_bytes(
        self, rows: int, shared: int, *, kernels: int, laplace: bool, classes: int, coupled: bool
    ) -> float:
        return 2 * memory.independent_expert_bytes(
            rows, shared, kernels=kernels, laplace=laplace, classes=classes, coupled=coupled
        )


def support(rows: int, count: int) -> IntArray:
    """Indices of at most `count` of `rows` rows, evenly spaced."""
    return np.unique(np.linspace(0, rows - 1, min(rows, count)).round().astype(int))


def _independent(Lam: FloatArray, least: float) -> IntArray:
    """Indices, ascending, of rows whose variance given the others exceeds `least`."""
    mean = np.diag(Lam).mean()
    return linalg.independent_rows(Lam, least / mean) if mean > least else np.empty(0, dtype=int)


@dataclass(frozen=True)
class Block(Residual):
    """A full residual matrix of the partition."""

    lower: np.ndarray
    """Lam, (n, n); only the lower triangle is read"""

    @cached_property
    def covariance(self) -> FloatArray:
        return linalg.mirror(self.lower)

    def factor(self, noise: FloatOrArray) -> Triangular:
        R = self.lower
        R[np.diag_indices_from(R)] += noise
        return Triangular(linalg.cholesky(R, name="cov(y | query) of a Gaussian expert"))

    def site(self, w: FloatArray) -> Triangular:
        B = linalg.identity_plus_scaled(self.covariance, np.sqrt(w))
        return Triangular(linalg.cholesky(B, name="I + w^1/2 Lam w^1/2"))

    def __matmul__(self, x: FloatArray) -> FloatArray:
        return self.covariance @ x

    def pull(self, h: FloatArray, B: FloatArray) -> FloatArray:
        return cast(FloatArray, np.linalg.solve(np.eye(len(h)) + h[:, None] * self.covariance, B))

    def left(self, w: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        root, L = np.sqrt(w), self.site(w)
        C = L.weigh(root, self.covariance)
        variance = np.diag(self.covariance) - np.einsum("ij,ij->j", C, C)
        return variance, V - C.T @ L.weigh(root, V)

    def plus(self, A: FloatArray) -> FloatArray:
        return np.asfortranarray(self.covariance + A @ A.T)


@dataclass(frozen=True)
class Diagonal(Residual):
    """An independent residual variance for each row, which may be 0."""

    variances: FloatArray
    """(n,), >= 0"""

    @property
    def covariance(self) -> LowRank:
        return LowRank(self.variances, np.empty((len(self.variances), 0)))

    def factor(self, noise: FloatOrArray) -> Scales:
        return Scales(np.sqrt(self.variances + noise))

    def site(self, w: FloatArray) -> Scales:
        return Scales(np.sqrt(1.0 + w * self.variances))

    def __matmul__(self, x: FloatArray) -> FloatArray:
        return (self.variances * x.T).T

    def pull(self, h: FloatArray, B: FloatArray) -> FloatArray:
        return B / (1.0 + h * self.variances)[:, None]

    def left(self, w: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        shrink = 1.0 / (1.0 + w * self.variances)
        return self.variances * shrink, V * shrink[:, None]

    def plus(self, A: FloatArray) -> LowRank:
        return LowRank(self.variances, A)


class Blocks(Kept):
    """Full residual covariance within a partition: the Bayesian committee machine, or PITC."""

    couples = True

    def residual(self, shared: Shared, V: FloatArray, X: FloatArray) -> "Block":
        return Block(shared.residual_lower(V, cross_lower(shared.kernel, X)))

    def own_prior(self, shared: Shared, V: FloatArray, X: FloatArray) -> tuple[FloatArray, "Block"]:
        K = shared.kernel.cross(X, X)
        prior = prior_covariance(K, shared.mean, X)
        return prior, Block(shared.residual_lower(V, K))

    def expert_bytes(self, rows: int, shared: int, *, kernels: int, laplace: bool, classes: int, coupled: bool) -> int:
        return memory.expert_bytes(rows, shared, kernels=kernels, laplace=laplace, classes=classes, coupled=coupled)


class IndependentRows(Kind):
    """Rows that only the shared variables couple; `variance` gives the independent residual variance of each row."""

    couples = False

    def residual(self, shared: Shared, V: FloatArray, X: FloatArray) -> "Diagonal":
        return Diagonal(self.variance(shared, V, X))

    def own_prior(self, shared: Shared, V: FloatArray, X: FloatArray) -> tuple[LowRank, "Diagonal"]:
        residual = self.residual(shared, V, X)
        return residual.plus(V), residual

    def joint_lower(self, shared: Shared, V: FloatArray, X: FloatArray) -> FloatArray:
        return np.diag(self.variance(shared, V, X)).copy(order="F")


class Variances(IndependentRows):
    """Each row keeps the residual variance of the kernel (FITC)."""

    def variance(self, shared: Shared, V: FloatArray, X: FloatArray) -> FloatArray:
        return left_variance(shared, V, X)

    def expert_bytes(self, rows: int, shared: int, *, kernels: int, laplace: bool, classes: int, coupled: bool) -> int:
        return memory.independent_expert_bytes(
            rows, shared, kernels=kernels, laplace=laplace, classes=classes, coupled=coupled
        )


class Nothing(IndependentRows):
    """No residual: far from the query points or basis functions, f has no variance beyond its mean's."""

    keeps = 0.0

    def variance(self, shared: Shared, V: FloatArray, X: FloatArray) -> FloatArray:
        return np.zeros(len(X))

    def expert_bytes(self, rows: int, shared: int, *, kernels: int, laplace: bool, classes: int, coupled: bool) -> int:
        return memory.independent_expert_bytes(
            rows, shared, kernels=kernels, laplace=laplace, classes=classes, coupled=coupled
        )


RESIDUALS: Registry[Kind] = Registry("residual")


def register_residual(name: str, kind: Kind, *, shared: Shared | None = None) -> Kind:
    """Register a residual under the name that `register_expert` takes as `residual`; return it.

    Workers load it where its module is listed under the entry points of `bcmdist.data.registry`.

    Parameters
    ----------
    name : of the residual f - E[f | v]
    kind : does the computations of experts with cov(f | v) = Lam
    shared : shared variables for the check; by default values of a squared exponential kernel at three points

    Returns
    -------
    `kind`.

    Raises
    ------
    InvalidOption
        The name is taken, or the residual fails `bcmdist.testing.check_residual`.

    Examples
    --------
    >>> from bcmdist.experts.residual import Variances
    >>> kind = bcmdist.register_residual("variances", Variances())
    >>> type(kind).__name__
    'Variances'
    """
    from bcmdist.testing.shared import check_residual  # quick start

    checked_at: Any = shared or _few_values()
    check_residual(kind, replace(checked_at, residual=name))
    return RESIDUALS.add(name, kind)


def _few_values() -> Query:
    points = np.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 0.5]])
    return prepare(points, kernel=parse_kernel("se", inputs=2), mean=Mean("constant"))


# Built-in residuals are checked by the tests, not at import.
RESIDUALS.add("none", Nothing())
RESIDUALS.add("diagonal", Variances())
RESIDUALS.add("block", Blocks())
RESIDUALS.add("augmented", Augmented())


def kind_of(shared: Shared) -> Kind:
    """The kind of residual that experts use with these shared variables."""
    return RESIDUALS[shared.residual]


def refuse_coupled_classes(residual: str, likelihood: Likelihood) -> None:
    """Raise `InvalidOption` for processes whose modes are searched jointly where the residual does not support it."""
    joint = likelihood.processes > 1 and not (likelihood.exact or likelihood.independent_processes)
    if joint and not RESIDUALS[residual].joint_modes:
        raise InvalidOption(
            f"likelihood {likelihood.name}: expected an expert whose rows have a matrix or a design that is written "
            f"down, got residual {residual}; take --likelihood onehot, or --expert bcm"
        )


def refuse_uncoupled(residual: str) -> None:
    """Raise `InvalidOption` for expectation propagation without a covariance matrix of a partition's rows."""
    if not RESIDUALS[residual].couples:
        raise InvalidOption(
            "expectation propagation: expected an expert that couples the rows of a partition (residual block, as "
            f"bcm), got residual {residual}; take --approximation laplace, or --expert bcm"
        )

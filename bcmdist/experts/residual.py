"""Residuals: how an expert treats Lam ~ cov(f | v), the part of f that the shared variables v do not explain.

    none        Lam = 0            the shared variables are the whole model (subset of regressors, weights of a basis)
    diagonal    diag(Lam)          independent residuals per row (FITC); no n x n matrix
    block       Lam                correlated residuals within a partition (BCM, PITC)
    augmented   Lam_is Lam_ss^-1 Lam_si     correlated through support rows s of a partition (RRGP*): see `augmented`

Their messages differ in nothing else (SYSTEMS I.2): precision = V'(Psi + Lam)^-1 V and so on. A `Kind` has a name and
is part of the model; a `Residual` holds the numbers of one partition's rows. To add a residual, write a class of each
and call `register_residual`.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bcmdist import linalg
from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption
from bcmdist.experts.augmented import Augmented
from bcmdist.experts.factor import Scales, Triangular
from bcmdist.experts.low_rank import LowRank
from bcmdist.experts.residual_interface import Kept, Kind, Residual, left_variance
from bcmdist.model.kernels import cross_lower, parse_kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import prepare
from bcmdist.runtime import memory


@dataclass(frozen=True)
class Block(Residual):
    """A full residual matrix of the partition."""

    lower: np.ndarray
    """Lam, (n, n); only the lower triangle is read"""

    @cached_property
    def covariance(self) -> np.ndarray:
        return linalg.mirror(self.lower)

    def factor(self, noise) -> Triangular:
        R = self.lower
        R[np.diag_indices_from(R)] += noise
        return Triangular(linalg.cholesky(R, name="cov(y | query) of a Gaussian expert"))

    def site(self, w) -> Triangular:
        B = linalg.identity_plus_scaled(self.covariance, np.sqrt(w))
        return Triangular(linalg.cholesky(B, name="I + w^1/2 Lam w^1/2"))

    def __matmul__(self, x):
        return self.covariance @ x

    def pull(self, h, B) -> np.ndarray:
        return np.linalg.solve(np.eye(len(h)) + h[:, None] * self.covariance, B)

    def left(self, w, V) -> tuple[np.ndarray, np.ndarray]:
        root, L = np.sqrt(w), self.site(w)
        C = L.weigh(root, self.covariance)
        variance = np.diag(self.covariance) - np.einsum("ij,ij->j", C, C)
        return variance, V - C.T @ L.weigh(root, V)

    def plus(self, A) -> np.ndarray:
        return np.asfortranarray(self.covariance + A @ A.T)


@dataclass(frozen=True)
class Diagonal(Residual):
    """An independent residual variance for each row, which may be 0."""

    variances: np.ndarray
    """(n,), >= 0"""

    @property
    def covariance(self) -> LowRank:
        return LowRank(self.variances, np.empty((len(self.variances), 0)))

    def factor(self, noise) -> Scales:
        return Scales(np.sqrt(self.variances + noise))

    def site(self, w) -> Scales:
        return Scales(np.sqrt(1.0 + w * self.variances))

    def __matmul__(self, x):
        return (self.variances * x.T).T

    def pull(self, h, B) -> np.ndarray:
        return B / (1.0 + h * self.variances)[:, None]

    def left(self, w, V) -> tuple[np.ndarray, np.ndarray]:
        shrink = 1.0 / (1.0 + w * self.variances)
        return self.variances * shrink, V * shrink[:, None]

    def plus(self, A) -> LowRank:
        return LowRank(self.variances, A)


class Blocks(Kept):
    """Full residual covariance within a partition: the Bayesian committee machine, or PITC."""

    couples = True

    def residual(self, shared, V, X) -> "Block":
        return Block(shared.residual_lower(V, cross_lower(shared.kernel, X)))

    def own_prior(self, shared, V, X) -> tuple[np.ndarray, "Block"]:
        K = shared.kernel.cross(X, X)
        prior = prior_covariance(K, shared.mean, X)
        return prior, Block(shared.residual_lower(V, K))

    def expert_bytes(self, rows, shared, *, kernels, laplace, classes, coupled) -> int:
        return memory.expert_bytes(rows, shared, kernels=kernels, laplace=laplace, classes=classes, coupled=coupled)


class IndependentRows(Kind):
    """Rows that only the shared variables couple; `variance` gives the independent residual variance of each row."""

    couples = False

    def residual(self, shared, V, X) -> "Diagonal":
        return Diagonal(self.variance(shared, V, X))

    def own_prior(self, shared, V, X) -> tuple[LowRank, "Diagonal"]:
        residual = self.residual(shared, V, X)
        return residual.plus(V), residual

    def joint_lower(self, shared, V, X) -> np.ndarray:
        return np.diag(self.variance(shared, V, X)).copy(order="F")


class Variances(IndependentRows):
    """Each row keeps the residual variance of the kernel (FITC)."""

    def variance(self, shared, V, X) -> np.ndarray:
        return left_variance(shared, V, X)

    def expert_bytes(self, rows, shared, *, kernels, laplace, classes, coupled) -> int:
        return memory.independent_expert_bytes(
            rows, shared, kernels=kernels, laplace=laplace, classes=classes, coupled=coupled
        )


class Nothing(IndependentRows):
    """No residual: far from the query points or basis functions, f has no variance beyond its mean's."""

    keeps = 0.0

    def variance(self, shared, V, X) -> np.ndarray:
        return np.zeros(len(X))

    def expert_bytes(self, rows, shared, *, kernels, laplace, classes, coupled) -> int:
        return memory.independent_expert_bytes(
            rows, shared, kernels=kernels, laplace=laplace, classes=classes, coupled=coupled
        )


RESIDUALS: Registry[Kind] = Registry("residual")


def register_residual(name: str, kind: Kind, *, shared: Shared | None = None) -> Kind:
    """Register a residual under the name that `register_expert` takes as `residual`; return it.

    Workers load it where its module is listed under the entry points of `bcmdist.data.registry`.

    Parameters
    ----------
    shared : shared variables for the check; by default values of a squared exponential kernel at three points

    Raises
    ------
    InvalidOption
        The name is taken, or the residual fails `bcmdist.testing.check_residual`.
    """
    from bcmdist.testing import check_residual  # quick start

    checked_at: Any = shared or _few_values()
    check_residual(kind, replace(checked_at, residual=name))
    return RESIDUALS.add(name, kind)


def _few_values():
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


def prior_covariance(K, mean, X) -> np.ndarray:
    """cov(f) = K + H H' of a partition, including the weights of the mean; a new full matrix."""
    H = mean.design(X)
    return K + H @ H.T


def refuse_coupled_classes(residual: str, likelihood: Likelihood) -> None:
    """Raise `InvalidOption` for processes whose modes are searched jointly where the residual does not support it."""
    joint = likelihood.processes > 1 and not (likelihood.exact or likelihood.apart)
    if joint and not RESIDUALS[residual].joint_modes:
        raise InvalidOption(
            f"likelihood {likelihood.name}: expected an expert whose rows have a matrix or a design that is written "
            f"down, got residual {residual}; take --likelihood onehot, or --expert bcm"
        )


def refuse_uncoupled(residual: str, what: str, remedy: str) -> None:
    """Raise `InvalidOption` for operations that need the covariance matrix of a partition's rows.

    Parameters
    ----------
    what, remedy : for the error: "expectation propagation", "take --approximation laplace"
    """
    if not RESIDUALS[residual].couples:
        raise InvalidOption(
            f"{what}: expected an expert that couples the rows of a partition (residual block, as bcm), got residual "
            f"{residual}; {remedy}, or take --expert bcm"
        )

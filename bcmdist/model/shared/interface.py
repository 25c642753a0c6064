"""Shared: the variables that all experts of a committee speak about, with the prior that f has through them.

    f(x) = b(x)' v + r(x),     v ~ N(0, I),     b(x) = (b_g(x), h(x)),     v = (v_g, w)

b_g are the columns of the process g of the kernel, B of them: of its values at query points, or of a finite basis; h
and w are the basis and the weights of the mean. What v does not explain is r, with the variance
k(x, x) - b_g(x)'b_g(x); what experts do with it has a name, `residual` (`bcmdist.experts.residual`).

Several models may stand side by side, `members`: each absorbs all rows on its own, with a share of v of its own, and
predictions are their equal mixture, or each is about the process of a class. Most kinds have none: all of v is one
model.

A new kind is one class, added to `kinds.KINDS` under a name of its own. A basis alone is less: see `weights`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.model.kernels import Kernel
from bcmdist.model.mean import Mean
from bcmdist.model.shared.belief import Belief, factored
from bcmdist.model.shared.expected import ExpectedDesign

Arrays = dict[str, np.ndarray]

# Share of the prior variance by which rounding may make a residual variance negative.
NEGATIVE_SHARE = 1e-6


class Shared(ABC):
    """Shared variables with the prior they belong to; immutable, S = B + P of them, or B + K P of K members."""

    kind: ClassVar[str]
    """under which models are stored"""
    noun: ClassVar[str]
    """what the variables of the process are, for messages: "query points" """
    exhaustive: ClassVar[bool]
    """whether fewer of them than were asked for are left because they determine the others"""
    nested: ClassVar[bool] = False
    """whether the first of them alone are what as many would be: values at the first points"""
    mixture: ClassVar[bool] = True
    """whether predictions mix what members say; else each says what its class is, against the rest"""
    advised: ClassVar[str] = "set --query to {} or more"
    """what to do where they limit a fit, {} being a number of them that would not"""
    kernel: Kernel
    """of the process, in scaled units"""
    mean: Mean
    residual: str
    """what experts do with the part of f that these variables leave: a name of `bcmdist.experts.residual`"""
    jitter: float
    """in units of the kernel; 0 where nothing is factored"""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Number D of input columns."""

    @property
    @abstractmethod
    def functions(self) -> int:
        """Number B of shared variables of the process; the P of the mean follow them."""

    @property
    def members(self) -> "tuple[Member, ...]":
        """The models that stand side by side, each with as many variables; none where all of v is one model."""
        return ()

    @abstractmethod
    def fill(self, X, V) -> None:
        """Write the whitened columns b_g at the rows of X (n, D) into V (n, B), Fortran-ordered."""

    @abstractmethod
    def to_arrays(self) -> tuple[Arrays, dict]:
        """Arrays and JSON-ready facts of its own (not of kernel, mean and residual) for `from_arrays`, bit for bit."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Arrays, facts: dict, kernel: Kernel, mean: Mean, residual: str) -> "Shared":
        """What `to_arrays` described."""

    @classmethod
    @abstractmethod
    def check_arrays(cls, arrays: Arrays, facts: dict, inputs: int, where: str) -> None:
        """Raise `ModelDamaged` where `from_arrays` could not make sense of them."""

    @abstractmethod
    def check(self, where: str) -> None:
        """Raise `ModelDamaged` where numbers that must agree do not."""

    @property
    def fewer(self) -> str | None:
        """Why fewer of them than were asked for are enough, before that number; None where they are not."""
        return "which determine the others of" if self.exhaustive else None

    def summary(self, belief: Belief, original: Callable[[np.ndarray], np.ndarray]) -> dict:
        """What `info` tells beside their number, by name, JSON-ready, where somebody has a belief in them; `original`
        turns scaled inputs (n, D) into those of the data."""
        return {}

    @property
    def size(self) -> int:
        """Number S of shared variables."""
        return self.functions + max(1, len(self.members)) * self.mean.weights(self.inputs)

    def design(self, X) -> np.ndarray:
        """Rows b(x)' of the whitened design: (n, D) -> (n, S), Fortran-ordered. Columns of the mean last."""
        B = self.functions
        V = np.empty((len(X), self.size), order="F")
        self.fill(X, V[:, :B])
        V[:, B:] = np.tile(self.mean.design(X), max(1, len(self.members)))
        return V

    def expected(self, u, S) -> ExpectedDesign:
        """Averages of the design over a scaled input x ~ N(u, S), of means (D,) and covariance (D, D).

        Raises
        ------
        InvalidOption
            They are not known in closed form.
        """
        raise InvalidOption(
            f"inputs: expected values at query points or bumps (rvm) for exact averages, got {self.functions} "
            f"{self.noun} with the kernel {self.kernel.expression}; give --inputs montecarlo or taylor"
        )

    def belief(self, eta, precision) -> Belief:
        """N(Lambda^-1 eta, Lambda^-1), Lambda = I + precision, from those of a sum of messages (`Message`)."""
        return factored(eta, precision)

    # Messages of experts (`bcmdist.experts.expert`): `general` is the rule for any kind, with the same arguments.

    def expert_message(self, likelihood, X, obs, general: Callable) -> Any:
        """Message of rows from nothing but these."""
        return general(self, likelihood, X, obs)

    def conditional_message(self, likelihood, X, obs, mean, general: Callable) -> Any:
        """Message of rows linearised where the shared variables equal `mean`."""
        return general(self, likelihood, X, obs, mean)

    def running_message(self, likelihood, X, obs, belief, general: Callable) -> Any:
        """Message of rows linearised under the belief so far."""
        return general(self, likelihood, X, obs, belief)

    def zero_message(self, likelihood, general: Callable) -> Any:
        """Message of no rows."""
        return general(self, likelihood)

    # Predictions (`bcmdist.prediction`), in the same form. X are scaled rows (n, D).

    def predict_latent(self, belief: Belief, X, general: Callable) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at rows."""
        return general(self, belief, X)

    def predict_draws(self, predictor: Any, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at rows that were drawn, and may lie where rows of a user would be refused."""
        return predictor.latent(X)

    def leave_one_out(self, likelihood, X, obs, belief: Belief, rows, copies, at, general: Callable) -> Any:
        """Mean and variance of f at some of the rows, each predicted without itself."""
        return general(self, likelihood, X, obs, belief, rows, copies, at)

    def degrees_share(self, likelihood, X, obs, belief: Belief, general: Callable) -> float:
        """Effective degrees of freedom of rows."""
        return general(self, likelihood, X, obs, belief)

    def committee_at_rows(self, belief: Belief, general: Callable) -> Any:
        """The committee as local experts see it (`CommitteeAtRows`)."""
        return general(self, belief)

    def residual_lower(self, V, K) -> np.ndarray:
        """Lower triangle of cov(f | v) = K - V V' for K = k(X, X); overwrites that of K.

        The columns of the mean weights cancel against their part of the prior covariance.
        """
        return linalg.subtract_outer_lower(K, V[:, : self.functions])

    def residual_cross(self, V, X, V2, X2) -> np.ndarray:
        """cov(f, f' | v) between the rows of X (n, D) and of X2 (m, D) with designs V and V2, (n, m)."""
        B = self.functions
        return self.kernel.cross(X, X2) - V[:, :B] @ V2[:, :B].T

    def residual_variance(self, V, X) -> np.ndarray:
        """Diagonal of cov(f | v) at the rows of X, with design V, (n,)."""
        Vg = V[:, : self.functions]
        return self.kernel.diagonal(X) - np.einsum("ij,ij->i", Vg, Vg)


@dataclass(frozen=True)
class Member:
    """One of the models that stand side by side."""

    shared: Shared
    noise: float = 1.0
    """its noise variances, as a share of those of the likelihood of all; their mean is 1"""
    own: int | None = None
    """its class, which stands against the rest; None where it absorbs what all absorb"""

    def absorbed(self, obs: Observations) -> Observations:
        """Rows as this one absorbs them: of weight w where all others would say w times this share; 1 for its class."""
        y = obs.y if self.own is None else (obs.y == self.own) * 1.0
        return replace(obs, y=y, weight=obs.weight / self.noise)


def refuse_negative(residual, prior) -> None:
    """Refuse variances of f given the shared variables (n,) that are negative beyond rounding.

    Raises
    ------
    NotPositiveDefinite
    """
    if np.any(residual < -NEGATIVE_SHARE * prior):
        raise NotPositiveDefinite(
            f"variance of f given the query values: expected at least 0, got {residual.min():.1e} at a prior "
            f"variance of {prior.max():.1e}; the kernel is no covariance or the query factor is damaged"
        )

"""Shared: the variables that all experts of a committee have in common, with their prior.

    f(x) = b(x)' v + r(x),     v ~ N(0, I),     b(x) = (b_g(x), h(x)),     v = (v_g, w)

b_g are the B columns of the process g of the kernel: its values at query points, or a finite basis; h and w are the
basis and the weights of the mean. The residual r is the part of f that v does not explain, with variance
k(x, x) - b_g(x)'b_g(x); the field `residual` names the experts' treatment of r (`bcmdist.experts.residual`).

Some kinds consist of several `members`: separate models that each absorb all rows, with separate parts of v.
Predictions are the equal mixture of the members', or each member models the process of one class. Most kinds have no
members: all of v is one model.

To add a kind, write a class and register it in `bcmdist.model.model.KINDS`. To add only a basis, see `weights`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.kernels.interface import Kernel
from bcmdist.model.likelihoods.interface import Likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.belief import Belief, factored
from bcmdist.model.shared.expected import ExpectedDesign

Arrays = dict[str, np.ndarray]
Moments = tuple[FloatArray, FloatArray]
"""Mean and variance of f, (n,) or (n, C) each."""

# Share of the prior variance by which rounding may make a residual variance negative.
NEGATIVE_SHARE = 1e-6


class LatentPredictor(Protocol):
    """What `Shared.predict_draws` needs of a predictor."""

    def latent(self, X: FloatArray) -> Moments: ...


class Shared(ABC):
    """Shared variables with their prior; immutable. S = B + P variables, or B + K P with K members."""

    kind: ClassVar[str]
    """name of the kind in stored models"""
    noun: ClassVar[str]
    """what the variables of the process are called in messages to users: "query points" """
    exhaustive: ClassVar[bool]
    """whether fewer variables than requested remain because these determine the others"""
    nested: ClassVar[bool] = False
    """whether the first m variables equal those of a model with m: values at the first points"""
    mixture: ClassVar[bool] = True
    """whether predictions are a mixture of the members; otherwise each member models its class against the rest"""
    advised: ClassVar[str] = "set --query to {} or more"
    """advice where the number of variables limits a fit; {} is replaced by a sufficient number"""
    kernel: Kernel
    """kernel of the process, in scaled units"""
    mean: Mean
    residual: str
    """treatment of the part of f not explained by these variables: a name of `bcmdist.experts.residual`"""
    jitter: float
    """in units of the kernel; 0 where nothing is factored"""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Number D of input columns."""

    @property
    @abstractmethod
    def functions(self) -> int:
        """Number B of shared variables of the process; the P weights of the mean follow them."""

    @property
    def members(self) -> "tuple[Member, ...]":
        """The separate models, each with the same number of variables; empty where all of v is one model."""
        return ()

    @abstractmethod
    def fill(self, X: FloatArray, V: FloatArray) -> None:
        """Write the whitened columns b_g at the rows of X (n, D) into V (n, B), Fortran-ordered."""

    @abstractmethod
    def to_arrays(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and JSON-ready facts for `from_arrays`, without kernel, mean and residual; exact to the bit."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Arrays, facts: dict[str, Any], kernel: Kernel, mean: Mean, residual: str) -> "Shared":
        """Restore from the result of `to_arrays`."""

    @classmethod
    @abstractmethod
    def check_arrays(cls, arrays: Arrays, facts: dict[str, Any], inputs: int, where: str) -> None:
        """Check stored arrays and facts before `from_arrays`: presence, shapes, and valid single values.

        Agreement between values is checked by `check`, after loading.

        Parameters
        ----------
        arrays, facts : as returned by `to_arrays`
        inputs : number D of input columns of the model
        where : place of the stored model, for error messages

        Raises
        ------
        ModelDamaged
        """

    @abstractmethod
    def check(self, where: str) -> None:
        """Raise `ModelDamaged` where numbers that must agree do not."""

    @property
    def fewer(self) -> str | None:
        """Why fewer variables than requested suffice, as text before the requested number; None where not."""
        return "which determine all" if self.exhaustive else None

    def summary(self, belief: Belief, original: Callable[[FloatArray], FloatArray]) -> dict[str, Any]:
        """Entries for `info` besides the number of variables, by name, JSON-ready.

        Parameters
        ----------
        belief : posterior of the shared variables
        original : function from scaled inputs (n, D) to inputs in original units
        """
        return {}

    @property
    def size(self) -> int:
        """Number S of shared variables."""
        return self.functions + max(1, len(self.members)) * self.mean.weights(self.inputs)

    def design(self, X: FloatArray) -> FloatArray:
        """Rows b(x)' of the whitened design: (n, D) -> (n, S), Fortran-ordered. The columns of the mean are last."""
        B = self.functions
        V = np.empty((len(X), self.size), order="F")
        self.fill(X, V[:, :B])
        V[:, B:] = np.tile(self.mean.design(X), max(1, len(self.members)))
        return V

    def expected(self, u: FloatArray, S: FloatArray) -> ExpectedDesign:
        """Expectations of the design over a scaled input x ~ N(u, S), with mean (D,) and covariance (D, D).

        Raises
        ------
        InvalidOption
            No closed form is available.
        """
        raise InvalidOption(
            f"inputs: expected values at query points or bumps (rvm) for exact averages, got {self.functions} "
            f"{self.noun} with the kernel {self.kernel.expression}; give --inputs montecarlo or taylor"
        )

    def belief(self, eta: FloatArray, precision: FloatArray) -> Belief:
        """Posterior N(Lambda^-1 eta, Lambda^-1), Lambda = I + precision, from the sum of messages (`Message`)."""
        return factored(eta, precision)

    # Hooks for messages (`bcmdist.experts.expert`). Each gets the default implementation as `general`, a function of
    # the shared variables and the other arguments. Messages are types of `bcmdist.experts`, and Any here.

    def expert_message(
        self,
        likelihood: Likelihood,
        X: FloatArray,
        obs: Observations,
        general: Callable[["Shared", Likelihood, FloatArray, Observations], Any],
    ) -> Any:
        """Message of the rows X (n, D) with observations `obs`, computed from these rows alone.

        general : the default implementation, as for the other hooks
        """
        return general(self, likelihood, X, obs)

    def conditional_message(
        self,
        likelihood: Likelihood,
        X: FloatArray,
        obs: Observations,
        mean: FloatArray,
        general: Callable[["Shared", Likelihood, FloatArray, Observations, FloatArray], Any],
    ) -> Any:
        """Message of rows linearised at their mode given that the shared variables equal `mean`."""
        return general(self, likelihood, X, obs, mean)

    def running_message(
        self,
        likelihood: Likelihood,
        X: FloatArray,
        obs: Observations,
        belief: Belief,
        general: Callable[["Shared", Likelihood, FloatArray, Observations, Belief], Any],
    ) -> Any:
        """Message of rows linearised under the current belief."""
        return general(self, likelihood, X, obs, belief)

    def zero_message(self, likelihood: Likelihood, general: Callable[["Shared", Likelihood], Any]) -> Any:
        """Message of no rows."""
        return general(self, likelihood)

    # Hooks for predictions (`bcmdist.prediction`), in the same form. X are scaled rows (n, D).

    def predict_latent(
        self, belief: Belief, X: FloatArray, general: Callable[["Shared", Belief, FloatArray], Moments]
    ) -> Moments:
        """Mean and variance of f at the rows X."""
        return general(self, belief, X)

    def predict_draws(self, predictor: LatentPredictor, X: FloatArray) -> Moments:
        """Mean and variance of f at randomly drawn rows, which may lie where a user's rows would be refused."""
        return predictor.latent(X)

    def leave_one_out(
        self,
        likelihood: Likelihood,
        X: FloatArray,
        obs: Observations,
        belief: Belief,
        rows: slice | IntArray,
        copies: float,
        at: FloatArray | None,
        general: Callable[
            ["Shared", Likelihood, FloatArray, Observations, Belief, slice | IntArray, float, FloatArray | None],
            Moments,
        ],
    ) -> Moments:
        """Leave-one-out mean and variance of f at some of the rows."""
        return general(self, likelihood, X, obs, belief, rows, copies, at)

    def degrees_share(
        self,
        likelihood: Likelihood,
        X: FloatArray,
        obs: Observations,
        belief: Belief,
        general: Callable[["Shared", Likelihood, FloatArray, Observations, Belief], float],
    ) -> float:
        """Effective degrees of freedom used by the rows."""
        return general(self, likelihood, X, obs, belief)

    def committee_at_rows(self, belief: Belief, general: Callable[["Shared", Belief], Any]) -> Any:
        """The committee in the form that local experts use (`CommitteeAtRows`)."""
        return general(self, belief)

    def residual_lower(self, V: np.ndarray, K: np.ndarray) -> np.ndarray:
        """Lower triangle of cov(f | v) = K - V V' for K = k(X, X); overwrites the lower triangle of K.

        The columns of the mean weights cancel against their part of the prior covariance.
        """
        return linalg.subtract_outer_lower(K, V[:, : self.functions])

    def residual_cross(self, V: FloatArray, X: FloatArray, V2: FloatArray, X2: FloatArray) -> FloatArray:
        """cov(f, f' | v) between the rows of X (n, D) and X2 (m, D) with designs V and V2: (n, m)."""
        B = self.functions
        return self.kernel.cross(X, X2) - V[:, :B] @ V2[:, :B].T

    def residual_variance(self, V: FloatArray, X: FloatArray) -> FloatArray:
        """Diagonal of cov(f | v) at the rows of X (n, D) with design V (n, S): (n,)."""
        Vg = V[:, : self.functions]
        left: FloatArray = self.kernel.diagonal(X) - np.einsum("ij,ij->i", Vg, Vg)
        return left


@dataclass(frozen=True)
class Member:
    """One of the separate models of a `Shared` with members."""

    shared: Shared
    noise: float = 1.0
    """noise variance of the member relative to the common likelihood; the mean over members is 1"""
    positive_class: int | None = None
    """class that the member separates from the rest; None where the member absorbs the targets unchanged"""

    def absorbed(self, obs: Observations) -> Observations:
        """Observations as this member absorbs them: weights divided by `noise`, and targets 1 for its own class."""
        y = obs.y if self.positive_class is None else (obs.y == self.positive_class) * 1.0
        return replace(obs, y=y, weight=obs.weight / self.noise)


def refuse_negative(residual: FloatArray, prior: FloatArray) -> None:
    """Raise an error for variances of f given the shared variables (n,) that are negative beyond rounding.

    Raises
    ------
    NotPositiveDefinite
    """
    if np.any(residual < -NEGATIVE_SHARE * prior):
        raise NotPositiveDefinite(
            f"variance of f given the query values: expected at least 0, got {residual.min():.1e} at a prior variance "
            f"of {prior.max():.1e}; likely causes: (a) a kernel that is not positive semi-definite, (b) a damaged "
            "query factor; check the kernel, or restore the model from a copy"
        )

"""The committee: the prior plus the sum of all messages, and the posterior that follows.

The posterior precision Lambda = I + sum of precisions has eigenvalues of at least one, so its Cholesky factorisation
cannot fail, for any positive semi-definite messages (SYSTEMS I.7).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bcmdist.committee.measurements import QueryLoss
from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.message import Message
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.shared.belief import Belief, factored

Believe = Callable[[FloatArray, FloatArray], Belief]


@dataclass(frozen=True)
class Committee:
    """The sum of all messages about the shared variables; immutable.

    Absorbing is addition: any order and any grouping gives the same committee up to rounding.
    """

    total: Message
    believe: Believe = factored
    """makes the posterior from the summed eta and precision: `Shared.belief` of the shared variables"""

    def absorb(self, message: Message) -> "Committee":
        """Return the committee with `message` added."""
        return replace(self, total=self.total + message)

    def withdraw(self, message: Message) -> "Committee":
        """Return the committee with `message` subtracted, as if it had never been absorbed."""
        return replace(self, total=self.total - message)

    def aged(self, factor: float) -> "Committee":
        """Return the committee with all messages multiplied by `factor`."""
        return self if factor == 1.0 else replace(self, total=self.total.weighted(factor))

    @cached_property
    def posterior(self) -> Belief:
        """N(Lambda^-1 eta, Lambda^-1) with Lambda = I + precision (GBCM paper, eqs. 14-15)."""
        return self.believe(self.total.eta, self.total.precision)

    @property
    def log_evidence(self) -> float:
        """log p(all targets) in nats: evidence - 1/2 log|Lambda| + 1/2 eta' Lambda^-1 eta (SYSTEMS I.3)."""
        belief = self.posterior
        fit = np.vdot(self.total.eta, belief.mean)
        return float(self.total.evidence + 0.5 * (fit - belief.log_determinant))

    @cached_property
    def degrees_of_freedom(self) -> float:
        """tr(I - Lambda^-1), the mean over processes: how many shared variables the data determine (SYSTEMS I.8)."""
        return self.posterior.degrees_of_freedom


def next_mean(committee: Committee, step: Message | None) -> FloatArray:
    """The shared values at which the next pass linearises.

    The posterior mean; or, where experts give a separate Newton `step`, the mean with that step in place of the
    messages, unless its precision is not positive definite.
    """
    try:
        return committee.posterior.mean if step is None else replace(committee, total=step).posterior.mean
    except NotPositiveDefinite:  # far from the mode of a likelihood that is not log-concave
        return committee.posterior.mean


# Smallest measurable loss in nats per row: about the standard error of a mean score over a few thousand rows.
MEASURABLE_NATS = 0.01
# With fewer query points the comparison with half of them shows nothing: neither set matters next to the neighbouring
# rows. Arbitrary.
LEAST_HALVED = 100

# The query set is large enough if it has about twice as many points as the effective degrees of freedom of the data
# under it (SYSTEMS I.8: twice sufficed in a toy problem, once did not).
POINTS_PER_DEGREE = 2.0


def query_limits(degrees_of_freedom: float, points: int, asked: int) -> bool:
    """Whether the number of query points asked for limits the fit, so that more points could capture more."""
    return points >= asked and POINTS_PER_DEGREE * degrees_of_freedom > points


# Parts of `query_advice`: why fewer points than asked for suffice, and what to do if the points limit the fit.
DETERMINED = "which determine all"
ADVISED = "set --query to {} or more"


def query_advice(
    degrees_of_freedom: float,
    points: int,
    asked: int,
    estimated: float | None = None,
    *,
    of: str = "query points",
    advised: str = ADVISED,
    fewer: str | None = DETERMINED,
    loss: QueryLoss | None = None,
) -> str:
    """One line on whether the query set suffices, and what to set if it does not.

    Parameters
    ----------
    degrees_of_freedom : effective degrees of freedom of the data under the query points
    points, asked : number of query points, and the number asked for; fewer are used where they are equivalent
    estimated : degrees of freedom estimated beforehand, if the number of points was chosen from them
    of : name of the shared variables
    advised : what to do if the points limit the fit; "{}" is replaced by a number of points
    fewer : why fewer points than asked for suffice
    loss : for local predictions: the loss with half of the query points (`bcmdist.committee.measurements.QueryLoss`)
    """
    needed = POINTS_PER_DEGREE * degrees_of_freedom
    have, degrees = f"{points} {of}", f"{degrees_of_freedom:.0f} effective degrees of freedom"
    if estimated is not None:
        have += f" (chosen for an estimated {estimated:.0f})"
    if points < asked:
        return f"{have}, {fewer} {asked}, suffice for {degrees}"
    if needed <= points:
        return f"{have} suffice for {degrees}"
    more = advised.format(int(np.ceil(needed / 100) * 100))
    if estimated is not None and loss is None:  # more points always capture more; held-out rows show if it pays
        return (
            f"{have} represent {degrees}, more than was estimated; `bcmdist report` on rows that were not absorbed "
            "shows whether that suffices"
        )
    if loss is None or points < LEAST_HALVED:
        return f"{have} limit the fit, which has {degrees}; {more}"
    if loss.nats > max(MEASURABLE_NATS, loss.error):
        return (
            f"{have} limit the fit, which has {degrees}: with half of them rows left out are predicted worse by "
            f"{loss.nats:.2g} nats a row; {more}"
        )
    return (
        f"{have} suffice for local predictions: with half of them rows left out are predicted as well (to "
        f"{max(abs(loss.nats), loss.error):.2g} nats a row); for --method committee, with {degrees}, {more}"
    )

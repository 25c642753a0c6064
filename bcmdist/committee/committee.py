"""The committee: the prior plus the sum of all messages, and the belief that follows.

Precision Lambda = I + sum of precisions has eigenvalues of at least one, so its Cholesky
factorisation cannot fail, whatever the experts say (SYSTEMS I.7).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.message import Message
from bcmdist.model.shared.belief import Belief, factored

Believe = Callable[[np.ndarray, np.ndarray], Belief]


@dataclass(frozen=True)
class Committee:
    """All that has been absorbed about the shared variables; immutable.

    Absorbing is addition: any order and any grouping gives the same committee up to rounding.
    """

    total: Message
    believe: Believe = factored
    """what eta and precision of all messages make one believe: `Shared.belief` of what they are about"""

    def absorb(self, message: Message) -> "Committee":
        """The committee that has also absorbed `message`."""
        return replace(self, total=self.total + message)

    def withdraw(self, message: Message) -> "Committee":
        """The committee that has never absorbed `message`: what was added is subtracted."""
        return replace(self, total=self.total - message)

    def aged(self, factor) -> "Committee":
        """The committee for which all that it has absorbed counts `factor` times."""
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


def next_mean(committee: Committee, step: Message | None) -> np.ndarray:
    """Where a pass leads: to the mean of the belief, or by Newton's `step` of all experts where that has a maximum."""
    try:
        return committee.posterior.mean if step is None else replace(committee, total=step).posterior.mean
    except NotPositiveDefinite:  # far from the mode of a likelihood that is not log-concave
        return committee.posterior.mean


# Nats a row by which predictions differ measurably: about the standard error of a score of a few thousand rows.
MEASURABLE_NATS = 0.01
# So few query points may be too few for their half to tell: neither is felt beside the rows around. Arbitrary.
LEAST_HALVED = 100

# The query set is large enough where it has about twice as many points as degrees of freedom are
# seen through it (SYSTEMS I.8: twice sufficed in a toy problem, once did not).
POINTS_PER_DEGREE = 2.0


def query_limits(degrees_of_freedom, points, asked) -> bool:
    """Whether more points than were asked for could see more."""
    return points >= asked and POINTS_PER_DEGREE * degrees_of_freedom > points


# Why fewer points than were asked for say as much.
DETERMINED = "which determine the others of"
ADVISED = "set --query to {} or more"


def query_advice(
    degrees_of_freedom,
    points,
    asked,
    estimated=None,
    *,
    of="query points",
    advised=ADVISED,
    fewer=DETERMINED,
    loss=None,
) -> str:
    """One line on whether the query set suffices, and what to set when it does not.

    Fewer points than were asked for are left where these say as much, why, `fewer`. `estimated`: the degrees of
    freedom for which an automatic number of points was asked for. `of`: what is shared. `advised`: what to do
    where they limit the fit. `loss`: of local predictions,
    "nats" a row by which they are worse with half of the query points, and its standard "error".
    """
    wanted = POINTS_PER_DEGREE * degrees_of_freedom
    seen = f"{degrees_of_freedom:.0f} effective degrees of freedom are seen through {points} {of}"
    if estimated is not None:
        seen += f" (chosen for an estimated {estimated:.0f})"
    if points < asked:
        return f"{seen}, {fewer} {asked}: enough"
    if wanted <= points:
        return f"{seen}: enough"
    more = advised.format(int(np.ceil(wanted / 100) * 100))
    if estimated is not None and loss is None:  # more points always see more: whether it pays, rows have to say
        return (
            f"{seen}: more than was estimated; `bcmdist report` on rows that were not absorbed shows if it is good "
            "enough"
        )
    if loss is None or points < LEAST_HALVED:
        return f"{seen}: the query set limits the fit; {more}"
    with_half = f"with half of them rows left out are predicted worse by {loss['nats']:.2g} nats a row"
    if loss["nats"] > max(MEASURABLE_NATS, loss["error"]):
        return f"{seen}: {with_half}; {more}"
    return (
        f"{seen}: enough for local predictions, with half of which rows left out are predicted as well (to "
        f"{max(abs(loss['nats']), loss['error']):.2g} nats a row); for --method committee, {more}"
    )

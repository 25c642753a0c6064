"""Choice of a constant or linear prior mean, by the evidence or by rows left out."""

from bcmdist.learning.cross_validation import DECISIVE_NATS, CrossValidation
from bcmdist.learning.decisions import A_ROW, EVIDENCE, IN_ALL, ROWS_LEFT_OUT, Decision
from bcmdist.learning.left_out.score import Margin, margin
from bcmdist.learning.point import Point
from bcmdist.learning.stopping import GAIN_NATS

# Iterations before a constant and a linear mean are compared by the evidence alone.
MEAN_STEPS = 5


def mean_by_evidence(search, best: Point, trend) -> tuple[Point, bool, tuple[Decision, ...]]:
    """Choose a constant or linear mean by the evidence: the best point, whether the mean is linear, and the decision.

    Both climb the same number of steps from the constant mean's point, so that the gain is due to the mean.
    """
    if trend is None or search.limit.passed():
        return best, False, ()
    level = search.climb(best, MEAN_STEPS)
    search.objective = trend
    sloping = search.climb(search.again(best), MEAN_STEPS, goal=level.objective)
    gain = sloping.objective - level.objective
    linear = gain > GAIN_NATS
    found = Margin(gain if linear else -gain, None)
    return sloping if linear else level, linear, (_of_mean(linear, EVIDENCE, found, IN_ALL),)


def mean_by_rows(
    search, best: Point, validation: CrossValidation, trend, effort
) -> tuple[Point, CrossValidation, bool, tuple[Decision, ...]]:
    """Choose a constant or linear mean by left-out rows: point, its cross-validation, whether linear, the decision.

    Both means are scored at the same kernel, which was learned under a constant mean: that is where predictions
    between distant rows differ most. Under a linear mean the search goes on; its end is taken unless rows left out are
    predicted worse.
    """
    if trend is None or validation.trend is None or search.limit.passed():
        return best, validation, False, ()
    constant, sloping = (one.model_score(best.kernel, best.likelihood) for one in (validation, validation.trend))
    gain = margin(sloping, constant)
    linear = gain.nats > max(DECISIVE_NATS, gain.error or 0.0)
    decision = _of_mean(linear, ROWS_LEFT_OUT, gain if linear else margin(constant, sloping))
    if not linear:
        return best, validation, False, (decision,)
    search.objective = trend
    climbed = search.climb(search.again(best), effort.steps // 2)
    worse = validation.trend.model_score(climbed.kernel, climbed.likelihood).value < sloping.value - DECISIVE_NATS
    return search.again(best) if worse else climbed, validation.trend, True, (decision,)


def _of_mean(linear, criterion, found, unit=A_ROW):
    taken, other = ("linear", "constant") if linear else ("constant", "linear")
    return Decision("mean", taken, criterion, {other: found}, unit)

"""Select the model that predicts left-out rows best, from points of a search with adjusted variances."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist.learning.category_lengthscales import COLUMN
from bcmdist.learning.cross_validation import CrossValidation
from bcmdist.learning.decisions import EVIDENCE, ROWS_LEFT_OUT, Decision
from bcmdist.learning.left_out.adjust_variances import NoiseAdjusted, noise_adjusted
from bcmdist.learning.left_out.score import margin
from bcmdist.learning.point import Point

# Minimum gain per left-out row for which a model is preferred to the one of largest evidence: about the standard error
# of a difference over the few thousand rows. Not for labels: their evidence treats them as numbers, no tie-breaker.
DECISIVE_NATS = 0.005
# Maximum number of candidates that are climbed further, among those within this gap of the first one before climbing:
# kernels that were climbed less than the best one have gained .14 nats by further steps (kin40k).
CONTENDERS, HOPELESS_NATS = 2, 0.25


@dataclass(frozen=True)
class Judged:
    """The selected point, with adjusted variances, and the decisions."""

    point: Point
    chosen: NoiseAdjusted
    decisions: tuple[Decision, ...]


def select_model(
    validation: CrossValidation, best: Point, others: list[Point], climbed: Callable[[Point], Point]
) -> Judged:
    """Select the best of a point of largest evidence and of the most promising others.

    Parameters
    ----------
    validation : scores by left-out rows
    best : the point of largest evidence
    climbed : function that searches on from one of the other points
    """
    points = [best, *map(climbed, _promising(validation, best, others))]
    # Compared with adjusted variances: a point with too little noise loses to any other because of a few rows.
    choices = [_noise_adjusted(validation, point) for point in points]
    scores = [validation.model_score(chosen.kernel, chosen.likelihood) for chosen in choices]
    values = [score.value for score in scores]
    values[0] += 0.0 if best.likelihood.on_labels else DECISIVE_NATS
    taken = int(np.argmax(values))
    decisions = [_between(of, points, scores, taken) for of in ("kernel", "lengthscales")]
    decisions.append(_of_variances(validation, points[taken], choices[taken]))
    return Judged(points[taken], choices[taken], tuple(one for one in decisions if one))


def _promising(validation, best, others):
    """Return at most `CONTENDERS` of the other points, the most promising first.

    Points are ranked by left-out rows; for labels, where this would cost as much as the final comparison, by evidence.
    """
    if best.likelihood.on_labels:
        return sorted(others, key=lambda point: point.objective, reverse=True)[:CONTENDERS]
    if not others:
        return []
    least = validation.model_score(best.kernel, best.likelihood).value - HOPELESS_NATS
    values = [validation.model_score(point.kernel, point.likelihood).value for point in others]
    order = np.argsort(values)[::-1][:CONTENDERS]
    return [others[k] for k in order if values[k] >= least]


def _noise_adjusted(validation, point) -> NoiseAdjusted:
    return noise_adjusted(lambda *at: validation.noise_score(*at).total, point.kernel, point.likelihood)


def _between(of, points, scores, taken) -> Decision | None:
    """Compare the selected point with the best of each other kind; None if there was no alternative."""
    kinds = [KINDS[of](point) for point in points]
    best = {kind: max(score.value for k, score in zip(kinds, scores, strict=True) if k == kind) for kind in kinds}
    over = {
        kind: margin(scores[taken], score)
        for kind, score in zip(kinds, scores, strict=True)
        if kind != kinds[taken] and score.value == best[kind]
    }
    told = all(found.nats >= 0.0 for found in over.values())
    return Decision(of, kinds[taken], ROWS_LEFT_OUT if told else EVIDENCE, over) if over else None


def _lengthscales(point):
    """Return how many lengthscales a point has, in words."""
    if point.tied:
        return "one for the inputs as given"
    if len(set(point.groups)) < len(point.groups):
        return COLUMN
    one = all(len(point.kernel.parameters[name]) == 1 for name in point.kernel.lengthscales)
    return "one for all inputs" if one else "one for each input"


KINDS: dict[str, Callable[[Point], str]] = {"kernel": lambda point: point.name, "lengthscales": _lengthscales}


def _of_variances(validation, point, chosen) -> Decision | None:
    """Record the gain of adjusted over learned variances; None if nothing changed."""
    if all(factor == 1.0 for factor in chosen.factors.values()):
        return None
    scores = [validation.noise_score(one.kernel, one.likelihood) for one in (chosen, point)]
    taken = ", ".join(f"{name} x {factor:.3g}" for name, factor in chosen.factors.items())
    return Decision("variances", taken, ROWS_LEFT_OUT, {"as learned": margin(*scores)})

"""Refine hyper-parameters and query points by the log evidence of the whole committee, after learning from blocks.

    kmeans, random, ...    optimise hyper-parameters; query points are fixed (random: HPEV-rand of the thesis)
    optimised              optimise query points too
    hpev-sgev, hpev-sggp   alternate: optimise hyper-parameters, then choose query points again at the new ones

The last two are from Quinonero-Candela's thesis (2004), section 3.4 (SYSTEMS T16), for any committee whose evidence has
a gradient here. With the augmented expert it is the evidence of the reduced-rank process that it augments (3.3.3).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning.evidence.cached import CachedObjective
from bcmdist.learning.evidence.independent_rows import IndependentRowsObjective, climbed_jointly
from bcmdist.learning.evidence.objectives import CommitteeObjective, improved_points
from bcmdist.learning.point import Point, at_bounds
from bcmdist.learning.query_selection import ALTERNATED
from bcmdist.learning.search import polish
from bcmdist.learning.training_context import TrainingContext
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.query import Query, prepare

# Iterations on the evidence of the whole committee, and those that move query points: each evaluation passes over all
# rows twice.
POLISH_STEPS = 10
MOVING_STEPS = 5
# Iterations with independent rows, on hyper-parameters alone or jointly with query points: these cost less.
TOGETHER_STEPS = {"quick": 30, "normal": 100, "thorough": 300}
# Turns of choosing points and climbing (ten in the thesis), and iterations per turn.
TURNS = {"quick": 3, "normal": 10, "thorough": 10}
TURN_STEPS = {"quick": 5, "normal": 10, "thorough": 30}
# Factors on the noise for the start of a climb, if the residual variance of rows is not kept (sor).
NOISE, NOISE_FACTORS = "noise_variance", (1.0, 10.0, 100.0)
# Minimum jitter share of query points that move: they may come close to each other.
MOVING_JITTER = 1e-8

Choice = Callable[[Kernel, Likelihood, int], np.ndarray]
"""Query points (Q, D) at given hyper-parameters; the number of the turn changes the random candidates."""


def most_steps(method: str, effort: str, *, couples: bool) -> int:
    """Maximum iterations, for committees with coupled or independent rows in a partition."""
    if method in ALTERNATED:
        return TURNS[effort] * TURN_STEPS[effort]
    return POLISH_STEPS if couples else TOGETHER_STEPS[effort]


def polished(
    query: Query, start: Point, context: TrainingContext, *, residual: str, method: str, choose: Choice, log: str
) -> tuple[Query, Likelihood]:
    """Return query set and likelihood after maximising the evidence of the whole committee.

    Updates `evaluations` and `at_bounds` in the context's findings.

    Parameters
    ----------
    query : query set at the start
    residual : residual of the committee whose evidence is maximised
    method : method that chooses query points
    log : path of the log of evaluations (`CachedObjective`)
    """
    objective, steps = _objective(query, context, residual, method), TOGETHER_STEPS[context.effort]
    if RESIDUALS[residual].keeps == 0.0:
        start = _noisier(CachedObjective(objective, log), start)
        context.found["evaluations"] += len(NOISE_FACTORS)
    if method in ALTERNATED:
        turns, each = TURNS[context.effort], TURN_STEPS[context.effort]
        best, evaluations = alternated(objective, start, choose, log, turns=turns, steps=each)
    elif isinstance(objective, CommitteeObjective):
        if method == "optimised":
            at = (start.kernel, start.likelihood, objective.points)
            objective.points = improved_points(objective, *at, MOVING_STEPS)
        best, evaluations = _climbed(objective, start, log, POLISH_STEPS)
    elif method == "optimised":
        best, objective.points, evaluations = climbed_jointly(objective, start, query.inputs, steps)
    else:
        best, evaluations = _climbed(objective, start, log, steps)
    context.found["evaluations"] += evaluations
    context.found["at_bounds"] = at_bounds(best)
    jitters = (objective.jitter,)  # the objective's jitter: another one gives another committee
    made = prepare(objective.points, kernel=best.kernel, mean=query.mean, residual=query.residual, jitters=jitters)
    return made, best.likelihood


def _objective(query, context, residual, method) -> CommitteeObjective | IndependentRowsObjective:
    """Make the objective for these query points."""
    of_rows = RESIDUALS[residual]
    still = of_rows.couples and method not in ALTERNATED
    jitter = query.jitter_share if still else max(query.jitter_share, MOVING_JITTER)
    where: dict[str, Any] = {"points": query.points, "jitter": jitter, "store": context.store}
    where |= {"scaling": context.scaling, "mean": query.mean.name, "classes": context.classes}
    if of_rows.couples:
        return CommitteeObjective(context.runtime, context.parts, **where)
    return IndependentRowsObjective(context.runtime, context.parts, residual=residual, **where)


def _noisier(objective, start) -> Point:
    """Return the start with the noise, among multiples of its own, of the highest evidence.

    The noise learned with exact processes makes the part of f that few query points leave unexplained seem impossible.
    A climb from there may jump to an optimum that is noise only: with 200 rows and 32 random points to -286 nats, in
    place of -30.
    """
    noise, most = start.likelihood.parameters[NOISE], start.likelihood.bounds[NOISE][1]
    values = [np.minimum(factor * noise, most) for factor in NOISE_FACTORS]
    begun = [replace(start, likelihood=start.likelihood.with_parameters({NOISE: value})) for value in values]
    return max(begun, key=lambda point: objective(point.kernel, point.likelihood)[0])


def alternated(
    objective: CommitteeObjective | IndependentRowsObjective,
    start: Point,
    choose: Choice,
    log: str,
    *,
    turns: int,
    steps: int,
) -> tuple[Point, int]:
    """Alternate between choosing query points and climbing in hyper-parameters; return the best point and evaluations.

    The first turn keeps the query points. Each further turn chooses points at the best hyper-parameters so far, and
    climbs from there by at most `steps` iterations. A turn that ends lower than the best so far (evidence times the
    search's weak prior) is discarded; the next one has other random candidates. The objective keeps the best points.
    """
    best, points, evaluations = start, objective.points, 0
    for turn in range(turns):
        if turn:
            objective.points = choose(best.kernel, best.likelihood, turn)
        reached, made = _climbed(objective, best, log, steps)
        evaluations += made
        if reached.objective > best.objective:
            best, points = reached, objective.points
    objective.points = points
    return best, evaluations


def _climbed(objective, start, log, steps) -> tuple[Point, int]:
    """Climb in hyper-parameters; return the end point and the number of evaluations."""
    known, inputs = CachedObjective(objective, log), objective.points.shape[1]
    found = polish(known, start, inputs=inputs, steps=steps)
    made = replace(start, kernel=found.kernel, likelihood=found.likelihood, objective=found.objective)
    return made, found.evaluations

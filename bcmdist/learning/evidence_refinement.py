"""Refine hyper-parameters and query points by the log evidence of the whole committee, after learning from blocks.

    kmeans, random, ...    optimise hyper-parameters; query points are fixed (random: HPEV-rand of the thesis)
    optimised              optimise query points too
    hpev-sgev, hpev-sggp   alternate: optimise hyper-parameters, then choose query points again at the new ones

The last two are from Quinonero-Candela's thesis (2004), section 3.4 (SYSTEMS T16), for any committee whose evidence has
a gradient here. With the augmented expert it is the evidence of the reduced-rank process that it augments (3.3.3).

For a committee with independent rows given v (fitc, sor), gradients in hyper-parameters and query points come from the
same two rounds over the rows (`independent_rows_gradient`), in O(n Q^2). So the query points, the pseudo-inputs of
Snelson & Ghahramani (2006), and the hyper-parameters can be optimised jointly.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist import linalg
from bcmdist.committee import passes
from bcmdist.committee.absorbed import absorbed_partitions
from bcmdist.committee.committee import Committee
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning.evidence.cached import CachedObjective
from bcmdist.learning.evidence.committee_gradient import committee_gradient, points_gradient
from bcmdist.learning.evidence.committee_tasks import Trial, TrialGradients, TrialMessage
from bcmdist.learning.evidence.objectives import CommitteeObjective, EvidenceObjective, identity_of, improved_points
from bcmdist.learning.point import (
    NOISE,
    Point,
    at_bounds,
    bounds_of,
    moved,
    moves_of,
    prior_center,
    prior_shares,
    theta_of,
)
from bcmdist.learning.query_selection import ALTERNATED
from bcmdist.learning.search import PRIOR_SD, polish
from bcmdist.learning.stopping import stop_at_first, stop_when_idle
from bcmdist.learning.time_limit import TimeLimit
from bcmdist.learning.training_context import TrainingContext
from bcmdist.model.kernels import Kernel, finite_metric, split_parameters
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import named_parameters
from bcmdist.model.scaling import scaling_to_array
from bcmdist.model.shared.query import Query, prepare
from bcmdist.storage.commits import ModelStore


class IndependentRowsObjective(EvidenceObjective):
    """Log evidence of a fitc or sor committee that has absorbed all partitions, with Gaussian noise.

    Parameters
    ----------
    residual : "diagonal" or "none"
    others : as for `CommitteeObjective`
    """

    def __init__(self, runtime, parts, *, points, jitter, store: ModelStore, residual: str, **others: Any):
        super().__init__(runtime, parts, **others)
        self.points, self.jitter, self.store = np.array(points, dtype=float), jitter, store
        self.residual = residual

    @property
    def identity(self) -> str:
        located = hashlib.sha256(self.points.tobytes()).hexdigest()
        return identity_of(self.parts, self.residual, self.scaling.digest, self.mean, located, self.jitter)

    def __call__(self, kernel, likelihood):
        value, gradient, _ = self.at(kernel, likelihood, self.points)
        return value, gradient

    def at(self, kernel, likelihood, points) -> tuple[float, np.ndarray, np.ndarray]:
        """Value at query points (Q, D), and its gradients in the log parameters (P,) and in the points (Q, D)."""
        try:
            return self._at(kernel, likelihood, points)
        except NotPositiveDefinite as error:
            failed = self._failed(str(error), len(kernel.theta) + sum(map(len, likelihood.parameters.values())))
            return *failed, np.zeros(points.shape)

    def _at(self, kernel, likelihood, points):
        with self.store.transient({"points": points}) as references:
            how = {"mean": self.mean, "classes": self.classes, "kernel": kernel, "residual": self.residual}
            trial = Trial(self.scaling, references["points"], self.jitter, likelihood=likelihood, **how)
            query = trial.query()  # may fail: here rather than on every worker
            committee = Committee(self.runtime.sum(TrialMessage(trial), self.parts, label="learn").message)
            belief = committee.posterior
            with self.store.transient({"mean": belief.mean, "covariance": linalg.inverse(belief.factor)}) as moments:
                total = self.runtime.sum(TrialGradients(trial, **moments), self.parts, label="learn")
        parameters = committee_gradient(query, belief, total.parameters)
        return committee.log_evidence, parameters, points_gradient(query, belief, total.points)


def climbed_jointly(
    objective: IndependentRowsObjective, start: Point, inputs: int, steps: int, limit: TimeLimit | None = None
) -> tuple[Point, np.ndarray, int]:
    """Maximise the log evidence over hyper-parameters and query points jointly, by at most `steps` L-BFGS iterations.

    Return the best point, its query points (Q, D) and the number of evaluations. The evidence is never lower than at
    the start. Coordinates are in units of the kernel's lengthscales; hyper-parameters have the search's weak prior.
    """
    shape, unit = objective.points.shape, finite_metric(start.kernel, inputs)
    moves = moves_of(start)
    at = moves.argmax(axis=0)  # per step, index of the first of the tied parameters that it moves, which are equal
    first, bounds = theta_of(start)[at], np.log(bounds_of(start))[at]
    best: list[Any] = [-np.inf, start, objective.points]
    evaluations, wall = 0, 0.0

    def loss(flat):
        nonlocal evaluations, wall
        evaluations += 1
        points, theta = flat[: -len(first)].reshape(shape) * unit, moves @ flat[-len(first) :]
        point = moved(start, theta)
        value, gradient, to_points = objective.at(point.kernel, point.likelihood, points)
        if not np.isfinite(value):
            return wall, np.zeros_like(flat)  # from which L-BFGS steps back
        gap, share = (theta - prior_center(point, inputs)) / PRIOR_SD, prior_shares(point)
        value, gradient = value - 0.5 * (share * gap) @ gap, gradient - share * gap / PRIOR_SD
        wall = max(wall, 1e3 * (1.0 + abs(value)))
        if value > best[0]:
            best[:] = [value, point, points]
        return -value, -np.concatenate([(to_points * unit).ravel(), gradient @ moves])

    free = [(None, None)] * objective.points.size
    begun = np.concatenate([(objective.points / unit).ravel(), first.clip(*bounds.T)])
    options = {"maxiter": steps, "ftol": 0.0}
    stop = stop_at_first(stop_when_idle(), (limit or TimeLimit()).stop_when_passed())
    minimize(loss, begun, jac=True, method="L-BFGS-B", bounds=[*free, *bounds], callback=stop, options=options)
    return best[1], best[2], evaluations


# Iterations on the evidence of the whole committee, and those that move query points: each evaluation passes over all
# rows twice.
POLISH_STEPS = 10
MOVING_STEPS = 5
# Iterations with independent rows, which cost less: on hyper-parameters alone, and jointly with query points, when
# means are soon as good as they get, and variances improve further (validation rows of kin40k).
INDEPENDENT_STEPS = {"quick": 30, "normal": 100, "thorough": 300}
JOINT_STEPS = {"quick": 10, "normal": 50, "thorough": 300}
# Numbers of turns, each of which chooses points and optimises hyper-parameters (ten in the thesis), and of iterations
# per turn.
TURNS = {"quick": 3, "normal": 10, "thorough": 10}
TURN_STEPS = {"quick": 5, "normal": 10, "thorough": 30}
# Factors on the noise variance that are tried as starts, if the residual variance of rows is not kept (sor).
NOISE_FACTORS = (1.0, 10.0, 100.0)
# Minimum jitter share of query points that move: they may come close to each other.
MOVING_JITTER = 1e-8

Choice = Callable[[Kernel, Likelihood, int], np.ndarray]
"""Query points (Q, D) at given hyper-parameters; the number of the turn changes the random candidates."""


def most_steps(method: str, effort: str, *, couples: bool) -> int:
    """Maximum iterations, for committees with coupled or independent rows in a partition."""
    if method in ALTERNATED:
        return TURNS[effort] * TURN_STEPS[effort]
    if method == "optimised" and not couples:
        return JOINT_STEPS[effort]
    return POLISH_STEPS if couples else INDEPENDENT_STEPS[effort]


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
    context.limit.begin("evidence of the committee", 1.0)
    objective = _objective(query, context, residual, method)
    steps = most_steps(method, context.effort, couples=RESIDUALS[residual].couples)
    if RESIDUALS[residual].keeps == 0.0:
        start = _noisier(CachedObjective(objective, log), start)
        context.found["evaluations"] += len(NOISE_FACTORS)
    if method in ALTERNATED:
        turns, each = TURNS[context.effort], TURN_STEPS[context.effort]
        best, evaluations = alternated(objective, start, choose, log, turns=turns, steps=each, limit=context.limit)
    elif isinstance(objective, CommitteeObjective):
        if method == "optimised":
            at = (start.kernel, start.likelihood, objective.points)
            objective.points = improved_points(objective, *at, MOVING_STEPS)
        best, evaluations = _climbed(objective, start, log, steps, context.limit)
    elif method == "optimised":
        best, objective.points, evaluations = climbed_jointly(objective, start, query.inputs, steps, context.limit)
    else:
        best, evaluations = _climbed(objective, start, log, steps, context.limit)
    context.found["unfinished"] = context.limit.to_json()
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
    """Return the start with the noise variance replaced by the multiple of it that has the highest evidence.

    The noise learned with exact processes is too small for the part of f that few query points leave unexplained.
    From there L-BFGS may jump to a poor optimum, at which all variation is noise.
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
    limit: TimeLimit | None = None,
) -> tuple[Point, int]:
    """Alternate between choosing query points and optimising hyper-parameters.

    Return the best point and the number of evaluations.

    The first turn keeps the query points. Each further turn chooses points at the best hyper-parameters so far, and
    optimises from there by at most `steps` iterations. A turn that ends lower than the best so far (evidence times the
    search's weak prior) is discarded; the next one has other random candidates. The objective keeps the best points.
    """
    best, points, evaluations = start, objective.points, 0
    for turn in range(turns):
        if turn and limit and limit.passed():
            break
        if turn:
            objective.points = choose(best.kernel, best.likelihood, turn)
        reached, made = _climbed(objective, best, log, steps, limit)
        evaluations += made
        if reached.objective > best.objective:
            best, points = reached, objective.points
    objective.points = points
    return best, evaluations


def _climbed(objective, start, log, steps, limit) -> tuple[Point, int]:
    """Optimise hyper-parameters; return the end point and the number of evaluations."""
    remembered, inputs = CachedObjective(objective, log), objective.points.shape[1]
    found = polish(remembered, start, inputs=inputs, steps=steps, limit=limit)
    made = replace(start, kernel=found.kernel, likelihood=found.likelihood, objective=found.objective)
    return made, found.evaluations


def evidence_gradient(snapshot: Snapshot, runtime) -> dict[str, np.ndarray]:
    """Gradient of `committee.log_evidence` in the log hyper-parameters, by name (SYSTEMS I.3, I.4).

    Raises
    ------
    InvalidOption
        The likelihood has several processes, or is not Gaussian and the passes have not converged.
    """
    model, how, done = snapshot.model, snapshot.facts.linearisation.approximation, snapshot.facts.linearisation.passes
    query, likelihood = model.query, model.likelihood
    model.refuse_moved_inputs("gradient")
    converged = likelihood.exact or (how == "laplace" and done and passes.within(done[-1]))
    if likelihood.processes > 1 or not converged:
        raise InvalidOption(
            f"gradient: expected one latent process and converged Laplace passes, got {likelihood.name} after "
            f"{len(done)} passes by {how}; fit with --passes auto"
        )
    with snapshot.store.transient({"scaling": scaling_to_array(model.scaling)}) as references:
        objective = CommitteeObjective(
            runtime,
            absorbed_partitions(snapshot),
            scaling=references["scaling"],
            mean=query.mean.name,
            points=query.points,
            jitter=query.jitter_share,
            store=snapshot.store,
            classes=model.classes,
        )
        flat = objective.gradient(query.kernel, likelihood, snapshot.committee.posterior)
    return split_parameters(named_parameters(query.kernel, likelihood), flat)

"""Search for the hyper-parameters that maximise a log evidence, and for the kernel with the largest one.

Several starts with one lengthscale for all inputs, then lengthscales per input from the best: a single start
with many lengthscales often ends in a bad optimum. If the rows depend on the metric, as in spatial cells, further
rounds use rows that are near in the metric learned so far, and left-out rows choose the model. The objective
includes a weak log-normal prior on every parameter, which only matters where the data are uninformative.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.learning.category_lengthscales import category_lengthscales_by_evidence, freed
from bcmdist.learning.cross_validation import DECISIVE_NATS, CrossValidation, Judged, select_model
from bcmdist.learning.decisions import EVIDENCE, IN_ALL, Decision
from bcmdist.learning.left_out.score import Margin
from bcmdist.learning.mean_choice import mean_by_evidence, mean_by_rows
from bcmdist.learning.outputs import ONE_OUTPUT, OutputColumns, ranks_tried
from bcmdist.learning.point import (
    Point,
    at_bounds,
    bounds_of,
    expanded,
    moved,
    moves_of,
    noisier,
    prior_center,
    prior_shares,
    theta_of,
)
from bcmdist.learning.starts import begun, isotropic_points, with_name
from bcmdist.learning.stopping import stop_at_first, stop_out_of_reach, stop_when_idle
from bcmdist.learning.structure import ColumnRoles, sums
from bcmdist.learning.time_limit import TimeLimit
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.runtime.progress import Meter

Objective = Callable[[Kernel, Likelihood], tuple[float, np.ndarray]]
"""Summed log evidence and its gradient in the log parameters (kernel first); -inf if it fails numerically."""

# Kernels that `auto` chooses from. The first climbs from all starts; each other from a start or the best point so far.
AUTO_KERNELS = ("matern32", "se", "matern52", "matern12")
# Standard deviation of the log-normal prior, about a factor of 20 either way. Weak.
PRIOR_SD = 3.0
NO_ROLES = ColumnRoles()
# Steps of the search, and the share of its time by which each must end: choices come last, and need theirs.
SHARES = {
    "first lengthscales": 0.4,
    "a lengthscale for each input": 0.5,
    "other kernels": 0.6,
    "sums of kernels": 0.7,
    "further rounds": 0.8,
    "choice by rows left out": 0.9,
}
ALL_BY_EVIDENCE = dict.fromkeys(SHARES, 0.9)  # where rows left out choose nothing


@dataclass(frozen=True)
class Effort:
    """Amount of work in learning."""

    rows: int
    """approximate number of rows whose evidence is summed, if they are not chosen by neighbourhood"""
    block: int
    """rows of a neighbourhood"""
    per_density: int
    """neighbourhoods at each sampling density"""
    rounds: int
    """rounds with neighbourhoods in the metric learned so far"""
    isotropic_steps: int
    """optimiser iterations per start with one lengthscale"""
    steps: int
    """optimiser iterations with lengthscales per input"""
    sums: bool = True
    """whether `auto` tries sums of kernels, too (`bcmdist.learning.structure`)"""


EFFORTS = {
    "quick": Effort(2000, 400, 1, 1, 10, 20, sums=False),
    "normal": Effort(5000, 500, 2, 2, 10, 50),
    "thorough": Effort(20_000, 1000, 2, 3, 30, 150),
}


@dataclass(frozen=True)
class Learned:
    """Learned hyper-parameters and diagnostics of the search."""

    kernel_name: str
    kernel: Kernel
    likelihood: Likelihood
    objective: float
    """summed log evidence plus log prior at the optimum, in nats"""
    evaluations: int
    at_bounds: list[str]
    """parameters that ended at a bound"""
    tried: dict[str, float]
    """best objective of each kernel tried, over the same rows"""
    noise_factors: dict[str, float] = field(default_factory=dict)
    """factors by which left-out rows changed variances; see `NoiseAdjusted.factors`"""
    linear: bool = False
    """whether a linear mean replaced the constant one"""
    decisions: tuple[Decision, ...] = ()
    unfinished: dict[str, Any] | None = None
    """what was left out to keep the time (`TimeLimit.to_json`)"""


class _Search:
    """Maximise one objective from several starts, counting evaluations."""

    def __init__(
        self,
        objective: Objective,
        inputs: int,
        groups: tuple[int, ...] = (),
        meter: Meter | None = None,
        limit: TimeLimit | None = None,
    ):
        self.objective = objective
        self.meter = meter
        self.limit, self.shares = limit or TimeLimit(), SHARES
        self.inputs = inputs
        self.groups = groups
        self.evaluations = 0

    def begin(self, step: str) -> None:
        """Begin a step of `SHARES`, which is cut short when its share of the time has passed."""
        self.limit.begin(step, self.shares[step])

    def climb(self, start: Point, steps, *, goal=-math.inf) -> Point:
        """Return the best point that L-BFGS finds in at most `steps` iterations, or until the time has passed; never
        worse than the start.

        goal : objective that the point must exceed to be of use; the climb ends early if it is out of reach
        """
        if self.limit.passed():
            return start if math.isfinite(start.objective) else self.again(start)
        start = self._with_noise(start)
        center, bounds = theta_of(start), np.log(bounds_of(start))
        best: list[Any] = [start.objective, center]
        moves, prior = moves_of(start), self._prior(start)

        def loss(step):
            theta = (center + moves @ step).clip(*bounds.T)
            value, gradient = self._penalised(moved(start, theta), theta, prior)
            if value > best[0]:
                best[:] = [value, theta]
            if not math.isfinite(value):
                # A high wall that L-BFGS steps back from.
                return 1e3 * (1.0 + abs(start.objective)), np.zeros_like(step)
            return -value, -gradient @ moves

        # Tied parameters may move until the smallest of them is at a bound; larger ones are clipped before.
        room = [(bounds - center[:, None])[column > 0].max(axis=0) for column in moves.T]
        minimize(
            loss,
            np.zeros(len(room)).clip(*np.transpose(room)),
            jac=True,
            method="L-BFGS-B",
            bounds=room,
            callback=stop_at_first(stop_when_idle(), stop_out_of_reach(-goal, steps), self.limit.stop_when_passed()),
            options={"maxiter": steps, "ftol": 0.0},
        )
        return replace(moved(start, best[1]), objective=best[0])

    def _with_noise(self, start):
        """Raise the noise of the start while that helps: too little is far from any optimum where inputs repeat."""
        while (more := noisier(start)) and (more := self.again(more)).objective > start.objective:
            start = more
        return start

    def at(self, name, kernel, likelihood, *, tied=False) -> Point:
        """Return the point at these hyper-parameters, with its objective; `tied` as in `Point`."""
        return self.again(Point(name, kernel, likelihood, -math.inf, tied, self.groups))

    def again(self, point) -> Point:
        """Re-evaluate a point under the current objective."""
        return replace(point, objective=self._penalised(point, theta_of(point), self._prior(point))[0])

    def gradient(self, point) -> np.ndarray:
        """Gradient of the objective without the prior in the log parameters, (P,); 0 where it fails numerically."""
        self.evaluations += 1
        return self.objective(point.kernel, point.likelihood)[1]

    def _prior(self, point):
        """Centre and weights of the prior, each (P,); the same at all points of a climb."""
        return prior_center(point, self.inputs), prior_shares(point)

    def _penalised(self, point, theta, prior):
        self.evaluations += 1
        value, gradient = self.objective(point.kernel, point.likelihood)
        if self.meter:
            self.meter.count(self.objective, value)
        center, share = prior
        gap = (theta - center) / PRIOR_SD
        return value - 0.5 * (share * gap) @ gap, gradient - share * gap / PRIOR_SD


def learn(
    objective_for: Callable[[Kernel | None], Objective],
    kernel_name,
    likelihood: Likelihood,
    *,
    inputs,
    effort: Effort,
    groups: tuple[int, ...] = (),
    scales=None,
    outputs: OutputColumns = ONE_OUTPUT,
    roles: ColumnRoles | None = NO_ROLES,
    validation_for: Callable[[Kernel], CrossValidation] | None = None,
    trend: Objective | None = None,
    representable: Callable[[Kernel], bool] = lambda _: True,
    meter: Meter | None = None,
    limit: TimeLimit | None = None,
) -> Learned:
    """Maximise an objective over the parameters of a kernel and a likelihood.

    Parameters
    ----------
    objective_for : returns the objective over rows that are near in the metric of a kernel (None: of the scaled inputs)
    kernel_name : expression of `parse_kernel`, or "auto" to choose among `AUTO_KERNELS`
    groups : (D,) for each input the first input that shares its lengthscale; () if each input has its own
    scales : (D,) divisors of the original inputs: one lengthscale for unscaled inputs is tried too
    outputs : inputs that name a row's output; the kernel is of all outputs, and its rank is chosen
    roles : of inputs in the sums that are tried; None if only kernels of all columns may be chosen
    validation_for : cross-validation near in a kernel's metric, which chooses the model; None: the evidence chooses
    trend : the objective over the current rows under a linear mean, which may replace the constant mean
    representable : whether a kernel may be chosen; if none may, all may
    meter, limit : progress meter, which counts evaluations, and time limit of the search; default: none

    Raises
    ------
    NotPositiveDefinite
        The objective could not be evaluated at any start.
    """
    search, auto = _Search(objective_for(None), inputs, groups, meter, limit), kernel_name == "auto"
    search.shares = SHARES if validation_for else ALL_BY_EVIDENCE
    names = [outputs.kernel(name) for name in (AUTO_KERNELS if auto else (kernel_name,))]
    coarse, points = _coarse(search, objective_for, names, likelihood, effort, scales)
    best = _by_input(search, coarse, effort)
    goal = best.objective if validation_for is None else -math.inf  # rows left out may prefer a lower evidence
    points = [best, *_other_kernels(search, points, best, effort, goal)]
    search.begin("sums of kernels")
    more = functools.partial(sums, roles=roles) if auto and not outputs else ranks_tried
    summed, gaining = ([], []) if search.limit.passed() else more(search, points, effort)
    tried, points = _best_by_name([*points, *summed]), [*points, *gaining]
    best, *others = _representable(sorted(points, key=_objective, reverse=True), representable)
    search.begin("further rounds")
    if validation_for is None:
        return _by_evidence(search, best, others, tried, trend, effort)
    best, validation = _further_rounds(search, best, objective_for, validation_for, effort)
    search.begin("choice by rows left out")
    best, validation, linear, of_mean = mean_by_rows(search, best, validation, trend, effort)
    others += [*_plain(search, coarse, best), *filter(None, [freed(best)])]
    won = select_model(validation, best, [] if search.limit.passed() else others, _climb_near(search, best, effort))
    return _concluded(search, won, tried, linear, of_mean)


def _coarse(search, objective_for, names, likelihood, effort, scales) -> tuple[Point, list[Point]]:
    """The best point with one lengthscale, on rows that are near in its metric, and those of all kernels."""
    search.begin("first lengthscales")
    points = isotropic_points(search, names, likelihood, effort, scales)
    coarse = max(points, key=_objective)
    search.objective = objective_for(coarse.kernel)
    coarse = search.again(coarse)
    if not math.isfinite(coarse.objective):  # the optimum fails numerically on these rows: search again
        coarse = max(points := isotropic_points(search, names, likelihood, effort, scales), key=_objective)
    return coarse, points


def _by_input(search, coarse, effort) -> Point:
    """The best kernel with a lengthscale for each input."""
    search.begin("a lengthscale for each input")
    return search.climb(expanded(coarse, search.inputs), effort.steps)


def _climb_near(search, best, effort) -> Callable[[Point], Point]:
    """Return a function that climbs from a point, or from the best one with its kernel."""

    def climbed(point):
        start = point if point.name == best.name else begun(search, point.name, _alike([best, point], point))
        return search.climb(start, effort.isotropic_steps)

    return climbed


def _other_kernels(search, points, best, effort, goal) -> list[Point]:
    """Climb with each other kernel, from its isotropic point, which may be a poor optimum, or from the best point.

    goal : objective that a kernel must exceed, as in `_Search.climb`
    """
    search.begin("other kernels")
    if search.limit.passed():
        return []
    places = {p.name: [best, expanded(p, search.inputs)] for p in sorted(points, key=_objective) if p.name != best.name}
    starts = [begun(search, name, at) for name, at in places.items()]
    return [search.climb(start, effort.isotropic_steps, goal=goal) for start in starts]


def _further_rounds(search, best, objective_for, validation_for, effort) -> tuple[Point, CrossValidation]:
    """Climb on in neighbourhoods of the metric learned so far; the best point of all rounds, and its cross-validation.

    Neighbourhoods become denser, and what lies far from rows may be lost: an earlier point is taken where it predicts
    rows and blocks left out better. Not for labels, whose scores cost as much as the final comparison.
    """
    earlier = []
    for _ in range(effort.rounds):
        if search.limit.passed():
            break
        earlier.append(best)
        search.objective = objective_for(best.kernel)
        best = search.climb(search.again(best), effort.steps // 2)
    validation = validation_for(best.kernel)
    if best.likelihood.on_labels or search.limit.passed():
        return best, validation
    least = validation.model_score(best.kernel, best.likelihood).value + DECISIVE_NATS
    scored = [(validation.model_score(point.kernel, point.likelihood).value, point) for point in earlier]
    value, point = max(scored, key=lambda pair: pair[0], default=(least, best))
    return (search.again(point) if value > least else best), validation


def _by_evidence(search, best, others, tried, trend, effort):
    """Finish learning by the evidence alone, without left-out rows."""
    of_kernel = _kernel_by_evidence(best, others)
    best, of_levels = category_lengthscales_by_evidence(search, best, effort)
    best, linear, of_mean = mean_by_evidence(search, best, trend)
    return _learned(search, best, tried, linear=linear, decisions=of_kernel + of_levels + of_mean)


def _representable(points, representable):
    """Points whose kernels may be chosen; all points if none may."""
    return [point for point in points if representable(point.kernel)] or points


def _concluded(search, won: Judged, tried, linear, of_mean):
    chosen = won.chosen
    best = expanded(replace(won.point, kernel=chosen.kernel, likelihood=chosen.likelihood), search.inputs)
    return _learned(search, best, tried, chosen.factors, linear=linear, decisions=of_mean + won.decisions)


def _alike(points, point):
    """Points with the same hyper-parameters as a point, itself among them; lengthscales may be common."""

    def shapes(one):
        return [(n, n in one.kernel.lengthscales or len(v)) for n, v in one.kernel.parameters.items()]

    return [one for one in points if shapes(one) == shapes(point)]


def _plain(search, coarse, best):
    """The best kernel with one lengthscale, near the optimum of the isotropic search; [] if it has only one anyway."""
    one = all(len(best.kernel.parameters[name]) == 1 for name in best.kernel.lengthscales)
    if one or not _alike([coarse], best):
        return []
    kernel = with_name(coarse, best.name, search.inputs)
    return [search.at(best.name, kernel, coarse.likelihood, tied=coarse.tied)]


def _kernel_by_evidence(best, others):
    """Record the choice of the kernel with the largest evidence."""
    over = {p.name: Margin(best.objective - p.objective, None) for p in others if math.isfinite(p.objective)}
    return (Decision("kernel", best.name, EVIDENCE, over, IN_ALL),) if over else ()


def polish(objective: Objective, start: Point, *, inputs, steps, limit: TimeLimit | None = None) -> Learned:
    """Climb another objective for a few iterations from a learned point; the result is never lower than the start."""
    search = _Search(objective, inputs, start.groups, limit=limit)
    return _learned(search, search.climb(search.again(start), steps), {})


def _learned(search, best, tried, factors=None, *, linear=False, decisions=()):
    return Learned(
        best.name,
        best.kernel,
        best.likelihood,
        best.objective,
        search.evaluations,
        at_bounds(best),
        tried,
        factors or {},
        linear,
        decisions,
        search.limit.to_json(),
    )


def _best_by_name(points):
    """Best objective of each kernel that could be evaluated."""
    finite = [point for point in points if math.isfinite(point.objective)]
    return {p.name: max(q.objective for q in finite if q.name == p.name) for p in finite}


def _objective(point):
    return point.objective

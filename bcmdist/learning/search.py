"""Hyper-parameters that maximise a log evidence, for the kernel that does so best.

Several starts with one lengthscale for all inputs, then lengthscales per input from the best: a single start
with many lengthscales often ends in a bad optimum. Where the rows depend on the metric, as in spatial cells, further
rounds follow on rows that are near in the metric learned so far, and who wins is decided by rows left out. The
objective carries a weak log-normal prior on every parameter, which only matters where the data say nothing.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.errors import NotPositiveDefinite
from bcmdist.learning.category_lengthscales import category_lengthscales_by_evidence, freed
from bcmdist.learning.cross_validation import CrossValidation
from bcmdist.learning.decisions import A_ROW, EVIDENCE, IN_ALL, ROWS_LEFT_OUT, Decision
from bcmdist.learning.left_out.score import Margin, margin
from bcmdist.learning.model_selection import DECISIVE_NATS, Judged, select_model
from bcmdist.learning.point import (
    Point,
    at_bounds,
    bounds_of,
    expanded,
    moved,
    moves_of,
    prior_center,
    prior_shares,
    theta_of,
)
from bcmdist.model.kernels import Kernel, parse_kernel
from bcmdist.model.likelihoods import Likelihood

Objective = Callable[[Kernel, Likelihood], tuple[float, np.ndarray]]
"""Summed log evidence and its gradient in log parameters (kernel first); -inf where it fails."""

# Kernels that `auto` chooses from; those after the first begin at its starts or where another has ended.
AUTO_KERNELS = ("matern32", "se", "matern52", "matern12")
# Lengthscales at which they explain the same data, in proportion: rough kernels have longer ones. Only for starts.
PROPORTIONS = {"se": 0.6, "matern52": 0.8, "matern32": 1.0, "matern12": 2.5}

# Standard deviation of the log-normal prior: a factor of 20 either way is one deviation. Weak.
PRIOR_SD = 3.0


# Learning stops when iterations gain less, and a linear mean that gains less is not taken: half a nat is evidence for
# nothing.
GAIN_NATS = 0.5
IDLE_STEPS = 2

# Iterations after which a constant and a linear mean are compared where only the evidence decides.
MEAN_STEPS = 5


@dataclass(frozen=True)
class Effort:
    """How much work learning may do."""

    rows: int
    """rows whose evidence is summed, about, where they are taken as they come"""
    block: int
    """rows of a neighbourhood"""
    per_density: int
    """neighbourhoods at each density"""
    rounds: int
    """of neighbourhoods in the metric learned so far"""
    isotropic_steps: int
    """optimiser iterations per start with one lengthscale"""
    steps: int
    """optimiser iterations with lengthscales per input"""


EFFORTS = {
    "quick": Effort(2000, 400, 1, 1, 10, 20),
    "normal": Effort(5000, 500, 2, 2, 10, 50),
    "thorough": Effort(20_000, 1000, 2, 3, 30, 150),
}


@dataclass(frozen=True)
class Learned:
    """Hyper-parameters with what finding them has shown."""

    kernel_name: str
    kernel: Kernel
    likelihood: Likelihood
    objective: float
    """summed log evidence plus log prior at the optimum, in nats"""
    evaluations: int
    at_bounds: list[str]
    """parameters that ended at a bound"""
    tried: dict[str, float]
    """best objective of each kernel tried, all over the same rows"""
    settled: dict[str, float] = field(default_factory=dict)
    """factors by which rows left out have changed variances, by what they are of; see `settling`"""
    linear: bool = False
    """whether a linear mean took the place of the constant one"""
    decisions: tuple[Decision, ...] = ()


class _Search:
    """Maximises one objective from several places; counts evaluations."""

    def __init__(self, objective: Objective, inputs: int, groups: tuple[int, ...] = ()):
        self.objective = objective
        self.inputs = inputs
        self.groups = groups
        self.evaluations = 0

    def climb(self, start: Point, steps) -> Point:
        """Best point L-BFGS finds in at most `steps` iterations; never worse than the start."""
        center, bounds = theta_of(start), np.log(bounds_of(start))
        best: list[Any] = [start.objective, center]
        moves = moves_of(start)

        def loss(step):
            theta = (center + moves @ step).clip(*bounds.T)
            value, gradient = self._penalised(moved(start, theta))
            if value > best[0]:
                best[:] = [value, theta]
            if not math.isfinite(value):
                # A wall that L-BFGS steps back from, well below where the search began.
                return 1e3 * (1.0 + abs(start.objective)), np.zeros_like(step)
            return -value, -gradient @ moves

        # Tied parameters may move until the least of them is at a bound; others stop before.
        room = [(bounds - center[:, None])[column > 0].max(axis=0) for column in moves.T]
        minimize(
            loss,
            np.zeros(len(room)).clip(*np.transpose(room)),
            jac=True,
            method="L-BFGS-B",
            bounds=room,
            callback=stop_when_idle(),
            options={"maxiter": steps, "ftol": 0.0},
        )
        return replace(moved(start, best[1]), objective=best[0])

    def at(self, name, kernel, likelihood, *, tied=False) -> Point:
        """A point with its objective."""
        return self.again(Point(name, kernel, likelihood, -math.inf, tied, self.groups))

    def again(self, point) -> Point:
        """The same point with the objective of the moment."""
        return replace(point, objective=self._penalised(point)[0])

    def _penalised(self, point):
        self.evaluations += 1
        value, gradient = self.objective(point.kernel, point.likelihood)
        gap, share = (theta_of(point) - prior_center(point, self.inputs)) / PRIOR_SD, prior_shares(point)
        return value - 0.5 * (share * gap) @ gap, gradient - share * gap / PRIOR_SD


def stop_when_idle() -> Callable[..., None]:
    """A callback that ends L-BFGS when `IDLE_STEPS` iterations in a row gain less than `GAIN_NATS`."""
    losses: list[float] = []

    def callback(intermediate_result):
        losses.append(intermediate_result.fun)
        recent = losses[-IDLE_STEPS - 1 :]
        if len(recent) > IDLE_STEPS and all(a - b < GAIN_NATS for a, b in itertools.pairwise(recent)):
            raise StopIteration

    return callback


def learn(
    objective_for: Callable[[Kernel | None], Objective],
    kernel_name,
    likelihood: Likelihood,
    *,
    inputs,
    effort: Effort,
    groups: tuple[int, ...] = (),
    spread=None,
    validation_for: Callable[[Kernel], CrossValidation] | None = None,
    trend: Objective | None = None,
    affordable: Callable[[Kernel], bool] = lambda _: True,
) -> Learned:
    """Maximise an objective over the parameters of a kernel and a likelihood.

    Parameters
    ----------
    objective_for : the objective over rows that are near in the metric of a kernel (None: of the inputs)
    kernel_name : expression of `parse_kernel`, or "auto" to choose among `AUTO_KERNELS`
    groups : (D,) the first of the inputs that each shares its lengthscale with; () where each has its own
    spread : (D,) what the inputs as they were given were divided by: one lengthscale for these is tried too
    judges_for : where the rows depend on the metric: those who decide by rows left out; else the evidence does
    trend : the objective over the rows of the moment under a linear mean, which may take the place of the constant one
    affordable : whether a kernel may be taken; where none may, all may

    Raises
    ------
    NotPositiveDefinite
        The objective could not be evaluated at any start.
    """
    search = _Search(objective_for(None), inputs, groups)
    names = AUTO_KERNELS if kernel_name == "auto" else (kernel_name,)
    points = _isotropic(search, names, likelihood, effort, spread)
    coarse = max(points, key=_objective)
    search.objective = objective_for(coarse.kernel)
    coarse = search.again(coarse)
    if not math.isfinite(coarse.objective):  # over these rows all fails there
        points = _isotropic(search, names, likelihood, effort, spread)
        coarse = max(points, key=_objective)
    best = search.climb(expanded(coarse, inputs), effort.steps)
    # A kernel that lost may have missed inputs that the winner found: all get a chance from there.
    places = {p.name: [best, expanded(p, inputs)] for p in sorted(points, key=_objective) if p.name != best.name}
    others = [search.climb(_begun(search, n, at), effort.isotropic_steps) for n, at in places.items()]
    tried = _best_by_name([best, *others])
    best, *others = _affordable(sorted([best, *others], key=_objective, reverse=True), affordable)
    if validation_for is None:
        return _by_evidence(search, best, others, tried, trend, effort)
    for _ in range(effort.rounds):
        search.objective = objective_for(best.kernel)
        best = search.climb(search.again(best), effort.steps // 2)
    judges = validation_for(best.kernel)
    best, judges, linear, of_mean = _mean_by_rows(search, best, judges, trend, effort)

    def climbed(point):
        begun = point if point.name == best.name else _begun(search, point.name, [best, point])
        return search.climb(begun, effort.isotropic_steps)

    other_lengths = [*_plain(search, coarse, best), *filter(None, [freed(best)])]
    won = select_model(judges, best, [*others, *other_lengths], climbed)
    return _concluded(search, won, tried, linear, of_mean)


def _by_evidence(search, best, others, tried, trend, effort):
    """What is learned where nothing but the evidence decides."""
    of_kernel = _kernel_by_evidence(best, others)
    best, of_levels = category_lengthscales_by_evidence(search, best, effort)
    best, linear, of_mean = _mean_by_evidence(search, best, trend)
    return _learned(search, best, tried, linear=linear, decisions=of_kernel + of_levels + of_mean)


def _affordable(points, affordable):
    """Those of points whose kernels may be taken; all where none may."""
    return [point for point in points if affordable(point.kernel)] or points


def _concluded(search, won: Judged, tried, linear, of_mean):
    chosen = won.chosen
    best = expanded(replace(won.point, kernel=chosen.kernel, likelihood=chosen.likelihood), search.inputs)
    return _learned(search, best, tried, chosen.factors, linear=linear, decisions=of_mean + won.decisions)


def _plain(search, coarse, best):
    """The best kernel with one lengthscale, about where the search with one ended, unless it has only one anyway."""
    if all(len(best.kernel.parameters[name]) == 1 for name in best.kernel.lengthscales):
        return []
    kernel = _with_name(coarse, best.name, search.inputs)
    return [search.at(best.name, kernel, coarse.likelihood, tied=coarse.tied)]


def _kernel_by_evidence(best, others):
    """That the kernel of largest evidence was taken."""
    over = {p.name: Margin(best.objective - p.objective, None) for p in others if math.isfinite(p.objective)}
    return (Decision("kernel", best.name, EVIDENCE, over, IN_ALL),) if over else ()


def _mean_by_evidence(search, best, trend):
    """The better of the best points with a constant and with a linear mean, whether it is the latter, and why.

    Both climb as far from where the constant one is, so that the gain is of the mean and not of the steps.
    """
    if trend is None:
        return best, False, ()
    level = search.climb(best, MEAN_STEPS)
    search.objective = trend
    sloping = search.climb(search.again(best), MEAN_STEPS)
    gain = sloping.objective - level.objective
    linear = gain > GAIN_NATS
    found = Margin(gain if linear else -gain, None)
    return sloping if linear else level, linear, (_of_mean(linear, EVIDENCE, found, IN_ALL),)


def _mean_by_rows(search, best, judges, trend, effort):
    """The point to go on from, the judges under its mean, whether that is a linear one, and why.

    Both means are judged at one and the same kernel: what it expects between rows that are far apart differs most
    where it has only seen a constant one.
    """
    if trend is None or judges.trend is None:
        return best, judges, False, ()
    constant, sloping = (one.deciding(best.kernel, best.likelihood) for one in (judges, judges.trend))
    gain = margin(sloping, constant)
    linear = gain.nats > max(DECISIVE_NATS, gain.error or 0.0)
    decision = _of_mean(linear, ROWS_LEFT_OUT, gain if linear else margin(constant, sloping))
    if not linear:
        return best, judges, False, (decision,)
    search.objective = trend
    return search.climb(search.again(best), effort.steps // 2), judges.trend, True, (decision,)


def _of_mean(linear, judge, found, unit=A_ROW):
    taken, other = ("linear", "constant") if linear else ("constant", "linear")
    return Decision("mean", taken, judge, {other: found}, unit)


def polish(objective: Objective, start: Point, *, inputs, steps) -> Learned:
    """Climb another objective for a few iterations from where learning has ended; never to where it is lower."""
    search = _Search(objective, inputs, start.groups)
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
    )


# Starts with one lengthscale, in units of sqrt(D) standard deviations: smooth, and rough.
START_LENGTHSCALES = (1.0, 0.25)


def _isotropic(search, names, likelihood, effort, spread):
    """The points that each kernel reaches with one lengthscale, any of which may have failed but not all.

    It is one lengthscale for standardised inputs, or for inputs as they were given: coordinates on a map, pixels
    and principal components lose what they say of distance when each is standardised on its own.

    Raises
    ------
    NotPositiveDefinite
    """
    kernel = parse_kernel(names[0], inputs=search.inputs).isotropic()
    starts = []
    for factor in START_LENGTHSCALES:
        values = {n: kernel.parameters[n] * factor for n in kernel.lengthscales}
        starts.append(search.at(names[0], kernel.with_parameters(values), likelihood))
    points = [search.climb(start, effort.isotropic_steps) for start in starts]
    if spread is not None and np.ptp(spread) > 0:
        given = [_as_given(search, names[0], factor, spread, likelihood) for factor in START_LENGTHSCALES]
        points.append(search.climb(max(given, key=_objective), effort.isotropic_steps))
    for name in names[1:]:
        # A smooth kernel is lost where a rough one ends, with its longer lengthscales: it may start again.
        start = _begun(search, name, [max(points, key=_objective), *starts])
        points.append(search.climb(start, effort.isotropic_steps))
    if any(math.isfinite(point.objective) for point in points):
        return points
    raise NotPositiveDefinite(
        f"learning: the evidence of {' or '.join(names)} could not be computed at any start; likely causes: "
        "(a) a kernel that is no covariance, (b) duplicate rows without noise; give hyper-parameters with "
        "--no-learn and --set"
    )


def _as_given(search, name, factor, spread, likelihood):
    """A start with one lengthscale for the inputs as they were given, in units of their joint standard deviation."""
    kernel = parse_kernel(name, inputs=search.inputs)
    along = factor * np.linalg.norm(spread) / spread
    values = {n: along.clip(*kernel.bounds[n]) for n in kernel.lengthscales if len(kernel.parameters[n]) > 1}
    return search.at(name, kernel.with_parameters(values), likelihood, tied=True)


def _with_name(point, name, inputs):
    """Another of the `AUTO_KERNELS`, which have the same parameters, about where a point is."""
    kernel = parse_kernel(name, inputs=inputs)
    if len(point.kernel.theta) != len(kernel.theta):
        kernel = kernel.isotropic()
    values = dict(point.kernel.parameters)
    if name != point.name:
        longer = PROPORTIONS[name] / PROPORTIONS[point.name]
        values["lengthscale"] = (longer * values["lengthscale"]).clip(*kernel.bounds["lengthscale"])
    return kernel.with_parameters(values)


def _best_by_name(points):
    """Best objective of each kernel that could be evaluated at all."""
    finite = [point for point in points if math.isfinite(point.objective)]
    return {p.name: max(q.objective for q in finite if q.name == p.name) for p in finite}


def _objective(point):
    return point.objective


def _begun(search, name, places):
    """Another of the `AUTO_KERNELS`, which have the same parameters, at that of some places where it does best."""
    points = [search.at(name, _with_name(p, name, search.inputs), p.likelihood, tied=p.tied) for p in places]
    return max(points, key=_objective)

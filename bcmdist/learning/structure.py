"""Sums of kernels that `--kernel auto` tries after single kernels of all columns, each where it gains enough evidence.

    matern12 + se                               a rough and a smooth kernel of all columns
    matern32 + white*linear(age missing)        rows with gaps scatter by themselves: independent values of rows whose
                                                indicators of missing values are set
    matern32(age, rooms) + matern32             what the covariates do everywhere, and what differs from place to place;
                                                where some inputs are known to be coordinates
    ... + se(age) + se(rooms)                   effects of single columns, added to the best kernel so far

A sum of kernels of many columns replaces the kernel that it extends where it gains more than a nat for each further
parameter: as much as fitting one gains by chance (Akaike 1974). Effects and scatter have to gain log(n) / 2 for each,
with n rows (Schwarz 1978). The columns of effects are chosen among all, those along which the evidence grows most when
a small part of the variance is given to an effect of that column alone. Linear effects are those of a linear mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.learning.point import Point, expanded, moves_of
from bcmdist.learning.starts import with_name
from bcmdist.model.kernels import metric, parse_kernel
from bcmdist.model.kernels.grammar import Factor, written

# A rough kernel of short range and a smooth one of long range, both of all columns; lengthscales of both from which a
# climb begins, as shares of those of the best rough kernel, and the share of its variance that each has.
TWO_SCALES = "matern12 + se"
SCALE_SHARES = ((0.5, 0.6), (0.5, 0.3))
# Kernel of the effect of a column; most effects, and columns of the data beyond which none are tried.
EFFECT = "se"
MOST_EFFECTS, MOST_COLUMNS = 4, 30
# Share of the variance at which the effects of columns are compared, and from which those of the chosen ones begin.
# Their lengthscales are those of the kernel that they extend, within bounds in standard deviations.
TRIED_SHARE, FIRST_SHARE = 0.002, 0.3
SHORTEST, LONGEST = 0.2, 3.0
# Variance from which the scatter of rows with gaps begins.
SCATTER = 0.02
# Evidence that a sum must gain for each further parameter.
AKAIKE = 1.0


@dataclass(frozen=True)
class ColumnRoles:
    """Inputs that have a role in sums of kernels, by number."""

    coordinates: tuple[int, ...] = ()
    """places or times of rows"""
    gaps: tuple[int, ...] = ()
    """indicators of missing values"""


def sums(search, points: Sequence[Point], effort, roles: ColumnRoles | None) -> tuple[list[Point], list[Point]]:
    """Climb to sums of kernels; return all that were tried, and those that gain enough over what they extend.

    Parameters
    ----------
    points : points of single kernels of all columns
    roles : None to try kernels of all columns only
    """
    singles = sorted((expanded(point, search.inputs) for point in points), key=_objective, reverse=True)
    tried = _with_scatter(search, singles, roles.gaps, effort) if roles and roles.gaps else []
    simpler = max([singles[0], *tried], key=_objective)
    kept = [] if simpler is singles[0] else [simpler]
    if not effort.sums:
        return tried, kept
    single, *scatter = _split_terms(search, simpler)
    starts = [two_scales(search, single)]
    if roles and 0 < len(roles.coordinates) < search.inputs:
        starts.append(separate_covariates(search, single, roles.coordinates))
    climbed = [search.climb(_extended(search, start, *scatter), effort.isotropic_steps) for start in starts]
    promising = max(climbed, key=lambda point: _gain(point, simpler, AKAIKE))
    climbed = [_further(search, point, simpler, effort) if point is promising else point for point in climbed]
    gaining = [point for point in climbed if _gain(point, simpler, AKAIKE) > 0.0]
    tried, kept = [*tried, *climbed], [*kept, *gaining]
    simpler = max([simpler, *gaining], key=lambda point: _gain(point, simpler, AKAIKE))
    start = None if roles is None else with_effects(search, simpler)
    if start is not None:
        effects = _further(search, search.climb(start, effort.isotropic_steps), simpler, effort)
        tried.append(effects)
        kept += [effects] if _gain(effects, simpler, _schwarz(effort)) > 0.0 else []
    return tried, kept


def _with_scatter(search, singles, gaps, effort) -> list[Point]:
    """Points of single kernels with a scatter of rows with gaps; none if the best one does not gain by it.

    Without it learning takes the scatter for rapid changes of the function: the order of the kernels may change.
    """
    first = search.climb(scatter_of_gaps(search, singles[0], gaps), effort.isotropic_steps)
    if _gain(first, singles[0], _schwarz(effort)) <= 0.0:
        return []
    others = {one.name: one for one in reversed(singles) if one.name != first.name.split(" + ")[0]}.values()
    found = [
        first,
        *(search.climb(scatter_of_gaps(search, one, gaps), effort.isotropic_steps) for one in others),
    ]
    best = max(found, key=_objective)
    return [search.climb(one, effort.steps // 2) if one is best else one for one in found]


def scatter_of_gaps(search, single: Point, gaps: Sequence[int]) -> Point:
    """Start of a single kernel and a scatter of rows with gaps, of a size for each column."""
    term = (Factor("white"), Factor("linear", columns=tuple(gaps)))
    return _extended(search, single, written((term,)), [np.array([SCATTER]), np.ones(len(gaps))])


def _split_terms(search, point) -> tuple[Point, str, list[np.ndarray]]:
    """A single kernel, and the expression and values of what was added to it: "" and [] if nothing was."""
    name, _, added = point.name.partition(" + ")
    kernel = parse_kernel(name, inputs=search.inputs)
    values = list(point.kernel.parameters.values())
    own = dict(zip(kernel.parameters, values, strict=False))
    return replace(point, name=name, kernel=kernel.with_parameters(own)), added, values[len(own) :]


def _extended(search, point, added, values) -> Point:
    """A point with the terms of an expression added, whose parameters have the given values."""
    if not added:
        return point
    return _start(search, f"{point.name} + {added}", [*point.kernel.parameters.values(), *values], point.likelihood)


def two_scales(search, best: Point) -> Point:
    """Best start of the kernel `TWO_SCALES`, with shares of the lengthscales of a single kernel's point."""
    rough = with_name(best, "matern12", search.inputs)
    kernel = parse_kernel(TWO_SCALES, inputs=search.inputs)
    names, variances = sorted(kernel.lengthscales), sorted(kernel.variances)  # the rough kernel first
    points = []
    for shares in SCALE_SHARES:
        lengths = {
            n: (share * rough.parameters["lengthscale"]).clip(*kernel.bounds[n])
            for n, share in zip(names, shares, strict=True)
        }
        halves = {n: (0.5 * rough.parameters["variance"]).clip(*kernel.bounds[n]) for n in variances}
        points.append(search.at(TWO_SCALES, kernel.with_parameters(lengths | halves), best.likelihood))
    return max(points, key=_objective)


def separate_covariates(search, best: Point, coordinates: Sequence[int]) -> Point:
    """Start of a sum of the same kernel on the columns that are no coordinates, and on all: half the variance each."""
    others = tuple(k for k in range(search.inputs) if k not in coordinates)
    expression = written(((Factor(best.name, columns=others),), (Factor(best.name),)))
    own = best.kernel.parameters
    half = 0.5 * own["variance"]
    values = [half, own["lengthscale"][list(others)], half, own["lengthscale"]]
    return _start(search, expression, values, best.likelihood)


def with_effects(search, simpler: Point) -> Point | None:
    """Start of a kernel with effects of single columns in addition; None if no column promises to gain by one.

    Inputs of one column of a table, such as the levels of a category, have one effect together.
    """
    columns = _columns(search)
    if not 1 < len(columns) <= MOST_COLUMNS:
        return None
    slopes = _slopes(search, simpler, columns)
    chosen = [columns[k] for k in np.argsort(-slopes)[:MOST_EFFECTS] if slopes[k] > 0.0]
    return _added(search, simpler, chosen, FIRST_SHARE) if chosen else None


def _columns(search) -> list[tuple[int, ...]]:
    """Inputs of each column of the data."""
    first = search.groups or tuple(range(search.inputs))
    return [tuple(k for k in range(search.inputs) if first[k] == column) for column in dict.fromkeys(first)]


def _slopes(search, simpler, columns):
    """Derivatives (C,) of the objective in the log variance of a small effect of each column."""
    point = _added(search, simpler, columns, TRIED_SHARE * len(columns))
    sizes = [len(values) for values in point.kernel.parameters.values()]
    place = np.cumsum([0, *sizes])[-2 * len(columns) - 1 : -1 : 2]  # of the variance of each effect
    return search.gradient(point)[place]


def _added(search, simpler, columns, share) -> Point:
    """A point with effects of columns, which have a share of the variance together."""
    effects = written(tuple((Factor(EFFECT, columns=one),) for one in columns))
    variance = simpler.kernel.variances
    level = sum(float(simpler.kernel.parameters[name][0]) for name in variance)
    own = [(1.0 - share) * value if name in variance else value for name, value in simpler.kernel.parameters.items()]
    lengths = metric(simpler.kernel, search.inputs).clip(SHORTEST, LONGEST)
    for one in columns:
        own += [np.array([share * level / len(columns)]), lengths[list(one)]]
    return _start(search, f"{simpler.name} + {effects}", own, simpler.likelihood)


def _start(search, expression, values, likelihood) -> Point:
    """Point of an expression, with its parameters in order, within their bounds."""
    kernel = parse_kernel(expression, inputs=search.inputs)
    named = zip(kernel.parameters, values, strict=True)
    within = {name: np.clip(value, *kernel.bounds[name]) for name, value in named}
    return search.at(expression, kernel.with_parameters(within), likelihood)


def _further(search, point, simpler, effort) -> Point:
    """Climb on from a sum if it has overtaken the kernel that it extends."""
    return search.climb(point, effort.steps // 2) if point.objective > simpler.objective else point


def _schwarz(effort) -> float:
    """Evidence that effects and scatter must gain for each further parameter."""
    return 0.5 * math.log(effort.rows)


def _objective(point) -> float:
    return point.objective


def _gain(point, simpler, price) -> float:
    """Gain of a point in the objective, less what its further parameters must gain each."""
    more = moves_of(point).shape[1] - moves_of(simpler).shape[1]
    return point.objective - simpler.objective - price * more

"""Starts of the search for hyper-parameters: one lengthscale for all inputs of a kernel, smooth and rough.

Kernels on some columns start from one lengthscale for each term. Terms of a sum on the same columns also start from
different lengthscales, short and long: from equal ones the optimiser would change them equally.
"""

import itertools
import math

import numpy as np

from bcmdist.errors import NotPositiveDefinite
from bcmdist.learning.point import Point
from bcmdist.model.kernels import Kernel, parse_kernel
from bcmdist.model.kernels.grammar import parsed

# Relative lengthscales at which these kernels fit the same data: rough kernels have longer ones.
PROPORTIONS = {"se": 0.6, "matern52": 0.8, "matern32": 1.0, "matern12": 2.5}
# Shortest and longest of the starts of terms on the same columns, in units of sqrt(D) standard deviations.
LENGTHSCALE_RANGE = (0.1, 1.0)
# Starting lengthscales, in units of sqrt(D) standard deviations: smooth and rough.
START_LENGTHSCALES = (1.0, 0.25)


def isotropic_points(search, names, likelihood, effort, scales) -> list[Point]:
    """Points that each kernel reaches with one lengthscale; some may have failed, but not all.

    The lengthscale applies to standardised inputs, or to unscaled inputs: map coordinates, pixels and principal
    components lose their common measure of distance when each is standardised separately.

    Raises
    ------
    NotPositiveDefinite
        No start could be evaluated.
    """
    kernel = parse_kernel(names[0], inputs=search.inputs).isotropic()
    starts = []
    for factor in START_LENGTHSCALES:
        values = {n: kernel.parameters[n] * factor for n in kernel.lengthscales}
        starts.append(search.at(names[0], kernel.with_parameters(values), likelihood))
    points = [search.climb(start, effort.isotropic_steps) for start in starts]
    if ways := _spaced(kernel):
        points.append(
            search.climb(
                max((search.at(names[0], k, likelihood) for k in ways), key=_objective), effort.isotropic_steps
            )
        )
    if scales is not None and np.ptp(scales) > 0:
        unscaled = [_unscaled_start(search, names[0], factor, scales, likelihood) for factor in START_LENGTHSCALES]
        points.append(search.climb(max(unscaled, key=_objective), effort.isotropic_steps))
    for name in names[1:]:
        # A smooth kernel fits badly at the longer lengthscales of a rough kernel's optimum: the starts are tried too.
        start = begun(search, name, [max(points, key=_objective), *starts])
        points.append(search.climb(start, effort.isotropic_steps))
    if any(math.isfinite(point.objective) for point in points):
        return points
    raise NotPositiveDefinite(
        f"learning: expected a finite evidence of {' or '.join(names)} at some start, got none; likely causes: "
        "(a) a kernel that is not positive semi-definite, (b) duplicate rows without noise; give hyper-parameters with "
        "--no-learn and --set"
    )


def _spaced(kernel) -> list[Kernel]:
    """The kernel with terms on the same columns at different lengthscales, in both orders; [] if there are none."""
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, columns in kernel.lengthscale_columns(1).items() if len(kernel.terms) > 1 else ():
        alike.setdefault(tuple(columns), []).append(name)
    several = [names for names in alike.values() if len(names) > 1]

    def spaced(ends):
        each = (zip(names, np.geomspace(ends[0], ends[1], len(names)), strict=True) for names in several)
        return {n: kernel.parameters[n] * factor for n, factor in itertools.chain(*each)}

    return [
        kernel.with_parameters(kernel.parameters | spaced(ends))
        for ends in (LENGTHSCALE_RANGE, LENGTHSCALE_RANGE[::-1])
        if several
    ]


def _unscaled_start(search, name, factor, scales, likelihood):
    """Start with one lengthscale for the unscaled inputs, in units of their joint standard deviation."""
    kernel = parse_kernel(name, inputs=search.inputs)
    values = {}
    for n, columns in kernel.lengthscale_columns(search.inputs).items():
        if len(kernel.parameters[n]) > 1:
            along = factor * np.linalg.norm(scales[columns]) / scales[columns]
            values[n] = along.clip(*kernel.bounds[n])
    return search.at(name, kernel.with_parameters(values), likelihood, tied=True)


def with_name(point, name, inputs) -> Kernel:
    """Another kernel of `AUTO_KERNELS`, which have the same parameters, near a point's hyper-parameters."""
    kernel = parse_kernel(name, inputs=inputs)
    if len(point.kernel.theta) != len(kernel.theta):
        kernel = kernel.isotropic()
    values = dict(zip(kernel.parameters, point.kernel.parameters.values(), strict=True))
    if name != point.name:
        longer = _proportion(name) / _proportion(point.name)
        values |= {n: (longer * values[n]).clip(*kernel.bounds[n]) for n in kernel.lengthscales}
    return kernel.with_parameters(values)


def _proportion(name):
    """Relative lengthscales of a kernel of `AUTO_KERNELS`, or of its product with a kernel of outputs."""
    return next(PROPORTIONS[factor.name] for term in parsed(name) for factor in term if factor.name in PROPORTIONS)


def _objective(point):
    return point.objective


def begun(search, name, places) -> Point:
    """Start of another kernel of `AUTO_KERNELS`: the point, of the given ones, at which it has the best objective."""
    points = [search.at(name, with_name(p, name, search.inputs), p.likelihood, tied=p.tied) for p in places]
    return max(points, key=_objective)

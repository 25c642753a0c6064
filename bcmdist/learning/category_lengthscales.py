"""Decide whether the levels of a category share one lengthscale, or each has its own.

With separate lengthscales, k(c, c') = exp(-1/(2 l_c^2) - 1/(2 l_c'^2)) between two levels: some levels can be nearly
independent, and others, such as the days of a working week, nearly identical. To estimate them takes thousands of rows.

Also find inputs that a kernel treats as unordered labels: few distinct values, with the lengthscale at its lower bound.
Values of such an input are then uncorrelated: rows at one value are uninformative about the next and about new values.
"""

import math
from dataclasses import replace

import numpy as np

from bcmdist.learning.decisions import EVIDENCE, IN_ALL, Decision
from bcmdist.learning.left_out.score import Margin
from bcmdist.learning.point import AT_BOUND, Point, moves_of
from bcmdist.model.kernels import Kernel

# Maximum number of distinct values, and minimum number of sampled rows per value, so that the sample misses no value.
MOST_VALUES, LEAST_ROWS = 1000, 5


def unordered_values(sample, kernel: Kernel) -> dict[int, int]:
    """Return the number of distinct values of each input that a kernel treats as unordered, by input number.

    Parameters
    ----------
    sample : (n, D)
        Sampled rows.
    kernel : with its final hyper-parameters
    """
    inputs, found = sample.shape[1], {}
    for k in sorted({k for leaf in kernel.leaves for k in _at_lower_bound(leaf, inputs)}):
        values = len(np.unique(sample[:, k]))
        if 2 < values <= min(MOST_VALUES, len(sample) // LEAST_ROWS):
            found[k] = values
    return found


def _at_lower_bound(leaf, inputs):
    """Inputs whose own lengthscale in a leaf kernel is at its lower bound."""
    found = []
    for name, columns in leaf.lengthscale_columns(inputs).items():
        values = leaf.parameters[name]
        if len(values) == len(columns):
            found += columns[np.log(values / leaf.bounds[name][0]) < AT_BOUND].tolist()
    return found


COLUMN, LEVEL = "one for each column", "one for each level"


def _separate(groups) -> tuple[int, ...]:
    """Return groups (D,) in which each level has a lengthscale of its own: only points on a sphere still share one."""
    return tuple(group if group < 0 else k for k, group in enumerate(groups)) if min(groups, default=0) < 0 else ()


def freed(point: Point) -> Point | None:
    """Return a search point with a separate lengthscale for each level; None if no levels share one."""
    found = replace(point, groups=_separate(point.groups))
    return found if moves_of(found).shape[1] > moves_of(point).shape[1] else None


def shared_by(kernel: Kernel, groups: tuple[int, ...]) -> tuple[int, ...]:
    """Return the groups (D,) of inputs that share lengthscales in a kernel, those of levels only if they do there."""
    for name, columns in kernel.lengthscale_columns(len(groups)).items() if groups else ():
        shared = [groups[column] for column in columns]
        values = kernel.parameters[name]
        if len(values) == len(columns) and not np.array_equal(values, values[[shared.index(one) for one in shared]]):
            return _separate(groups)
    return groups


def category_lengthscales_by_evidence(search, best: Point, effort) -> tuple[Point, tuple[Decision, ...]]:
    """Choose between one lengthscale per column and one per level by the evidence; return the point and the decision.

    Separate lengthscales have to gain log(n) / 2 per additional lengthscale, with n rows (Schwarz 1978): by
    that much the maximum of a larger model is too high on average. The climb ends early if its first iterations, which
    gain most, do not bring it half as far.
    """
    if freed(best) is None:
        return best, ()
    tied = search.climb(best, effort.isotropic_steps)  # so that the gain is not due to further steps
    free = search.climb(replace(tied, groups=_separate(tied.groups)), effort.isotropic_steps)
    more = moves_of(free).shape[1] - moves_of(tied).shape[1]
    needed = 0.5 * more * math.log(effort.rows)
    if free.objective - tied.objective > 0.5 * needed:
        free = search.climb(free, effort.steps)
    gain = free.objective - tied.objective - needed
    taken, other = (LEVEL, COLUMN) if gain > 0.0 else (COLUMN, LEVEL)
    decision = Decision("lengthscales", taken, EVIDENCE, {other: Margin(abs(gain), None)}, IN_ALL)
    return free if gain > 0.0 else tied, (decision,)

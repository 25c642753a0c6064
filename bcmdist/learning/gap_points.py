"""Gaps in the domain: places among few inputs where no rows are, so that k-means of rows puts no query point there.

What the rows on both sides say of a gap reaches it through the shared variables only, further than a local expert
sees. Places are drawn over the domain of the rows as densely as if rows filled it, and those kept that no centre
covers: further from it than nearly all rows are from theirs, and much further than its own rows.
"""

import numpy as np
from scipy.spatial import ConvexHull, Delaunay, QhullError, cKDTree

# Inputs at most: a hull of more is nearly empty whatever the rows do, and would take all query points.
FEW_INPUTS = 3
# The hull is that of the rows but for stray ones: of those in the range of all but so many, or so much of it beyond.
STRAY, MARGIN = 0.01, 0.25
# A hull that fills so much of its box is a box whose corners are missing, as those of a map may be (a disc fills .79).
FILLED = 0.85
# Inputs of no more distinct values are levels, between which there is nothing.
LEVELS = 20
# A centre covers a place as near to it as this share of rows is to theirs, or so many times as far as its own rows:
# where rows thin out, centres stand for wide surroundings.
COVERED, OWN_REACH = 0.99, 1.5
# Lengthscales from the nearest row within which a place is worth a point: beyond, f keeps about its prior (a
# correlation of exp(-2) with that row at most, for the kernels of this package), and says nothing of what is here.
REACH = 2.0
# Share of places below which nothing is done: so many are not covered by chance where rows are spread evenly.
LEAST_GAPS = 0.02


def gap_places(rows, centres, seed) -> np.ndarray:
    """Distinct places in gaps between rows, (m, D) with m <= n; none without gaps to speak of, or of many inputs.

    Parameters
    ----------
    rows : (n, D)
        In units of the kernel's lengthscales.
    centres : (Q, D)
        Of k-means of the rows.
    """
    if rows.shape[1] > FEW_INPUTS:
        return rows[:0]
    places = _uncovered(_drawn(rows, np.random.default_rng(seed)), rows, centres)
    places = places[cKDTree(rows).query(places)[0] <= REACH]
    if len(places) < LEAST_GAPS * len(rows):
        return rows[:0]
    return places[np.sort(np.unique(places, axis=0, return_index=True)[1])]  # among levels alone they repeat


def _uncovered(places, rows, centres):
    """Those places that no centre covers."""
    tree = cKDTree(centres)
    away, nearest = tree.query(rows)
    own = np.zeros(len(centres))
    np.maximum.at(own, nearest, away)
    distance, nearest = tree.query(places)
    return places[distance > np.maximum(np.quantile(away, COVERED), OWN_REACH * own[nearest])]


def _drawn(rows, rng):
    """Places uniform over the hull of rows (n, D) without stray ones, or over its box; of levels, any of them."""
    low, high = np.quantile(rows, [STRAY, 1.0 - STRAY], axis=0)
    beyond = MARGIN * (high - low)
    inside = rows[np.all((rows >= low - beyond) & (rows <= high + beyond), axis=1)]
    levels = [np.unique(column) for column in inside.T]
    few = np.array([len(values) <= LEVELS for values in levels])
    places = rng.uniform(inside.min(axis=0), inside.max(axis=0), rows.shape)
    for k in np.flatnonzero(few):
        places[:, k] = rng.choice(levels[k], len(rows))
    in_hull = _in_hull(places[:, ~few], inside[:, ~few])
    return places if np.mean(in_hull) >= FILLED else places[in_hull]


def _in_hull(places, rows):
    """Which places (m, K) lie in the hull of rows (n, K): True for these; none in a flat one."""
    if rows.shape[1] < 2:
        return np.ones(len(places), dtype=bool)  # they were drawn from it
    try:
        return Delaunay(rows[ConvexHull(rows).vertices]).find_simplex(places) >= 0
    except QhullError:  # the rows lie in a plane, or there are hardly any
        return np.zeros(len(places), dtype=bool)

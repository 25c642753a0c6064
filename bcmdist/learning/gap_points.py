"""Points in gaps of the domain: regions without rows, where k-means of rows puts no query point. For few inputs.

Information from the rows around a gap reaches its interior only through the shared variables, farther than local
experts see. Points are drawn over the domain of the rows, as densely as if rows filled it. A point is kept if no
centre covers it: its distance to the nearest centre exceeds the distances of nearly all rows to their centres, and
clearly exceeds those of this centre's own rows.
"""

import numpy as np
from scipy.spatial import ConvexHull, Delaunay, QhullError, cKDTree

# Maximum inputs: in more dimensions the hull is nearly empty whatever the rows are, and gaps would take all points.
FEW_INPUTS = 3
# The hull excludes stray rows: in some input they lie outside the range between the quantiles STRAY and 1 - STRAY by
# more than this share of it.
STRAY, MARGIN = 0.01, 0.25
# A hull that fills at least this share of its bounding box counts as a box with missing corners, as of a map (a disc
# fills .79).
FILLED = 0.85
# Inputs with no more distinct values than this are discrete: nothing lies between their values.
LEVELS = 20
# A centre covers points within this quantile of the distances from rows to their centres, or within this multiple of
# the distance of its farthest row: where rows thin out, a centre covers a wide region.
COVERED, OWN_REACH = 0.99, 1.5
# Maximum distance to the nearest row, in lengthscales, of a useful point: beyond this f is close to its prior (with the
# kernels of this package a correlation of at most exp(-2) with that row) and carries no information.
REACH = 2.0
# Minimum share of points in gaps: with evenly spread rows, fewer than this are uncovered by chance.
LEAST_GAPS = 0.02


def gap_places(rows, centres, seed) -> np.ndarray:
    """Distinct points in gaps between rows, (m, D) with m <= n; none if gaps are negligible or inputs are many.

    Parameters
    ----------
    rows : (n, D)
        In units of the kernel's lengthscales.
    centres : (Q, D)
        Centres of k-means of the rows.
    """
    if rows.shape[1] > FEW_INPUTS:
        return rows[:0]
    places = _points_in_gaps(_drawn(rows, np.random.default_rng(seed)), rows, centres)
    places = places[cKDTree(rows).query(places)[0] <= REACH]
    if len(places) < LEAST_GAPS * len(rows):
        return rows[:0]
    return places[np.sort(np.unique(places, axis=0, return_index=True)[1])]  # points of discrete inputs repeat


def _points_in_gaps(places, rows, centres):
    """Return the points that no centre covers."""
    tree = cKDTree(centres)
    away, nearest = tree.query(rows)
    own = np.zeros(len(centres))
    np.maximum.at(own, nearest, away)
    distance, nearest = tree.query(places)
    return places[distance > np.maximum(np.quantile(away, COVERED), OWN_REACH * own[nearest])]


def _drawn(rows, rng):
    """Draw points uniformly over the hull of rows (n, D), without stray rows, or over its box.

    Discrete inputs take values that occur in the rows.
    """
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
    """Return a mask of the points (m, K) inside the hull of rows (n, K); all False if the hull is flat."""
    if rows.shape[1] < 2:
        return np.ones(len(places), dtype=bool)  # drawn within the range of the rows
    try:
        return Delaunay(rows[ConvexHull(rows).vertices]).find_simplex(places) >= 0
    except QhullError:  # the rows lie in a plane, or there are too few
        return np.zeros(len(places), dtype=bool)

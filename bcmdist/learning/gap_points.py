"""Points in gaps of the domain, regions without rows where k-means puts no query point, and the size of the gaps.

Information from the rows around a gap reaches its interior only through the shared variables, farther than local
experts see. Points are drawn over the domain of the rows, as densely as if rows filled it. A point is kept if no
centre covers it: its distance to the nearest centre exceeds the distances of nearly all rows to their centres, and
clearly exceeds those of this centre's own rows.

With few inputs, predictions may be needed where there are no rows: under clouds, between stations. The size of such
gaps and their share of the domain are estimated from points drawn uniformly over the bounding box of the rows.
"""

from dataclasses import dataclass

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


PROBES = 2000
# A point lies in a gap if it is farther from the nearest row than this multiple of the nearest-neighbour distance of
# most rows (this quantile): in a domain without gaps the distributions of both distances are about the same.
MOST_ROWS, FARTHER = 0.99, 2.0
# Minimum share of the domain that counts as gaps, and maximum weight of the blocks left out for them: most predictions
# are expected where rows are. Both are arbitrary.
LEAST_SHARE, MOST_SHARE = 0.02, 0.25
# Radius of a neighbourhood in units of the radius of the gap in its centre.
NEIGHBOURHOOD = 2.0


@dataclass(frozen=True)
class Gaps:
    """Size of the gaps, and how blocks of this size are left out."""

    share: float
    """weight of the gaps in a score: their share of the domain, at most `MOST_SHARE`"""
    radius: float
    """radius of a ball as large as the gaps"""
    shares: np.ndarray
    """(B,) share of all rows from which each neighbourhood is drawn, so that rows remain around a gap in its centre"""


def gaps_in(sample, rows, blocks, size) -> Gaps | None:
    """Gaps between sampled rows (n, D), in units of a metric, of a data set of `rows` rows; None if there are none.

    Parameters
    ----------
    blocks, size : number of neighbourhoods, and rows of each
    """
    inputs, rng = sample.shape[1], np.random.default_rng(0)
    places = np.unique(sample, axis=0)
    if inputs > FEW_INPUTS or len(places) < 2:
        return None
    tree = cKDTree(places)
    least = FARTHER * float(np.quantile(tree.query(places, k=2)[0][:, 1], MOST_ROWS))
    far = tree.query(rng.uniform(places.min(axis=0), places.max(axis=0), (PROBES, inputs)))[0]
    far = far[far > least]
    if len(far) < LEAST_SHARE * PROBES:
        return None
    # The mean distance to the surface of a ball of radius r is r / (D + 1); points farther than `least` from any row
    # form a ball that is smaller by `least`.
    radius = least + (inputs + 1) * (float(far.mean()) - least)
    near = tree.query_ball_point(
        places[rng.integers(len(places), size=PROBES)], NEIGHBOURHOOD * radius, return_length=True
    )
    among = max(1.0, float(np.median(near)) * rows / len(sample))
    return Gaps(min(len(far) / PROBES, MOST_SHARE), radius, np.full(blocks, min(1.0, size / among)))

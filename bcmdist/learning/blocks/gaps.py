"""Gaps in the domain: regions farther from any row than rows are from each other.

With few inputs, predictions may be needed between the rows, where there are none: under clouds, between stations. The
size of such gaps and their share of the domain are estimated from points drawn uniformly over the bounding box of the
rows.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from bcmdist.learning.gap_points import FEW_INPUTS

PROBES = 2000
# A point lies in a gap if it is farther from the nearest row than this multiple of the nearest-neighbour distance of
# most rows (this quantile): in a domain without gaps the distributions of both distances are about the same.
MOST_ROWS, FARTHER = 0.99, 2.0
# Minimum share of the domain that counts as gaps, and maximum weight of the blocks left out for them: most predictions
# are expected where rows are. Both are arbitrary.
LEAST_SHARE, MOST_SHARE = 0.02, 0.25
# Radius of a neighbourhood in units of the radius of the gap in its centre.
AROUND = 2.0


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
    near = tree.query_ball_point(places[rng.integers(len(places), size=PROBES)], AROUND * radius, return_length=True)
    among = max(1.0, float(np.median(near)) * rows / len(sample))
    return Gaps(min(len(far) / PROBES, MOST_SHARE), radius, np.full(blocks, min(1.0, size / among)))

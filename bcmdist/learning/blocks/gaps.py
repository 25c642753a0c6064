"""Gaps of the domain: places farther from any row than rows are from each other.

In few inputs new points may be wanted between the rows, where there are none: under clouds, between stations. How
large such gaps are, and how much of the domain they take, is seen from points drawn uniformly over the bounding box of
the rows.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from bcmdist.learning.gap_points import FEW_INPUTS

PROBES = 2000
# A point lies in a gap if it is farther from the nearest row than so many times what most rows are from theirs: in a
# domain without gaps distances of both have about one distribution.
MOST_ROWS, FARTHER = 0.99, 2.0
# Least share of the domain that counts as gaps, and the largest weight of what is left out for them: most new points
# are expected where rows are. Both are arbitrary.
LEAST_SHARE, MOST_SHARE = 0.02, 0.25
# Radius of a neighbourhood in units of the gap's in its middle.
AROUND = 2.0


@dataclass(frozen=True)
class Gaps:
    """How large gaps are, and where blocks as large are left out."""

    share: float
    """of the domain, for which they count"""
    radius: float
    """of a ball as large as they are"""
    shares: np.ndarray
    """(B,) of all rows that neighbourhoods consist of, so that a gap in their middle leaves rows around it"""


def gaps_in(sample, rows, blocks, size) -> Gaps | None:
    """Gaps between sampled rows (n, D) in units of a metric, which stand for `rows` rows; None where there are none.

    Parameters
    ----------
    blocks, size : how many neighbourhoods are wanted, and of how many rows
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
    # In a ball of radius r points are r / (D + 1) from its border in the mean, as are those within a smaller one.
    radius = least + (inputs + 1) * (float(far.mean()) - least)
    near = tree.query_ball_point(places[rng.integers(len(places), size=PROBES)], AROUND * radius, return_length=True)
    among = max(1.0, float(np.median(near)) * rows / len(sample))
    return Gaps(min(len(far) / PROBES, MOST_SHARE), radius, np.full(blocks, min(1.0, size / among)))

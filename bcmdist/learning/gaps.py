"""Gaps in the domain: places among few inputs where no rows are, so that k-means of rows puts no query point there.

What the rows on both sides say of a gap reaches it through the shared variables only, further than a local expert
sees. Places are drawn over the box of the rows as densely as if rows filled it, and those kept that are further from
all centres than rows are; where there are gaps, k-means of rows and places then spreads over the whole.
"""

import numpy as np
from scipy.spatial import cKDTree

# Inputs at most: a box of more is nearly empty whatever the rows do, and would take all query points.
FEW_INPUTS = 3
# The box is that of the rows but for stray ones: the middle of so many of them, and so much of its width beyond.
STRAY, MARGIN = 0.01, 0.25
# Inputs of no more distinct values are levels, between which there is nothing.
LEVELS = 20
# A place is in a gap where it is further from all centres than this share of rows.
COVERED = 0.99
# Lengthscales from the nearest row within which a place is worth a point: beyond, f keeps about its prior (a
# correlation of exp(-2) with that row at most, for the kernels of this package), and says nothing of what is here.
REACH = 2.0
# Share of places below which nothing is done: that of rows that are further from the centres than others, and as many.
LEAST_GAPS = 0.02


def gap_places(rows, centres, seed) -> np.ndarray:
    """Places in gaps between rows, (m, D) with m <= n; none where there are no gaps to speak of, or many inputs.

    Parameters
    ----------
    rows : (n, D)
        In units of the kernel's lengthscales.
    centres : (Q, D)
        Of k-means of the rows.
    """
    if rows.shape[1] > FEW_INPUTS:
        return rows[:0]
    rng, tree = np.random.default_rng(seed), cKDTree(centres)
    places = np.column_stack([_drawn(column, len(rows), rng) for column in rows.T])
    covered = np.quantile(tree.query(rows)[0], COVERED)
    places = places[tree.query(places)[0] > covered]
    places = places[cKDTree(rows).query(places)[0] <= REACH]
    return places if len(places) >= LEAST_GAPS * len(rows) else rows[:0]


def _drawn(column, count, rng):
    """Values of an input, uniform over its range without stray rows, or over its levels."""
    levels = np.unique(column)
    if len(levels) <= LEVELS:
        return rng.choice(levels, count)
    low, high = np.quantile(column, [STRAY, 1.0 - STRAY])
    beyond = MARGIN * (high - low)
    return rng.uniform(max(low - beyond, levels[0]), min(high + beyond, levels[-1]), count)

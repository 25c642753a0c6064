"""Number of query points of a fit: requested, or by default."""

from typing import Literal

from bcmdist.learning.experts import method_of
from bcmdist.learning.gap_points import FEW_INPUTS
from bcmdist.learning.query_selection import LEAST_QUERY, MOST_QUERY

# Default query points; doubled for many rows with few inputs, where query points also fill gaps between rows.
QUERY = 500
MANY_ROWS = 20_000


def query_count(settings, data) -> int | Literal["auto"]:
    """Requested number of query points ("auto" possible), or of functions for experts with their own size option."""
    if settings.query is not None:
        return settings.query
    if (usual := method_of(settings).count(settings)) is None:
        few = settings.partition == "spatial" and data.inputs <= FEW_INPUTS and data.rows >= MANY_ROWS
        usual = 2 * QUERY if few else QUERY
    return usual if settings.query_most is None else min(usual, settings.query_most)


def least_query(settings, data) -> int:
    """Minimum number of query points of a fit, if the data hold that many rows."""
    count = query_count(settings, data)
    return LEAST_QUERY if count == "auto" else count


def most_query(settings, data) -> int:
    """Maximum number of query points of a fit."""
    return MOST_QUERY if (count := query_count(settings, data)) == "auto" else count

"""Scores of model choices on left-out rows, and margins between them.

Choices are scored on the same rows, so the standard error of a margin is that of the mean of paired differences.
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Score:
    """Log densities in nats per row, in groups (n,); a score is the weighted mean of the groups' means."""

    groups: tuple[np.ndarray, ...]
    shares: tuple[float, ...] = (1.0,)

    @property
    def value(self) -> float:
        """Weighted mean of the groups' means; -inf if a row could not be predicted that counts."""
        pairs = zip(self.shares, self.groups, strict=True)
        return float(sum(share * group.mean() for share, group in pairs if share > 0.0))

    @property
    def total(self) -> float:
        """The value times the number of rows of the first group."""
        return self.value * len(self.groups[0])


@dataclass(frozen=True)
class Margin:
    """Advantage of one choice over another, in nats per row."""

    nats: float
    error: float | None
    """standard error of `nats`; None if it cannot be computed"""

    def to_json(self) -> dict[str, float | None]:
        """Return the fields as JSON values; None for numbers that are not finite."""
        return {"nats": self.nats if math.isfinite(self.nats) else None, "error": self.error}


def margin(one: Score, other: Score) -> Margin:
    """Return the advantage of one choice over another on the same rows."""
    nats = one.value - other.value
    if not math.isfinite(nats):
        return Margin(nats, None)
    pairs = zip(one.shares, one.groups, other.groups, strict=True)
    gaps = [(share, a - b) for share, a, b in pairs if share > 0.0]
    if min(len(gap) for _, gap in gaps) < 2:
        return Margin(nats, None)
    variances = [share**2 * gap.var(ddof=1) / len(gap) for share, gap in gaps]
    return Margin(nats, math.sqrt(sum(variances)))

"""What rows left out say of a choice, and by how much they prefer it to another.

Choices are judged on the same rows, so that the standard error of a margin is that of differences.
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Score:
    """Log densities in nats a row: groups (n,) of them, and the share with which the mean of each group counts."""

    groups: tuple[np.ndarray, ...]
    shares: tuple[float, ...] = (1.0,)

    @property
    def value(self) -> float:
        """Mean of the groups' means; -inf where a row could not be predicted."""
        return float(sum(share * group.mean() for share, group in zip(self.shares, self.groups, strict=True)))

    @property
    def total(self) -> float:
        """The value, times the rows of the first group."""
        return self.value * len(self.groups[0])


@dataclass(frozen=True)
class Margin:
    """By how much a choice is better than another, in nats a row."""

    nats: float
    error: float | None
    """standard error of `nats`; None where it is not known"""

    def to_json(self) -> dict[str, float | None]:
        """Numbers that are finite, or None."""
        return {"nats": self.nats if math.isfinite(self.nats) else None, "error": self.error}


def margin(one: Score, other: Score) -> Margin:
    """By how much one choice is better than another on the same rows."""
    nats = one.value - other.value
    if not math.isfinite(nats):
        return Margin(nats, None)
    gaps = [a - b for a, b in zip(one.groups, other.groups, strict=True)]
    if min(map(len, gaps)) < 2:
        return Margin(nats, None)
    variances = [share**2 * gap.var(ddof=1) / len(gap) for share, gap in zip(one.shares, gaps, strict=True)]
    return Margin(nats, math.sqrt(sum(variances)))

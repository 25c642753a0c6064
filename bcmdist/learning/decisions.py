"""Decisions of a fit, and the margins by which they were taken: what `info` tells of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bcmdist.learning.left_out.score import Margin

ROWS_LEFT_OUT = "rows left out"
EVIDENCE = "evidence"
# Units of margins: of rows left out, and of the evidence of all rows that are learned from.
A_ROW, IN_ALL = "nats a row", "nats"


@dataclass(frozen=True)
class Decision:
    """What was taken, who decided, and by how much over each other choice."""

    of: str
    """kernel, lengthscales, mean, variances"""
    taken: str
    """of variances the factors by which they grew"""
    judge: str
    """rows left out; or the evidence, also where rows left out do not tell choices apart"""
    over: Mapping[str, Margin]
    """by the name of what was not taken; below zero where what was taken is kept for lack of a decisive gain"""
    unit: str = A_ROW
    """of the margins"""

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        over = {name: found.to_json() for name, found in self.over.items()}
        return {"of": self.of, "taken": self.taken, "judge": self.judge, "over": over, "unit": self.unit}

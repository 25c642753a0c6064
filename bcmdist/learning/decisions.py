"""Decisions of a fit with their margins, as `info` reports them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bcmdist.learning.left_out.score import Margin

ROWS_LEFT_OUT = "rows left out"
EVIDENCE = "evidence"
LEAVE_ONE_OUT = "leave-one-out"  # a value of `Settings.objective`
# Units of margins: per left-out row, or the evidence of all rows used for learning.
A_ROW, IN_ALL = "nats a row", "nats"


@dataclass(frozen=True)
class Decision:
    """What was chosen, by which criterion, and the margin over each alternative."""

    of: str
    """subject of the decision: kernel, lengthscales, mean or variances"""
    taken: str
    """the choice; for variances the factors by which they were multiplied"""
    criterion: str
    """criterion: rows left out; or the evidence, also where left-out rows do not separate the choices"""
    over: Mapping[str, Margin]
    """margin over each alternative by name; negative if the choice was kept because the gain was not decisive"""
    unit: str = A_ROW
    """unit of the margins"""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        over = {name: found.to_json() for name, found in self.over.items()}
        return {"of": self.of, "taken": self.taken, "judge": self.criterion, "over": over, "unit": self.unit}

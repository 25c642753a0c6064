"""Figures as JSON can hold them."""

import math
from typing import Any


def finite(value) -> Any:
    """JSON has no nan: figures that do not exist, such as the AUC of one class, become null."""
    if isinstance(value, dict):
        return {name: finite(v) for name, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Replace numbers that JSON cannot represent."""

import math
from typing import Any


def finite(value) -> Any:
    """Replace NaN and infinities by None, recursively, since JSON has neither; the AUC of a single class is NaN."""
    if isinstance(value, dict):
        return {name: finite(v) for name, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

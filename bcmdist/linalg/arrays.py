"""Names of array types for annotations. Shapes are in docstrings.

Float arrays are float64 where nothing else is said; where they may be float32 too, the annotation is `np.ndarray`.
"""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
FloatOrArray = float | FloatArray
"""One number for all, or one for each."""
IntArray = NDArray[np.intp]
"""Indices and numbers of things."""
BoolArray = NDArray[np.bool_]

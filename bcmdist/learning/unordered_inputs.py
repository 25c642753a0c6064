"""Find inputs that a kernel treats as unordered labels: few distinct values, with the lengthscale at its lower bound.

Values of such an input are then uncorrelated: rows at one value are uninformative about the next and about new values.
"""

import numpy as np

from bcmdist.learning.point import AT_BOUND
from bcmdist.model.kernels import Kernel

# Maximum number of distinct values, and minimum number of sampled rows per value, so that the sample misses no value.
MOST_VALUES, LEAST_ROWS = 1000, 5


def unordered_values(sample, kernel: Kernel) -> dict[int, int]:
    """Return the number of distinct values of each input that a kernel treats as unordered, by input number.

    Parameters
    ----------
    sample : (n, D)
        Sampled rows.
    kernel : with its final hyper-parameters
    """
    inputs, found = sample.shape[1], {}
    for k in sorted({k for leaf in kernel.leaves for k in _at_lower_bound(leaf, inputs)}):
        values = len(np.unique(sample[:, k]))
        if 2 < values <= min(MOST_VALUES, len(sample) // LEAST_ROWS):
            found[k] = values
    return found


def _at_lower_bound(leaf, inputs):
    """Inputs whose own lengthscale in a leaf kernel is at its lower bound."""
    own = {name: leaf.parameters[name] for name in leaf.lengthscales if len(leaf.parameters[name]) == inputs}
    low = {name: np.log(values / leaf.bounds[name][0]) < AT_BOUND for name, values in own.items()}
    return [k for found in low.values() for k in np.flatnonzero(found).tolist()]

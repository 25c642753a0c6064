"""Inputs that a kernel uses as labels: few values, each as good as alone, since the lengthscale is at its lower bound.

What is learned at one value then says nothing of the next one, and nothing of a value that was never seen.
"""

import numpy as np

from bcmdist.learning.point import AT_BOUND
from bcmdist.model.kernels import Kernel

# Different values of an input at most, and rows of a sample to each of them at least, so that none is missed.
MOST_VALUES, LEAST_ROWS = 1000, 5


def unordered_values(sample, kernel: Kernel) -> dict[int, int]:
    """How many values inputs have that a kernel uses as labels, by their numbers.

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
    """Inputs whose own lengthscale in a leaf is at its lower bound."""
    own = {name: leaf.parameters[name] for name in leaf.lengthscales if len(leaf.parameters[name]) == inputs}
    low = {name: np.log(values / leaf.bounds[name][0]) < AT_BOUND for name, values in own.items()}
    return [k for found in low.values() for k in np.flatnonzero(found).tolist()]

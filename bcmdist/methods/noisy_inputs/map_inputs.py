"""cleanGP: inputs moved to where they most probably were (Quinonero-Candela 2004, 4.3.1; SYSTEMS T23).

The density has many spurious maxima, in which rows are moved to wherever they fit. So the noise of targets is lowered
step by step from where hardly any row need be moved (4.3.1.2), and each search begins where the one before has ended.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.errors import NotPositiveDefinite
from bcmdist.methods.noisy_inputs.posterior import Beliefs, Seen, log_density

# Each level of the noise is this share of the one before; iterations at each. Half as large steps ended in the same
# places on sinc (50 rows).
COOLING, STEPS = 0.5, 60
WALL = 1e12  # what is lost where a covariance is none


def cleaned(beliefs: Beliefs, seen: Seen, highest: float) -> np.ndarray:
    """Steps Z (n, D) of a local maximum of `log_density`, to which levels of the noise from the highest have led."""
    steps = np.zeros(seen.inputs.shape)
    for noise in levels(highest, beliefs.noise):
        steps = climbed(beliefs.at_noise(noise), seen, steps, STEPS)
    return steps


def levels(highest: float, lowest: float) -> Iterator[float]:
    """Noise variances from the highest down to the lowest, which is the last; that alone where it is no lower."""
    noise = highest
    while noise > lowest:
        yield noise
        noise *= COOLING
    yield lowest


def climbed(beliefs: Beliefs, seen: Seen, start, iterations: int) -> np.ndarray:
    """The best steps Z (n, D) that L-BFGS finds in at most so many iterations; never worse than the start."""
    best: list[Any] = [-np.inf, start]

    def loss(flat):
        steps = flat.reshape(start.shape)
        try:
            value, gradient = log_density(beliefs, seen, steps)
        except NotPositiveDefinite:  # a step too far
            return WALL, np.zeros_like(flat)
        if value > best[0]:
            best[:] = [value, steps.copy()]
        return -value, -gradient.ravel()

    minimize(loss, np.ravel(start), jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return best[1]

"""Most probable inputs of noisy rows (cleanGP; Quinonero-Candela 2004, 4.3.1; SYSTEMS T23).

The posterior of inputs has many spurious maxima, at which rows have moved to wherever they fit. Therefore the noise
variance of targets is lowered gradually from a value at which hardly any row needs to move (4.3.1.2), and each search
starts from the result of the previous one.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.errors import NotPositiveDefinite
from bcmdist.methods.noisy_inputs.posterior import NoisyRows, Process, log_density

COOLING, STEPS = 0.5, 60  # ratio of successive noise variances, and iterations at each
FAILED = 1e12  # loss where the covariance is not positive definite


def map_steps(process: Process, rows: NoisyRows, highest: float) -> np.ndarray:
    """Steps Z (n, D) to a local maximum of `log_density`, while lowering the noise variance from `highest`."""
    steps = np.zeros(rows.inputs.shape)
    for noise in noise_levels(highest, process.noise):
        steps = maximized(process.at_noise(noise), rows, steps, STEPS)
    return steps


def noise_levels(highest: float, lowest: float) -> Iterator[float]:
    """Noise variances descending from `highest` to `lowest`, which is always the last."""
    noise = highest
    while noise > lowest:
        yield noise
        noise *= COOLING
    yield lowest


def maximized(process: Process, rows: NoisyRows, start, iterations: int) -> np.ndarray:
    """The best steps Z (n, D) found by L-BFGS in at most `iterations` iterations; never worse than the start."""
    best: list[Any] = [-np.inf, start]

    def loss(flat):
        steps = flat.reshape(start.shape)
        try:
            value, gradient = log_density(process, rows, steps)
        except NotPositiveDefinite:  # the search went too far
            return FAILED, np.zeros_like(flat)
        if value > best[0]:
            best[:] = [value, steps.copy()]
        return -value, -gradient.ravel()

    minimize(loss, np.ravel(start), jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return best[1]

"""The posterior density of true inputs given noisy inputs and targets (Quinonero-Candela 2004, 4.3; SYSTEMS T23, T24).

For true inputs X of rows whose measured inputs U have Gaussian errors with variances s, the log posterior is, up to a
constant,

    log p(y | X) + sum_nd log N(x_nd; u_nd, s_nd)                                    (eqs. 4.33, 4.37)

Whitened steps Z are used instead, x_n = u_n + R_n z_n, where R_n R_n' is the error covariance of a row, diagonal or
not: log p(y | X) - 1/2 |Z|^2. An input without error is then not changed.

`map_steps` finds the most probable inputs (cleanGP; 4.3.1). The posterior has many spurious maxima, at which inputs
have moved so far that the targets are fitted exactly. Therefore the noise variance of targets is lowered gradually from
a value at which inputs hardly move (4.3.1.2), and each search starts from the result of the previous one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.data.observations import Observations
from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.evidence import evidence_of_inputs
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.mean import Mean

NOISE = "noise_variance"


@dataclass(frozen=True)
class NoisyRows:
    """Scaled rows of a partition whose inputs have measurement errors."""

    inputs: np.ndarray
    """as measured, (n, D)"""
    root: np.ndarray
    """R of each row, (n, D, D): the error covariance is R R'"""
    obs: Observations

    def at(self, steps) -> np.ndarray:
        """Inputs (..., n, D) at steps Z (..., n, D) from the measured ones."""
        return self.inputs + np.einsum("nde,...ne->...nd", self.root, steps)

    def subset(self, rows) -> "NoisyRows":
        """The given rows only."""
        return NoisyRows(self.inputs[rows], self.root[rows], self.obs[rows])


@dataclass(frozen=True)
class Process:
    """A Gaussian process with its likelihood."""

    kernel: Kernel
    mean: Mean
    likelihood: Likelihood
    """Gaussian"""

    @property
    def noise(self) -> float:
        """Noise variance of targets."""
        return float(self.likelihood.parameters[NOISE][0])

    def at_noise(self, noise: float) -> "Process":
        """The same with another noise variance."""
        return replace(self, likelihood=self.likelihood.with_parameters({NOISE: np.array([noise])}))


def log_density(process: Process, rows: NoisyRows, steps) -> tuple[float, np.ndarray]:
    """log p(y, Z) up to a constant at steps Z (n, D), and its gradient (n, D) (eq. 4.34, with the sign of SYSTEMS T23).

    Raises
    ------
    NotPositiveDefinite
    """
    X = rows.at(steps)
    value, gradient = evidence_of_inputs(process.kernel, process.mean, process.likelihood, X, rows.obs)
    return value - 0.5 * float(np.vdot(steps, steps)), np.einsum("nde,nd->ne", rows.root, gradient) - steps


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

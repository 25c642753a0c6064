"""The posterior density of true inputs given noisy inputs and targets (Quinonero-Candela 2004, 4.3; SYSTEMS T23, T24).

For true inputs X of rows whose measured inputs U have Gaussian errors with variances s, the log posterior is, up to a
constant,

    log p(y | X) + sum_nd log N(x_nd; u_nd, s_nd)                                    (eqs. 4.33, 4.37)

Whitened steps Z are used instead, x_n = u_n + R_n z_n, where R_n R_n' is the error covariance of a row, diagonal or
not: log p(y | X) - 1/2 |Z|^2. An input without error is then not changed.

For likelihoods that are not Gaussian, p(y | X) is the Laplace evidence: latents are integrated out by the approximation
by which messages are made, so inputs, hyper-parameters and messages belong to the same model. Its gradient in inputs
includes the movement of the mode (`evidence_of_inputs`). Sampling inputs and latents jointly would avoid the error of
Laplace's approximation in inputs, not in messages, and would mix slowly: given the latents, an input hardly moves.

`map_steps` finds the most probable inputs (cleanGP; 4.3.1). The posterior has many spurious maxima, at which inputs
have moved so far that the targets are fitted exactly. Therefore log p(y | f) is divided by a temperature that is
lowered gradually to 1, from a value at which inputs hardly move, and each search starts from the result of the previous
one. For normal errors this lowers the noise variance of targets (4.3.1.2).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.data.observations import Observations
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts.evidence import evidence_of_inputs
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.mean import Mean

NOISE = "noise_variance"
NUMERICAL = NotPositiveDefinite, LaplaceNotConverged
"""errors at inputs or hyper-parameters where a search went too far"""


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

    def tempered(self, temperature: float) -> "NoisyRows":
        """The same rows with log p(y | f) divided by a temperature."""
        return replace(self, obs=replace(self.obs, weight=self.obs.weight / temperature))


@dataclass(frozen=True)
class Process:
    """A Gaussian process with its likelihood."""

    kernel: Kernel
    mean: Mean
    likelihood: Likelihood
    """of one process"""


def log_density(process: Process, rows: NoisyRows, steps) -> tuple[float, np.ndarray]:
    """log p(y, Z) up to a constant at steps Z (n, D), and its gradient (n, D) (eq. 4.34, with the sign of SYSTEMS T23).

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    X = rows.at(steps)
    value, gradient = evidence_of_inputs(process.kernel, process.mean, process.likelihood, X, rows.obs)
    return value - 0.5 * float(np.vdot(steps, steps)), np.einsum("nde,nd->ne", rows.root, gradient) - steps


COOLING, STEPS = 0.5, 60  # ratio of successive temperatures, and iterations at each
FAILED = 1e12  # loss where the density cannot be computed


def map_steps(process: Process, rows: NoisyRows, highest: float) -> np.ndarray:
    """Steps Z (n, D) to a local maximum of `log_density`, while lowering the temperature from `highest`."""
    steps = np.zeros(rows.inputs.shape)
    for temperature in temperatures(highest):
        steps = maximized(process, rows.tempered(temperature), steps, STEPS)
    return steps


def temperatures(highest: float) -> Iterator[float]:
    """Temperatures descending from `highest` to 1, which is always the last."""
    temperature = highest
    while temperature > 1.0:
        yield temperature
        temperature *= COOLING
    yield 1.0


def maximized(process: Process, rows: NoisyRows, start, iterations: int) -> np.ndarray:
    """The best steps Z (n, D) found by L-BFGS in at most `iterations` iterations; never worse than the start."""
    best: list[Any] = [-np.inf, start]

    def loss(flat):
        steps = flat.reshape(start.shape)
        try:
            value, gradient = log_density(process, rows, steps)
        except NUMERICAL:
            return FAILED, np.zeros_like(flat)
        if value > best[0]:
            best[:] = [value, steps.copy()]
        return -value, -gradient.ravel()

    minimize(loss, np.ravel(start), jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return best[1]

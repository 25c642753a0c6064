"""What rows say of the true inputs behind those that were seen (Quinonero-Candela 2004, 4.3; SYSTEMS T23, T24).

Of inputs X behind those that were seen, U, with errors of variances s, the log density is

    log p(y | X) + sum_nd log N(x_nd; u_nd, s_nd)                                    (eqs. 4.33, 4.37)

It is taken in whitened steps Z, x_n = u_n + R_n z_n where R_n R_n' is the covariance of the error of a row, diagonal or
not: there it is log p(y | X) - 1/2 |Z|^2, up to a constant, an input without an error stays where it is, and as errors
vanish so does all that comes of them.
"""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.experts.evidence import evidence_of_inputs
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.mean import Mean

NOISE = "noise_variance"


@dataclass(frozen=True)
class Seen:
    """Rows of a partition, whose inputs were seen with errors; scaled."""

    inputs: np.ndarray
    """as seen, (n, D)"""
    root: np.ndarray
    """R of each row, (n, D, D): its error has the covariance R R'"""
    obs: Observations

    def at(self, steps) -> np.ndarray:
        """Inputs (..., n, D) at steps Z (..., n, D) from those that were seen."""
        return self.inputs + np.einsum("nde,...ne->...nd", self.root, steps)

    def some(self, rows) -> "Seen":
        """Only these rows."""
        return Seen(self.inputs[rows], self.root[rows], self.obs[rows])


@dataclass(frozen=True)
class Beliefs:
    """The Gaussian process that rows are seen by."""

    kernel: Kernel
    mean: Mean
    likelihood: Likelihood
    """of measurements"""

    @property
    def noise(self) -> float:
        """Variance of a target about f."""
        return float(self.likelihood.parameters[NOISE][0])

    def at_noise(self, noise: float) -> "Beliefs":
        """The same with another noise variance."""
        return replace(self, likelihood=self.likelihood.with_parameters({NOISE: np.array([noise])}))


def log_density(beliefs: Beliefs, seen: Seen, steps) -> tuple[float, np.ndarray]:
    """log p(y, Z) up to a constant at steps Z (n, D), and its gradient (n, D) (eq. 4.34, with the sign of SYSTEMS T23).

    Raises
    ------
    NotPositiveDefinite
    """
    X = seen.at(steps)
    value, gradient = evidence_of_inputs(beliefs.kernel, beliefs.mean, beliefs.likelihood, X, seen.obs)
    return value - 0.5 * float(np.vdot(steps, steps)), np.einsum("nde,nd->ne", seen.root, gradient) - steps

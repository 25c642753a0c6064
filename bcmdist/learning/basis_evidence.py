"""Compare the evidence of a finite basis with that of the kernel that it approximates, on rows of the sample."""

import warnings

import numpy as np

from bcmdist import linalg
from bcmdist.data.schema import warn
from bcmdist.errors import BcmdistWarning
from bcmdist.experts.residual import kind_of
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.experts import method_of
from bcmdist.learning.settings import Settings
from bcmdist.model.kernels import Kernel
from bcmdist.model.mean import prior_covariance
from bcmdist.model.shared.interface import Shared


class BasisBudget:
    """Check whether a fit's expert can represent a kernel; record the kernels that it cannot.

    Parameters
    ----------
    low, high : smallest and largest value of each scaled input, (D,)
    """

    def __init__(self, settings: Settings, low: np.ndarray, high: np.ndarray):
        self.settings, self.low, self.high = settings, low, high
        self.left: set[str] = set()
        """expressions of the kernels that were excluded"""

    def __call__(self, kernel: Kernel) -> bool:
        if method_of(self.settings).represents(kernel, self.low, self.high, self.settings):
            return True
        self.left.add(kernel.expression)
        return False

    def warn(self, taken: str) -> None:
        """Warn of the kernels that were excluded, other than the chosen one."""
        left, method = sorted(self.left - {taken}), method_of(self.settings)
        if left:
            value = getattr(self.settings.of(method.options), method.size)
            warnings.warn(
                BcmdistWarning(
                    f"kernel: {', '.join(left)} left out, which would take too many weights for a {method.size} of "
                    f"{value:g}; raise --{method.size} to choose among all"
                ),
                stacklevel=2,
            )


ROWS = 300  # rows of the sample; their covariance is factored twice, in milliseconds
LEAST_SHARE = 0.25  # share of the kernel's gain below which a basis is reported; arbitrary
LEAST_GAIN = 0.05  # minimum gain of the kernel over a constant, in nats per row, for a comparison; arbitrary


def gains(shared: Shared, basis_inputs: BasisInputs) -> tuple[float, float]:
    """Return the gains in log evidence over a constant f, in nats per row: of the basis, and of the exact kernel."""
    X, y = basis_inputs.sample[:ROWS], np.asarray(basis_inputs.targets)[:ROWS]
    noise = np.broadcast_to(basis_inputs.noise, len(basis_inputs.sample))[: len(X)]
    prior = kind_of(shared).own_prior(shared, shared.design(X), X)[0]
    scatter = np.mean(y**2 / noise[:, None], axis=0)  # of pure noise with the best variance
    constant = -0.5 * (y.shape[1] + np.sum(np.log(scatter))) - 0.5 * y.shape[1] * np.mean(np.log(noise))
    ours, kernel = (
        _evidence(covariance, y, noise) / len(X) - constant
        for covariance in (
            prior @ np.eye(len(X)),
            prior_covariance(basis_inputs.kernel.cross(X, X), basis_inputs.mean, X),
        )
    )
    return ours, kernel


def _evidence(covariance, y, noise):
    """log N(y; 0, K + noise) without the constant term, summed over the columns of y (n, C)."""
    L = linalg.cholesky(np.asfortranarray(covariance + np.diag(noise)), name="cov(y) of rows of the sample")
    white = linalg.solve_lower(L, np.array(y, order="F"))
    return -0.5 * np.sum(white**2) - 0.5 * y.shape[1] * linalg.log_determinant(L)


def warn_of_poor_basis(shared: Shared, basis_inputs: BasisInputs) -> None:
    """Issue a `BcmdistWarning` if a basis explains the sample far worse than the kernel that was learned for it."""
    if basis_inputs.targets is None or not basis_inputs.learned:
        return
    ours, kernel = gains(shared, basis_inputs)
    if kernel > LEAST_GAIN and ours < LEAST_SHARE * kernel:
        warn(
            f"expert: expected {shared.functions} {shared.noun} to explain the rows about as well as the kernel "
            f"{basis_inputs.kernel.expression}, which gains {kernel:.2f} nats per row over a constant, got {ours:.2f}; "
            "give a larger --query, make the functions and their scale from `BasisInputs.kernel`, or use --expert bcm"
        )

"""Compares the evidence of a finite basis with that of the kernel that it stands for, at some rows of the sample."""

import numpy as np

from bcmdist import linalg
from bcmdist.data.schema import warn
from bcmdist.experts.residual import kind_of, prior_covariance
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.model.shared.interface import Shared

ROWS = 300  # of the sample, whose matrix is factored twice: 5 ms
LEAST_SHARE = 0.25  # of the kernel's gain, below which a basis is reported; arbitrary
LEAST_GAIN = 0.05  # nats a row that the kernel gains where there is anything to explain; arbitrary


def gains(shared: Shared, known: BasisInputs) -> tuple[float, float]:
    """Log evidence over that of a constant, in nats a row: of the model's prior, and of the kernel's."""
    X, y = known.sample[:ROWS], np.asarray(known.targets)[:ROWS]
    noise = np.broadcast_to(known.noise, len(known.sample))[: len(X)]
    prior = kind_of(shared).own_prior(shared, shared.design(X), X)[0]
    scatter = np.mean(y**2 / noise[:, None], axis=0)  # of pure noise of the best variance
    constant = -0.5 * (y.shape[1] + np.sum(np.log(scatter))) - 0.5 * y.shape[1] * np.mean(np.log(noise))
    ours, kernel = (
        _evidence(covariance, y, noise) / len(X) - constant
        for covariance in (prior @ np.eye(len(X)), prior_covariance(known.kernel.cross(X, X), known.mean, X))
    )
    return ours, kernel


def _evidence(covariance, y, noise):
    """log N(y; 0, K + noise) without its constant, of each column of y (n, C), summed."""
    L = linalg.cholesky(np.asfortranarray(covariance + np.diag(noise)), name="cov(y) of rows of the sample")
    white = linalg.solve_lower(L, np.array(y, order="F"))
    return -0.5 * np.sum(white**2) - 0.5 * y.shape[1] * linalg.log_determinant(L)


def warn_of_poor_basis(shared: Shared, known: BasisInputs) -> None:
    """A `BcmdistWarning` where a basis explains far less of the sample than the kernel that was learned for it."""
    if known.targets is None or not known.learned:
        return
    ours, kernel = gains(shared, known)
    if kernel > LEAST_GAIN and ours < LEAST_SHARE * kernel:
        warn(
            f"expert: expected {shared.functions} {shared.noun} that explain the rows about as well as the kernel "
            f"{known.kernel.expression} they stand for, which is {kernel:.2f} nats a row better than a constant; got "
            f"{ours:.2f}; give a larger --query, make the functions and their scale from `BasisInputs.kernel`, or take "
            "--expert bcm"
        )

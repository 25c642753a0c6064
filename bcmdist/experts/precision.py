"""Floating-point precision of the experts' computations: `--precision double|mixed`.

Mixed precision computes the design V in double precision, because the condition number of the query factor multiplies
the rounding of V. All that follows is in single precision: the covariance R of the targets given the shared variables,
its factor, W = L_R^-1 V and products of at most `ADDED_ROWS` rows, which are accumulated in double precision. Mixed
precision takes three quarters of the time.

Error: the rounding of R, about eps times the prior variance, is correlated between nearby rows, and its effect grows
with the information of the n rows about the shared variables. Means move by at most

    GROWTH eps tr(V'R^-1 V) / sqrt(n)     (the shared functions only)

posterior standard deviations of f. Measured, on four tables and on synthetic data of 1 to 8 inputs, smooth and rough,
with 250 to 2,000 rows per expert and noise from a thousandth of the variance up: mostly a tenth of this bound; 8,000
and 128,000 rows do not differ. An expert computes its message in double precision where the bound exceeds
`LARGEST_ERROR` (functions that the shared variables explain, with noise below a tenth of the variance) or rounding
makes R indefinite.

The rule depends only on the model and the rows: the same rows give the same message on the same machine. On another
machine the message may differ by as much as its error, so it cannot be subtracted exactly.
"""

from collections.abc import Callable

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.experts.expert import expert_message, gaussian_message
from bcmdist.experts.message import Message, zero_message
from bcmdist.experts.residual import Block, kind_of
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels import cross_lower
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import FIRST_PRECISION
from bcmdist.model.shared.interface import Shared

# Largest allowed movement of means by rounding, in posterior standard deviations of f; and the factor of the error
# bound, an upper bound of the measured values.
LARGEST_ERROR, GROWTH = 1e-3, 40.0
# Number of rows whose products are summed in single precision.
ADDED_ROWS = 512
EPS = float(np.finfo(np.float32).eps)

ComputeMessage = Callable[[Shared, Likelihood, FloatArray, Observations], Message]


def mixed_message(shared: Shared, likelihood: Likelihood, X: FloatArray, obs: Observations) -> Message:
    """Message of Gaussian rows with the residual "block", in mixed precision where that is accurate enough.

    Arguments as for `expert_message`. Falls back to double precision where the error bound exceeds `LARGEST_ERROR`.
    """
    if len(X) == 0:
        return zero_message(shared, likelihood)
    V, y, noise = shared.design(X), likelihood.targets(obs), likelihood.noise(obs)
    if _error(_diagonal_information(shared, V, X, noise), len(X)) <= LARGEST_ERROR:
        try:
            message = _single_message(shared, V, X, y, noise)
        except NotPositiveDefinite:  # by rounding or because R is indefinite: double precision decides
            pass
        else:
            information = np.trace(message.precision[: shared.functions, : shared.functions])
            if _error(information, len(X)) <= LARGEST_ERROR:
                return message
    return gaussian_message(V, kind_of(shared).residual(shared, V, X), y, noise)


def _error(information: float, rows: int) -> float:
    """Bound on the movement of means by rounding, from information = tr(V'R^-1 V)."""
    return float(GROWTH * EPS * information / np.sqrt(rows))


def _diagonal_information(shared: Shared, V: FloatArray, X: FloatArray, noise: FloatArray) -> float:
    """tr(V'R^-1 V) as if R were diagonal, a lower bound: if this is too large, mixed precision is not tried."""
    prior, residual = shared.kernel.diagonal(X), np.maximum(shared.residual_variance(V, X), 0.0)
    return float(((prior - residual) / (residual + noise)).sum())


def _single_message(shared: Shared, V: FloatArray, X: FloatArray, y: FloatArray, noise: FloatArray) -> Message:
    """`gaussian_message` in mixed precision, given V (n, S), which is not overwritten."""
    V = V.astype(np.float32, order="F")
    K = cross_lower(shared.kernel, X, dtype=np.float32)
    factor = Block(shared.residual_lower(V, K)).factor(noise)
    z, W = factor.whiten(np.array(y, dtype=np.float32, order="F")), factor.whiten(V)
    precision, eta = np.zeros((shared.size, shared.size), order="F"), np.zeros((shared.size, *z.shape[1:]))
    for a in range(0, len(W), ADDED_ROWS):
        some = slice(a, a + ADDED_ROWS)
        precision += linalg.gram_lower(W[some])
        eta += W[some].T @ z[some]
    fit = np.vdot(z, z.astype(float))
    constant = y.size // len(y) * (factor.log_determinant + len(y) * np.log(2.0 * np.pi))
    return Message(eta.T, linalg.mirror(precision), float(-0.5 * (fit + constant)), len(y))


PRECISIONS: Registry[ComputeMessage] = Registry("precision")
PRECISIONS.add(FIRST_PRECISION, expert_message)
PRECISIONS.add("mixed", mixed_message)


def refuse_inexact(precision: str, url: str, what: str) -> None:
    """Raise `InvalidOption` for operations that subtract messages, which is exact in double precision only."""
    if precision != FIRST_PRECISION:
        raise InvalidOption(
            f"{url}: expected a model of double precision to {what}, which takes messages back exactly, got one of "
            f"{precision} precision, whose messages another machine repeats to seven digits only; fit it again with "
            "--precision double"
        )

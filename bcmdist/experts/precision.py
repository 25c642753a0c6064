"""In how many digits experts compute what they say: `--precision double|mixed`.

Mixed precision computes the design V in double precision, because the query factor's condition number multiplies its
rounding, and all that follows in single precision: the covariance R of the targets given the shared variables, its
factor, W = L_R^-1 V and the products of at most `ADDED_ROWS` rows, which are added up in double precision. It takes
three quarters of the time.

Its error. The rounding of R, about eps times the prior variance, is alike for rows that are near each other, and weighs
more the more the n rows say of the shared variables. Means move by at most

    GROWTH eps tr(V'R^-1 V) / sqrt(n)     (the shared functions only)

posterior standard deviations of f: measured, on four tables and on made data of 1 to 8 inputs, smooth and rough, with
250 to 2,000 rows an expert and noise of a thousandth of the variance and more, mostly by a tenth of it; 8,000 and
128,000 rows do not differ. The message of an expert for which it exceeds `LARGEST_ERROR` (functions that the shared
variables explain, with less noise than a tenth of the variance), or whose R rounding leaves indefinite, is computed in
double precision. The rule looks at nothing but the model and the rows: the same rows give the same message on the same
machine; on another one it may differ by as much as its error, so that what was said cannot be taken back exactly.
"""

from collections.abc import Callable

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.experts.expert import expert_message, gaussian_message, zero_message
from bcmdist.experts.message import Message
from bcmdist.experts.residual import Block, kind_of
from bcmdist.model.kernels import cross_lower
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import FIRST_PRECISION
from bcmdist.model.shared.interface import Shared

# What rounding may move means by, in posterior standard deviations of f; and how it grows, an upper bound of what was
# measured.
LARGEST_ERROR, GROWTH = 1e-3, 40.0
# Rows whose products are added in single precision.
ADDED_ROWS = 512
EPS = float(np.finfo(np.float32).eps)

Hear = Callable[[Shared, Likelihood, np.ndarray, Observations], Message]


def mixed_message(shared: Shared, likelihood: Likelihood, X, obs: Observations) -> Message:
    """As `expert_message` of a Gaussian likelihood with the residual "block", in mixed precision where that will do."""
    if len(X) == 0:
        return zero_message(shared, likelihood)
    V, y, noise = shared.design(X), likelihood.targets(obs), likelihood.noise(obs)
    if _error(_said_apart(shared, V, X, noise), len(X)) <= LARGEST_ERROR:
        try:
            message = _single_message(shared, V, X, y, noise)
        except NotPositiveDefinite:  # by rounding, or in truth: double precision says
            pass
        else:
            said = np.trace(message.precision[: shared.functions, : shared.functions])
            if _error(said, len(X)) <= LARGEST_ERROR:
                return message
    return gaussian_message(V, kind_of(shared).residual(shared, V, X), y, noise)


def _error(said, rows) -> float:
    """Bound of what rounding moves means by, from tr(V'R^-1 V)."""
    return GROWTH * EPS * said / np.sqrt(rows)


def _said_apart(shared, V, X, noise) -> float:
    """tr(V'R^-1 V) if R were diagonal, which is less: what need not be tried."""
    prior, residual = shared.kernel.diagonal(X), np.maximum(shared.residual_variance(V, X), 0.0)
    return float(((prior - residual) / (residual + noise)).sum())


def _single_message(shared, V, X, y, noise) -> Message:
    """`gaussian_message` from V (n, S), which it keeps, on."""
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


PRECISIONS: Registry[Hear] = Registry("precision")
PRECISIONS.add(FIRST_PRECISION, expert_message)
PRECISIONS.add("mixed", mixed_message)


def refuse_single(precision: str, residual: str, likelihood: Likelihood | None) -> None:
    """Raise `InvalidOption` for mixed precision where experts do not factor a Gaussian covariance of their rows.

    Where modes are searched, what is said depends on where steps end, and so on the last digits.

    Parameters
    ----------
    likelihood : None where it is not known yet
    """
    if precision != FIRST_PRECISION and (residual != "block" or not (likelihood is None or likelihood.exact)):
        named = f"likelihood {likelihood.name} and " if likelihood else ""
        raise InvalidOption(
            f"precision: expected {FIRST_PRECISION} with {named}residual {residual}, got {precision}, which is for "
            "Gaussian noise and onehot with --expert bcm; leave it out, or give these"
        )


def refuse_inexact(precision: str, url: str, what: str) -> None:
    """Raise `InvalidOption` for what takes messages back, which leaves traces of their rows but in double precision."""
    if precision != FIRST_PRECISION:
        raise InvalidOption(
            f"{url}: expected a model of double precision to {what}, which takes messages back exactly, got one of "
            f"{precision} precision, whose messages another machine repeats to seven digits only; fit it again with "
            "--precision double"
        )

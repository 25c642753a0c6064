"""The message: the likelihood of a partition's rows as natural parameters over the shared variables.

Messages are all that experts send to the committee, and they add. Laws, each a property test in
tests/experts/test_message.py:

    a + b == b + a                      (commutative, up to rounding)
    (a + b) + c == a + (b + c)          (associative, up to rounding)
    a + zero == a                       (identity)
    a + b - b == a                      (inverse, up to rounding)
    precision is symmetric positive semi-definite
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist import linalg
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.likelihoods.interface import Likelihood
from bcmdist.model.shared.interface import Shared


@dataclass(frozen=True)
class Message:
    """The likelihood of some rows as a function of the shared variables v ~ N(0, I).

    log p(y | v) = evidence + eta' v - 1/2 v' precision v

    A message is a likelihood, never a posterior: `eta` is a precision-weighted vector and not a mean, and `precision`
    is not the inverse of a covariance (whitened form: SYSTEMS I.0, I.7; GBCM paper, Appendix B, eqs. 12-15). There are
    S shared variables: Q query values and P weights of the mean.

    Several latent processes (classes) are stored along leading axes, and log p is summed over them: C independent
    processes have eta (C, S) and precision (C, S, S), or (S, S) where all processes share one precision. The K members
    of a mixture, each with its own shared variables, are stored in the same way (`stacked`).
    """

    eta: FloatArray
    """(..., S)"""
    precision: FloatArray
    """(S, S) or (..., S, S), symmetric positive semi-definite; or (L,), numbers that define products with such a matrix
    (shared variables of `fourier`), the same for all processes"""
    evidence: float
    """log p(y | v = 0), in nats"""
    rows: int
    """number of rows"""

    def __add__(self, other: "Message") -> "Message":
        return Message(
            self.eta + other.eta,
            self.precision + other.precision,
            self.evidence + other.evidence,
            self.rows + other.rows,
        )

    def __sub__(self, other: "Message") -> "Message":
        return self + Message(-other.eta, -other.precision, -other.evidence, -other.rows)

    def __sizeof__(self) -> int:
        """Size of the arrays in bytes, for memory accounting."""
        return self.eta.nbytes + self.precision.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the lower triangle of a matrix precision, which halves the bytes."""
        if self.precision.ndim == 1:
            return Message, (self.eta, self.precision, self.evidence, self.rows)
        return _received, (self.eta, linalg.packed(self.precision), self.evidence, self.rows)

    def weighted(self, weight: float) -> "Message":
        """Message of the same rows, each counted `weight` times; `rows` is unchanged."""
        if weight == 1.0:
            return self
        return Message(weight * self.eta, weight * self.precision, weight * self.evidence, self.rows)


def stacked(messages: Sequence[Message]) -> Message:
    """Stack the messages of K members about the same rows: `eta` (K, S), `precision` (K, S, S), evidence summed."""
    first = messages[0]
    eta, precision = np.stack([one.eta for one in messages]), np.stack([one.precision for one in messages])
    return Message(eta, precision, sum(one.evidence for one in messages), first.rows)


def _received(eta: FloatArray, triangle: FloatArray, evidence: float, rows: int) -> Message:
    return Message(eta, linalg.unpacked(triangle), evidence, rows)


def zero(shared: int) -> Message:
    """Message of no rows, about S = `shared` variables of one process."""
    return Message(np.zeros(shared), np.zeros((shared, shared)), 0.0, 0)


def zero_message(shared: Shared, likelihood: Likelihood) -> Message:
    """Message of no rows, in the shapes that messages of this likelihood have."""
    message: Message = shared.zero_message(likelihood, _zero_message)
    return message


def _zero_message(shared: Shared, likelihood: Likelihood) -> Message:
    if shared.members:
        return stacked([zero_message(one.shared, likelihood.each) for one in shared.members])
    S, C = shared.size, likelihood.processes
    if not likelihood.per_class or likelihood.coupled:
        return zero(C * S)
    return Message(np.zeros((C, S)), np.zeros((S, S) if likelihood.exact else (C, S, S)), 0.0, 0)

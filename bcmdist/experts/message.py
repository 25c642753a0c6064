"""The message: what a partition says of the shared variables, as natural parameters.

Messages are all that travels from experts to the committee, and they add. Laws, each a property
test in tests/experts/test_message.py:

    a + b == b + a                      (commutative, up to rounding)
    (a + b) + c == a + (b + c)          (associative, up to rounding)
    a + zero == a                       (identity)
    a + b - b == a                      (inverse, up to rounding)
    precision is symmetric positive semi-definite
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg


@dataclass(frozen=True)
class Message:
    """The likelihood of some rows as a function of the shared variables v ~ N(0, I).

    log p(y | v) = evidence + eta' v - 1/2 v' precision v

    It is a likelihood, never a posterior: `eta` is a precision-weighted vector and not a mean,
    `precision` is not the inverse of anyone's covariance (DESIGN of the whitened form: SYSTEMS I.0,
    I.7; GBCM paper, Appendix B, eqs. 12-15). S shared variables: Q query values and P mean weights.

    Several latent processes (classes) stand along leading axes, and log p is the sum over them: C
    independent processes have eta (C, S) with precision (C, S, S), or (S, S) where all share one. So do K models side
    by side, each about variables of its own (`stacked`).
    """

    eta: np.ndarray
    """(..., S)"""
    precision: np.ndarray
    """(S, S) or (..., S, S), symmetric positive semi-definite; or (L,), numbers from which the shared variables make
    the products of such a matrix (`fourier`), one for all processes"""
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

    def __sizeof__(self):
        """Bytes of its arrays, for whoever has to find room for it."""
        return self.eta.nbytes + self.precision.nbytes

    def __reduce__(self):
        """Sent with the lower triangle of a precision that is a matrix: half of the bytes."""
        if self.precision.ndim == 1:
            return Message, (self.eta, self.precision, self.evidence, self.rows)
        return _received, (self.eta, linalg.packed(self.precision), self.evidence, self.rows)

    def weighted(self, weight) -> "Message":
        """The same rows, each counted `weight` times; the number of rows stays."""
        if weight == 1.0:
            return self
        return Message(weight * self.eta, weight * self.precision, weight * self.evidence, self.rows)


def stacked(messages) -> Message:
    """What models that stand side by side absorb of the same rows: `eta` (K, S), `precision` (K, S, S), log p
    summed."""
    first = messages[0]
    eta, precision = np.stack([one.eta for one in messages]), np.stack([one.precision for one in messages])
    return Message(eta, precision, sum(one.evidence for one in messages), first.rows)


def _received(eta, triangle, evidence, rows):
    return Message(eta, linalg.unpacked(triangle), evidence, rows)


def zero(shared) -> Message:
    """The message of no rows at all about S shared variables of one process."""
    return Message(np.zeros(shared), np.zeros((shared, shared)), 0.0, 0)

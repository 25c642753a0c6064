"""The posterior of Fourier weights whose precision Lambda is too large to factor, by iterative solutions.

The mean is computed by preconditioned conjugate gradients. With e its error and r the residual,

    |b(x)'e| <= sd(x) (e'Lambda e)^1/2 = sd(x) (r'Lambda^-1 r)^1/2 <= sd(x) |r|,     sd(x)^2 = b(x)'Lambda^-1 b(x)

since Lambda >= I: |r| bounds the error of any prediction in posterior standard deviations. Up to `MAX_DENSE` weights,
variances come from a factor of Lambda that is made when the first is asked for. Beyond, they are solved for row by row,
until doubling the number of steps changes them by no more than `VARIANCE_CHANGE`. They are too small by about that
share at most, and do not depend on the other rows of a request.

Traces, the determinant, and the variances in local predictions (`predictions`) are averages over probes: seeded vectors
z of random signs. With C C' near Lambda and A = C^-1 Lambda C^-T,

    sd(x)^2 ~ mean (b(x)'C^-T A^-1/2 z)^2,     log|Lambda| ~ log|C C'| + mean z'log(A) z

where each of these variances has a relative standard error of at most (2 / PROBES)^1/2.
"""

import math
import threading
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np
from zict import LRU

from bcmdist import linalg
from bcmdist.errors import InvalidOption
from bcmdist.methods.fourier.krylov import conjugate_gradients, inverse_forms, inverse_roots
from bcmdist.methods.fourier.precision import FeaturePrecision
from bcmdist.model.shared.belief import Belief
from bcmdist.storage.cache import get_or_make, least_recently_used

# Up to this number of weights the precision is factored and the belief exact.
MAX_FACTORED = 2000
# Up to this number, variances come from a factor of the precision (800 MB), made for the first: in seconds, as long as
# solving for a few hundred rows takes.
MAX_DENSE = 10_000
# Factors of the last beliefs that were asked for variances, as many as fit into the memory of the largest.
_factors: "LRU[Hashable, np.ndarray]" = least_recently_used(8 * MAX_DENSE**2, lambda L: L.nbytes)
# Rows per block of a prediction.
PREDICTION_ROWS = 2**15
# Largest error of a prediction, in posterior standard deviations, and largest number of iterations.
RESIDUAL, MAX_STEPS = 1e-4, 4000
# Largest relative change of a variance over the second half of the iterations.
VARIANCE_CHANGE = 0.001
# Rows per block when solving for variances, padded with zeros: products of other shapes round differently, and
# conjugate gradients amplify the difference.
ROWS_AT_ONCE = 8
# Number of probes for local predictions, and for traces and determinants; tolerance of their roots, below the error of
# the average over probes, and largest number of iterations.
PROBES, TRACE_PROBES = 64, 8
ROOT_CHANGE, ROOT_STEPS = 0.05, 160
SIGNS = np.array([-1.0, 1.0])
# Memory for the Lanczos vectors of a batch of probes.
LANCZOS_BYTES = 2**28


@dataclass(frozen=True)
class Probe:
    """Results for one probe vector z."""

    root: np.ndarray
    """C^-T A^-1/2 z, (S,)"""
    log_determinant: float
    """z'log(A) z"""


@dataclass(frozen=True)
class IterativeBelief(Belief):
    """N(mean, Lambda^-1) of S weights; processes differ in the mean only. Probes are computed on first use."""

    mean: np.ndarray
    precision: FeaturePrecision
    residual: float
    """|r| of the mean, the largest over processes"""
    steps: int
    """total number of conjugate gradient steps"""
    _probes: list[Probe] = field(default_factory=list, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def factor(self) -> np.ndarray:  # type: ignore[override]  # always raises
        raise InvalidOption(
            f"fourier: expected fewer weights for a factor of their precision, got {self.precision.size}; predict "
            "without covariances between rows, or fit with a larger --tolerance or another --expert"
        )

    def __getitem__(self, k) -> "IterativeBelief":
        return replace(self, mean=self.mean[k])

    def probes(self, count=PROBES) -> list[Probe]:
        """Results for the first `count` probes; one thread computes them while others wait."""
        with self._lock:
            while (done := len(self._probes)) < count:
                self._probes.extend(self._probe(range(done, min(done + self._probes_at_once, count))))
        return self._probes[:count]

    @property
    def _probes_at_once(self):
        """Number of probes per batch, limited by the memory for their Lanczos vectors."""
        return int(np.clip(LANCZOS_BYTES // (8 * ROOT_STEPS * self.precision.size), 1, TRACE_PROBES))

    def _probe(self, numbers):
        """Results for some probes."""
        precision, preconditioner = self.precision, self.precision.preconditioner
        z = np.stack([np.random.default_rng(k).choice(SIGNS, precision.size) for k in numbers])
        found, logs = inverse_roots(
            lambda v: preconditioner.solve(precision(preconditioner.solve_transposed(v))),
            z,
            change=ROOT_CHANGE,
            most=ROOT_STEPS,
        )
        roots = preconditioner.solve_transposed(found)
        return [Probe(one, log) for one, log in zip(roots, logs.tolist(), strict=True)]

    def variances(self, B) -> np.ndarray:
        """Return b'Lambda^-1 b for each row b of B (n, S): (n,)."""
        if self.precision.size <= MAX_DENSE:
            A = linalg.solve_right_transposed(self._dense_factor(), np.array(B, order="F"))
            return np.einsum("ns,ns->n", A, A)
        count = -(-len(B) // ROWS_AT_ONCE)
        padded = np.zeros((count * ROWS_AT_ONCE, B.shape[1]))
        padded[: len(B)] = B
        blocks = padded.reshape(count, ROWS_AT_ONCE, B.shape[1])
        how = {"change": VARIANCE_CHANGE, "most": MAX_STEPS}
        precondition = self.precision.preconditioner.precondition
        found = [inverse_forms(self.precision, precondition, some, **how) for some in blocks]
        return np.concatenate([np.zeros(0), *found])[: len(B)]

    def _dense_factor(self):
        """L of Lambda = L L', (S, S), cached; one thread computes it while others wait."""

        def factor():
            A = self.precision.without_prior()
            A[np.diag_indices_from(A)] += 1.0
            return linalg.cholesky(A, name="precision of the Fourier weights")

        with self._lock:  # which also names the belief: those of its processes share it
            return get_or_make(_factors, self._lock, factor)

    @property
    def log_determinant(self) -> float:
        logs = [one.log_determinant for one in self.probes(TRACE_PROBES)]
        return self._processes * (self.precision.preconditioner.log_determinant + float(np.mean(logs)))

    @property
    def degrees_of_freedom(self) -> float:
        squares = [one.root @ one.root for one in self.probes(TRACE_PROBES)]
        return float(self.precision.size - np.mean(squares))

    def length(self, move) -> float:
        return math.sqrt(max(float(np.vdot(move, self.precision(move))), 0.0))

    @property
    def _processes(self):
        return self.mean.size // self.precision.size

    @property
    def accuracy(self) -> dict[str, float]:
        logs = [one.log_determinant for one in self.probes(TRACE_PROBES)]
        return {
            "mean_error": self.residual,
            "steps": self.steps,
            "variance_error": 0.0 if self.precision.size <= MAX_DENSE else VARIANCE_CHANGE,
            "log_evidence_error": 0.5 * self._processes * float(np.std(logs, ddof=1)) / math.sqrt(TRACE_PROBES),
        }


def iterative_belief(eta, precision: FeaturePrecision) -> IterativeBelief:
    """The belief N(Lambda^-1 eta, Lambda^-1), for eta (S,), or (C, S) for C processes."""
    how = {"residual": RESIDUAL, "most": MAX_STEPS}
    found = [
        conjugate_gradients(precision, precision.preconditioner.precondition, one, **how)
        for one in eta.reshape(-1, precision.size)
    ]
    mean = np.stack([one.x for one in found]).reshape(eta.shape)
    return IterativeBelief(mean, precision, max(one.residual for one in found), sum(one.steps for one in found))

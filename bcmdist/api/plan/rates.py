"""Rates: how long a unit of each kind of work takes where a fit would run, measured in about a second.

Matrices are random and about as large as those of the fit (`SIZES`); routines are those that the fit calls. All
threads of a runtime measure at the same time, as they will work at the same time.
"""

import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcmdist import linalg
from bcmdist.api.plan.work import Work
from bcmdist.committee.ingest.loop import GROUP
from bcmdist.data.partition import Partition, Span
from bcmdist.model.kernels import Kernel, cross_lower
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.memory import FLOAT
from bcmdist.runtime.task import Task

# Rows of matrices that rates are measured with: those of others are about those of the nearest size.
SIZES = (125, 250, 500, 1000)
# Repetitions of a measurement, of which the middle one counts; and tasks of nothing for each thread, by which the
# overhead of one is told.
REPEATS, NOTHINGS = 3, 16


@dataclass(frozen=True)
class Rates:
    """Seconds of a unit, with all threads at work."""

    by_rows: dict[int, tuple[float, ...]]
    """of each kind of `Work`, by the rows of the matrices that it was measured with"""
    task: float
    """overhead of a partition, of one thread, in the groups in which they are absorbed"""
    round: float
    """of a sum, until the last result is here"""
    kept_round: float
    """of one over rows that are kept where they are worked on, as learning asks for"""
    threads: int

    def seconds(self, work: Work, rows) -> float:
        """That one thread takes for the work of matrices of so many rows."""
        return float(np.dot(self.by_rows[_nearest(self.by_rows, rows)], work.counts))


def _nearest(sizes, rows) -> int:
    return min(sizes, key=lambda known: abs(np.log(known / max(rows, 1.0))))


def measured(runtime: Runtime, sizes: Sequence[tuple[float, int]], kernel: Kernel, inputs, some: Partition) -> Rates:
    """The rates of a runtime.

    Parameters
    ----------
    sizes : rows of matrices, and shared variables beside them
    some : rows of the data, for sums over rows that are kept
    """
    measure = Measure(tuple({_nearest(SIZES, n): _nearest(SIZES, S) for n, S in sizes}.items()), inputs, kernel)
    spans = [Span(k, k + 1) for k in range(runtime.threads)]
    total = runtime.sum(measure, spans, label="rates")
    by_rows = {n: tuple((one[:-1] / one[-1]).tolist()) for (n, _), one in zip(measure.sizes, total, strict=True)}
    group: list[Partition | Span] = [Span(k, k + 1) for k in range(GROUP)]
    nothings: list[tuple[Task, list[Partition | Span]]] = [(Nothing(), group)] * (NOTHINGS * runtime.threads)
    each = _seconds(lambda _: list(runtime.each(nothings, label="tasks")))
    around = _seconds(lambda _: runtime.sum(Nothing(), spans, label="rounds"))
    kept = [replace(some, data=replace(some.data, kept=f"plan {uuid.uuid4().hex}"))]
    asked = _seconds(lambda _: runtime.sum(Nothing(), kept, label="rounds"))
    return Rates(by_rows, each / NOTHINGS / GROUP, around, asked, runtime.threads)


@dataclass(frozen=True)
class Nothing:
    """A task that does nothing, for its overhead."""

    def __call__(self, part, rows) -> int:
        return 0


@dataclass(frozen=True)
class Measure:
    """A task that measures the seconds of a unit of each kind of `Work`, and a 1 behind them: (sizes, kinds + 1)."""

    sizes: tuple[tuple[int, int], ...]
    inputs: int
    kernel: Kernel

    def __call__(self, part, rows) -> np.ndarray:
        rng = np.random.default_rng(part.start)
        return np.array([[*self._unit(n, S, rng).counts, 1.0] for n, S in self.sizes])

    def _unit(self, n, S, rng) -> Work:
        kernel = self.kernel
        X, Z = rng.standard_normal((n, self.inputs)), rng.standard_normal((S, self.inputs))
        G, V = (np.asfortranarray(rng.standard_normal((n, m))) for m in (n, S))
        A = np.asfortranarray(kernel.cross(X, X) + np.eye(n))
        L, a = linalg.cholesky(A.copy(order="F"), name="covariance of random rows"), G[:, 0].copy()

        def gradient(G):
            _, pullback = kernel.cross_and_pullback(X, X)
            pullback(G)

        return Work(
            factor=_seconds(lambda M: linalg.cholesky(M, name="covariance of random rows"), A) / (n**3 / 3),
            solve=_seconds(lambda M: linalg.solve_lower(L, M), V) / (n**2 * S),
            product=_seconds(linalg.gram, V) / (n * S**2),
            inverse=_seconds(linalg.inverse, L) / (2 * n**3 / 3),
            kernel=_seconds(lambda _: kernel.cross(X, Z)) / (n * S),
            blocks=_seconds(lambda _: cross_lower(kernel, X)) / (n**2 / 2),
            gradient=_seconds(gradient, G) / n**2,
            moved=_seconds(lambda M: np.multiply(M, 2.0), G) / (2 * FLOAT * n**2),
            dotted=_seconds(lambda M: M @ a, G) / (FLOAT * n**2),
        )


def _seconds(work: Callable, matrix=None) -> float:
    """That a function takes of a copy of a matrix, which it may overwrite: the median of some."""
    found = []
    for _ in range(REPEATS):
        copy = None if matrix is None else matrix.copy(order="F")
        start = time.perf_counter()
        work(copy)
        found.append(time.perf_counter() - start)
    return statistics.median(found)

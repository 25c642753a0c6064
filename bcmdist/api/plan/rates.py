"""Measured rates: seconds per unit of each kind of work on a runtime, measured in about a second.

Matrices are random, with sizes (`SIZES`) about those in the fit, and the routines are those that the fit calls. All
threads of the runtime measure at the same time, since they also work at the same time.
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
from bcmdist.runtime.interface import Runtime, Task
from bcmdist.runtime.memory import FLOAT

# Rows of the matrices in measurements; rates for other sizes are those of the nearest size.
SIZES = (125, 250, 500, 1000)
# Repetitions of a measurement, whose median is used; and empty tasks per thread to measure the overhead of a task.
REPEATS, NOTHINGS = 3, 16


@dataclass(frozen=True)
class Rates:
    """Seconds per unit of work, with all threads busy."""

    by_rows: dict[int, tuple[float, ...]]
    """seconds per unit of each kind of `Work`, by the rows of the matrices in the measurement"""
    task: float
    """overhead per partition and thread, in seconds, with partitions in groups as in a fit"""
    round: float
    """latency of a distributed sum, in seconds"""
    kept_round: float
    """latency of a sum over rows kept in the workers' memory, as in learning, in seconds"""
    threads: int

    def seconds(self, work: Work, rows) -> float:
        """Return the seconds of one thread for work with matrices of so many rows."""
        return float(np.dot(self.by_rows[_nearest(self.by_rows, rows)], work.counts))


def _nearest(sizes, rows) -> int:
    return min(sizes, key=lambda known: abs(np.log(known / max(rows, 1.0))))


def measured(runtime: Runtime, sizes: Sequence[tuple[float, int]], kernel: Kernel, inputs, some: Partition) -> Rates:
    """Measure the rates of a runtime.

    Parameters
    ----------
    sizes : pairs of matrix rows and numbers of shared variables that occur in the fit
    some : a partition of the data, for sums over rows kept in the workers' memory
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
    """An empty task, to measure overheads."""

    def __call__(self, part, rows) -> int:
        return 0


@dataclass(frozen=True)
class Measure:
    """A task that measures the seconds per unit of each kind of `Work`.

    Returns (sizes, kinds + 1); the last column is 1, so that sums over tasks can be divided by their number.
    """

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
    """Return the median seconds of a function applied to copies of a matrix, which the function may overwrite."""
    found = []
    for _ in range(REPEATS):
        copy = None if matrix is None else matrix.copy(order="F")
        start = time.perf_counter()
        work(copy)
        found.append(time.perf_counter() - start)
    return statistics.median(found)

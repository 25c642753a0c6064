"""The interface of runtimes: sum a task over partitions, or return its results one by one; and the serial runtime.

`SerialRuntime` is a loop in this process and the reference in tests; `dask` is a cluster. Both give the same answer up
to rounding, independent of the number of workers, the order of events, and workers that die meanwhile.

A task is a small immutable value (a few hundred bytes: references and options, never data). A task maps a partition
with its rows, or a span of an output that the task writes, to a monoid element. Tasks are pure: repeated, lost, or run
in any order, they give the same answer. Only the runtime decides where they run.
"""

import functools
import operator
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast

import psutil

from bcmdist.data.partition import Partition, Span, Work
from bcmdist.data.rows import Rows, read_all
from bcmdist.errors import BcmdistError, EPNotConverged, LaplaceNotConverged, NotPositiveDefinite, WorkerCannotRead
from bcmdist.runtime.threads import one_thread


class Task(Protocol):
    """A function of one partition, or of one span, whose results can be added.

    A task with a true attribute `aside` only rereads partitions that are done already, so the partitions do not count
    as progress. A task with a true attribute `parted` returns `Parted` results.
    """

    def __call__(self, part: Any, rows: Any, /) -> Any:
        """Return the term of one `Partition` with its `Rows`, or of one `Span` with rows None."""


@dataclass(frozen=True)
class Parted:
    """A result in two parts: a small `summary`, sent to the client, and a large part `kept` on the worker.

    Both parts can be added; `kept` also has a method `weighted`.
    """

    summary: Any
    kept: Any

    def __add__(self, other: "Parted") -> "Parted":
        return Parted(self.summary + other.summary, self.kept + other.kept)

    def __sizeof__(self) -> int:
        """Approximate size of `kept`, by which Dask decides about spilling and moving results."""
        return sys.getsizeof(self.kept)


def is_parted(task: Task) -> bool:
    """Whether the results of a task are `Parted`."""
    return bool(getattr(task, "parted", False))


def shares(task: Task, parts: Sequence[Work]) -> Iterator[Any]:
    """Yield the value of a task for each partition or span, in order."""
    for part, rows in _with_rows(parts):
        try:
            with one_thread():
                share = task(part, rows)
        except (NotPositiveDefinite, LaplaceNotConverged, EPNotConverged) as error:
            raise type(error)(f"{part.key}: {error.args[0]}") from error
        yield share


def _with_rows(parts: Sequence[Work]) -> Iterator[tuple[Work, Rows | None]]:
    spans = [part for part in parts if isinstance(part, Span)]
    return ((span, None) for span in spans) if spans else read_all(cast(Sequence[Partition], parts))


def run_batch(task: Task, batch: Sequence[Work]) -> Any:
    """Sum of a task over some partitions or spans; the unit of work of one worker."""
    return functools.reduce(operator.add, shares(task, batch))


def timed(run: Callable[[Task, Sequence[Work]], Any], task: Task, parts: Sequence[Work]) -> tuple[Any, float]:
    """Return `run(task, parts)` and its duration in seconds."""
    begun = time.perf_counter()
    return run(task, parts), time.perf_counter() - begun


def answer_of(probe: Callable[[], str]) -> str:
    """Return the text of a probe on a worker, or that of its error."""
    try:
        return probe()
    except (BcmdistError, OSError) as error:
        return str(error)


def refuse_other_answers(url: str, expected: str, answers: Mapping[str, Any]) -> None:
    """Raise `WorkerCannotRead` if a worker's answer differs. What is no text came from a worker that died meanwhile."""
    for worker, found in answers.items():
        if isinstance(found, str) and found != expected:
            raise WorkerCannotRead(
                f"worker {worker} must see {url} as the client does: expected {expected!r}, got {found!r}; use "
                "a path or URL that all workers share"
            )


Progress = Callable[[str, int, int], None]
"""Called with the label of a sum, the number of partitions done, and the total number of partitions."""


def silent(label: str, done: int, total: int) -> None:
    """Ignore progress; a `Progress` that shows nothing."""


@dataclass(frozen=True)
class Outcome:
    """Result or error of some partitions that were computed together."""

    parts: Sequence[Work]
    result: Any = None
    """sum of the task over `parts`, or its summary if the task's results are `Parted`; None if there is an error"""
    error: BcmdistError | None = None
    """reason for a missing result; `parts` is then a single partition"""
    kept: Any = None
    """large part of a `Parted` sum, here or on workers: can be added, `weighted`, and fetched by `Runtime.total`"""
    seconds: float | None = None
    """time that the task took where it ran, without waiting; None if unknown"""


class SumLost(Exception):
    """A sum kept on workers was lost with them. The caller has to compute its terms again."""


class Runtime(Protocol):
    """Runs tasks over partitions."""

    allowed_bytes: float
    """Memory that one worker thread may use, in bytes."""
    progress: Progress
    """Called by the runtime during `sum`. During `each` the consumer of the outcomes calls it: only the consumer knows
    how much work is left."""

    @property
    def threads(self) -> int:
        """Number of tasks that run at the same time."""

    def sum(self, task: Task, parts: Sequence[Work], *, label: str) -> Any:
        """Sum of a task over at least one partition or span."""

    def each(self, work: Iterable[tuple[Task, Sequence[Work]]], *, label: str) -> Iterator[Outcome]:
        """Yield the sum of each pair's task over the pair's partitions, in the order of completion.

        `work` is consumed as capacity becomes free. A pair that fails is repeated partition by partition, so that each
        error belongs to one partition; the caller decides whether to continue. Every partition is in exactly one
        outcome. Closing the iterator cancels work in flight; kept sums stay for as long as they are referenced.
        """

    def total(self, kept: Any, *, label: str) -> Any:
        """Fetch the sum of the `kept` parts of outcomes into this process.

        Results of workers that have died are recomputed from the partitions. If the data have changed meanwhile, the
        total differs from the summaries in the outcomes; the caller must compare.

        Raises
        ------
        SumLost, SchedulerLost
        """

    def check_same(self, probe: Callable[[], str], *, url: str) -> None:
        """Raise `WorkerCannotRead` if `probe` returns a different text on a worker than in this process."""


class SerialRuntime:
    """Runs one partition after the other with one BLAS thread, as workers do.

    Parameters
    ----------
    progress : called with a label, the number of finished partitions, and the number of all
    allowed_bytes : largest memory that a task may use; default: what is available now

    Examples
    --------
    >>> with bcmdist.SerialRuntime() as runtime:
    ...     fitted = bcmdist.GBCM.fit(X, y, settings, runtime=runtime)
    >>> fitted.ledger.rows
    80
    """

    threads = 1

    def __init__(self, *, progress: Progress = silent, allowed_bytes: float | None = None) -> None:
        self.progress = progress
        self.allowed_bytes = allowed_bytes or psutil.virtual_memory().available

    def sum(self, task: Task, parts: Sequence[Work], *, label: str) -> Any:
        """Sum of a `task` over partitions, in the order of `parts`; `label` names it in the progress."""
        total = None
        self.progress(label, 0, len(parts))
        for done, share in enumerate(shares(task, parts), start=1):
            total = share if total is None else total + share
            self.progress(label, done, len(parts))
        return total

    def each(self, work: Iterable[tuple[Task, Sequence[Work]]], *, label: str) -> Iterator[Outcome]:
        """Yield the outcomes of each pair of a task and partitions in `work`, in order; `label` as in `sum`."""
        for task, parts in work:
            yield from _outcomes(task, parts)

    def total(self, kept: Any, *, label: str) -> Any:
        """Return `kept`, which is in this process already; `label` as in `sum`."""
        return kept

    def check_same(self, probe: Callable[[], str], *, url: str) -> None:
        """Do nothing: there is no other process to compare `probe` with, nor a `url` that it could not read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _outcomes(task: Task, parts: Sequence[Work]) -> Iterator[Outcome]:
    try:
        result, seconds = timed(run_batch, task, parts)
        outcome = outcome_of(task, parts, result, seconds)
    except BcmdistError as error:
        if len(parts) > 1:
            for part in parts:
                yield from _outcomes(task, [part])
            return
        outcome = Outcome(parts, error=error)
    yield outcome


def outcome_of(task: Task, parts: Sequence[Work], result: Any, seconds: float) -> Outcome:
    """The outcome of a task that has returned `result` in this process after so many seconds."""
    if is_parted(task):
        return Outcome(parts, result.summary, kept=result.kept, seconds=seconds)
    return Outcome(parts, result, seconds=seconds)

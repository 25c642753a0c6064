"""Conformance of runtimes: the contract of `runtime.interface.Runtime`, against the serial runtime.

`check_runtime` is imported from `bcmdist.testing`; it stands here because it fits, ingests and predicts.
"""

import contextlib
import itertools
import math
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil
import threadpoolctl

from bcmdist.api.gbcm import GBCM
from bcmdist.data.dataset import open_data
from bcmdist.data.groups import Location, open_array, open_group
from bcmdist.data.partition import Partition, Span, partitions
from bcmdist.data.rows import Rows
from bcmdist.data.writing import write_dataset
from bcmdist.errors import NotPositiveDefinite, WorkerCannotRead
from bcmdist.learning.settings import Settings
from bcmdist.runtime.interface import Parted, Runtime, SerialRuntime
from bcmdist.testing.checked import Checked, seeded

TOLERANCE = 1e-10  # relative difference from the serial runtime: rounding only
ROWS, PART_ROWS = 240, 40
SETTINGS = Settings(
    kernel="se",
    learn=False,
    set={"kernel.lengthscale": 0.5, "likelihood.noise_variance": 0.01},
    query=30,
    rows_per_expert=PART_ROWS,
    partition="chunks",
)
WAIT_SECONDS = 30.0  # for tasks to begin, and for threads and processes to end
LOOK_SECONDS = 0.02  # between two looks
CANCEL_SECONDS = 2.0  # in which a cancellation reaches the workers, while no task can end
MOST_READ = 100  # pairs that a runtime may take per thread before it returns the first outcome
HELPERS = ("resource_tracker", "forkserver")  # processes of multiprocessing, which live as long as the interpreter


@dataclass(frozen=True)
class Totals:
    """Task: sums of the columns of X, and the number of rows; fails for one partition."""

    failing: str = ""
    """key of the partition that fails"""

    def __call__(self, part: Partition, rows: Rows) -> np.ndarray:
        if part.key == self.failing:
            raise NotPositiveDefinite("expected this error")
        return np.append(rows.X.sum(axis=0), len(rows.X))


@dataclass(frozen=True)
class Vector:
    """Numbers that can be added and weighted."""

    values: np.ndarray

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(self.values + other.values)

    def weighted(self, weight: float) -> "Vector":
        return Vector(weight * self.values)


@dataclass(frozen=True)
class PartedTotals:
    """Task: the keys of partitions as the summary, `Totals` as the part that is kept."""

    parted: ClassVar[bool] = True

    def __call__(self, part: Partition, rows: Rows) -> Parted:
        return Parted((part.key,), Vector(Totals()(part, rows)))


@dataclass(frozen=True)
class Mistake:
    """Task: an error that is not a `BcmdistError`."""

    def __call__(self, part: Partition, rows: Rows) -> None:
        raise ZeroDivisionError("expected this error")


@dataclass(frozen=True)
class Processes:
    """Task: the process that runs it, the numbers of threads of its BLAS libraries, and whether its rows are None."""

    def __call__(self, span: Span, rows: None) -> "Members":
        blas = {one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"}
        return Members(frozenset({(os.getpid(), tuple(sorted(blas)), rows is None)}))


@dataclass(frozen=True)
class Members:
    """A set; the sum of two is their union."""

    members: frozenset[tuple[int, tuple[int, ...], bool]]

    def __add__(self, other: "Members") -> "Members":
        return Members(self.members | other.members)


@dataclass(frozen=True)
class Waiting:
    """Task: notes that it has begun, and waits until it may end."""

    folder: str

    def __call__(self, span: Span, rows: None) -> int:
        Path(self.folder, f"begun-{uuid.uuid4().hex}").touch()
        _wait(lambda: Path(self.folder, "end").exists())
        return 1


@dataclass(frozen=True)
class One:
    """Task: 1."""

    def __call__(self, span: Span, rows: None) -> int:
        return 1


def check_runtime(
    make_runtime: Callable[[], AbstractContextManager[Runtime]], *, folder: Location | None = None
) -> None:
    """Check the contract of `Runtime` for an implementation, by a small fit among others; takes seconds.

    1. `sum`, `each` and `total` give what the serial runtime gives, up to 1e-10, in whatever order partitions come;
       a fit, an ingest and a prediction do.
    2. Each partition is in exactly one outcome. Work is taken as there is capacity for it.
    3. A partition that fails is named, the others have results; errors that are no `BcmdistError` are raised as such.
    4. To close an iterator of outcomes cancels what has not begun; afterwards the runtime is of use.
    5. Progress is reported from 0 to all partitions. Tasks have one BLAS thread.
    6. `check_same` refuses other processes that find something else.
    7. When the runtime is closed, also with work in flight, no thread and no process is left.

    Parameters
    ----------
    make_runtime : returns a runtime, which is a context manager; called once
    folder : an empty directory that all workers see under this path; by default a temporary one of this machine

    Raises
    ------
    InvalidOption
        The first violation, with both values and what to do.

    Examples
    --------
    >>> from bcmdist.testing import check_runtime
    >>> check_runtime(bcmdist.SerialRuntime)
    """
    with contextlib.ExitStack() as opened:
        folder = folder or opened.enter_context(tempfile.TemporaryDirectory(prefix="bcmdist-check-"))
        path = Path(folder, "rows.zarr")
        _write(path, ROWS, 0)
        parts = partitions(open_data(path), PART_ROWS)
        before = _alive()
        with make_runtime() as runtime:
            name = type(runtime).__name__
            checked = Checked(f"runtime {name}", name, rounding=TOLERANCE)
            _check_attributes(checked, runtime)
            _check_sum(checked, runtime, parts)
            _check_each(checked, runtime, parts)
            _check_mistake(checked, runtime, parts)
            _check_total(checked, runtime, parts)
            _check_processes(checked, runtime)
            _check_cancelled(checked, runtime, Path(folder))
            _check_committees(checked, runtime, Path(folder), path)
            unfinished = runtime.each(((One(), [Span(k, k + 1)]) for k in range(1000)), label="check")
            next(unfinished)
        del unfinished
        remedy = "end in `__exit__` what the runtime has started, also while work is in flight"
        _wait(lambda: not _alive() - before)
        left = sorted(map(str, _alive() - before))
        checked.holds(not left, "threads and processes after its end", "those before it", left, remedy)


def _write(path: Path, rows: int, start: int) -> None:
    X = seeded(ROWS + rows, 2)[start : start + rows]
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * seeded(ROWS + rows)[start : start + rows]
    write_dataset(path, {"X": X, "y": y}, rows_per_chunk=PART_ROWS)


def _wait(condition: Callable[[], bool]) -> bool:
    """Wait until a condition is true, at most `WAIT_SECONDS`; return whether it is."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return found


def _alive() -> set[Any]:
    """Processes that this one has started, and threads that would keep it from ending."""
    children = psutil.Process().children(recursive=True)
    threads = {thread for thread in threading.enumerate() if not thread.daemon}
    return threads.union(child for child in children if _counts(child))


def _counts(process: psutil.Process) -> bool:
    try:
        line = " ".join(process.cmdline())
        return process.status() != psutil.STATUS_ZOMBIE and not any(helper in line for helper in HELPERS)
    except psutil.Error:  # it has ended
        return False


def _check_attributes(checked: Checked, runtime: Runtime) -> None:
    fine = isinstance(runtime.threads, int) and runtime.threads >= 1
    checked.holds(fine, "`threads`", "an integer of at least 1", runtime.threads)
    fine = math.isfinite(runtime.allowed_bytes) and runtime.allowed_bytes > 0
    checked.holds(fine, "`allowed_bytes`", "bytes that a task may use, above 0", runtime.allowed_bytes)
    checked.holds(callable(runtime.progress), "`progress`", "a function", runtime.progress)


def _check_sum(checked: Checked, runtime: Runtime, parts: list[Partition]) -> None:
    expected = SerialRuntime().sum(Totals(), parts, label="check")
    before, calls = runtime.progress, []
    runtime.progress = lambda *call: calls.append(call)
    try:
        for order in (parts, parts[::-1], parts[1::2] + parts[::2], parts[:1]):
            wanted = expected if len(order) > 1 else SerialRuntime().sum(Totals(), order, label="check")
            calls.clear()
            checked.equal(f"`sum` of {len(order)} partitions", runtime.sum(Totals(), order, label="check"), wanted)
            ends = [calls[0], calls[-1]] if calls else []
            what = "first and last call of `progress` during `sum`"
            checked.holds(
                ends == [("check", 0, len(order)), ("check", len(order), len(order))],
                what,
                f"(label, 0, {len(order)}) and (label, {len(order)}, {len(order)})",
                ends,
            )
            done = [call[1] for call in calls]
            checked.holds(done == sorted(done), "calls of `progress`", "numbers done that do not fall", done)
    finally:
        runtime.progress = before
    _check_failure(checked, "`sum`", parts[2].key, lambda: runtime.sum(Totals(parts[2].key), parts, label="check"))


def _check_failure(checked: Checked, what: str, key: str, call: Callable[[], Any]) -> None:
    """Check that a call raises the error of `Totals` with the name of the partition that fails."""
    remedy = "compute batches by `run_batch`, which names the partition, and raise the error as it is"
    try:
        found: Any = call()
    except Exception as error:  # whatever it is
        found = error
    fine = isinstance(found, NotPositiveDefinite) and key in str(found)
    checked.holds(fine, f"{what} of a partition that fails", f"NotPositiveDefinite with {key}", repr(found), remedy)


def _check_each(checked: Checked, runtime: Runtime, parts: list[Partition]) -> None:
    values = {part.key: SerialRuntime().sum(Totals(), [part], label="check") for part in parts}
    for failing in ("", parts[1].key):
        batches = [parts[:3], parts[3:4], parts[4:]]
        outcomes = list(runtime.each(((Totals(failing), batch) for batch in batches), label="check"))
        seen = sorted(part.key for one in outcomes for part in one.parts)
        checked.holds(seen == sorted(values), "partitions of `each`", f"each of {len(parts)} once", seen)
        for one in outcomes:
            keys = [part.key for part in one.parts]
            if failing in keys:
                checked.holds(keys == [failing], "partitions of an error", f"{failing} by itself", keys)
                _check_failure(checked, "outcome of `each`", failing, partial(getattr, one, "error"))
                _check_failure(checked, "outcome of `each`", failing, partial(_raise, one.error))
            else:
                checked.holds(one.error is None, f"outcome of {keys}", "a result", repr(one.error))
                checked.equal("result of `each`", one.result, sum(values[key] for key in keys))
    checked.holds(list(runtime.each([], label="check")) == [], "`each` of no work", "no outcome", "some")
    _check_lazy(checked, runtime)


def _raise(error: Any) -> None:
    raise error


def _check_lazy(checked: Checked, runtime: Runtime) -> None:
    """Check that work is taken as there is capacity; of an endless iterator, so that to take all of it is an error."""
    most, taken = MOST_READ * (1 + runtime.threads), []

    def work() -> Iterator[Any]:
        for k in itertools.count():
            remedy = "take another pair of a task and partitions when a thread is about to become free"
            checked.holds(k < most, "work of `each`", f"at most {most} pairs taken before an outcome", k, remedy)
            taken.append(k)
            yield One(), [Span(k, k + 1)]

    outcomes: Any = runtime.each(work(), label="check")
    first = [next(outcomes) for _ in range(3)]
    outcomes.close()
    numbers = [part.start for one in first for part in one.parts]
    checked.holds(len(set(numbers)) == 3 and set(numbers) <= set(taken), "first outcomes", "three of them", numbers)


def _check_mistake(checked: Checked, runtime: Runtime, parts: list[Partition]) -> None:
    for what, call in {
        "`sum`": lambda: runtime.sum(Mistake(), parts, label="check"),
        "`each`": lambda: list(runtime.each([(Mistake(), parts[:2])], label="check")),
    }.items():
        try:
            found: Any = call()
        except Exception as error:  # whatever it is
            found = error
        fine = isinstance(found, ZeroDivisionError)
        checked.holds(fine, f"{what} of a task with a mistake", "its ZeroDivisionError, raised", repr(found))


def _check_total(checked: Checked, runtime: Runtime, parts: list[Partition]) -> None:
    outcomes = list(runtime.each(((PartedTotals(), [part]) for part in parts), label="check"))
    keys = sorted(key for one in outcomes for key in one.result)
    checked.holds(keys == sorted(part.key for part in parts), "summaries of `each`", "those of all partitions", keys)
    kept = outcomes[0].kept
    for one in outcomes[1:]:
        kept = kept + one.kept
    found = runtime.total(kept.weighted(2.0), label="check").values
    checked.equal("`total`", found, 2.0 * SerialRuntime().sum(Totals(), parts, label="check"))


def _check_processes(checked: Checked, runtime: Runtime) -> None:
    found = runtime.sum(Processes(), [Span(k, k + 1) for k in range(4 * runtime.threads)], label="check").members
    blas = sorted({number for _, numbers, _ in found for number in numbers})
    remedy = "compute by `run_batch`, which limits them"
    checked.holds(blas in ([1], []), "BLAS threads of a task", "1", blas, remedy)
    checked.holds(all(empty for _, _, empty in found), "rows of a span", "None", "others")
    runtime.check_same(str, url="check")
    elsewhere = {process for process, _, _ in found} - {os.getpid()}
    try:
        runtime.check_same(_process, url="check")
        refused = False
    except WorkerCannotRead:
        refused = True
    remedy = "call the probe on every worker, and compare"
    expected = "WorkerCannotRead" if elsewhere else "no error, as tasks run in this process"
    what = "`check_same` of the number of the process"
    checked.holds(refused == bool(elsewhere), what, expected, "another", remedy)


def _process() -> str:
    return str(os.getpid())


def _check_cancelled(checked: Checked, runtime: Runtime, folder: Path) -> None:
    """Check that what has not begun when the iterator is closed never begins.

    No task ends before that, so that no more can have begun than there are threads.
    """
    threads = runtime.threads
    work: Any = ((Waiting(str(folder)) if k else One(), [Span(k, k + 1)]) for k in itertools.count())
    outcomes: Any = runtime.each(itertools.islice(work, MOST_READ * (1 + threads)), label="check")
    next(outcomes)
    outcomes.close()
    time.sleep(CANCEL_SECONDS)
    Path(folder, "end").touch()
    spans = [Span(k, k + 1) for k in range(8 * threads)]
    checked.equal("`sum` after `close`", runtime.sum(One(), spans, label="check"), len(spans))
    begun = len(list(Path(folder).glob("begun-*")))
    most = threads + 1  # one more may be on its way to a process, from where it cannot be taken back
    remedy = "cancel what has not begun where the generator is closed, in `finally`"
    checked.holds(begun <= most, "tasks begun after `close` of `each`", f"at most {most}", begun, remedy)


def _check_committees(checked: Checked, runtime: Runtime, folder: Path, path: Path) -> None:
    """Check that a fit, an ingest and predictions are those of the serial runtime."""
    _write(folder / "more.zarr", 2 * PART_ROWS, ROWS)
    models = {}
    for name, where in {"expected": SerialRuntime(), "found": runtime}.items():
        fitted = GBCM.fit(path, SETTINGS, model=folder / name, runtime=where)
        gbcm, report = fitted.ingest(folder / "more.zarr", runtime=where)
        checked.holds(report.partitions == 2, "partitions of an ingest", "2", report.partitions)
        gbcm.predict_zarr(folder / "more.zarr", folder / f"{name}.zarr", runtime=where)
        models[name] = (fitted, gbcm, str(folder / f"{name}.zarr"))
    (fitted, gbcm, out), (expected_fit, expected_gbcm, expected_out) = models["found"], models["expected"]
    for what, one, other in [("a fit", fitted, expected_fit), ("an ingest", gbcm, expected_gbcm)]:
        keys, expected = ([entry.key for entry in which.ledger] for which in (one, other))
        checked.holds(sorted(keys) == sorted(expected), f"partitions of {what}", str(expected), keys)
        for part in ("precision", "eta"):
            totals = (getattr(which.committee.total, part) for which in (one, other))
            checked.equal(f"`{part}` of the committee of {what}", *totals)
    for array in ("mean", "variance"):
        found, reference = (open_array(open_group(url), url, array)[:] for url in (out, expected_out))
        checked.equal(f"`{array}` of predictions", found, reference)

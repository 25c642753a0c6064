"""The check of runtimes passes ours, and finds each promise that a runtime breaks, by name."""

import functools
import importlib
import itertools
import operator
import subprocess
import sys
import threading

import numpy as np
import pytest
from processes import no_hang

from bcmdist import DaskRuntime, SerialRuntime
from bcmdist.api import conformance
from bcmdist.errors import BcmdistError, InvalidOption, MissingExtra
from bcmdist.runtime.interface import Outcome, run_batch
from bcmdist.testing import check_runtime


@pytest.mark.slow
def test_the_serial_runtime_conforms():
    check_runtime(SerialRuntime)


@pytest.mark.slow
@pytest.mark.alone
def test_the_dask_runtime_conforms():
    with no_hang(180):
        check_runtime(lambda: DaskRuntime(workers=2))


@pytest.mark.slow
@pytest.mark.alone
def test_a_portion_of_a_cluster_conforms():
    with no_hang(180), DaskRuntime(workers=2) as own:
        check_runtime(lambda: DaskRuntime(own._client.scheduler.address, workers=1))


# --- Broken ones ---


class NoThreads(SerialRuntime):
    threads = 0


class NoMemory(SerialRuntime):
    def __init__(self):
        super().__init__()
        self.allowed_bytes = float("nan")


class Losing(SerialRuntime):
    def sum(self, task, parts, *, label):
        total = super().sum(task, parts, label=label)
        return total - super().sum(task, parts[:1], label=label) if len(parts) > 5 else total


class Rounded(SerialRuntime):
    def sum(self, task, parts, *, label):
        total = super().sum(task, parts, label=label)
        return total.astype(np.float32) if isinstance(total, np.ndarray) else total


class Silent(SerialRuntime):
    def sum(self, task, parts, *, label):
        return run_batch(task, parts)


class Backwards(SerialRuntime):
    def sum(self, task, parts, *, label):
        progress, self.progress = self.progress, lambda *_: None
        for done in (0, 2, 1, len(parts)):
            progress(label, min(done, len(parts)), len(parts))
        try:
            return super().sum(task, parts, label=label)
        finally:
            self.progress = progress


class Nameless(SerialRuntime):
    def sum(self, task, parts, *, label):
        try:
            return super().sum(task, parts, label=label)
        except BcmdistError as error:
            raise type(error)("something failed") from error


class Twice(SerialRuntime):
    def each(self, work, *, label):
        for outcome in super().each(work, label=label):
            yield from (outcome, outcome)


class WholeBatches(SerialRuntime):
    def each(self, work, *, label):
        for task, parts in work:
            try:
                yield Outcome(parts, run_batch(task, parts))
            except BcmdistError as error:
                yield Outcome(parts, error=error)


class Eager(SerialRuntime):
    def each(self, work, *, label):
        return super().each(list(work), label=label)


class Tolerant(SerialRuntime):
    def each(self, work, *, label):
        for task, parts in work:
            try:
                yield from super().each([(task, parts)], label=label)
            except ZeroDivisionError as error:
                yield from (Outcome([part], error=error) for part in parts)


class Unweighted(SerialRuntime):
    def total(self, kept, *, label):
        return conformance.Vector(kept.values / 2.0)


class ManyThreads(SerialRuntime):
    """Computes without `run_batch`."""

    def sum(self, task, parts, *, label):
        if any(part.key.startswith("output") for part in parts):
            return functools.reduce(operator.add, (task(part, None) for part in parts))
        return super().sum(task, parts, label=label)


class Anxious(SerialRuntime):
    def check_same(self, probe, *, url):
        if probe() != "":
            raise conformance.WorkerCannotRead("workers must see what the client sees")


class Uncancelled(SerialRuntime):
    """Goes on with some of the work when the iterator is closed."""

    def each(self, work, *, label):
        work = iter(work)
        try:
            yield from super().each(work, label=label)
        finally:
            for task, parts in itertools.islice(work, 3):
                run_batch(task, parts)


class Leaking(SerialRuntime):
    def __init__(self):
        super().__init__()
        LEFT.append(subprocess.Popen(["sleep", "60"]))


class LeakingThreads(SerialRuntime):
    def __init__(self):
        super().__init__()
        threading.Thread(target=ENDED.wait).start()


LEFT, ENDED = [], threading.Event()


@pytest.fixture
def cleared():
    ENDED.clear()
    yield
    ENDED.set()
    for process in LEFT:
        process.kill()
        process.wait()
    LEFT.clear()


BROKEN = {
    NoThreads: "`threads`: expected an integer of at least 1, got 0",
    NoMemory: "`allowed_bytes`: expected bytes that a task may use, above 0, got nan",
    Losing: "`sum` of 6 partitions: expected",
    Rounded: "`sum` of 6 partitions: expected",
    Silent: r"first and last call of `progress` during `sum`: expected .* got \[\]",
    Backwards: "calls of `progress`: expected numbers done that do not fall",
    Nameless: r"`sum` of a partition that fails: expected NotPositiveDefinite with .*rows.zarr/X\[80:120\]",
    Twice: "partitions of `each`: expected each of 6 once",
    WholeBatches: r"partitions of an error: expected .*\[40:80\] by itself, got",
    Eager: r"work of `each`: expected at most 200 pairs taken before an outcome",
    Tolerant: "`each` of a task with a mistake: expected its ZeroDivisionError, raised",
    Unweighted: "`total`: expected",
    Anxious: "`check_same`|must see",
    Uncancelled: "tasks begun after `close` of `each`: expected at most 2, got",
    Leaking: "threads and processes after its end: expected those before it, got",
    LeakingThreads: "threads and processes after its end: expected those before it, got",
}


@pytest.mark.parametrize("runtime", BROKEN, ids=lambda runtime: runtime.__name__)
def test_a_broken_runtime_is_refused_by_name(runtime, cleared, monkeypatch):
    monkeypatch.setattr(conformance, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(conformance, "_check_committees", lambda *_: None)  # passes them all; takes seconds
    with pytest.raises(BcmdistError, match=BROKEN[runtime]) as found:
        check_runtime(runtime)
    if runtime is not Anxious:
        assert isinstance(found.value, InvalidOption)
        assert f"runtime {runtime.__name__}, " in str(found.value)


def test_the_extra_of_ray_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "bcmdist.runtime.ray", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[ray\]'"):
        importlib.import_module("bcmdist.runtime.ray")

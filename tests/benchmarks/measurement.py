"""One method on one data set, in processes of its own, measured from outside.

Seconds on the wall and on the cores and peak memory are of all processes that are started (a cluster of workers, say),
imports and reading included; resident memory counts pages that processes share more than once. Peers stop training
when most of the seconds allowed are over; what is not finished then is stopped, and recorded as such.

Whether a machine was quiet is measured, too: the cores that other processes used in the second before a run, and on
average during it. The load average is recorded beside them: it remembers the run before for some minutes.
"""

import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from baselines import THREADS
from commands import Unfinished, bcmdist, run
from data_sets import DataSet
from peers import METHODS

LOOK_SECONDS = 0.1
QUIET = 0.5  # cores that others may use
SHORT_SECONDS = 60.0  # longer runs are not repeated
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
CODE = ("bcmdist", "tests/benchmarks", ":!tests/benchmarks/results")  # by which figures depend on the commit
BUSY_TIMES = ("user", "nice", "system", "irq", "softirq", "steal")
LEFT_OUT = ("pit", "trust", "seconds", "rows", "method", "note", "baselines")  # of the figures of `bcmdist score`


@dataclass
class Watched:
    """What children that were started in the block, and theirs, have taken; looked at every `LOOK_SECONDS`."""

    wall: float = 0.0
    peak: int = 0
    """bytes of all together"""
    spent: dict[int, float] = field(default_factory=dict)
    """seconds on a core by process, as last seen"""

    def __enter__(self):
        self._others = set(psutil.Process().children(recursive=True))
        self._end, self._thread = threading.Event(), threading.Thread(target=self._watch, daemon=True)
        self._start, self._used, self._own = time.perf_counter(), seconds_used(), own_seconds()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.wall = time.perf_counter() - self._start
        self._end.set()
        self._thread.join()
        others = seconds_used() - self._used - (own_seconds() - self._own) - sum(self.spent.values())
        self.others = max(others, 0.0) / self.wall

    def _watch(self):
        while not self._end.wait(LOOK_SECONDS):
            self.look()

    def look(self):
        """Once."""
        resident = 0
        for process in set(psutil.Process().children(recursive=True)) - self._others:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    self.spent[process.pid] = times.user + times.system
                    resident += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.peak = max(self.peak, resident)

    def figures(self):
        """By column."""
        return {
            "wall": round(self.wall, 2),
            "cores": round(sum(self.spent.values()), 2),
            "megabytes": round(self.peak / 1e6),
            "others": round(self.others, 2),
        }


def seconds_used() -> float:
    """Seconds of cores since the machine was started, of all processes."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in BUSY_TIMES)


def own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


# --- One run ---


def measured(data_set: DataSet, method: str, folder: Path, source: Path, seconds: float) -> dict:
    """A run of a method on the parts in a folder: figures, what they took, and the outcome.

    `outcome` is `done`, `stopped after N s`, `failed: ...`, `not tried: ...` or `not installed: ...`.
    """
    begun = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": round(os.getloadavg()[0], 2),
        "others_before": round(psutil.cpu_percent(interval=1.0) / 100.0 * (psutil.cpu_count() or 1), 2),
    }
    outcome, figures = "done", {}
    with Watched() as watched:
        try:
            figures = figures_of(data_set, method, folder, source, seconds)
        except Unfinished as error:
            outcome = str(error).partition(";")[0]
    if "none" in figures:
        outcome, figures = figures["none"], {}
    note = str(figures.get("note", ""))
    numbers = {name: value for name, value in figures.items() if name not in LEFT_OUT and value is not None}
    found = begun | watched.figures()
    busy = max(found["others"], found["others_before"]) > QUIET
    return found | {"busy": busy, "outcome": outcome, "note": note, "figures": numbers}


def figures_of(data_set, method, folder, source, seconds):
    """Scores of the test rows and a note."""
    if METHODS[method].work is None and data_set.task in METHODS[method].tasks:
        return committee(data_set, METHODS[method].options, folder, seconds)
    script = Path(__file__).parent
    command = [sys.executable, script, "--one", method, data_set.name, folder, source, "--seconds", seconds]
    return run(
        [str(part) for part in command], seconds=seconds, environment=dict.fromkeys(THREAD_VARIABLES, str(THREADS))
    )


def committee(data_set, options, folder, seconds):
    """Figures of `bcmdist fit` and `bcmdist score`, by their defaults."""
    begun, model = time.perf_counter(), folder / "model"
    asked = ("--task", data_set.task, *options)
    try:
        fit = bcmdist("fit", folder / "train.zarr", "--model", model, *asked, seconds=seconds)
        left = max(seconds - (time.perf_counter() - begun), 1.0)
        return bcmdist("score", model, folder / "test.zarr", seconds=left) | {"note": fit["kernel"]}
    except Unfinished as error:
        stopped = f"stopped after {seconds:g} s" if str(error).startswith("stopped") else str(error)
        raise Unfinished(stopped) from error


# --- What it ran on ---


def conditions() -> dict:
    """What is kept beside the figures of a script: now, machine, load and commit."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"date": date, "machine": machine(), "load": round(os.getloadavg()[0], 2), "commit": commit()}


def arguments_without(*names) -> str:
    """Arguments of this command without these options and their values."""
    given, kept = sys.argv[1:], []
    while given:
        word = given.pop(0)
        if word not in names:
            kept.append(word)
        elif given and not given[0].startswith("--"):
            given.pop(0)
    return " ".join(kept)


def machine() -> dict:
    """Processor, cores and memory."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
    }


def processor() -> str:
    """The name of the processor, where the system says it."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(packages) -> dict[str, str]:
    """Of Python, NumPy, SciPy and some packages, those that are installed."""
    found = {"python": platform.python_version()}
    for name in dict.fromkeys(("numpy", "scipy", *packages)):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name == "bcmdist":
                found[name] = importlib.import_module(name).__version__
    return found


def commit() -> str:
    """Of this checkout, with a + where the package or the benchmarks were changed since; empty outside of one."""
    root = Path(__file__).parent.parent.parent
    try:
        found = git(root, "rev-parse", "--short=10", "HEAD")
        return found + "+" * bool(git(root, "status", "--porcelain", "--", *CODE))
    except (OSError, subprocess.CalledProcessError):
        return ""


def git(root, *arguments):
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout.strip()


# --- All runs of a method on a set ---


def record_of(data_set: DataSet, method: str, data: Path, *, seconds: float, repeat: int) -> dict:
    """Runs of a method on a set, `repeat` of them where they are short, each on the next split where there are some."""
    runs = []
    for number in range(repeat):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            source = data_set.write_parts(data, folder, number)
            sizes = rows_and_inputs(folder)
            refused = too_many(method, sizes)
            run_ = {"outcome": refused} if refused else measured(data_set, method, folder, source, seconds)
        runs.append({"split": number % data_set.splits} | run_)
        if run_["outcome"] != "done" or run_["wall"] > SHORT_SECONDS:
            break
    return {
        "set": data_set.name,
        "method": method,
        "task": data_set.task,
        **sizes,
        "outcome": runs[-1]["outcome"],
        "seconds_allowed": seconds,
        "versions": versions(METHODS[method].packages),
        "machine": machine(),
        "commit": commit(),
        "runs": runs,
    }


def too_many(method, sizes) -> str:
    most = METHODS[method].most_rows
    return f"not tried: memory, above {most:,} rows" if most and sizes["train_rows"] > most else ""


def rows_and_inputs(folder) -> dict[str, int]:
    """Sizes of the parts in a folder."""
    import zarr

    train, test = (zarr.open_group(folder / f"{part}.zarr", mode="r")["X"].shape for part in ("train", "test"))
    return {"train_rows": train[0], "test_rows": test[0], "inputs": train[1]}

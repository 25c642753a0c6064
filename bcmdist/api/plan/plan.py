"""Estimate time, memory and traffic of a fit on a given runtime, and suggest options that reduce the time.

    plan("train.zarr", Settings(query=1000), runtime=runtime).projected_seconds["total"]

One or two tasks of each stage are run on rows of the data set and timed (`bcmdist.api.plan.trial`), which takes some
seconds; a fit repeats them a known or estimated number of times (`bcmdist.api.plan.steps`). Invalid data and settings
are refused as by a fit. Nothing is written next to the data or the model.
"""

import math
import tempfile
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import psutil

from bcmdist.api.places import places
from bcmdist.api.plan.steps import PASSES, Step, learning_block, steps
from bcmdist.api.plan.trial import CLIENT, PARTS, PRODUCT_ROWS, Trial
from bcmdist.committee.ingest.loop import COMMIT_SECONDS
from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.groups import Location
from bcmdist.data.partition import Partition, Span, partitions
from bcmdist.data.slices import SLICED
from bcmdist.errors import BcmdistWarning, InvalidOption
from bcmdist.experts.limits import _reading_bytes
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning.experts import method_of
from bcmdist.learning.first_commit import same_fit
from bcmdist.learning.hyperparameters import first_kernel, first_mean
from bcmdist.learning.partition_choice import choose_partition
from bcmdist.learning.prepare import FitContext, fit_context, survey
from bcmdist.learning.query_count import QUERY, query_count
from bcmdist.learning.search_length import evaluations
from bcmdist.learning.settings import Settings
from bcmdist.learning.survey import SurveyResult
from bcmdist.learning.time_limit import TimeLimit, time_limit
from bcmdist.model.kernels import kernel_parts, parse_kernel
from bcmdist.model.mean import Mean
from bcmdist.prediction.local.halos import sizes_for
from bcmdist.runtime import memory
from bcmdist.runtime.interface import Runtime, SerialRuntime
from bcmdist.runtime.memory import FLOAT
from bcmdist.runtime.threads import one_thread

# Approximate number of surveyed rows, and least number of chunks, evenly spread over the data.
SURVEYED, LEAST_CHUNKS = 20_000, 4
# Bytes of a ledger entry when sent to the client, and when stored (measured).
REPORT_BYTES, WRITTEN_BYTES = 300, 250
# Empty tasks by which the overhead of a task is measured.
EMPTY_TASKS = 128
# Stages whose tasks absorb rows into a committee of all query points: their time follows from `_expert_flops`.
ABSORBING = ("polish", "experts", "passes", "calibrate", "errors")
# Least relative saving to suggest, and largest number of suggestions.
WORTHWHILE, WORDS = 0.2, 2
QUICK = "--effort quick"


@dataclass(frozen=True)
class Plan:
    """Projected cost of a fit."""

    rows: int
    partitions: int
    query: int
    """approximate number of query points"""
    likelihood: str
    threads: int
    evaluations: int
    """approximate number of evaluations of the evidence, estimated from the effort"""
    projected_seconds: dict[str, float]
    """wall time by stage, including the start of the runtime, and `total`"""
    projected_gflops: dict[str, float]
    """floating-point operations by stage, and `total`, in units of 1e9: an upper bound, the time of all threads times
    the measured rate of a matrix product"""
    projected_megabytes: dict[str, float]
    """size of all `messages`, traffic `to_client` with workers in other processes, and writes `to_store`"""
    projected_peak_megabytes: float
    """peak memory of a process with one thread"""
    advice: str
    """options that would reduce the time, in words"""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as the command prints them; the caller fills in `seconds`, the time that planning took."""
        return asdict(self) | {"seconds": None}


class Overheads(NamedTuple):
    """Threads of a runtime, and the seconds that it adds to a task of a thread and to a round of tasks."""

    threads: int
    task: float = 0.0
    latency: float = 0.0


@one_thread()
def plan(
    source: Any,
    settings: Settings | None = None,
    *,
    model: Location | None = None,
    runtime: Runtime | None = None,
    begun: float | None = None,
) -> Plan:
    """Estimate the cost of a fit to a data set.

    Parameters
    ----------
    source : path or URL of a Zarr group, or (X, y) with X (N, D) and y (N,)
    settings : of the fit
    model : directory with an unfinished fit, whose remaining work counts; default: none
    runtime : where the fit would run; default: in this process
    begun : when the caller began to start the runtime, by `time.perf_counter`; default: now

    Returns
    -------
    Rows, partitions and projected figures in the units of their names: seconds, megabytes, operations in units of 1e9.

    Raises
    ------
    BcmdistError
        As `GBCM.fit` before it learns hyper-parameters.
    InvalidOption
        Inputs cannot be planned.

    Examples
    --------
    >>> plan = bcmdist.plan((X, y), settings)
    >>> plan.rows, plan.partitions
    (80, 1)
    >>> plan.projected_seconds["total"] > 0
    True
    """
    begun = time.perf_counter() if begun is None else begun
    settings, runtime = settings or Settings(), runtime or SerialRuntime()
    _refuse_noisy_inputs(settings)
    keep, source, _ = places(source, "")
    data = open_data(source, x=settings.x, y=settings.y)
    if model is not None:
        same_fit(data, settings, model)
    some = _some(parts := partitions(data, settings.partition_rows), data)
    settings, surveyed, warm, reading = _surveyed(settings, data, model, runtime, some)
    overheads = _overheads(runtime)
    case = fit_context(data, surveyed, settings, runtime)
    count, largest = query_count(settings, data), max(part.rows for part in parts)
    query, several = min(QUERY if count == "auto" else count, data.rows), _makes_several(case)
    trial = Trial(
        parts=tuple(parts[k] for k in some),
        settings=replace(settings, query=query) if count == "auto" else settings,
        largest=largest,
        cells=sizes_for(data.rows, data.inputs, settings.effort),
        several=several,
        allowed_bytes=runtime.allowed_bytes,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # the survey has warned of the whole data
        trials = runtime.sum(trial, [Span(k, k + 1) for k in range(runtime.threads)], label="plan")
    del keep
    times = {key: np.mean([one[key] for one in trials], axis=0) for key in trials[0]}
    sample = min(PARTS * largest, sum(part.rows for part in trial.parts))
    found = [
        Step("start", max(warm - begun - reading, 0.0), 0.0),
        Step("survey", reading * len(parts) / len(some), 0.0),
        *steps(case, times, query, -(-sample // largest), sample),
    ]
    rate = 2 * PRODUCT_ROWS**3 / 1e9 / times["product", CLIENT][0]
    seconds = _seconds(found, overheads, time_limit(settings))
    return Plan(
        rows=data.rows,
        partitions=len(parts),
        query=query,
        likelihood=case.likelihood.name,
        threads=runtime.threads,
        evaluations=round(sum(evaluations(case))) if settings.learn else 0,
        projected_seconds=seconds,
        projected_gflops=_by_stage((step.stage, step.rounds * step.tasks * step.each * rate) for step in found),
        projected_megabytes=_megabytes(case, query, seconds["experts"], 1 + PASSES * several),
        projected_peak_megabytes=_peak_bytes(case, query, largest) / 1e6,
        advice=_advice(case, found, overheads, query, largest),
    )


def _surveyed(
    settings: Settings, data: Dataset, model: Location | None, runtime: Runtime, some: Sequence[int]
) -> tuple[Settings, SurveyResult, float, float]:
    """Return the settings with the partition that a fit chooses, the survey of some partitions, the time when it had
    ended, and the seconds of a second one."""
    place, asked = (data, tempfile.gettempdir() if model is None else model, runtime), settings
    settings, _ = choose_partition(asked, *place)
    surveyed, warm = survey(data, settings, runtime, among=some), time.perf_counter()
    survey(data, settings, runtime, among=some)
    reading = time.perf_counter() - warm
    return choose_partition(asked, *place, labels=surveyed.labels)[0], surveyed, warm, reading


def _refuse_noisy_inputs(settings: Settings) -> None:
    if method_of(settings).capabilities.input_errors:
        raise InvalidOption(
            f"--plan: expected inputs as they were seen, got {method_of(settings).name}, whose number of iterations is "
            "not known beforehand; leave one of them out"
        )


def _makes_several(case: FitContext) -> bool:
    """Whether further passes over the data follow the first."""
    settings, likelihood = case.settings, case.likelihood
    if likelihood.one_pass:
        return False
    sliced = case.sliced >= SLICED and settings.partition == "chunks" and settings.linearise == "own"
    return settings.passes == "auto" if settings.passes else sliced


def _some(parts: Sequence[Partition], data: Dataset) -> list[int]:
    """Return indices of the partitions in some whole chunks, evenly spread since rows may be sorted by target."""
    size = max(1, data.chunk_rows // parts[0].rows)
    chunks = math.ceil(len(parts) / size)
    sampled = max(LEAST_CHUNKS, round(SURVEYED / max(data.chunk_rows, parts[0].rows)))
    among = np.linspace(0, chunks - 1, min(sampled, chunks)).round().astype(int).tolist()
    return [k for chunk in among for k in range(chunk * size, min((chunk + 1) * size, len(parts)))]


@dataclass(frozen=True)
class Nothing:
    """An empty task, to measure overheads."""

    def __call__(self, part: Span, rows: None) -> int:
        return 0


def _overheads(runtime: Runtime) -> Overheads:
    def seconds(tasks: int) -> float:
        start = time.perf_counter()
        runtime.sum(Nothing(), [Span(k, k + 1) for k in range(tasks)], label="tasks")
        return time.perf_counter() - start

    _, latency, several = (seconds(tasks * runtime.threads) for tasks in (1, 1, EMPTY_TASKS))
    return Overheads(runtime.threads, max(0.0, several - latency) / EMPTY_TASKS, latency)


def _by_stage(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for stage, value in pairs:
        found[stage] = found.get(stage, 0.0) + value
    return {stage: float(value) for stage, value in [*found.items(), ("total", sum(found.values()))]}


def _seconds(found: Sequence[Step], at: Overheads, limit: TimeLimit) -> dict[str, float]:
    """Seconds by stage; the two stages of learning end with its limit at the latest."""
    each, left = _by_stage((step.stage, step.seconds(*at)) for step in found), limit.seconds
    del each["total"]
    for stage in ("learn", "polish"):
        if stage in each:
            each[stage] = min(each[stage], left)
            left -= each[stage]
    return _by_stage(each.items())


def _megabytes(case: FitContext, query: int, absorbing: float, passes: int) -> dict[str, float]:
    """Return bytes of messages (lower triangles), of traffic to the client, and of stored totals, entries and model."""
    data, parts, copies, S = case.data, len(case.parts), case.likelihood.copies, query + 1
    message, commits = FLOAT * copies * (S * (S + 1) / 2 + S), passes + absorbing // COMMIT_SECONDS
    totals = FLOAT * (query * (query + data.inputs) + (1 + commits) * copies * (S**2 + S))
    sizes, spatial = sizes_for(data.rows, data.inputs, case.settings.effort), case.settings.partition == "spatial"
    cells = FLOAT * data.rows * (data.inputs + 2 + sizes.with_halo / sizes.core) * spatial
    found = {
        "messages": passes * parts * message,
        "to_client": passes * parts * REPORT_BYTES + (1 + commits) * message,
        "to_store": totals + passes * parts * WRITTEN_BYTES + cells,
    }
    return {name: size / 1e6 for name, size in found.items()}


def _peak_bytes(case: FitContext, query: int, largest: int) -> float:
    """Return the peak memory of a process, by the same formulas that a fit compares with available memory."""
    settings, likelihood, data = case.settings, case.likelihood, case.data
    parts = kernel_parts(parse_kernel(first_kernel(settings, case.outputs), inputs=data.inputs))
    shared = query + Mean(first_mean(settings, case.outputs)).weights(data.inputs)
    residual = RESIDUALS[case.method.residual]
    needs = [residual.expert_bytes(largest, shared, kernels=parts, **likelihood.memory) + _reading_bytes(data)]
    if settings.learn:
        laplace = not likelihood.learned_as().normal
        needs.append(memory.evidence_bytes(learning_block(case), data.inputs, kernels=parts, laplace=laplace))
    if settings.partition == "spatial":
        local = sizes_for(data.rows, data.inputs, settings.effort).with_halo
        needs.append(
            memory.local_bytes(min(local, data.rows), largest, shared, kernels=parts, classes=likelihood.copies)
        )
    most: float = memory.BASE_BYTES + max(needs)
    return most


# --- Advice ---


def _advice(case: FitContext, found: Sequence[Step], at: Overheads, query: int, largest: int) -> str:
    """Suggest the changes that save most time, if they save at least the share `WORTHWHILE`."""
    limit, quick = time_limit(case.settings), time_limit(replace(case.settings, effort="quick"))
    total = _seconds(found, at, limit)["total"]
    others = [
        (words, _seconds(*other, quick if words == QUICK else limit)["total"])
        for words, other in _others(case, found, at, query, largest)
    ]
    best = sorted((one for one in others if one[1] < (1.0 - WORTHWHILE) * total), key=lambda one: one[1])[:WORDS]
    savings = [f"with {words} about {less:.3g} s in place of {total:.3g}" for words, less in best]
    if case.settings.query == "auto":
        savings.insert(0, f"--query auto is planned as {query} points")
    return "; ".join(savings) or "no single option would save a fifth of the time"


def _others(
    case: FitContext, found: Sequence[Step], at: Overheads, Q: int, n: int
) -> Iterator[tuple[str, tuple[Sequence[Step], Overheads]]]:
    """Yield alternative fits: the option that selects it, its steps, and the overheads of its runtime."""
    settings, now = case.settings, _expert_flops(n, Q)

    def scaled(stages: Collection[str], factor: float, tasks: float = 1.0) -> list[Step]:
        return [replace(s, each=s.each * factor, tasks=s.tasks * tasks) if s.stage in stages else s for s in found]

    if settings.learn:
        yield "--no-learn", ([step for step in found if step.stage != "learn"], at)
        if settings.effort != "quick":
            quick = replace(case, settings=replace(settings, effort="quick"))
            yield QUICK, (scaled(["learn"], sum(evaluations(quick)) / sum(evaluations(case))), at)
    if Q > 1:
        yield f"--{case.method.size} {Q // 2}", (scaled(ABSORBING, _expert_flops(n, Q // 2) / now), at)
    if settings.partition_rows > 1 and len(case.parts) > 1:
        smaller = scaled(ABSORBING, _expert_flops(n / 2, Q) / now, 2.0)
        yield f"--rows-per-expert {settings.partition_rows // 2}", (smaller, at)
    if at.threads > 1:
        yield "--serial", (found, Overheads(1))
    if at.threads < (more := psutil.cpu_count(logical=False) or 1):
        yield f"--workers {more}", (found, at._replace(threads=more))


def _expert_flops(n: float, Q: float) -> float:
    """Operations of an expert of n rows: its precision, residual covariance and Cholesky factor."""
    return 2.0 * n * Q**2 + 2.0 * n**2 * Q + n**3 / 3.0

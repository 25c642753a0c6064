"""Estimate time, memory and traffic of a fit on a given runtime, and suggest options that reduce the time.

    plan("train.zarr", Settings(query=1000), runtime=runtime).projected_seconds["total"]

A sample of the rows is surveyed as in a fit, so that the same invalid data and settings are refused. Nothing is
written.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import psutil

from bcmdist.api.places import places
from bcmdist.api.plan.rates import Rates, measured
from bcmdist.api.plan.stages import PASSES, Planned, evaluations, steps
from bcmdist.committee.ingest.loop import COMMIT_SECONDS
from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.partition import Partition, partitions
from bcmdist.data.slices import SLICED
from bcmdist.errors import InvalidOption
from bcmdist.experts.limits import _reading_bytes
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning.experts import method_of
from bcmdist.learning.first_commit import same_fit
from bcmdist.learning.hyperparameters import first_kernel, first_mean
from bcmdist.learning.prepare import QUERY, fit_context, query_count, survey
from bcmdist.learning.query_selection import BEGUN, select_points
from bcmdist.learning.settings import Settings
from bcmdist.model.kernels import kernel_parts, parse_kernel
from bcmdist.model.mean import Mean
from bcmdist.runtime import memory
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.memory import FLOAT
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.runtime.threads import one_thread

# Approximate number of surveyed rows, and least number of chunks, evenly spread over the data.
SURVEYED, LEAST_CHUNKS = 20_000, 4
# Bytes of a ledger entry when sent to the client, and when stored (measured).
TOLD_BYTES, WRITTEN_BYTES = 300, 250
# Rows of a small selection of query points, to measure the fixed cost of k-means (its import).
FEW_ROWS = 200
# Least relative saving to suggest, and largest number of suggestions.
WORTHWHILE, WORDS = 0.2, 2


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
    """floating-point operations by stage, and `total`, in units of 1e9"""
    projected_megabytes: dict[str, float]
    """size of all `messages`, traffic `to_client` with workers in other processes, and writes `to_store`"""
    projected_peak_megabytes: float
    """peak memory of a process with one thread"""
    advice: str
    """options that would reduce the time, in words"""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as the command prints them; the caller fills in `seconds`, the time that planning took."""
        return asdict(self) | {"seconds": None}


@one_thread()
def plan(source, settings: Settings | None = None, *, model=None, runtime: Runtime | None = None, begun=None) -> Plan:
    """Estimate the cost of a fit to a data set.

    Parameters
    ----------
    source, settings, model, runtime : as of `GBCM.fit`
    begun : when the caller began to start the runtime, by `time.perf_counter`; default: now

    Raises
    ------
    As `GBCM.fit` before it learns hyper-parameters; `InvalidOption` also for experts and inputs that cannot be planned.
    """
    begun = time.perf_counter() if begun is None else begun
    settings, runtime = settings or Settings(), runtime or SerialRuntime()
    if not method_of(settings).capabilities.planned:
        raise InvalidOption(
            f"--plan: expected an expert whose work is products of matrices, as the rates that are measured, got "
            f"{settings.expert}; leave it out: some seconds for a million rows are what to expect"
        )
    if method_of(settings).capabilities.input_errors:
        raise InvalidOption(
            f"--plan: expected inputs as they were seen, got {method_of(settings).name}, whose searches end where rows "
            "say; leave one of them out"
        )
    keep, source, _ = places(source, "")
    data = open_data(source, x=settings.x, y=settings.y)
    if model is not None:
        same_fit(data, settings, model)
    started = time.perf_counter() - begun
    case, look, taken, warming = _surveyed(data, settings, runtime)
    kernel = parse_kernel(first_kernel(settings), inputs=data.inputs)
    few = case.inputs[:FEW_ROWS]
    choosing, _ = _timed(lambda: select_points(few, max(1, len(few) // 10), kernel=kernel))
    sizes = [(step.size, look.query) for step in steps(look) if step.work.flops(data.inputs)]
    rates = measured(runtime, sizes, kernel, data.inputs, case.parts[0])
    row_seconds = max(0.0, taken[0] - rates.round) / taken[1]
    extra = {"start": started + warming, "query": choosing}
    del keep
    seconds = _seconds(look, rates, row_seconds, extra)
    flops = ((step.stage, step.rounds * step.tasks * step.work.flops(data.inputs) / 1e9) for step in steps(look))
    return Plan(
        rows=data.rows,
        partitions=look.parts,
        query=look.query,
        likelihood=look.likelihood.name,
        threads=runtime.threads,
        evaluations=round(sum(evaluations(look))) if settings.learn else 0,
        projected_seconds=seconds,
        projected_gflops=_by_stage(flops),
        projected_megabytes={name: size / 1e6 for name, size in _bytes(look, seconds).items()},
        projected_peak_megabytes=_peak_bytes(look, kernel, data) / 1e6,
        advice=_advice(look, rates, row_seconds, extra, seconds),
    )


def _surveyed(data, settings, runtime):
    """Survey a sample of the rows, twice.

    Returns
    -------
    The fit context; the `Planned` fit; seconds of the second survey, and its rows per thread; the extra seconds of the
    first survey (warm-up).
    """
    among = _some(all_parts := partitions(data, settings.rows_per_expert), data)
    first, again = (_timed(lambda: survey(data, settings, runtime, among=among)) for _ in range(2))
    case = fit_context(data, first[1], settings, runtime)
    count = query_count(settings, data)
    count = QUERY if count == "auto" else count
    sliced = case.sliced >= SLICED and settings.partition == "chunks" and settings.linearise == "own"
    passing = not (case.likelihood.exact or case.likelihood.needs_calibration)
    look = Planned(
        settings=settings,
        likelihood=case.likelihood,
        rows=data.rows,
        inputs=data.inputs,
        chunk_rows=data.chunk_rows,
        parts=len(case.parts),
        largest=max(part.rows for part in case.parts),
        query=min(count, data.rows),
        several=passing and (settings.passes == "auto" if settings.passes else sliced),
        spread=bool(np.ptp(case.scaling.x_scale) > 0),
    )
    rows = sum(all_parts[k].rows for k in among) / min(runtime.threads, len(among))
    return case, look, (again[0], rows), max(0.0, first[0] - again[0])


def _timed(work):
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def _some(parts: Sequence[Partition], data: Dataset) -> list[int]:
    """Return indices of the partitions in some whole chunks, evenly spread since rows may be sorted by target."""
    size = max(1, data.chunk_rows // parts[0].rows)
    chunks = math.ceil(len(parts) / size)
    wanted = max(LEAST_CHUNKS, round(SURVEYED / max(data.chunk_rows, parts[0].rows)))
    among = np.linspace(0, chunks - 1, min(wanted, chunks)).round().astype(int).tolist()
    return [k for chunk in among for k in range(chunk * size, min((chunk + 1) * size, len(parts)))]


def _by_stage(pairs) -> dict[str, float]:
    found: dict[str, float] = {}
    for stage, value in pairs:
        found[stage] = found.get(stage, 0.0) + float(value)
    return found | {"total": sum(found.values())}


def _seconds(look, rates, row_seconds, extra):
    done = ((step.stage, step.seconds(rates, row_seconds)) for step in steps(look))
    return _by_stage([*extra.items(), *done])


def _bytes(look, seconds) -> dict[str, float]:
    """Return bytes of messages (lower triangles), of traffic to the client, and of stored totals, entries and model."""
    S, copies, passes = look.query + 1, look.likelihood.copies, 1 + PASSES * look.several
    message = FLOAT * copies * (S * (S + 1) / 2 + S)
    commits = 1 + seconds["experts"] // COMMIT_SECONDS + passes
    model = FLOAT * look.query * (look.query + look.inputs)
    cells = FLOAT * look.rows * (look.inputs + 2 + look.around / look.core) if look.spatial else 0.0
    return {
        "messages": passes * look.parts * message,
        "to_client": passes * look.parts * TOLD_BYTES + commits * message,
        "to_store": model + commits * FLOAT * copies * (S**2 + S) + passes * look.parts * WRITTEN_BYTES + cells,
    }


def _peak_bytes(look, kernel, data) -> float:
    """Return the peak memory of a process, by the same formulas that a fit compares with available memory."""
    parts, likelihood, learned = kernel_parts(kernel), look.likelihood, look.likelihood.learned_as()
    shared = look.query + Mean(first_mean(look.settings)).weights(look.inputs)
    kind = RESIDUALS[method_of(look.settings).residual]
    how = {"kernels": parts, "classes": likelihood.copies}
    needs = [kind.expert_bytes(look.largest, shared, laplace=not likelihood.exact, coupled=likelihood.coupled, **how)]
    needs[0] += _reading_bytes(data)
    if look.settings.learn:
        rows = max(step.size for step in steps(look) if step.stage == "learn")
        needs.append(memory.evidence_bytes(rows, look.inputs, kernels=parts, laplace=not learned.normal))
    if look.spatial:
        needs.append(memory.local_bytes(look.around, look.largest, shared, **how))
    return memory.BASE_BYTES + max(needs)


# --- Advice ---


def _advice(look, rates, row_seconds, extra, seconds) -> str:
    """Suggest the changes that save most time, if they save at least the share `WORTHWHILE`."""
    total = seconds["total"]
    found = [(words, _seconds(other, at, row_seconds, extra)["total"]) for words, other, at in _others(look, rates)]
    best = sorted((one for one in found if one[1] < (1.0 - WORTHWHILE) * total), key=lambda one: one[1])[:WORDS]
    said = [f"with {words} about {less:.3g} s in place of {total:.3g}" for words, less in best]
    if look.settings.query == "auto":
        said.insert(0, f"--query auto is planned as {look.query} points")
    return "; ".join(said) or "no single option would save a fifth of the time"


def _others(look, rates) -> Iterator[tuple[str, Planned, Rates]]:
    """Yield alternative fits: the option that selects it, the planned fit, and its rates."""
    settings = look.settings
    if settings.learn:
        points = BEGUN.get(settings.query_method, settings.query_method)
        with suppress(InvalidOption):  # options of the method may need learning
            given = replace(settings, learn=False, objective="local", query_method=points)
            yield "--no-learn", replace(look, settings=given), rates
        if settings.effort != "quick":
            yield "--effort quick", replace(look, settings=replace(settings, effort="quick")), rates
    if look.query > 1:
        yield f"--{method_of(settings).size} {look.query // 2}", replace(look, query=look.query // 2), rates
    rows = settings.rows_per_expert // 2
    if rows and look.parts > 1:
        smaller = replace(settings, rows_per_expert=rows)
        yield f"--rows-per-expert {rows}", replace(look, settings=smaller, parts=2 * look.parts), rates
    if rates.threads > 1:
        yield "--serial", look, replace(rates, threads=1, task=0.0, round=0.0, kept_round=0.0)
    if rates.threads < (psutil.cpu_count(logical=False) or 1):
        more = psutil.cpu_count(logical=False) or 1
        yield f"--workers {more}", look, replace(rates, threads=more)

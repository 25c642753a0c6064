"""Execution of requests: validate everything that needs no runtime, then do the work in a runtime.

Each kind of request has a context manager (`begun`). Entering it validates the request and returns the remaining work
as a function of a runtime; leaving it closes what was opened. `check` only enters and leaves it, so that the process
that submits a job makes the same checks as the process that executes it.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any

import msgspec

from bcmdist.api.averages import Points, points_in_regions, points_of, refuse_average
from bcmdist.api.comparison.baselines import Compared, compared
from bcmdist.api.files import is_file, predicted, write_columns
from bcmdist.api.forecasts import forecast_table, refuse_forecast
from bcmdist.api.gbcm import GBCM
from bcmdist.api.imported import fitted, ingested, scored
from bcmdist.api.mixture import Mixture, opened, refuse_mixture, refuse_single
from bcmdist.api.plan.plan import plan
from bcmdist.api.refitting import refuse_fixed
from bcmdist.api.requests import (
    REQUESTS,
    FitRequest,
    ForecastRequest,
    ForgetRequest,
    IngestRequest,
    MergeRequest,
    PredictRequest,
    RefitRequest,
    Request,
    ScoreRequest,
)
from bcmdist.api.sampling import like_mixture, sample_posterior
from bcmdist.api.validation.cross_validate import prepared
from bcmdist.api.validation.folds import column_to_keep
from bcmdist.api.validation.result import ValidationResult
from bcmdist.committee.growth import capacity
from bcmdist.committee.merge import existing_merge
from bcmdist.committee.mixture_commits import is_mixture
from bcmdist.committee.revision import entries_of
from bcmdist.committee.snapshot import new_store
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.outputs import refuse_existing
from bcmdist.data.tables.options import is_geojson
from bcmdist.data.tables.writing import refuse_csv_safe
from bcmdist.errors import InvalidOption, InvalidRequest
from bcmdist.learning.prediction_inputs import prediction_partitions
from bcmdist.prediction.exceedance import refuse_thresholds
from bcmdist.prediction.predictive_model import warn_of_rows_outside
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.signals import deferred_interrupts
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.commits import open_store

FINISHED = "finished"
"""the figure `resumed` of a fit or merge that had nothing left to do; "continued" where it had; absent if it is new"""
Work = Callable[[Runtime], dict[str, Any]]
"""Remaining work of a request: from a runtime to its figures. `seconds` and `rows_per_second`, filled in by
`carry_out`, are None"""


def check(request: Request) -> None:
    """Validate a request as far as possible without a runtime. Nothing that was written remains.

    Raises
    ------
    BcmdistError
    """
    with begun(request):
        pass


@one_thread()
def carry_out(
    request: Request, make_runtime: Callable[[], AbstractContextManager[Runtime]], *, started: float | None = None
) -> dict[str, Any]:
    """Execute a request. Return its figures, JSON-ready except for numbers that are not finite.

    Parameters
    ----------
    make_runtime : called after the checks that need no runtime
    started : start time by `time.perf_counter`, for the elapsed time; default: now

    Raises
    ------
    BcmdistError
    """
    started = time.perf_counter() if started is None else started
    with begun(request) as work, make_runtime() as runtime:
        figures = work(runtime)
    seconds = time.perf_counter() - started
    whole = {"seconds": seconds, "rows_per_second": figures.get("rows", 0) / seconds}
    return figures | {name: value for name, value in whole.items() if name in figures}


@functools.singledispatch
def begun(request: Request) -> AbstractContextManager[Work]:
    """Context manager: validate a request as far as possible without a runtime; return the remaining work."""
    raise InvalidRequest(
        f"expected a request to {', '.join(REQUESTS)}, got {type(request).__name__}; see `bcmdist.api.requests`"
    )


@begun.register
@contextlib.contextmanager
def _fit(request: FitRequest) -> Iterator[Work]:
    started = time.perf_counter()
    with fitted(request) as adapted, _fitting(adapted, started) as work:
        yield work


@contextlib.contextmanager
def _fitting(request: FitRequest, started: float) -> Iterator[Work]:
    settings = request.settings
    prediction_partitions(settings, open_data(request.data, x=settings.x, y=settings.y))
    how: Callable[..., GBCM | Mixture] = GBCM.prepare if request.prepare_only else GBCM.fit
    if request.hyperparameters == "hmc" or like_mixture(settings):
        if request.plan or request.prepare_only:
            raise InvalidOption(
                "--like: expected a whole fit of the samples of a mixture; leave out --plan, --prepare-only"
            )
        how = functools.partial(sample_posterior, samples=request.samples, chains=request.chains)

    def work(runtime: Runtime) -> dict[str, Any]:
        if request.plan:
            return plan(request.data, settings, model=request.model, runtime=runtime, begun=started).to_json()
        before = open_store(request.model).head()
        fitted = how(request.data, settings, model=request.model, runtime=runtime)
        return _resumed(before, fitted.info() | {"seconds": None})

    yield work


def _resumed(before: int, figures: dict[str, Any]) -> dict[str, Any]:
    """Figures of a model that was at commit `before` (0: new), with those that say whether anything was left to do."""
    if before:
        figures["resumed"] = FINISHED if figures.get("commit") == before else "continued"
    return figures


@begun.register
@contextlib.contextmanager
def _ingest(request: IngestRequest) -> Iterator[Work]:
    watch = request.options.watch
    received: list[int] = []  # signals received that ask to stop
    stream: dict[str, Any] = {} if request.take_over is None else {"idle_seconds": request.take_over}
    stream |= {"trim": True} if request.trim else {}
    with (
        opened(request.model) as before,
        ingested(
            before.predictive.snapshot.model,
            request.model,
            request.source,
            unseen=request.unseen,
            stays=lambda: before.newest().commit > before.commit,
        ) as rows,
        contextlib.closing(before.source(rows, watch=watch, **stream)) as source,
    ):
        source.lag(None)  # fails where the source cannot be reached

        def work(runtime: Runtime) -> dict[str, Any]:
            with deferred_interrupts(received) if watch else contextlib.nullcontext():
                options = replace(request.options, stop=lambda: bool(received) or request.options.stop())
                after, report = before.ingest(source, options, runtime=runtime)
            snapshot, figures = after.predictive.snapshot, after.info()
            if after.commit > before.commit:
                warn_of_rows_outside(snapshot)
            weighting = ("sample_weights", "effective_samples")
            sampled = {name: figures[name] for name in weighting if name in figures}
            return {
                **asdict(report),
                "stopped": bool(received),
                "seconds": None,
                "rows_per_second": None,
                "commit": after.commit,
                "capacity": capacity(snapshot),
                "drift": figures["drift"],
                **sampled,
                **({"update": msgspec.to_builtins(snapshot.facts.ingestion.update)} if request.options.update else {}),
            }

        yield work


@begun.register
@contextlib.contextmanager
def _forget(request: ForgetRequest) -> Iterator[Work]:
    with opened(request.model) as before:
        entries_of(before.predictive.snapshot, request.keys)  # raises if a key is missing

        def work(runtime: Runtime) -> dict[str, Any]:
            after = before.forget(request.keys, runtime=runtime)
            snapshot = after.predictive.snapshot
            counts = {"forgotten": len(set(request.keys)), "rows": snapshot.committee.total.rows}
            error = snapshot.facts.linearisation.withdrawn_error
            removed = {} if error is None else {"error_before_last_pass": error}
            return counts | {"partitions": len(snapshot.ledger), **removed, "seconds": None, "commit": after.commit}

        yield work


@begun.register
@contextlib.contextmanager
def _merge(request: MergeRequest) -> Iterator[Work]:
    refuse_single(request.model_a, request.model_b)
    with opened(request.model_a) as one, opened(request.model_b) as other:
        of_one_kind: Any = other
        if not is_mixture(request.model_a):
            both = one.predictive.snapshot, other.predictive.snapshot
            if not existing_merge(*both, request.model, request.query_most):
                new_store(request.model)  # raises if it is not new

        def work(runtime: Runtime) -> dict[str, Any]:
            before = open_store(request.model).head()
            merged = one.merge(of_one_kind, request.model, query_most=request.query_most, runtime=runtime)
            return _resumed(before, merged.info())

        yield work


@begun.register
@contextlib.contextmanager
def _refit(request: RefitRequest) -> Iterator[Work]:
    refuse_mixture(request.model, "refit")
    with GBCM.held(request.model) as before:
        refuse_fixed(before.snapshot)
        yield lambda runtime: before.refit(request.options, runtime=runtime).info()


@begun.register
@contextlib.contextmanager
def _forecast(request: ForecastRequest) -> Iterator[Work]:
    with opened(request.model, commit=request.at) as fitted:
        model, out, steps = fitted.predictive, request.out, request.steps
        refuse_forecast(model, steps, out, request.method, request.inputs, csv_safe=request.csv_safe)

        def work(runtime: Runtime) -> dict[str, Any]:
            how: dict[str, Any] = {"id": request.id, "method": request.method, "way": request.inputs}
            how |= {"seed": request.seed, "steps": steps, "ahead": request.ahead}
            columns = forecast_table(model, request.data, **how)
            figures: dict[str, Any] = {"steps": steps, "series": len(columns["step"]) // steps}
            if out is None:
                return figures | {"forecast": {name: values.tolist() for name, values in columns.items()}}
            write_columns(columns, out, csv_safe=request.csv_safe)
            return figures | {"out": out}

        yield work


@begun.register
@contextlib.contextmanager
def _predict(request: PredictRequest) -> Iterator[Work]:
    with opened(request.model, commit=request.at) as fitted:
        method, x, inputs = fitted.chosen_method(request.method), request.x, request.inputs
        member = fitted.predictive.snapshot.model
        columns = {name: getattr(request, name) for name in ("exposure", "trials", TARGET_VARIANCE)}
        roles = {role: name for role, name in columns.items() if name is not None}
        refuse_csv_safe(request.csv_safe, request.out)
        refuse_existing(request.out)
        refuse_thresholds(member, request.above)
        single = _averaging(fitted, request)
        if single and is_geojson(request.data):
            points = points_in_regions(single, request)
            yield lambda runtime: _averaged(single, request, points, method)
            return
        if is_file(request.data):
            if x is not None:
                raise InvalidOption(f"{request.data}: expected a data set with --x, got a file; leave it out")
            x = "X"  # name of the array after import
        how = (x, request.id, request.unseen)
        kept = [name for name in (request.over, request.weight) if name is not None]
        with predicted(member, request.data, request.out, *how, roles=roles, kept=kept) as files:
            open_data(files.data, x=x or member.x_name, y=None, schema=member.schema)
            if single:
                points = points_of(single, request, files.data, x, times=max(1, len(files.outputs)))
                yield lambda runtime: _averaged(single, request, points, method)
                return

            def work(runtime: Runtime) -> dict[str, Any]:
                rows = fitted.predict_zarr(
                    files.data,
                    files.predictions,
                    x=x,
                    method=method,
                    inputs=inputs,
                    terms=request.terms,
                    above=request.above,
                    draws=request.draws or 0,
                    of=request.of,
                    seed=request.seed,
                    runtime=runtime,
                )
                files.finish(csv_safe=request.csv_safe)
                return {"rows": rows, "seconds": None, "out": request.out, "method": method, "unused": files.unused}

            yield work


def _averaging(fitted: GBCM | Mixture, request: PredictRequest) -> GBCM | None:
    """The committee that averages, if averages are requested and possible; otherwise None."""
    if request.over is None and not is_geojson(request.data):
        return None
    single = fitted.single("average with")
    refuse_average(single, request)
    return single


def _averaged(single: GBCM, request: PredictRequest, points: Points, method: str) -> dict[str, Any]:
    """Write averages and return their figures."""
    columns = points.averages(single, request)
    write_columns(columns, request.out, csv_safe=request.csv_safe)
    groups = {"groups": len(columns["points"])}
    return points.figures | groups | {"seconds": None, "out": request.out, "method": method}


@begun.register
@contextlib.contextmanager
def _score(request: ScoreRequest) -> Iterator[Work]:
    if request.folds is not None:
        with validating(request) as validate:
            yield lambda runtime: validate(runtime).to_json()
        return
    with scoring(request) as (method, work, _):
        yield lambda runtime: score_figures(method, work(runtime))


@contextlib.contextmanager
def validating(request: ScoreRequest) -> Iterator[Callable[[Any], ValidationResult]]:
    """Context manager: choose the folds of a cross-validation; return the work that computes its result."""
    with opened(request.model, commit=request.at) as fitted:
        snapshot = fitted.single("cross-validate").predictive.snapshot
        columns = {"x": request.x, "y": request.y, "unseen": request.unseen, "id": column_to_keep(snapshot, request.by)}
        with scored(snapshot.model, request.model, request.data, **columns) as (data, names):
            yield prepared(
                snapshot,
                data,
                x=names["x"],
                y=names["y"],
                folds=request.folds or 0,
                by=request.by,
                coordinates=request.coordinates,
                method=request.method,
                inputs=request.inputs,
                seed=request.seed,
            ).run


@contextlib.contextmanager
def scoring(request: ScoreRequest) -> Iterator[tuple[str, Callable[[Any], Scores], Callable[[], Compared]]]:
    """Context manager: return the prediction method, the work that computes the totals of its scores, and a function
    that returns those of simple baselines (`comparison.baselines.compared`)."""
    with opened(request.model, commit=request.at) as fitted:
        method = fitted.chosen_method(request.method)
        like = fitted.predictive.snapshot.model
        how = {"x": request.x, "y": request.y, "unseen": request.unseen}
        with scored(like, request.model, request.data, **how) as (data, names):
            yield (
                method,
                lambda runtime: fitted.scores(
                    data, x=names["x"], y=names["y"], method=method, inputs=request.inputs, runtime=runtime
                ),
                lambda: compared(fitted.predictive.snapshot, data, x=names["x"], y=names["y"]),
            )


def score_figures(method: str, scores: Scores) -> dict[str, Any]:
    """Return the figures that `bcmdist score` prints."""
    return {"rows": int(scores.totals["rows"]), "method": method, **scores.summary()}

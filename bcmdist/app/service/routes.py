"""HTTP routes of models, their predictions and rows, and jobs."""

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, Security
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBearer

from bcmdist.app.journal import ID
from bcmdist.app.service.answers import Refused, encoded, refused
from bcmdist.app.service.asking import MOST_ROWS, Predicted, Question, load, question, refuse_lag, submit
from bcmdist.app.service.bodies import Figures, Job, Jobs, Kept, Listed, NewRows, Points, Predictions, Problem
from bcmdist.app.service.commits_by_name import ServedState
from bcmdist.app.service.json_requests import JSONRoute
from bcmdist.app.service.metrics import CONTENT_TYPE
from bcmdist.app.service.names import NAME
from bcmdist.app.service.pieces import FEW_PIECES, PIECE_VALUES, answered_in_pieces, written_in_pieces
from bcmdist.app.service.service import Service
from bcmdist.data.arrow import MEDIA_TYPE, write_table
from bcmdist.errors import BcmdistError
from bcmdist.storage.aliases import NAME as ALIAS

bearer = HTTPBearer(auto_error=False, description="A token of `bcmdist tokens add`.")
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 409, 410, 413, 422, 429, 500, 501, 503, 504, 507)
}
router = APIRouter(responses=PROBLEMS, route_class=JSONRoute)


def allowed(scope: str) -> Any:
    """Return a FastAPI dependency that requires a token with a scope."""

    async def check(request: Request, _: Annotated[Any, Security(bearer)]) -> None:
        if not request.scope["token"].allows(scope):
            raise Refused(403, "Forbidden", f"token: expected one with the scope {scope}, got another; ask for one")

    return Depends(check)


async def service_of(request: Request) -> Service:
    """Return the service of the application."""
    return request.app.state.service


Asked = Annotated[Service, Depends(service_of)]
Name = Annotated[str, Path(pattern=f"^{NAME.pattern}$", description="one of those that GET /models lists")]
JobId = Annotated[str, Path(pattern=f"^{ID.pattern}$")]
Commit = Annotated[
    str | None,
    Query(pattern=rf"^(\d{{1,8}}|{ALIAS.pattern})$", description="number or alias of a commit [default: newest]"),
]
Key = Annotated[str, Header(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
READ, INGEST, ADMIN = allowed("read"), allowed("ingest"), allowed("admin")


async def in_time(service: Service, work: Callable[[], Awaitable[Any]]) -> Any:
    """Await `work` within the time limit and return its result.

    Raises
    ------
    Refused
        The work failed, with an error message for clients, or took longer than `Limits.answer_seconds`.
    """
    try:
        with anyio.fail_after(service.limits.answer_seconds):
            return await work()
    except TimeoutError as error:
        raise Refused(
            504, "Timeout", "expected an answer in time, it takes longer; ask again, with the same key for rows"
        ) from error
    except (BcmdistError, OSError) as error:
        raise _refused(service, error) from error  # in a variable, its traceback would keep the request


def _refused(service, error):
    answer = refused(error, service.work.folders)
    if answer.status >= 500:
        service.log_error(error)
    return answer


async def in_thread(service: Service, function: Callable, *arguments) -> Any:
    """Run a function in a worker thread, with limits on time and on concurrent computations; return its result."""
    run = anyio.to_thread.run_sync
    return await in_time(service, lambda: run(function, *arguments, abandon_on_cancel=True, limiter=service.computing))


async def in_thread_or_large(request: Request, service: Service, function: Callable, *arguments) -> Any:
    """Run a function in a worker thread, with a time limit; return its result.

    A request that holds a slot for large requests (see `large`) uses their single low-priority thread, any other
    request the general threads (`in_thread`).
    """
    large = request.scope["large"]
    if not large.entered:
        return await in_thread(service, function, *arguments)
    return await in_time(service, lambda: large.run(function, *arguments))


@router.get("/health", response_model=Figures)
async def health() -> Response:
    """Report that the service responds."""
    return encoded({"status": "ok"})


@router.get("/ready", response_model=Figures)
async def ready(service: Asked) -> Response:
    """Report whether the service is ready: it is not stopping, and no ingester that should wait for rows is dead."""
    if service.closing:
        raise Refused(503, "Closing", "expected a running service, it stops; ask another one", Retry_After="5")
    if dead := service.catalogue.dead_ingesters:
        text = f"expected an ingester for each source that rows come from, {dead} ended before their time; start"
        raise Refused(503, "IngesterDead", f"{text} `bcmdist ingest --watch` again", Retry_After="5")
    return encoded({"status": "ready"})


@router.get("/metrics", dependencies=[READ], responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
async def metrics(service: Asked) -> Response:
    """Return metrics in Prometheus' text format."""
    return Response(await in_thread(service, service.metrics_text), media_type=CONTENT_TYPE)


@router.get("/models", dependencies=[READ], response_model=Listed)
async def models(service: Asked) -> Response:
    """List the models of the service."""
    return encoded(await in_thread(service, service.listed))


@router.get("/models/{name}", dependencies=[READ], response_model=Figures)
async def model(name: Name, service: Asked, start: bool = False) -> Response:
    """Describe a model and the data that it has absorbed.

    `fields` are the columns of the table that it was fitted to (name, kind, levels, unit, and `low` and `high` of
    numbers in training), `ranges` the smallest and largest value of each input. `start` adds a row to begin a form
    with: `row`, as `rows` or a row of `X` in requests, and `last`, whether it is the last row absorbed, not a typical
    one.
    """
    return encoded(await in_thread(service, functools.partial(service.describe, name, start=start)))


@router.get("/models/{name}/history", dependencies=[READ], response_model=Figures)
async def history(name: Name, service: Asked) -> Response:
    """List the commits of a model, oldest first."""
    return encoded(await in_thread(service, service.history, name))


@router.get("/models/{name}/calibration", dependencies=[READ], response_model=Figures)
async def calibration(name: Name, request: Request, service: Asked, under_model: bool = False) -> Response:
    """Return the coverage of predictive intervals.

    `under_model` adds the coverage of f under the model's Gaussian process, which takes seconds and reads rows again.
    """
    if under_model:
        await request.scope["large"].enter()
    found = functools.partial(service.calibration, name, under_model=under_model)
    return encoded(await in_thread_or_large(request, service, found))


@router.get("/models/{name}/drift", dependencies=[READ], response_model=Figures)
async def drift(name: Name, service: Asked) -> Response:
    """Report whether new rows still look as the model expects, and how well they were predicted."""
    return encoded(await in_thread(service, service.drift, name))


async def state_of(service: Service, name: str, commit: str | None) -> ServedState:
    """Return a model at a commit, which is loaded if necessary; None: the model, as it is when it is used."""
    served = service.catalogue[name]
    return served if commit is None else await in_thread(service, served.at, commit)


async def predicted(
    request: Request, service: Service, served: ServedState, ask: Callable[[], Question], *, load: int
) -> Predicted:
    """Compute predictions: in a micro-batch, or in pieces if the request is large or its load exceeds a batch."""
    large = request.scope["large"]
    if load > MOST_ROWS or large.entered:
        await large.enter()
        most, gone = service.limits.values, request.is_disconnected
        found = await in_time(service, lambda: answered_in_pieces(large, served, ask, most_values=most, gone=gone))
        if found.size <= PIECE_VALUES * FEW_PIECES:
            large.leave()
        return found

    async def batched() -> Predicted:
        return await service.micro_batcher.ask(served, ask())

    return await in_time(service, batched)


def answer(request: Request, service: Service, found: Predicted) -> Response:
    """Return predictions as JSON, or as an Arrow stream if the Accept header lists its media type."""
    name, rows = found.summary["model"], found.summary["rows"]
    request.scope["rows"] = rows
    service.metrics.count("bcmdist_predicted_rows_total", rows, model=name)
    service.metrics.count("bcmdist_predict_compute_seconds_total", found.share * found.seconds, model=name)
    took = {"Server-Timing": f"model;dur={1e3 * found.seconds:.3f}", "Vary": "Accept"}
    if MEDIA_TYPE in request.headers.get("accept", ""):
        about = {n: v if isinstance(v, str) else json.dumps(v) for n, v in found.summary.items()}
        return Response(write_table(found.values, about), headers=took, media_type=MEDIA_TYPE)
    if found.size > PIECE_VALUES:
        return StreamingResponse(written_in_pieces(found), headers=took, media_type="application/json")
    values = {name: one.tolist() for name, one in found.values.items()}
    return encoded(found.summary | {"predictions": values}, headers=took)


IN_ARROW: dict[str, Any] = {
    "requestBody": {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
}
OUT_ARROW: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {}}}}


@router.post(
    "/models/{name}/predict",
    dependencies=[READ],
    response_model=Predictions,
    responses=OUT_ARROW,
    openapi_extra=IN_ARROW,
)
async def predict(name: Name, points: Points, request: Request, service: Asked, commit: Commit = None) -> Response:
    """Predict at new points, given as JSON or as an Arrow stream; the Accept header selects the response format.

    Columns of a stream: the inputs by name, or X as fixed-size lists; X_variance as fixed-size lists, with one variance
    or one list of covariances per input, in the order of the inputs; exposure; trials. With a stream, method, inputs,
    quantiles and intervals are query parameters.
    """
    served = await state_of(service, name, commit)
    ask = functools.partial(question, served, points, most_rows=service.limits.rows)
    levels = len(points.quantiles) + 2 * len(points.intervals)
    effort = load(points.count, uncertain=points.X_variance is not None, levels=levels)
    found = await predicted(request, service, served, ask, load=effort)
    return answer(request, service, found)


@router.post("/models/{name}/rows", dependencies=[INGEST], response_model=Kept)
async def rows(
    name: Name,
    new: NewRows,
    request: Request,
    service: Asked,
    idempotency_key: Key,
) -> Response:
    """Let a model absorb rows exactly once.

    The response is sent when the rows are committed. A retry with the same Idempotency-Key gets the same response, and
    the rows are not absorbed twice, as long as the model has them.
    """
    served = service.catalogue[name]
    refuse_lag(served, service.limits.waiting_rows)
    keep = functools.partial(submit, served, idempotency_key, new, most_rows=service.limits.rows)
    kept, done = await in_thread_or_large(request, service, keep)
    request.scope["rows"] = kept["rows"]
    before = await in_time(service, lambda: service.committed(done))
    if not before:
        service.metrics.count("bcmdist_ingested_rows_total", kept["rows"], model=name)
    return encoded({"model": name, **kept}, headers={"Idempotent-Replayed": "true" if before else "false"})


@router.get("/jobs", dependencies=[READ], response_model=Jobs)
async def jobs(service: Asked) -> Response:
    """List the status of all jobs, oldest first."""
    return encoded({"jobs": await in_thread(service, service.work.listed)})


@router.post("/jobs", dependencies=[ADMIN], response_model=Figures, status_code=202)
async def submit_job(asked: Job, service: Asked) -> Response:
    """Submit a command that `bcmdist submit` takes as a job; models and data sets are given by name."""
    return encoded(await in_thread(service, service.work.submit, asked.model_dump()), 202)


@router.get("/jobs/{id}", dependencies=[READ], response_model=Figures)
async def job(id: JobId, service: Asked) -> Response:
    """Return the status of a job."""
    return encoded(await in_thread(service, service.work.status, id))


@router.get("/jobs/{id}/log", dependencies=[READ], response_model=Figures)
async def job_log(id: JobId, service: Asked) -> Response:
    """List the events of a job, oldest first."""
    return encoded({"id": id, "events": await in_thread(service, service.work.log, id)})


@router.delete("/jobs/{id}", dependencies=[ADMIN], response_model=Figures)
async def cancel_job(id: JobId, service: Asked) -> Response:
    """Cancel a job; its commits stay."""
    return encoded(await in_thread(service, service.work.cancel, id))

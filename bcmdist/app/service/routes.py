"""What can be asked over HTTP of models."""

import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header, Path, Request, Response, Security
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBearer

from bcmdist.app.journal import ID
from bcmdist.app.service.answers import Refused, encoded, refused
from bcmdist.app.service.asking import Predicted, Question, load, question, refuse_lag, submit
from bcmdist.app.service.bodies import Figures, Job, Jobs, Kept, Listed, NewRows, Points, Predictions, Problem
from bcmdist.app.service.json_requests import JSONRoute
from bcmdist.app.service.metrics import CONTENT_TYPE
from bcmdist.app.service.micro_batches import MOST_ROWS
from bcmdist.app.service.names import NAME
from bcmdist.app.service.pieces import FEW_PIECES, PIECE_VALUES, answered_in_pieces, written_in_pieces
from bcmdist.app.service.served import Served
from bcmdist.app.service.service import Service
from bcmdist.data.arrow import MEDIA_TYPE, write_table
from bcmdist.errors import BcmdistError

bearer = HTTPBearer(auto_error=False, description="A token of `bcmdist tokens add`.")
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 501, 503, 504, 507)
}
router = APIRouter(responses=PROBLEMS, route_class=JSONRoute)


def allowed(scope: str) -> Any:
    """A dependency: whoever asks has a scope."""

    async def check(request: Request, _: Annotated[Any, Security(bearer)]) -> None:
        if not request.scope["token"].allows(scope):
            raise Refused(403, "Forbidden", f"token: expected one with the scope {scope}, got another; ask for one")

    return Depends(check)


async def service_of(request: Request) -> Service:
    """The service that is asked."""
    return request.app.state.service


Asked = Annotated[Service, Depends(service_of)]
Name = Annotated[str, Path(pattern=f"^{NAME.pattern}$", description="one of those that GET /models lists")]
JobId = Annotated[str, Path(pattern=f"^{ID.pattern}$")]
READ, INGEST, ADMIN = allowed("read"), allowed("ingest"), allowed("admin")


async def in_time(service: Service, work: Callable[[], Awaitable[Any]]) -> Any:
    """What comes of work, with errors in words for outside.

    Raises
    ------
    Refused
    """
    try:
        with anyio.fail_after(service.limits.answer_seconds):
            return await work()
    except TimeoutError as error:
        raise Refused(
            504, "Timeout", "expected an answer in time, it takes longer; ask again, with the same key for rows"
        ) from error
    except (BcmdistError, OSError) as error:
        raise _refused(service, error) from error  # named here, it would keep the request in memory by its traceback


def _refused(service, error):
    answer = refused(error, service.work.folders)
    if answer.status >= 500:
        service.log_error(error)
    return answer


async def in_thread(service: Service, function: Callable, *arguments) -> Any:
    """The result of a function that computes, of which only so many run at a time."""
    run = anyio.to_thread.run_sync
    return await in_time(service, lambda: run(function, *arguments, abandon_on_cancel=True, limiter=service.computing))


async def in_thread_or_large(request: Request, service: Service, function: Callable, *arguments) -> Any:
    """As `in_thread`, by the thread of large requests where this is one."""
    large = request.scope["large"]
    if not large.entered:
        return await in_thread(service, function, *arguments)
    return await in_time(service, lambda: large.run(function, *arguments))


@router.get("/health", response_model=Figures)
async def health() -> Response:
    """Whether the service answers."""
    return encoded({"status": "ok"})


@router.get("/ready", response_model=Figures)
async def ready(service: Asked) -> Response:
    """Whether models can be asked, and take in the rows that they are to wait for."""
    if service.closing:
        raise Refused(503, "Closing", "expected a service that goes on, it is ending; ask another one", Retry_After="5")
    if dead := service.catalogue.dead_ingesters:
        text = f"expected an ingester for each source that rows come from, {dead} ended before their time; start"
        raise Refused(503, "IngesterDead", f"{text} `bcmdist ingest --watch` again", Retry_After="5")
    return encoded({"status": "ready"})


@router.get("/metrics", dependencies=[READ], responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
async def metrics(service: Asked) -> Response:
    """What was counted, in Prometheus' text format."""
    return Response(await in_thread(service, service.metrics_text), media_type=CONTENT_TYPE)


@router.get("/models", dependencies=[READ], response_model=Listed)
async def models(service: Asked) -> Response:
    """Models that are served."""
    return encoded(await in_thread(service, service.listed))


@router.get("/models/{name}", dependencies=[READ], response_model=Figures)
async def model(name: Name, service: Asked) -> Response:
    """What a model is and what it has absorbed."""
    return encoded(await in_thread(service, service.told, name))


@router.get("/models/{name}/history", dependencies=[READ], response_model=Figures)
async def history(name: Name, service: Asked) -> Response:
    """The commits of a model."""
    return encoded(await in_thread(service, service.history, name))


@router.get("/models/{name}/calibration", dependencies=[READ], response_model=Figures)
async def calibration(name: Name, request: Request, service: Asked, under_model: bool = False) -> Response:
    """How often rows lay in the intervals they were predicted with; `under_model` computes it for seconds from rows."""
    if under_model:
        await request.scope["large"].enter()
    found = functools.partial(service.calibration, name, under_model=under_model)
    return encoded(await in_thread_or_large(request, service, found))


@router.get("/models/{name}/drift", dependencies=[READ], response_model=Figures)
async def drift(name: Name, service: Asked) -> Response:
    """Whether what arrives still looks as the model expects, and how well it was predicted."""
    return encoded(await in_thread(service, service.drift, name))


async def predicted(
    request: Request, service: Service, served: Served, ask: Callable[[], Question], *, load: int
) -> Predicted:
    """The answer to a question: together with others, or in pieces where it takes as long as many."""
    large = request.scope["large"]
    if load > MOST_ROWS or large.entered:
        await large.enter()
        most, gone = service.limits.values, request.is_disconnected
        found = await in_time(service, lambda: answered_in_pieces(large, served, ask, most_values=most, gone=gone))
        if found.size <= PIECE_VALUES * FEW_PIECES:
            large.leave()
        return found

    async def together() -> Predicted:
        return await service.together.ask(served, ask())

    return await in_time(service, together)


def answer(request: Request, service: Service, found: Predicted) -> Response:
    """Predictions as JSON, or as an Arrow stream where that is asked for."""
    name, rows = found.told["model"], found.told["rows"]
    service.metrics.count("bcmdist_predicted_rows_total", rows, model=name)
    service.metrics.count("bcmdist_predict_compute_seconds_total", found.share * found.seconds, model=name)
    took = {"Server-Timing": f"model;dur={1e3 * found.seconds:.3f}", "Vary": "Accept"}
    if MEDIA_TYPE in request.headers.get("accept", ""):
        about = {name: str(value) for name, value in found.told.items()}
        return Response(write_table(found.values, about), headers=took, media_type=MEDIA_TYPE)
    if found.size > PIECE_VALUES:
        return StreamingResponse(written_in_pieces(found), headers=took, media_type="application/json")
    values = {name: one.tolist() for name, one in found.values.items()}
    return encoded(found.told | {"predictions": values}, headers=took)


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
async def predict(name: Name, points: Points, request: Request, service: Asked) -> Response:
    """Predict at new points, in JSON or as an Arrow stream; answered as Accept says.

    Columns of a stream are inputs by their names, or X of fixed-size lists; X_variance of fixed-size lists, of as many
    variances as there are inputs and in their order, or of as many lists of covariances; exposure and trials. Method,
    inputs, quantiles and intervals stand in the query then.
    """
    served = service.catalogue[name]
    ask = functools.partial(question, served, points, most_rows=service.limits.rows)
    levels = len(points.quantiles) + 2 * len(points.intervals)
    effort = load(len(points.X), uncertain=points.X_variance is not None, levels=levels)
    found = await predicted(request, service, served, ask, load=effort)
    return answer(request, service, found)


@router.post("/models/{name}/rows", dependencies=[INGEST], response_model=Kept)
async def rows(
    name: Name,
    new: NewRows,
    request: Request,
    service: Asked,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=200, pattern=r"^[!-~]+$")],
) -> Response:
    """Let a model absorb rows, once; answered when they are committed, and again under the same Idempotency-Key for as
    long as the model has them."""
    served = service.catalogue[name]
    refuse_lag(served, service.limits.waiting_rows)
    keep = functools.partial(submit, served, idempotency_key, new, most_rows=service.limits.rows)
    kept, before, done = await in_thread_or_large(request, service, keep)
    await in_time(service, lambda: service.committed(done))
    if not before:
        service.metrics.count("bcmdist_ingested_rows_total", kept["rows"], model=name)
    return encoded({"model": name, **kept}, headers={"Idempotent-Replayed": "true" if before else "false"})


@router.get("/jobs", dependencies=[READ], response_model=Jobs)
async def jobs(service: Asked) -> Response:
    """How jobs stand, oldest first."""
    return encoded({"jobs": await in_thread(service, service.work.listed)})


@router.post("/jobs", dependencies=[ADMIN], response_model=Figures, status_code=202)
async def submit_job(asked: Job, service: Asked) -> Response:
    """Submit a request to fit, ingest, predict or score, with names of models and data sets."""
    return encoded(await in_thread(service, service.work.submit, asked.model_dump()), 202)


@router.get("/jobs/{id}", dependencies=[READ], response_model=Figures)
async def job(id: JobId, service: Asked) -> Response:
    """How a job stands."""
    return encoded(await in_thread(service, service.work.status, id))


@router.get("/jobs/{id}/log", dependencies=[READ], response_model=Figures)
async def job_log(id: JobId, service: Asked) -> Response:
    """What happened to a job, oldest first."""
    return encoded({"id": id, "events": await in_thread(service, service.work.log, id)})


@router.delete("/jobs/{id}", dependencies=[ADMIN], response_model=Figures)
async def cancel_job(id: JobId, service: Asked) -> Response:
    """Stop a job; what it has committed stays."""
    return encoded(await in_thread(service, service.work.cancel, id))

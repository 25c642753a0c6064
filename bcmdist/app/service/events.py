"""Server-sent events: the board's data, sent whenever they change.

The data of an event are JSON, its name is one of `models`, `jobs`, `model` (the requested model) and `problem` (data
could not be read). After some seconds without an event a comment is sent. A stream ends after a minute at the latest,
so that a client must present a valid token again, and when the service ends.
"""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from bcmdist.app.service.answers import Refused, refused, written
from bcmdist.app.service.names import NAME
from bcmdist.app.service.routes import PROBLEMS, READ, Asked, in_thread
from bcmdist.app.service.service import LOOK_SECONDS, Service
from bcmdist.errors import BcmdistError

LONGEST_SECONDS = 60.0
SILENT_SECONDS = 10.0  # without an event, after which a comment keeps the connection alive
MOST_STREAMS = 100  # open at a time
router = APIRouter(responses=PROBLEMS)
Watched = Annotated[str | None, Query(pattern=f"^{NAME.pattern}$", description="one of those that GET /models lists")]
Seconds = Annotated[float, Query(ge=0.0, le=LONGEST_SECONDS, description="how long to go on; 0: what is now")]


MEDIA_TYPE = "text/event-stream"
# The response in the OpenAPI document. Readers take the schema of a stream as the schema of each event.
_TEXT = {"type": "string"}
EVENT = {"type": "object", "required": ["event", "data"], "properties": {"event": _TEXT, "data": _TEXT}}
EVENT_STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": EVENT}}}}


@router.get("/events", dependencies=[READ], responses=EVENT_STREAM)
async def events(service: Asked, model: Watched = None, seconds: Seconds = LONGEST_SECONDS) -> Response:
    """Stream models, jobs and the figures of one model as server-sent events, whenever they change."""
    if model is not None:
        await in_thread(service, service.catalogue.__getitem__, model)
    return _Stream(service, _changes(service, model, seconds))


class _Stream(StreamingResponse):
    """A stream of events, counted in `Service.streams` until it ends or the client disconnects."""

    def __init__(self, service: Service, changes: AsyncIterator[bytes]):
        super().__init__(changes, media_type=MEDIA_TYPE)
        self._service = service

    async def __call__(self, scope, receive, send) -> None:
        if self._service.streams >= MOST_STREAMS:
            raise Refused(503, "TooManyStreams", "expected fewer event streams; try again later", Retry_After="5")
        self._service.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._service.streams -= 1


async def _changes(service: Service, model, seconds) -> AsyncIterator[bytes]:
    """Yield events until `seconds` have passed or the service ends."""
    last: dict[str, str] = {}
    end = spoken = time.monotonic()
    end += seconds
    while True:
        found = await anyio.to_thread.run_sync(lambda: list(_now(service, model)), limiter=service.watching)
        for name, text in found:
            if last.get(name) != text:
                last[name], spoken = text, time.monotonic()
                yield f"event: {name}\ndata: {text}\n\n".encode()
        if service.ending or time.monotonic() >= end:
            return
        if time.monotonic() - spoken >= SILENT_SECONDS:
            spoken = time.monotonic()
            yield b": nothing new\n\n"
        await anyio.sleep(LOOK_SECONDS)


def _now(service: Service, model) -> Iterator[tuple[str, str]]:
    """Yield names and data of the current events; an error ends them with a `problem` event."""
    try:
        for name, value in service.board.now(model):
            yield name, _text(value)
    except Refused as error:
        yield "problem", _text({"error": error.error, "message": error.message})
    except (BcmdistError, OSError) as error:
        service.log_error(error)
        answer = refused(error, service.work.folders)
        yield "problem", _text({"error": answer.error, "message": answer.message})


def _text(value: Any) -> str:
    return written(value).decode()

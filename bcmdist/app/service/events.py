"""Server-sent events: what the board shows, as it changes.

Each event is named after what it is about, and its data are JSON: `models`, `jobs`, `model` of the one that is asked
for, and `problem` in place of what cannot be told now. An event comes when there is something new, and a comment when
there was nothing for some seconds. A stream ends after a minute at the latest, so that whoever goes on watching shows
a token that is still valid, and with the service.
"""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from bcmdist.app.service.answers import Refused, refused
from bcmdist.app.service.board import LOOK_SECONDS
from bcmdist.app.service.json import written
from bcmdist.app.service.names import NAME
from bcmdist.app.service.routes import PROBLEMS, READ, Asked, in_thread
from bcmdist.app.service.service import Service
from bcmdist.errors import BcmdistError

LONGEST_SECONDS = 60.0
SILENT_SECONDS = 10.0  # after which a comment says that the stream is alive
MOST_STREAMS = 100  # at once
router = APIRouter(responses=PROBLEMS)
Watched = Annotated[str | None, Query(pattern=f"^{NAME.pattern}$", description="one of those that GET /models lists")]
Seconds = Annotated[float, Query(ge=0.0, le=LONGEST_SECONDS, description="how long to go on; 0: what is now")]


MEDIA_TYPE = "text/event-stream"
# What the OpenAPI document tells of the answer: each event, which is how its readers take the schema of a stream.
_TEXT = {"type": "string"}
EVENT = {"type": "object", "required": ["event", "data"], "properties": {"event": _TEXT, "data": _TEXT}}
TOLD: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": EVENT}}}}


@router.get("/events", dependencies=[READ], responses=TOLD)
async def events(service: Asked, model: Watched = None, seconds: Seconds = LONGEST_SECONDS) -> Response:
    """Models, jobs and figures of one model, as server-sent events whenever they change."""
    if model is not None:
        await in_thread(service, service.catalogue.__getitem__, model)
    return _Stream(service, _changes(service, model, seconds))


class _Stream(StreamingResponse):
    """Events, which are counted from before the first to after the last, or until whoever watched has gone."""

    def __init__(self, service: Service, changes: AsyncIterator[bytes]):
        super().__init__(changes, media_type=MEDIA_TYPE)
        self._service = service

    async def __call__(self, scope, receive, send) -> None:
        if self._service.streams >= MOST_STREAMS:
            raise Refused(503, "TooManyStreams", "expected fewer who watch, got too many; come again", Retry_After="5")
        self._service.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._service.streams -= 1


async def _changes(service: Service, model, seconds) -> AsyncIterator[bytes]:
    """Events until a time has passed, the service ends or nobody listens."""
    said: dict[str, str] = {}
    end = spoken = time.monotonic()
    end += seconds
    while True:
        found = await anyio.to_thread.run_sync(lambda: list(_now(service, model)), limiter=service.watching)
        for name, text in found:
            if said.get(name) != text:
                said[name], spoken = text, time.monotonic()
                yield f"event: {name}\ndata: {text}\n\n".encode()
        if service.ending or time.monotonic() >= end:
            return
        if time.monotonic() - spoken >= SILENT_SECONDS:
            spoken = time.monotonic()
            yield b": nothing new\n\n"
        await anyio.sleep(LOOK_SECONDS)


def _now(service: Service, model) -> Iterator[tuple[str, str]]:
    """Names and data of events; after what cannot be told, nothing."""
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

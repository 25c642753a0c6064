"""Requests in JSON: small bodies are read where they come, large ones in pieces by the thread of large requests."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.json import read
from bcmdist.app.service.large import SMALL_BYTES
from bcmdist.app.service.large_json import read_body, refuse_unknown


class _Request(Request):
    """One whose body is read as one of a kind."""

    def __init__(self, request: Request, kind: type[BaseModel] | None):
        super().__init__(request.scope, request.receive)
        self._kind = kind
        self._whole: bytearray | None = None

    async def body(self) -> bytearray:  # type: ignore[override]
        """All of it, in memory that is given back when it was read, whoever still names it."""
        if self._whole is None:
            self._whole = bytearray()
            async for piece in self.stream():
                self._whole += piece
        return self._whole

    async def json(self) -> Any:
        body = await self.body()
        kind = self._kind if self._kind is not None and self._kind.model_config.get("extra") == "forbid" else None
        if len(body) > SMALL_BYTES:
            if kind is None:
                text = f"body: expected at most {SMALL_BYTES} bytes of such a request, got {len(body)}; shorten it"
                raise Refused(413, "TooLarge", text)
            most_rows = self.app.state.service.limits.rows
            found = await self.scope["large"].run(functools.partial(read_body, kind, body, most_rows=most_rows))
            body.clear()
            return found
        value = read(body)
        if kind is not None and isinstance(value, dict):
            for name in value:
                refuse_unknown(name, kind.model_fields)
        return value


class JSONRoute(APIRoute):
    """A route of requests in JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        kind: Any = self.body_field.field_info.annotation if self.body_field else None

        async def handle_json(request: Request) -> Response:
            return await handle(_Request(request, kind))

        return handle_json

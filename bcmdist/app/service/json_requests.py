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

    async def body(self) -> bytearray:  # type: ignore[override]
        """All of it, in memory that is given back when it was read, whoever still names it."""
        if not hasattr(self, "_body"):
            whole = bytearray()
            async for piece in self.stream():
                whole += piece
            self._body: Any = whole
        return self._body

    async def json(self) -> Any:
        kind, body = self._kind, await self.body()
        named = kind if kind is not None and kind.model_config.get("extra") == "forbid" else None
        if len(body) > SMALL_BYTES:
            if named is None:
                text = f"body: expected at most {SMALL_BYTES} bytes of such a request, got {len(body)}; shorten it"
                raise Refused(413, "TooLarge", text)
            most_rows = self.app.state.service.limits.rows
            found = await self.scope["large"].run(functools.partial(read_body, named, body, most_rows=most_rows))
            body.clear()
            return found
        value = read(body)
        if named is not None and isinstance(value, dict):
            for name in value:
                refuse_unknown(name, named.model_fields)
        return value


class JSONRoute(APIRoute):
    """A route of requests in JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        kind: Any = self.body_field.field_info.annotation if self.body_field else None

        async def handle_json(request: Request) -> Response:
            return await handle(_Request(request, kind))

        return handle_json

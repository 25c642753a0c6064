"""JSON of requests and answers, most of it numbers: read and written by pydantic's core, which takes a fifth of the
time of Python's own module, and by that where the core is too strict.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json

from bcmdist.app.finite import finite


def written(value: Any) -> bytes:
    """A value as JSON; what is not finite becomes null."""
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:  # half a surrogate pair, in a name of somebody's, has no UTF-8
        return json.dumps(finite(value), allow_nan=False, separators=(",", ":")).encode()


def read(text: bytes) -> Any:
    """What JSON says.

    Raises
    ------
    json.JSONDecodeError, UnicodeDecodeError, RecursionError
    """
    try:
        return from_json(text)
    except ValueError:  # it may be of another encoding; else Python's module says at what character it is wrong
        return json.loads(text)


class _Request(Request):
    """One whose body is read as above."""

    async def json(self) -> Any:
        return read(await self.body())


class JSONRoute(APIRoute):
    """A route of requests in JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return handle_json

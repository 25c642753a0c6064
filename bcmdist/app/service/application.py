"""The ASGI application of a service: its routes, its error responses and its middleware."""

import contextlib
import re
from collections.abc import AsyncIterator, Iterable

import anyio
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from bcmdist import __version__
from bcmdist.app.service import arrow, events, page, routes, versions
from bcmdist.app.service.answers import Refused, encoded, invalid, problem, refused
from bcmdist.app.service.middleware import LOOPBACK, SecurityMiddleware
from bcmdist.app.service.parameters import only_declared_parameters
from bcmdist.app.service.service import Service
from bcmdist.app.service.tokens import Tokens

NAMES = {404: "NotFound", 405: "MethodNotAllowed"}


def make_app(service: Service, *, tokens: Tokens | None = None, hosts: Iterable[str] = LOOPBACK) -> SecurityMiddleware:
    """Return the ASGI application of a service; its shutdown closes the service."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await anyio.to_thread.run_sync(service.close)

    app = FastAPI(
        title="bcmdist",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # `_document` is a route as the others
        dependencies=[Depends(only_declared_parameters)],
    )
    app.state.service = service
    app.include_router(arrow.router)
    app.include_router(routes.router)
    app.include_router(versions.router)
    app.include_router(events.router)
    app.include_router(page.router)
    app.add_api_route("/openapi.json", _document, include_in_schema=False)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(Exception, _wrong)
    return SecurityMiddleware(app, service, tokens=tokens, hosts=hosts)


async def _document(request: Request) -> Response:
    """Return the OpenAPI document."""
    return encoded(request.app.openapi())


async def _wrong(request: Request, error: Exception) -> Response:
    """Handle an unexpected exception; `SecurityMiddleware` logs where it was raised."""
    return refused(error).answer()


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.answer()


async def _invalid(request: Request, error: Exception) -> Response:
    """Handle a request that FastAPI finds invalid."""
    assert isinstance(error, RequestValidationError)
    return invalid(error.errors()).answer()


async def _unknown(request: Request, error: Exception) -> Response:
    """Handle HTTP errors of the framework, such as an unknown path or method."""
    assert isinstance(error, HTTPException)
    name, headers = NAMES.get(error.status_code, "InvalidRequest"), error.headers
    if error.status_code == 405:  # a route reports only its own method; other routes may have the same path
        headers = {"Allow": ", ".join(sorted(_methods(request)))}
    return problem(error.status_code, name, str(error.detail), headers)


def _methods(request) -> set[str]:
    """Return the methods allowed on the path of a request, from the OpenAPI document."""
    routes = request.app.openapi()["paths"]
    paths = [path for path in routes if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), request.url.path)]
    return {method.upper() for path in paths for method in routes[path]} or {"GET"}

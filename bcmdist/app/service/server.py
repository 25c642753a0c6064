"""The HTTP server: uvicorn with TLS checks, and with timeouts against slow or excessive connections.

These cases are limited, which uvicorn alone does not do:

1. The head of a request does not arrive: the connection is closed after `HEAD_SECONDS`.
2. A request is answered before all of its body has arrived: for `UNFINISHED_SECONDS` the rest is left unread, so that
   the sender can read the response; then the connection is closed.
3. A body arrives in tiny pieces, each of which costs time: it is refused.
4. A response is not read, or too slowly: the connection is dropped.
5. There are too many connections, in total or from one address: a new one replaces the oldest one without an
   authorized request in progress, from the same address if there is one.

`bcmdist.app.service.middleware` limits the duration of a body, uvicorn the time between two requests.
"""

import asyncio
import contextlib
import ctypes
import logging
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import anyio
import h11
import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from bcmdist import __version__
from bcmdist.app.certificates import refuse_unusable
from bcmdist.app.service import arrow, events, page, routes, versions
from bcmdist.app.service.answers import Refused, encoded, invalid, problem, refused
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.logs import LogFormat, log_to_stderr
from bcmdist.app.service.middleware import LOOPBACK, SecurityMiddleware
from bcmdist.app.service.parameters import only_declared_parameters
from bcmdist.app.service.service import Service
from bcmdist.app.service.tokens import Tokens
from bcmdist.errors import InvalidOption
from bcmdist.runtime.signals import deferred_interrupts
from bcmdist.runtime.threads import one_thread

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


HEAD_SECONDS = 5.0  # from a new connection, or the first byte of a head, to the end of the head
UNFINISHED_SECONDS = 2.0  # for which the rest of a body is left unread after the response
UNREAD_SECONDS = 5.0  # for which a client may read nothing of a response
LEAST_RATE = 2**16  # bytes of a response per second that a client must read after UNREAD_SECONDS
LOOK_SECONDS = 1.0  # between two checks of the write buffer
FEW_PIECES, LEAST_BYTES = 256, 256  # pieces of any size, and average bytes required of each further piece
SAME_ADDRESS = 4  # one address may have 1/4 of all connections without a request in progress


class WholePieces(h11.Connection):
    """A connection that refuses bodies in tiny pieces."""

    _pieces = _bytes = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._pieces = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._pieces += 1
            self._bytes += len(event.data)
            if self._pieces > FEW_PIECES + self._bytes / LEAST_BYTES:
                raise h11.RemoteProtocolError("expected a body in larger pieces")
        return event


class ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP protocol with the limits of this module."""

    _giving_up: asyncio.TimerHandle | None = None
    _looking: asyncio.TimerHandle | None = None
    _unfinished = _dropped = False
    _waiting_since = 0.0
    """time of the connection's start or last complete response"""
    _unread: tuple[float, int] | None = None
    """since when the write buffer has not been empty, and its size then"""

    def __init__(self, config, *arguments, **options):
        super().__init__(config, *arguments, **options)
        self.conn = WholePieces(h11.SERVER, config.h11_max_incomplete_event_size)

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        self._make_room()
        self._wait(HEAD_SECONDS)
        self._look()

    def data_received(self, data: bytes) -> None:
        if self._unfinished:
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait(HEAD_SECONDS)
        elif not self._unfinished:
            self._go_on()

    def on_response_complete(self) -> None:
        self._waiting_since = self.loop.time()
        self._unfinished = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if self._unfinished and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self._go_on()
            self._wait(UNFINISHED_SECONDS)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # a response has begun
            self.transport.abort()

    def resume_writing(self) -> None:
        self._unread = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    @property
    def _in_progress(self) -> bool:
        """Whether a request with a valid token is being answered."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and bool(cycle.scope.get("token"))

    def _make_room(self):
        """Drop the oldest connection without a request in progress, if there are too many (of this address)."""
        most = self.limit_concurrency
        if most is None or len(self.connections) < most // SAME_ADDRESS:
            return
        others = [one for one in self.connections if isinstance(one, ImpatientProtocol)]
        others = [one for one in others if one is not self and not one._dropped]
        waiting = [one for one in others if not one._in_progress]
        same = [one for one in waiting if one.client and self.client and one.client[0] == self.client[0]]
        if len(same) >= most // SAME_ADDRESS or len(others) >= most - 1:
            oldest = min(same or waiting, key=lambda one: one._waiting_since, default=None)
            if oldest is not None:
                oldest._dropped = True
                oldest.transport.abort()

    def _wait(self, seconds):
        if self._giving_up is None:
            self._giving_up = self.loop.call_later(seconds, self.transport.close)

    def _go_on(self):
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _look(self):
        """Drop the connection if the client does not read the response, also while the connection is closing."""
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
        elif self._unread is None:
            self._unread = now, left
        elif now - self._unread[0] > UNREAD_SECONDS + self._unread[1] / LEAST_RATE:
            self.transport.abort()
            return
        self._looking = self.loop.call_later(LOOK_SECONDS, self._look)


STOP_SECONDS = 30  # for running requests to end at shutdown
WAITING = 1024  # connections in the listen queue
MAPPED_THRESHOLD, MAPPED_BYTES = -3, 2**22  # M_MMAP_THRESHOLD, which glibc otherwise raises up to 2**25
TAKEN = 16  # connections accepted at once, so that requests are answered in between


@dataclass(frozen=True)
class Listening:
    """Address, tokens, TLS and host names of a service.

    Raises
    ------
    InvalidOption
        Only one of certificate and key is given, or the host is not a loopback address and tokens or TLS are missing.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    """0: any free port"""
    token_file: str | None = None
    """None: no authentication, every client has all scopes"""
    tls_cert: str | None = None
    tls_key: str | None = None
    allowed: tuple[str, ...] = ()
    """further accepted host names"""

    def __post_init__(self):
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidOption("--tls-cert, --tls-key: expected both or none, got one; give certificate and key")
        if self.host not in LOOPBACK and not (self.token_file and self.tls_cert):
            raise InvalidOption(
                f"--host: expected 127.0.0.1 without tokens and TLS, got {self.host}; give --token-file, --tls-cert "
                "and --tls-key, or listen on 127.0.0.1"
            )

    @property
    def names(self) -> set[str]:
        """Accepted names in the Host header."""
        return {*LOOPBACK, self.host.lower(), *map(str.lower, self.allowed)}


def serve(folder, where: Listening, limits: Limits, *, log_format: LogFormat = "text", **work) -> None:
    """Serve the models of a directory until a signal arrives; then commit the waiting rows.

    BLAS is limited to one thread: predictions and commits run concurrently, and BLAS threads of one call would wait for
    cores that another call occupies.

    Parameters
    ----------
    work : keyword arguments of `Service`, such as the directories of jobs and data

    Raises
    ------
    DataNotFound, InvalidOption
    """
    if where.tls_cert:
        refuse_unusable(where.tls_cert, where.tls_key)
    tokens = Tokens(where.token_file) if where.token_file else None
    _give_back_memory()
    with _bound(where.host, where.port) as listening, one_thread():
        log_to_stderr(log_format)
        service = Service(folder, limits, **work)
        app = make_app(service, tokens=tokens, hosts=where.names)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=TAKEN,
            proxy_headers=False,  # otherwise a client could choose its address by X-Forwarded-For
            lifespan="on",
            ssl_certfile=where.tls_cert,
            ssl_keyfile=where.tls_key,
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=2**15,
            http=ImpatientProtocol,
            ws="none",
        )
        scheme, port = "https" if where.tls_cert else "http", listening.getsockname()[1]
        logging.getLogger("bcmdist.app.service").info("listening on %s://%s:%d", scheme, where.host, port)
        with deferred_interrupts([]):  # uvicorn raises its signals again at the end; the first is recorded only
            _Server(config, service).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn's server with a listen queue of `WAITING` connections.

    When a termination signal arrives, it sets `Service.ending`, so that open server-sent event streams end.
    """

    def __init__(self, config, service: Service):
        super().__init__(config)
        self._service = service

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(WAITING)  # asyncio has set the queue length to `backlog`, which is what it accepts at once

    def handle_exit(self, sig, frame) -> None:
        self._service.ending = True
        super().handle_exit(sig, frame)


def _bound(host, port):
    """Return a listening socket.

    Raises
    ------
    InvalidOption
        The address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # then asyncio sets TCP_NODELAY
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(WAITING)
    except OSError as error:
        listening.close()
        raise InvalidOption(
            f"--host, --port: expected an address that is free, {host} {port} is not ({error.strerror}); give another"
        ) from error
    return listening


def _give_back_memory():
    """Let the allocator map each large block separately (mallopt(3)), so that its memory is returned when freed."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # other C libraries than glibc have no mallopt
            ctypes.CDLL(None).mallopt(MAPPED_THRESHOLD, MAPPED_BYTES)

"""The server: where the service listens, and what it refuses to be without.

HTTP connections with an end to their patience; uvicorn would wait for ever.

1. The head of a request does not come: the connection is closed after some seconds.
2. A request is answered before all of its body has come: what comes of it for a moment is left unread, so that its
   sender finds the answer, and then the connection is closed.
3. A body comes in tiny pieces, each of which is looked at: it is refused.
4. An answer is not read, or too slowly: the connection is dropped.
5. There are many connections: for a new one the oldest is dropped of those without a request of a holder of a token in
   progress, first of the same address.

How long a body may take is limited by `bcmdist.app.service.middleware`, and the time between two requests by uvicorn.
"""

import asyncio
import contextlib
import ctypes
import logging
import socket
import sys
import warnings
from dataclasses import dataclass

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bcmdist.app.certificates import refuse_unusable
from bcmdist.app.service.answers import without_places
from bcmdist.app.service.app import make_app
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.middleware import LOOPBACK
from bcmdist.app.service.service import Service
from bcmdist.app.service.tokens import Tokens
from bcmdist.errors import BcmdistWarning, InvalidOption
from bcmdist.runtime.signals import deferred_interrupts
from bcmdist.runtime.threads import one_thread

HEAD_SECONDS = 5.0  # from the first byte of a head, or a connection, to the last of the head
UNFINISHED_SECONDS = 2.0  # that the rest of a body is left unread after its answer
UNREAD_SECONDS = 5.0  # that nothing need be read of an answer
LEAST_RATE = 2**16  # bytes of an answer that are read in each second after these
LOOK_SECONDS = 1.0  # between two looks at what was read
FEW_PIECES, LEAST_BYTES = 256, 256  # pieces of a body that may be smaller than so many bytes each, on average
SAME_ADDRESS = 4  # of all connections each address may have this part that waits


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
    """uvicorn's protocol with these limits."""

    _giving_up: asyncio.TimerHandle | None = None
    _looking: asyncio.TimerHandle | None = None
    _unfinished = _dropped = False
    _waiting_since = 0.0
    """when the connection began, or was answered last"""
    _unread: tuple[float, int] | None = None
    """since when there are bytes that are not read, and how many"""

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
        else:  # an answer has begun
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
        """Whether somebody who may ask waits for an answer."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and bool(cycle.scope.get("token"))

    def _make_room(self):
        """Drop the oldest connection that waits where there are too many, or too many of this address."""
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
        """Drop the connection where what was written is not read, also once it is closing."""
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
        elif self._unread is None:
            self._unread = now, left
        elif now - self._unread[0] > UNREAD_SECONDS + self._unread[1] / LEAST_RATE:
            self.transport.abort()
            return
        self._looking = self.loop.call_later(LOOK_SECONDS, self._look)


STOP_SECONDS = 30  # that requests have to end
WAITING = 1024  # connections that are not taken yet
MAPPED_THRESHOLD, MAPPED_BYTES = -3, 2**22  # M_MMAP_THRESHOLD, which grows to 2**25 by itself else
TAKEN = 16  # of them at once: others are answered between


@dataclass(frozen=True)
class Listening:
    """Where a service listens, and to whom.

    Raises
    ------
    InvalidOption
        Somebody elsewhere could ask without a token, or be overheard.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    """0: any that is free"""
    token_file: str | None = None
    """None: whoever asks may do all"""
    tls_cert: str | None = None
    tls_key: str | None = None
    allowed: tuple[str, ...] = ()
    """further names of this service"""

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
        """Hosts under which it may be asked."""
        return {*LOOPBACK, self.host.lower(), *map(str.lower, self.allowed)}


def serve(folder, where: Listening, limits: Limits, **work) -> None:
    """Serve the models of a directory until a signal ends it; what waits is committed then.

    BLAS has one thread meanwhile: answers and commits are computed side by side, and its threads would wait for cores
    that those of another call hold.

    Parameters
    ----------
    work : where jobs are kept, and what they may name: as of `Service`

    Raises
    ------
    DataNotFound, InvalidOption
    """
    if where.tls_cert:
        refuse_unusable(where.tls_cert, where.tls_key)
    tokens = Tokens(where.token_file) if where.token_file else None
    _give_back_memory()
    with _bound(where.host, where.port) as listening, one_thread():
        _log_to_stderr()
        service = Service(folder, limits, **work)
        app = make_app(service, tokens=tokens, hosts=where.names)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=TAKEN,
            proxy_headers=False,  # who asks would choose his address by X-Forwarded-For
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
        with deferred_interrupts([]):  # signals, which the server passes on when it has ended
            _Server(config, service).run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server with a long queue, that tells its service when it is to end: streams of events would go on."""

    def __init__(self, config, service: Service):
        super().__init__(config)
        self._service = service

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(WAITING)  # asyncio has made the queue as long as what it takes at once

    def handle_exit(self, sig, frame) -> None:
        self._service.ending = True
        super().handle_exit(sig, frame)


def _bound(host, port):
    """A socket that listens.

    Raises
    ------
    InvalidOption
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # or answers wait for acknowledgements
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
    """Have the allocator map each large block by itself (mallopt(3)): bodies and arrays leave no holes behind."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # another library than glibc has its own ways
            ctypes.CDLL(None).mallopt(MAPPED_THRESHOLD, MAPPED_BYTES)


def _log_to_stderr():
    log = logging.getLogger("bcmdist.app.service")
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
    warnings.showwarning = _log_warning


def _log_warning(message, category, filename, lineno, file=None, line=None):
    """What models warn of, without places."""
    if issubclass(category, BcmdistWarning):
        logging.getLogger("bcmdist.app.service").warning("%s", " ".join(without_places(str(message)).split()))

"""The HTTP server: uvicorn with TLS checks, in one process or several."""

import asyncio
import contextlib
import ctypes
import errno
import functools
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from bcmdist.app.certificates import refuse_unusable
from bcmdist.app.service.application import make_app
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.logs import LogFormat, log_to_stderr
from bcmdist.app.service.metrics import SHARED
from bcmdist.app.service.middleware import LOOPBACK
from bcmdist.app.service.protocol import ImpatientProtocol
from bcmdist.app.service.service import Service
from bcmdist.app.service.tokens import Tokens
from bcmdist.app.service.workers import RENEW, Supervisor, Worker
from bcmdist.errors import InvalidOption
from bcmdist.runtime.signals import deferred_interrupts, heeded
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.locks import CAN_LOCK

log = logging.getLogger("bcmdist.app.service")
STOP_SECONDS = 30  # for running requests to end at shutdown
ORPHANED_SECONDS = 30.0  # in which workers whose supervisor was killed let go of its address
REST_SECONDS, LOOK_SECONDS = 1.0, 0.02  # until connections at rest are closed at shutdown; between looks at them
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


def serve(
    folder, where: Listening, limits: Limits, *, log_format: LogFormat = "text", workers: int = 1, **work
) -> None:
    """Serve the models of a directory until a signal arrives; then commit the waiting rows.

    BLAS is limited to one thread: predictions and commits run concurrently, and BLAS threads of one call would wait for
    cores that another call occupies.

    Parameters
    ----------
    workers : number of processes that accept connections; they share the limit of waiting rows, and clients' rates
    work : keyword arguments of `Service`, such as the directories of jobs and data

    Raises
    ------
    DataNotFound, InvalidOption
    """
    if workers > 1 and not CAN_LOCK:
        raise InvalidOption(f"--workers: expected 1 on a system without locks of files, got {workers}; leave it out")
    if where.tls_cert:
        refuse_unusable(where.tls_cert, where.tls_key)
    log_to_stderr(log_format)
    with _bound(where.host, where.port, seconds=0.0 if workers == 1 else ORPHANED_SECONDS) as listening:
        address = f"{'https' if where.tls_cert else 'http'}://{where.host}:{listening.getsockname()[1]}"
        started = functools.partial(log.info, "listening on %s", address)
        if workers == 1:
            for number in heeded(*filter(None, [RENEW])):  # there is no other worker to go on: end in peace
                signal.signal(number, lambda *_: signal.raise_signal(signal.SIGTERM))
            _serve(folder, where, limits, log_format, work, listening, started)
            return
        with tempfile.TemporaryDirectory(prefix="bcmdist-serve-") as shared, _environment(SHARED, shared):
            limits = replace(limits, waiting_rows=max(1, limits.waiting_rows // workers))
            work["buckets"] = os.path.join(shared, "rates")
            one = functools.partial(_serve, folder, where, limits, log_format, work)
            ended = functools.partial(mark_process_dead, path=shared)
            Supervisor(lambda: Worker(one, listening), workers, started, ended).run()


@contextlib.contextmanager
def _environment(name, value) -> Iterator[None]:
    """Context in which processes inherit a variable of the environment."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _serve(folder, where, limits, log_format, work, listening, started):
    """Serve in this process; call `started` when connections are accepted."""
    log_to_stderr(log_format)
    tokens = Tokens(where.token_file) if where.token_file else None
    _give_back_memory()
    with one_thread():
        service = Service(folder, limits, **work)
        config = uvicorn.Config(
            make_app(service, tokens=tokens, hosts=where.names),
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
        with deferred_interrupts([]):  # uvicorn raises its signals again at the end; the first is recorded only
            _Server(config, service, started).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn's server with a listen queue of `WAITING` connections.

    When a termination signal arrives, it sets `Service.ending`, so that open server-sent event streams end and each
    response closes its connection. Connections at rest are closed some time later, so that a request that is on its way
    is answered.
    """

    def __init__(self, config, service: Service, started: Callable[[], None]):
        super().__init__(config)
        self._service, self._has_started = service, started

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(WAITING)  # asyncio has set the queue length to `backlog`, which is what it accepts at once
        if self.started:
            self._has_started()

    async def shutdown(self, sockets=None) -> None:
        for server in self.servers:
            server.close()
        deadline = time.monotonic() + REST_SECONDS
        while self.server_state.connections and not self.force_exit and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_SECONDS)
        await super().shutdown(sockets)

    def handle_exit(self, sig, frame) -> None:
        self._service.ending = True
        super().handle_exit(sig, frame)


def _bound(host, port, *, seconds=0.0):
    """Return a listening socket; wait for the address for some seconds if it is taken.

    Raises
    ------
    InvalidOption
        The address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # then asyncio sets TCP_NODELAY
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    deadline, waits = time.monotonic() + seconds, False
    while True:
        try:
            listening.bind((host, port))
            listening.listen(WAITING)
            return listening
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                listening.close()
                raise InvalidOption(
                    f"--host, --port: expected an address that is free, {host} {port} is not ({error.strerror}); give "
                    "another"
                ) from error
            if not waits:
                log.warning("%s %d is taken, by workers of a service that was killed: waiting", host, port)
        waits = True
        time.sleep(LOOK_SECONDS)


def _give_back_memory():
    """Let the allocator map each large block separately (mallopt(3)), so that its memory is returned when freed."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # other C libraries than glibc have no mallopt
            ctypes.CDLL(None).mallopt(MAPPED_THRESHOLD, MAPPED_BYTES)

"""The server: where the service listens, and what it refuses to be without."""

import contextlib
import ctypes
import logging
import socket
import sys
import warnings
from dataclasses import dataclass

import uvicorn

from bcmdist.app.certificates import refuse_unusable
from bcmdist.app.service.answers import without_places
from bcmdist.app.service.app import make_app
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.middleware import LOOPBACK
from bcmdist.app.service.protocol import ImpatientProtocol
from bcmdist.app.service.service import Service
from bcmdist.app.service.tokens import Tokens
from bcmdist.errors import BcmdistWarning, InvalidOption
from bcmdist.runtime.signals import deferred_interrupts
from bcmdist.runtime.threads import one_thread

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

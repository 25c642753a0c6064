"""The server: where the service listens, and what it refuses to be without."""

import logging
import socket
import sys

import uvicorn

from bcmdist.app.service.app import make_app
from bcmdist.app.service.gate import LOOPBACK
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.service import Service
from bcmdist.app.service.tokens import Tokens
from bcmdist.errors import InvalidOption
from bcmdist.runtime.signals import noting

STOP_SECONDS = 30  # that requests have to end


def refuse_open(host, token_file, tls_cert, tls_key) -> None:
    """Raise `InvalidOption` where somebody elsewhere could ask without a token, or be overheard."""
    if bool(tls_cert) != bool(tls_key):
        raise InvalidOption("--tls-cert, --tls-key: expected both or none, got one; give the certificate and its key")
    if host not in LOOPBACK and not (token_file and tls_cert):
        raise InvalidOption(
            f"--host: expected 127.0.0.1 without tokens and TLS, got {host}; give --token-file, --tls-cert and "
            "--tls-key, or listen on 127.0.0.1"
        )


def serve(
    folder, *, host="127.0.0.1", port=8080, token_file=None, tls_cert=None, tls_key=None, allowed=(), limits: Limits
) -> None:
    """Serve models until a signal ends it; what waits is committed then.

    Raises
    ------
    DataNotFound, InvalidOption
    """
    refuse_open(host, token_file, tls_cert, tls_key)
    tokens = Tokens(token_file) if token_file else None
    listening = _bound(host, port)
    with listening:
        _log_to_stderr()
        service = Service(folder, limits)
        app = make_app(service, tokens=tokens, hosts={*LOOPBACK, host.lower(), *map(str.lower, allowed)})
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=2**15,
            http="h11",
            ws="none",
        )
        scheme = "https" if tls_cert else "http"
        logging.getLogger("bcmdist.serve").info("listening on %s://%s:%d", scheme, host, listening.getsockname()[1])
        with noting([]):  # signals, which the server passes on when it has ended
            uvicorn.Server(config).run(sockets=[listening])


def _bound(host, port):
    """A socket that listens.

    Raises
    ------
    InvalidOption
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise InvalidOption(
            f"--host, --port: expected an address that is free, {host} {port} is not ({error.strerror}); give another"
        ) from error
    return listening


def _log_to_stderr():
    log = logging.getLogger("bcmdist.serve")
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False

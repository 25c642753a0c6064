"""Redis access: URLs of streams, one client per server, and retries while a server restarts."""

import atexit
import os
import random
import re
import time
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from bcmdist.errors import InvalidOption, MissingExtra, SourceUnreachable

# Seconds for which requests to an unresponsive server are retried: it may be restarting.
PATIENCE = 30.0


# Seconds for which the server remembers a publish request, so that a disconnected publisher can repeat it.
REMEMBERED = 3600


ENTRY = re.compile(r"(?P<stream>rediss?://.+)\[(?P<id>\d+-\d+)\]", re.DOTALL)


@dataclass(frozen=True)
class RedisStream:
    """A stream on a Redis server."""

    server: str
    """redis://HOST:PORT/DB"""
    stream: str

    @property
    def url(self) -> str:
        return f"{self.server}/{self.stream}"


def redis_stream(url) -> RedisStream:
    """Parse redis://[USER:PASSWORD@]HOST[:PORT][/DB]/STREAM; the password is kept in this process only.

    Raises
    ------
    InvalidOption
    """
    parts = urlsplit(str(url))
    try:
        port = parts.port or 6379
    except ValueError:  # not a number, or too large
        port = 0
    names = parts.path.strip("/").split("/")
    db, stream = names if len(names) == 2 else ("0", *names[:1])
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    odd = re.search(r"[\[\]\s]", str(url).rpartition("/")[2])  # from the raw URL: urlsplit drops newlines
    if not host or not port or len(names) > 2 or not db.isdecimal() or not stream or odd:
        shown = f"{parts.scheme}://{host or ''}{parts.path}"
        raise InvalidOption(f"source: expected redis://HOST[:PORT][/DB]/STREAM, got {shown}; correct the URL")
    server = f"{parts.scheme}://{host}:{port}/{int(db)}"
    if parts.password is not None:
        _logins[server] = (unquote(parts.username) if parts.username else None, unquote(parts.password))
        connect.cache_clear()
    return RedisStream(server, stream)


@lru_cache
def connect(server) -> Any:
    """Return the client of a server, created once per process.

    Raises
    ------
    MissingExtra
    """
    redis = _redis()
    user, password = _logins.get(server, (None, os.environ.get("REDISCLI_AUTH")))
    once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)  # no retries: `patiently` does them
    atexit.register(connect.cache_clear)  # before the modules that closing needs are unloaded
    return redis.Redis.from_url(
        server, username=user, password=password, retry=once, socket_timeout=PATIENCE, socket_connect_timeout=5.0
    )


def redis_errors() -> ModuleType:
    """Return the exceptions module of the client library."""
    return _redis().exceptions


def _redis():
    try:
        import redis
    except ImportError as error:
        raise MissingExtra("source: Redis Streams need redis and pyarrow; pip install 'bcmdist[redis]'") from error
    return redis


def patiently(place: RedisStream, command) -> Any:
    """Return `command(client)`, retried for up to `PATIENCE` seconds while the server does not answer.

    A command whose response is lost runs twice, so it must be idempotent.

    Raises
    ------
    SourceUnreachable
    """
    errors = redis_errors()
    deadline = time.monotonic() + PATIENCE
    wait = 0.05
    while True:
        try:
            return command(connect(place.server))
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            raise SourceUnreachable(
                f"{place.url}: expected to be let in, the server refused ({error}); give user and password in the URL, "
                "and on workers the password in the environment variable REDISCLI_AUTH"
            ) from error
        except (errors.ConnectionError, errors.TimeoutError) as error:
            if time.monotonic() + wait > deadline:
                raise SourceUnreachable(
                    f"{place.url}: expected a Redis server, none answered for {PATIENCE:g} s ({error}); start it, or "
                    "correct the URL"
                ) from error
        except errors.ResponseError as error:
            raise SourceUnreachable(
                f"{place.url}: expected a stream, the server answered {error}; correct the URL, or what is stored there"
            ) from error
        time.sleep(random.uniform(0.5, 1.0) * wait)  # jitter, so that clients do not retry all at once
        wait = min(2 * wait, 2.0)


# User and password by server, taken from URLs given to this process.
_logins: dict[str, tuple[str | None, str | None]] = {}

"""Redis: where an entry of a stream lies, one connection for each server, and patience while it restarts."""

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

# Seconds for which a server that does not answer is asked again: it may be starting again.
PATIENCE = 30.0


# Seconds after which a publisher that was cut off can no longer ask whether its entry arrived.
REMEMBERED = 3600


ENTRY = re.compile(r"(?P<stream>rediss?://.+)\[(?P<id>\d+-\d+)\]", re.DOTALL)


@dataclass(frozen=True)
class RedisStream:
    """A stream of a server."""

    server: str
    """redis://HOST:PORT/DB"""
    stream: str

    @property
    def url(self) -> str:
        return f"{self.server}/{self.stream}"


def redis_stream(url) -> RedisStream:
    """The stream that redis://[USER:PASSWORD@]HOST[:PORT][/DB]/STREAM names; the password is kept for this process.

    Raises
    ------
    InvalidOption
    """
    parts = urlsplit(str(url))
    try:
        port = parts.port or 6379
    except ValueError:  # no number, or too large
        port = 0
    names = parts.path.strip("/").split("/")
    db, stream = names if len(names) == 2 else ("0", *names[:1])
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    odd = re.search(r"[\[\]\s]", str(url).rpartition("/")[2])  # as it came: urlsplit drops newlines
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
    """Client of a server; made once per process.

    Raises
    ------
    MissingExtra
    """
    redis = _redis()
    user, password = _logins.get(server, (None, os.environ.get("REDISCLI_AUTH")))
    once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)  # `patiently` tries again
    atexit.register(connect.cache_clear)  # while modules that closing needs are there
    return redis.Redis.from_url(
        server, username=user, password=password, retry=once, socket_timeout=PATIENCE, socket_connect_timeout=5.0
    )


def redis_errors() -> ModuleType:
    """The exceptions of the client library."""
    return _redis().exceptions


def _redis():
    try:
        import redis
    except ImportError as error:
        raise MissingExtra("source: Redis Streams need redis and pyarrow; pip install 'bcmdist[redis]'") from error
    return redis


def patiently(place: RedisStream, command) -> Any:
    """Value of `command(client)`; again, for up to `PATIENCE` seconds, where the server does not answer.

    A command whose answer is lost runs twice: give one for which that is no harm.

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
        time.sleep(random.uniform(0.5, 1.0) * wait)  # jitter: not all clients at once
        wait = min(2 * wait, 2.0)


# User and password by server, as this process was told them.
_logins: dict[str, tuple[str | None, str | None]] = {}

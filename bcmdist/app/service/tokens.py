"""Bearer tokens: who may ask for what. A file holds their hashes, never themselves.

    {"tokens": [{"name": "ward 7", "scopes": ["read", "ingest"], "sha256": "...", "expires": null}]}

A token is 32 random bytes, so that its plain hash cannot be turned back. The file is read again when it changes: who is
removed from it is refused at once. Who changes it holds a lock (FILE.lock, which stays) from before it is read until it
is written: of several at the same time none loses what another has added or removed. Links are followed.
"""

import contextlib
import datetime
import hashlib
import hmac
import json
import os
import secrets
import stat
import threading
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bcmdist.errors import InvalidOption
from bcmdist.storage.bounds import Bounds

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, change a file by one command at a time
    fcntl = None  # type: ignore[assignment]

SCOPES = ("read", "ingest", "admin")  # admin may do all
DAYS = Bounds(0.0, 36_500.0)  # until a token expires


@dataclass(frozen=True)
class Token:
    """What is known of one."""

    name: str
    scopes: tuple[str, ...]
    sha256: str
    expires: str | None = None
    """ISO 8601 with a time zone; None: never"""

    def allows(self, scope: str) -> bool:
        """Whether its holder may do what needs a scope."""
        return scope in self.scopes or "admin" in self.scopes

    @property
    def expired(self) -> bool:
        now = datetime.datetime.now(datetime.UTC)
        return self.expires is not None and datetime.datetime.fromisoformat(self.expires) <= now


EVERYTHING = Token("", SCOPES, "")  # of whoever asks on this machine, where there are no tokens


class Tokens:
    """Those of a file; any thread may ask.

    Raises
    ------
    InvalidOption
        The file cannot be read, or is one that others may write to.
    """

    def __init__(self, path):
        self.path, self._lock = str(path), threading.Lock()
        self._stamp: tuple | None = None
        self._known: tuple[Token, ...] = ()
        self._read()

    def of(self, presented: str) -> Token | None:
        """Who has a token; None where nobody does, or where it has expired. Takes as long for any."""
        self._read()
        digest, found = digest_of(presented), None
        for token in self._known:
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return None if found is None or found.expired else found

    def _read(self):
        with self._lock:
            stamp = _stamp(self.path)
            if stamp != self._stamp:
                self._known, self._stamp = read_tokens(self.path), stamp


def digest_of(presented: str) -> str:
    """The hash by which a token is known."""
    return hashlib.sha256(presented.encode(errors="replace")).hexdigest()


def _stamp(path):
    try:
        found = os.stat(path)
    except OSError as error:
        raise InvalidOption(
            f"--token-file: expected a file of tokens, {path} cannot be read ({error.strerror}); make one with "
            "`bcmdist tokens add`"
        ) from error
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidOption(
            f"--token-file: expected a file that only its owner may write to, {path} is open to others; chmod 600 it"
        )
    return found.st_mtime_ns, found.st_ino, found.st_size


def read_tokens(path) -> tuple[Token, ...]:
    """The tokens of a file.

    Raises
    ------
    InvalidOption
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)["tokens"]
        tokens = tuple(Token(**{**one, "scopes": tuple(one["scopes"])}) for one in found)
        for token in tokens:
            _ = token.expired, bytes.fromhex(token.sha256)
            if not set(token.scopes) <= set(SCOPES):
                raise ValueError(f"scopes {token.scopes}")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidOption(
            f"--token-file: expected tokens as `bcmdist tokens add` writes them in {path}, found something else "
            f"({type(error).__name__}); make another one"
        ) from error
    return tokens


def add_token(path, name: str, scopes, *, days: float | None = None) -> str:
    """Make a token, and write its hash to a file, which is made where there is none; the token itself.

    Raises
    ------
    InvalidOption
        The name is taken, a scope is none, or `days` lies outside its bounds.
    """
    if days is not None:
        DAYS.refuse("--days", days)
    if not scopes or not set(scopes) <= set(SCOPES):
        raise InvalidOption(f"tokens: expected scopes among {', '.join(SCOPES)}, got {', '.join(scopes)}; give these")
    made, until = f"bcm_{secrets.token_urlsafe(32)}", None
    if days is not None:
        until = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)).isoformat(timespec="seconds")
    with _locked(path) as file:
        known = read_tokens(file) if os.path.exists(file) else ()
        if name in {token.name for token in known}:
            raise InvalidOption(
                f"tokens: expected a name of its own, {name!r:.80} is taken; remove that one or give another"
            )
        _write(file, (*known, Token(name, tuple(scopes), digest_of(made), until)))
    return made


def remove_token(path, name: str) -> None:
    """Forget a token by its name.

    Raises
    ------
    InvalidOption
    """
    with _locked(path) as file:
        known = read_tokens(file)
        left = tuple(token for token in known if token.name != name)
        if len(left) == len(known):
            names = ", ".join(token.name for token in known) or "none"
            raise InvalidOption(
                f"tokens: expected the name of one of the file ({names}), got {name!r:.80}; give one of these"
            )
        _write(file, left)


@contextlib.contextmanager
def _locked(path) -> Iterator[str]:
    """The file that a path leads to, which no other process changes meanwhile."""
    file = os.path.realpath(path)
    try:
        handle = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError as error:
        raise InvalidOption(
            f"tokens: expected a file in a directory that is there, got {path}; make its directory, or correct the path"
        ) from error
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)  # until the handle is closed, by whatever end of the process
        yield file
    finally:
        os.close(handle)


def _write(path, tokens):
    """All at once, readable by its owner only."""
    place = f"{path}.partial-{uuid.uuid4().hex[:8]}"
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"tokens": [asdict(token) for token in tokens]}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(place, path)

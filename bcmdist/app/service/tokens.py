"""Bearer tokens and their scopes. A file holds the hashes of tokens, never the tokens.

    {"tokens": [{"name": "ward 7", "scopes": ["read", "ingest"], "sha256": "...", "expires": null}]}

A token is 32 random bytes, so that an unsalted hash is safe. The file is read again when it changes: a removed token is
refused at once. A process that changes the file holds a lock (FILE.lock, which is not removed) from reading to writing,
so that concurrent changes are not lost. Symbolic links are followed.
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
from bcmdist.storage.locks import locked

SCOPES = ("read", "ingest", "admin")  # admin includes the others
DAYS = Bounds(0.0, 36_500.0)  # until a token expires


@dataclass(frozen=True)
class Token:
    """A token's entry in the file."""

    name: str
    scopes: tuple[str, ...]
    sha256: str
    expires: str | None = None
    """ISO 8601 with a time zone; None: never"""

    def allows(self, scope: str) -> bool:
        """Whether the token grants a scope."""
        return scope in self.scopes or "admin" in self.scopes

    @property
    def expired(self) -> bool:
        now = datetime.datetime.now(datetime.UTC)
        return self.expires is not None and datetime.datetime.fromisoformat(self.expires) <= now


EVERYTHING = Token("", SCOPES, "")  # for every client of a service without authentication


class Tokens:
    """The tokens of a file; methods may be called from any thread.

    Raises
    ------
    InvalidOption
        The file cannot be read, or other users may write to it.
    """

    def __init__(self, path):
        self.path, self._lock = str(path), threading.Lock()
        self._stamp: tuple | None = None
        self._tokens: tuple[Token, ...] = ()
        self._read()

    def of(self, presented: str) -> Token | None:
        """Return the entry of a presented token, None if it is unknown or expired; the time is the same for any."""
        self._read()
        digest, found = digest_of(presented), None
        for token in self._tokens:
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return None if found is None or found.expired else found

    def _read(self):
        with self._lock:
            stamp = _stamp(self.path)
            if stamp != self._stamp:
                self._tokens, self._stamp = read_tokens(self.path), stamp


def digest_of(presented: str) -> str:
    """Return the hash under which a token is stored."""
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
    """Read the tokens of a file.

    Raises
    ------
    InvalidOption
        The file cannot be read, or its content is invalid.
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
    """Make a token, add its hash to a file (made if missing), and return the token.

    Raises
    ------
    InvalidOption
        The name is taken, a scope is invalid, or `days` lies outside its bounds.
    """
    if days is not None:
        DAYS.refuse("--days", days)
    if not scopes or not set(scopes) <= set(SCOPES):
        raise InvalidOption(f"tokens: expected scopes among {', '.join(SCOPES)}, got {', '.join(scopes)}; give these")
    made, until = f"bcm_{secrets.token_urlsafe(32)}", None
    if days is not None:
        until = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)).isoformat(timespec="seconds")
    with _locked(path) as file:
        tokens = read_tokens(file) if os.path.exists(file) else ()
        if name in {token.name for token in tokens}:
            raise InvalidOption(
                f"tokens: expected a name of its own, {name!r:.80} is taken; remove that one or give another"
            )
        _write(file, (*tokens, Token(name, tuple(scopes), digest_of(made), until)))
    return made


def remove_token(path, name: str) -> None:
    """Remove a token from a file, by name.

    Raises
    ------
    InvalidOption
        The file has no token of this name.
    """
    with _locked(path) as file:
        tokens = read_tokens(file)
        left = tuple(token for token in tokens if token.name != name)
        if len(left) == len(tokens):
            names = ", ".join(token.name for token in tokens) or "none"
            raise InvalidOption(
                f"tokens: expected the name of one of the file ({names}), got {name!r:.80}; give one of these"
            )
        _write(file, left)


@contextlib.contextmanager
def _locked(path) -> Iterator[str]:
    """Lock a token file against changes by other processes; yield its path with symbolic links resolved."""
    file = os.path.realpath(path)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(f"{file}.lock"))
        except FileNotFoundError as error:
            raise InvalidOption(
                f"tokens: expected a file in a directory that is there, got {path}; make its directory, or correct the "
                "path"
            ) from error
        yield file


def _write(path, tokens):
    """Replace a token file atomically, readable by its owner only."""
    place = f"{path}.partial-{uuid.uuid4().hex[:8]}"
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"tokens": [asdict(token) for token in tokens]}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(place, path)

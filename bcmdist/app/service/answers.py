"""Responses: JSON bodies, and errors whose messages reveal no path or URL of the server.

{"error": "InvalidData", "message": "X: expected ..., got ...; give ..."}

JSON is read and written by pydantic's core. The core takes a fifth of the time of Python's `json` on numbers, which are
most of it. `json` is the fallback where the core is too strict.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import HTTPException, Response
from pydantic_core import from_json, to_json

from bcmdist import errors
from bcmdist.app.finite import finite
from bcmdist.errors import BcmdistError
from bcmdist.storage.paths import FULL


def written(value: Any) -> bytes:
    """Return a value as JSON; non-finite numbers become null."""
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:  # an unpaired surrogate, in a name that a user chose, has no UTF-8
        return json.dumps(finite(value), allow_nan=False, separators=(",", ":")).encode()


def read(text: bytes | bytearray) -> Any:
    """Parse JSON.

    Raises
    ------
    json.JSONDecodeError, UnicodeDecodeError, RecursionError
    """
    try:
        return from_json(text)
    except ValueError:  # the encoding may be another one; if not, the error of `json` states the character position
        return json.loads(text)


# HTTP status by error class, subclasses before their parents. Any other error is a fault of the server: 500.
STATUS: dict[type[Exception], int] = {
    errors.ChunkConflict: 409,
    errors.SameRows: 409,
    errors.JobRefused: 409,
    errors.InvalidData: 422,
    errors.InvalidDtype: 422,
    errors.InvalidOption: 422,
    errors.InvalidRequest: 422,
    errors.UnsafeData: 422,
    errors.ModelNotFound: 404,
    errors.JobNotFound: 404,
    errors.DataExists: 409,
    errors.ModelExists: 409,
    errors.MemoryLimit: 413,
    errors.MissingExtra: 501,
    errors.CommitConflict: 503,
    errors.SchedulerUnreachable: 503,
    errors.StorageUnreachable: 503,
    errors.DiskFull: 507,
}
# Paths and URLs, which are removed from messages. Messages contain client input, and each letter could start a match:
# repetitions before a delimiter that may be missing are bounded, to avoid quadratic time.
PLACE = re.compile(r"(?:[a-z][a-z0-9+.-]{0,20}://|(?<![\w.])~?/)[^\s:;,'\"()\[\]]*(?:\[\d{1,20}:\d{1,20}\])?")
SHOWN = 5  # validation errors in one response, at most
LONGEST_TEXT = 2000  # characters of a message, at most


class Refused(HTTPException):
    """An HTTP error response, raised as an exception. FastAPI passes an `HTTPException` on wherever it is raised."""

    def __init__(self, status: int, error: str, message: str, **headers: str):
        super().__init__(status, message, {name.replace("_", "-"): value for name, value in headers.items()})
        self.status, self.error, self.message = status, error, message

    def answer(self) -> Response:
        """Return the error as a JSON response."""
        return problem(self.status, self.error, self.message, self.headers)


def encoded(value: Any, status=200, headers=None) -> Response:
    """Return a JSON response; non-finite numbers become null."""
    return Response(written(value), status, headers, media_type="application/json")


def problem(status, error, message, headers=None) -> Response:
    """Return an error response: JSON with `error` and `message`."""
    return encoded({"error": error, "message": message}, status, headers)


def refused(error: Exception, folders: Iterable[str] = ()) -> Refused:
    """Turn an exception into an error response.

    Errors that the client can correct (status below 500) keep their message, without paths and URLs; names inside
    `folders` remain, without the folder. All others get a general message that refers to the log of the service.
    """
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    name = type(error).__name__ if isinstance(error, BcmdistError) else "InternalError"
    if status == 500 and isinstance(error, OSError) and error.errno in FULL:  # for any file
        status, name = 507, "DiskFull"
    if status >= 500:
        again = {"Retry_After": "5"} if status == 503 else {}
        text = f"expected to answer, got an internal error {name}; see the log of the service"
        return Refused(status, name, text, **again)
    return Refused(status, name, without_places(str(error)[:LONGEST_TEXT], folders))


def invalid(found: Iterable[Mapping[str, Any]]) -> Refused:
    """Turn pydantic's validation errors into an error response that names the fields but repeats no input value.

    The status is 400 for an invalid path parameter, otherwise 422.
    """
    found = list(found)
    status = 400 if any(one["loc"][0] == "path" for one in found) else 422
    text = "; ".join(
        f"{'.'.join(map(str, one['loc']))[:80]}: {one['msg'].removeprefix('Value error, ')}" for one in found[:SHOWN]
    )
    return Refused(status, "InvalidRequest", f"{text}; correct it, see /openapi.json")


def without_places(text: str, folders: Iterable[str] = ()) -> str:
    """Remove paths and URLs from a text.

    The prefixes `folders` are removed first, so that names inside these folders remain. This also covers folders with
    blanks in their paths, where a match of `PLACE` would end.
    """
    for folder in folders:
        text = text.replace(f"{folder}/", "")
    return PLACE.sub("...", text)

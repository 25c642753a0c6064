"""Answers: JSON, and errors in words that tell nothing of where the service runs.

{"error": "InvalidData", "message": "X: expected ..., got ...; give ..."}
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import HTTPException, Response

from bcmdist import errors
from bcmdist.app.service.json import written
from bcmdist.errors import BcmdistError
from bcmdist.storage.paths import FULL

# By class of an error, those before their parents; all others are ours to mend.
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
# Paths and URLs: nobody outside needs to know where things lie. Repetitions before a mark that may not come are
# bounded, since clients' words are in these texts, and each letter could begin one.
PLACE = re.compile(r"(?:[a-z][a-z0-9+.-]{0,20}://|(?<![\w.])~?/)[^\s:;,'\"()\[\]]*(?:\[\d{1,20}:\d{1,20}\])?")
SHOWN = 5  # of what is wrong in a request, at most
LONGEST_TEXT = 2000  # characters of a message


class Refused(HTTPException):
    """An answer other than what was asked for; of a class that the framework passes on wherever it is raised."""

    def __init__(self, status: int, error: str, message: str, **headers: str):
        super().__init__(status, message, {name.replace("_", "-"): value for name, value in headers.items()})
        self.status, self.error, self.message = status, error, message

    def answer(self) -> Response:
        """It as JSON."""
        return problem(self.status, self.error, self.message, self.headers)


def encoded(value: Any, status=200, headers=None) -> Response:
    """A value as JSON; what is not finite becomes null."""
    return Response(written(value), status, headers, media_type="application/json")


def problem(status, error, message, headers=None) -> Response:
    """Why there is no other answer."""
    return encoded({"error": error, "message": message}, status, headers)


def refused(error: Exception, folders: Iterable[str] = ()) -> Refused:
    """An error of the package as an answer: those that whoever asks can mend, in words without places, those in some
    folders by their names."""
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    name = type(error).__name__ if isinstance(error, BcmdistError) else "InternalError"
    if status == 500 and isinstance(error, OSError) and error.errno in FULL:  # whatever file it was for
        status, name = 507, "DiskFull"
    if status >= 500:
        again = {"Retry_After": "5"} if status == 503 else {}
        text = f"expected to do this, got {name}; see the log of the service"
        return Refused(status, name, text, **again)
    return Refused(status, name, without_places(str(error)[:LONGEST_TEXT], folders))


def invalid(found: Iterable[Mapping[str, Any]]) -> Refused:
    """What is wrong in a request, by its place, of pydantic's errors; nothing of what came is repeated."""
    found = list(found)
    status = 400 if any(one["loc"][0] == "path" for one in found) else 422
    text = "; ".join(f"{'.'.join(map(str, one['loc']))[:80]}: {one['msg']}" for one in found[:SHOWN])
    return Refused(status, "InvalidRequest", f"{text}; correct it, see /openapi.json")


def without_places(text: str, folders: Iterable[str] = ()) -> str:
    """A text in which paths and URLs are left out, and what lies in some folders is called by its name there: what
    looks like a path ends at a blank, but paths may have some."""
    for folder in folders:
        text = text.replace(f"{folder}/", "")
    return PLACE.sub("...", text)

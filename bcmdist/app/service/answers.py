"""Answers: JSON, and errors in words that tell nothing of where the service runs.

{"error": "InvalidData", "message": "X: expected ..., got ...; give ..."}
"""

import re
from typing import Any

from fastapi import Response

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
# Paths and URLs: nobody outside needs to know where things lie.
PLACE = re.compile(r"(?:[a-z][a-z0-9+.-]*://|(?<![\w.])~?/)[^\s:;,'\"()\[\]]*(?:\[\d+:\d+\])?")


class Refused(Exception):
    """An answer other than what was asked for."""

    def __init__(self, status: int, error: str, message: str, **headers: str):
        super().__init__(message)
        self.status, self.error, self.message = status, error, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(self) -> Response:
        """It as JSON."""
        return problem(self.status, self.error, self.message, self.headers)


def encoded(value: Any, status=200, headers=None) -> Response:
    """A value as JSON; what is not finite becomes null."""
    return Response(written(value), status, headers, media_type="application/json")


def problem(status, error, message, headers=None) -> Response:
    """Why there is no other answer."""
    return encoded({"error": error, "message": message}, status, headers)


def refused(error: Exception) -> Refused:
    """An error of the package as an answer: those that whoever asks can mend, in words without places."""
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    name = type(error).__name__ if isinstance(error, BcmdistError) else "InternalError"
    if status == 500 and isinstance(error, OSError) and error.errno in FULL:  # whatever file it was for
        status, name = 507, "DiskFull"
    if status >= 500:
        again = {"Retry_After": "5"} if status == 503 else {}
        text = f"expected to do this, got {name}; see the log of the service"
        return Refused(status, name, text, **again)
    return Refused(status, name, without_places(str(error)))


def without_places(text: str) -> str:
    """A text in which paths and URLs are left out."""
    return PLACE.sub("...", text)

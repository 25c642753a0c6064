"""The log of the service on stderr: lines of text, or one JSON object a line; each request has an id."""

import functools
import json
import logging
import re
import sys
import uuid
import warnings
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

from bcmdist.app.service.answers import without_places
from bcmdist.app.service.names import NAME
from bcmdist.errors import BcmdistWarning

LogFormat = Literal["text", "json"]
HEADER = b"x-request-id"
ID = re.compile(rb"[A-Za-z0-9._:=/+-]{1,128}")  # others could forge lines of the log
TRACE_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")  # W3C
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
log = logging.getLogger("bcmdist.app.service")
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""id of the request that this context answers"""


def id_of(scope) -> str:
    """Return the X-Request-Id of a request, or a new one if it has none, several, or one with other characters."""
    given = [value for name, value in scope["headers"] if name.lower() == HEADER]
    return given[0].decode() if len(given) == 1 and ID.fullmatch(given[0]) else uuid.uuid4().hex


def trace_parent_of(scope) -> str | None:
    """Return a request's `traceparent` (W3C Trace Context); None without a valid one."""
    given = [value for name, value in scope["headers"] if name.lower() == b"traceparent"]
    match = TRACE_PARENT.fullmatch(given[0]) if len(given) == 1 else None
    return given[0].decode() if match and (match[1] is None or not given[0].startswith(b"00")) else None


def described(scope, status: int, seconds: float) -> dict[str, Any]:
    """Return what the log says of a request.

    The path is that of the route; `model`, and the `rows` predicted or absorbed, are None if the request has none.
    `traceparent` and `trace_id` are there only where the request is part of a trace.
    """
    parent = trace_parent_of(scope)
    model = scope.get("path_params", {}).get("name")
    return {
        "id": request_id.get(),
        "method": scope["method"] if scope["method"] in METHODS else "other",
        "path": getattr(scope.get("route"), "path", "other"),
        "status": status,
        "ms": round(1e3 * seconds, 1),
        "model": model if model and NAME.fullmatch(model) else None,
        "rows": scope.get("rows"),
    } | ({"traceparent": parent, "trace_id": parent.split("-")[1]} if parent else {})


def log_request(found: dict[str, Any]) -> None:
    """Log an answered request, `described`, and make its span."""
    line = "{id} {method} {path} {status} {ms:.1f} ms".format(**found)
    log.info("%s", line, extra={"request": {name: one for name, one in found.items() if name != "traceparent"}})
    if spans := _spans():
        spans(found, found.get("traceparent"))


@functools.cache
def _spans():
    """The function that makes spans of requests; None without the extra `otel`."""
    try:
        from bcmdist.app.tracing import request_span  # optional
    except ImportError:
        return None
    return request_span


def log_error(text: str) -> None:
    """Log what went wrong in the request that this context answers."""
    log.error("%s", f"{request_id.get()} {text}".strip(), extra={"request_id": request_id.get()})


class JSONLines(logging.Formatter):
    """Formats a request as its fields, and anything else as level and message, with the time and the request's id."""

    def format(self, record) -> str:
        """Return a JSON object in one line."""
        found = {"time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")}
        if request := getattr(record, "request", None):
            return json.dumps(found | request)
        of = {"id": record.request_id} if getattr(record, "request_id", "") else {}
        return json.dumps(found | {"level": record.levelname} | of | {"message": record.getMessage()})


def log_to_stderr(log_format: LogFormat) -> None:
    """Write the log, and warnings of the package, to stderr."""
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
        handler.setFormatter(JSONLines() if log_format == "json" else text)
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
    warnings.showwarning = _log_warning


def _log_warning(message, category, filename, lineno, file=None, line=None):
    """Log warnings of the package, without paths and URLs."""
    if issubclass(category, BcmdistWarning):
        log.warning("%s", " ".join(without_places(str(message)).split()))

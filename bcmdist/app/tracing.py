"""Spans of OpenTelemetry: of requests to the service, and of commits of ingestions.

Made when what they describe is over, and sent by whatever tracer provider the process has: with none, nothing happens.
`opentelemetry-instrument bcmdist serve ...` sets one up from the environment.
"""

import time
from typing import Any

from opentelemetry import trace

from bcmdist.committee.ingest.options import IngestEvent

TRACER = trace.get_tracer("bcmdist")
NANOSECONDS = 10**9
FAILED = 500  # least status of a request that failed by our fault


def request_span(found: dict[str, Any], traceparent: str | None) -> None:
    """Make the span of a request that has just been answered, as the log describes it; a child of a valid parent."""
    now = time.time_ns()
    attributes = {
        "http.request.method": found["method"],
        "http.route": found["path"],
        "http.response.status_code": found["status"],
    }
    ours = {"request_id": found["id"], "model": found["model"], "rows": found["rows"]}
    attributes |= {f"bcmdist.{name}": value for name, value in ours.items() if value is not None}
    name, start = f"{found['method']} {found['path']}", now - int(found["ms"] * 1e-3 * NANOSECONDS)
    span = TRACER.start_span(
        name, _context(traceparent), trace.SpanKind.SERVER, attributes=attributes, start_time=start
    )
    if found["status"] >= FAILED:
        span.set_status(trace.StatusCode.ERROR)
    span.end(now)


def commit_span(event: IngestEvent) -> None:
    """Make the span of a commit that has just been made; none where there was nothing to commit."""
    if event.seconds is None:
        return
    now = time.time_ns()
    facts = {name: event.counts[name] for name in ("partitions", "rows", "retries", "skipped")} | {
        "commit": event.commit
    }
    attributes = {f"bcmdist.{name}": value for name, value in facts.items()}
    start = now - int(event.seconds * NANOSECONDS)
    span = TRACER.start_span("commit", attributes=attributes, start_time=start)
    for error, partitions in event.failed.items():
        span.add_event("partitions failed", {"error.type": error, "bcmdist.partitions": partitions})
    span.end(now)


def _context(traceparent):
    """The context of a remote parent; None without one."""
    if traceparent is None:
        return None
    _, trace_id, span_id, flags, *_ = traceparent.split("-")
    parent = trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))
    return trace.set_span_in_context(trace.NonRecordingSpan(parent))

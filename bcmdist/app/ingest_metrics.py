"""Metrics of `bcmdist ingest` in Prometheus' text format, and the small HTTP server that answers /metrics and /health.

Only figures, and the names of model and source without users and passwords, can be read there: there are no tokens.
"""

import contextlib
import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler

from bcmdist.app.service.metrics import CONTENT_TYPE, Metrics
from bcmdist.committee.ingest.options import IngestEvent
from bcmdist.errors import InvalidOption
from bcmdist.storage.urls import without_users

OF = ("model", "source")
COUNTERS = {
    "bcmdist_ingest_rows_total": ("Rows committed.", OF),
    "bcmdist_ingest_partitions_total": ("Partitions committed.", OF),
    "bcmdist_ingest_duplicates_total": ("Partitions that were in the ledger before.", OF),
    "bcmdist_ingest_same_rows_total": ("New partitions with rows that were absorbed under other names.", OF),
    "bcmdist_ingest_expired_total": ("Partitions older than the window when they arrived.", OF),
    "bcmdist_ingest_skipped_total": ("Partitions that failed and were left out.", OF),
    "bcmdist_ingest_retries_total": ("Commits repeated because another process committed first.", OF),
    "bcmdist_ingest_failed_total": (
        "Partitions that failed, left out or not, by class of their error.",
        (*OF, "error"),
    ),
}
GAUGES = {
    "bcmdist_ingest_commit": "Newest commit of the model.",
    "bcmdist_ingest_last_commit_seconds": "Seconds that the last commit took.",
    "bcmdist_ingest_last_commit_timestamp_seconds": "When it was made.",
    "bcmdist_ingest_active_timestamp_seconds": "When this process last committed, found nothing new, or began.",
    "bcmdist_ingest_last_error_timestamp_seconds": "When a partition failed last, by class of its error.",
    "bcmdist_ingest_lag_partitions": "Partitions that wait in the source or are in flight; absent if unknown.",
    "bcmdist_ingest_lag_rows": "Their rows, approximately; absent if unknown.",
    "bcmdist_ingest_lag_seconds": "Seconds that the oldest of them waits; absent if unknown.",
    "bcmdist_ingest_worker_threads": "Worker threads in use.",
}
SECONDS = "bcmdist_ingest_commit_seconds", "Seconds of commits.", OF
PLACE = re.compile(r"(?:(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>\d{1,5})")
LOOPBACK = "127.0.0.1"
READ_SECONDS = 5.0  # for which a request may keep a thread waiting
Labels = tuple[tuple[str, str], ...]


class IngestMetrics:
    """Metrics of one ingestion since its process began; callable from any thread."""

    def __init__(self, model: str, source: str):
        self._labels = {
            "model": without_users(str(model)).rstrip("/").rpartition("/")[2],
            "source": without_users(source),
        }
        self._lock, self._metrics = threading.Lock(), Metrics(COUNTERS, GAUGES, SECONDS)
        self._gauges: dict[str, dict[Labels, float]] = {"bcmdist_ingest_active_timestamp_seconds": {(): time.time()}}
        """values by name, and by the labels beside model and source"""
        for name, (_, labels) in COUNTERS.items():
            if labels == OF:
                self._metrics.count(name, 0.0, **self._labels)

    def observe(self, event: IngestEvent) -> None:
        """Add what an event says; the observer of an ingestion."""
        for name, more in event.counts.items():
            self._metrics.count(f"bcmdist_ingest_{name}_total", more, **self._labels)
        for error, more in event.failed.items():
            self._metrics.count("bcmdist_ingest_failed_total", more, **self._labels, error=error)
        if event.seconds is not None:
            self._metrics.took(event.seconds, **self._labels)
        with self._lock:
            self._gauges |= _gauges(event, time.time())
            for error in event.failed:
                self._gauges.setdefault("bcmdist_ingest_last_error_timestamp_seconds", {})[("error", error),] = (
                    time.time()
                )

    def text(self) -> str:
        """Return the metrics in the text format."""
        with self._lock:
            gauges = {
                name: [({**self._labels, **dict(labels)}, value) for labels, value in found.items()]
                for name, found in self._gauges.items()
            }
        return self._metrics.text(gauges)

    def health(self) -> str:
        """Return how long ago the ingestion was active, as JSON."""
        with self._lock:
            (active,) = self._gauges["bcmdist_ingest_active_timestamp_seconds"].values()
        return json.dumps({"status": "ok", "active_seconds_ago": round(max(0.0, time.time() - active), 3)})


def _gauges(event: IngestEvent, now: float) -> dict[str, dict[Labels, float]]:
    """Gauges that an event sets; those of an unknown lag become empty."""
    found: dict[str, float | None] = {
        "commit": event.commit,
        "active_timestamp_seconds": now,
        "worker_threads": event.threads,
    }
    lag: Mapping[str, float] = event.lag or {}
    found |= {f"lag_{name}": lag.get(name) for name in ("partitions", "rows", "seconds")}
    if event.seconds is not None:
        found |= {"last_commit_seconds": event.seconds, "last_commit_timestamp_seconds": now}
    return {f"bcmdist_ingest_{name}": {} if value is None else {(): float(value)} for name, value in found.items()}


@contextlib.contextmanager
def answering(place: str, metrics: IngestMetrics) -> Iterator[str]:
    """Context manager: answer requests for metrics and health in a thread; yields the URL. Port 0: any free one.

    Raises
    ------
    InvalidOption
        `place` is not [HOST:]PORT, or cannot be listened on.
    """
    host, port = _parsed(place)
    try:
        server = _Server((host, port), metrics)
    except OSError as error:
        raise InvalidOption(
            f"--metrics: expected a free address of this machine, got {place} ({error.strerror}); name another one"
        ) from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _parsed(place) -> tuple[str, int]:
    match = PLACE.fullmatch(place)
    if match is None or int(match["port"]) > 65535:
        raise InvalidOption(f"--metrics: expected PORT or HOST:PORT, got {place!r:.80}; write 9100, say")
    return (match["host"] or LOOPBACK).strip("[]"), int(match["port"])


class _Server(socketserver.ThreadingTCPServer):
    """Answers each request in a thread of its own, which does not outlive the process."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, address, metrics: IngestMetrics):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.pages = {"/metrics": (metrics.text, CONTENT_TYPE), "/health": (metrics.health, "application/json")}
        super().__init__(address, _Request)

    def handle_error(self, request, client_address) -> None:
        """Nothing: a client that breaks off is no concern of the ingestion."""


class _Request(BaseHTTPRequestHandler):
    """A request for one of the server's pages."""

    timeout = READ_SECONDS
    server_version, sys_version = "bcmdist", ""
    server: _Server

    def do_GET(self) -> None:
        """Answer with the page, or 404."""
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(404)
            return
        text, kind = page
        body = text().encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args) -> None:
        """Log nothing: Prometheus asks every few seconds."""

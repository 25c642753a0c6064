"""Metrics in Prometheus' text format (version 0.0.4)."""

import threading
from collections import defaultdict
from collections.abc import Iterable

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTERS = {
    "bcmdist_requests_total": "Requests by route, method and status.",
    "bcmdist_predicted_rows_total": "Points predicted at.",
    "bcmdist_predict_compute_seconds_total": "Seconds of computing predictions.",
    "bcmdist_ingested_rows_total": "Rows committed for requests.",
}
GAUGES = {
    "bcmdist_model_rows": "Rows that a model has absorbed.",
    "bcmdist_model_partitions": "Partitions that a model has absorbed.",
    "bcmdist_model_commit": "Commit that is served.",
    "bcmdist_model_waiting_rows": "Rows of requests that are not committed yet.",
    "bcmdist_model_lag_rows": "These, and rows that waited in sources at the newest commit; absent if unknown.",
    "bcmdist_model_lag_seconds": "Seconds that the oldest of them wait, or waited then; absent if unknown.",
    "bcmdist_model_ingesters": "Sources with an ingester that waits for rows.",
    "bcmdist_model_dead_ingesters": "Sources whose waiting ingester is dead.",
    "bcmdist_model_renewed_timestamp_seconds": "When the state that is served was loaded.",
    "bcmdist_models_unreadable": "Models that cannot be read.",
}
SECONDS = "bcmdist_request_seconds"
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters and request durations since the start of the service; callable from any thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self._counted: dict[str, dict[Labels, float]] = {name: defaultdict(float) for name in COUNTERS}
        self._seconds: dict[Labels, list[float]] = defaultdict(lambda: [0.0] * (len(BUCKETS) + 2))

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._counted[name][tuple(labels.items())] += amount

    def took(self, seconds: float, **labels: str) -> None:
        """Record the duration of a request."""
        with self._lock:
            found = self._seconds[tuple(labels.items())]
            for k, edge in enumerate(BUCKETS):
                found[k] += seconds <= edge
            found[-2] += 1
            found[-1] += seconds

    def text(self, gauges: dict[str, list[tuple[dict[str, str], float]]]) -> str:
        """Return all metrics in the text format.

        Parameters
        ----------
        gauges : labels and values, by names in `GAUGES`
        """
        with self._lock:
            counted = {name: list(values.items()) for name, values in self._counted.items()}
            seconds = [(labels, list(values)) for labels, values in self._seconds.items()]
        lines: list[str] = []
        for name, about in COUNTERS.items():
            lines += _head(name, about, "counter") + [_line(name, *one) for one in counted[name]]
        lines += _head(SECONDS, "Seconds from the first byte of a request to the last of its answer.", "histogram")
        for labels, values in seconds:
            lines += _histogram(labels, values)
        for name, about in GAUGES.items():
            found = [(tuple(labels.items()), value) for labels, value in gauges.get(name, [])]
            lines += _head(name, about, "gauge") + [_line(name, *one) for one in found]
        return "\n".join(lines) + "\n"


def _head(name, about, kind):
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _histogram(labels, values) -> Iterable[str]:
    edges = [*(f"{edge:g}" for edge in BUCKETS), "+Inf"]
    for edge, value in zip(edges, values, strict=False):
        yield _line(f"{SECONDS}_bucket", (*labels, ("le", edge)), value)
    yield _line(f"{SECONDS}_sum", labels, values[-1])
    yield _line(f"{SECONDS}_count", labels, values[-2])


def _line(name, labels, value):
    named = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{name}{{{named}}} {value:.17g}" if named else f"{name} {value:.17g}"


def _escaped(text):
    return str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

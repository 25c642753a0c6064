"""Metrics of the service in Prometheus' text format (version 0.0.4), in a registry of each application's own.

Worker processes of one service share the directory that `PROMETHEUS_MULTIPROC_DIR` names before this module is
imported: each reports the metrics of all.
"""

import math
import os
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTERS = {
    "bcmdist_requests_total": ("Requests by route, method and status.", ("route", "method", "status")),
    "bcmdist_predicted_rows_total": ("Points predicted at.", ("model",)),
    "bcmdist_predict_compute_seconds_total": ("Seconds of computing predictions.", ("model",)),
    "bcmdist_ingested_rows_total": ("Rows committed for requests.", ("model",)),
}
GAUGES = {
    "bcmdist_model_rows": "Rows that a model has absorbed.",
    "bcmdist_model_partitions": "Partitions that a model has absorbed.",
    "bcmdist_model_commit": "Commit that is served.",
    "bcmdist_model_query_points": "Query points of a model to which points were added.",
    "bcmdist_model_query_points_most": "Largest number that it may have; absent if there is no limit.",
    "bcmdist_model_waiting_rows": "Rows of requests that are not committed yet.",
    "bcmdist_model_lag_rows": "These, and rows that waited in sources at the newest commit; absent if unknown.",
    "bcmdist_model_lag_seconds": "Seconds that the oldest of them wait, or waited then; absent if unknown.",
    "bcmdist_model_ingesters": "Sources with an ingester that waits for rows.",
    "bcmdist_model_dead_ingesters": "Sources whose waiting ingester is dead.",
    "bcmdist_model_drifts": "1 while rows that arrive are predicted worse than expected, else 0; absent if unknown.",
    "bcmdist_model_renewed_timestamp_seconds": "When the state that is served was loaded.",
    "bcmdist_models_unreadable": "Models that cannot be read.",
}
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # environment variable of prometheus_client
WAITING_ROWS, WAITING_SINCE = "bcmdist_waiting_rows", "bcmdist_waiting_since"  # of each process; not shown
SECONDS = "bcmdist_request_seconds", "Seconds from the first byte of a request to the last of its answer."


class Metrics:
    """Counters and request durations since the start of the service; callable from any thread."""

    def __init__(self):
        self._registry = CollectorRegistry()
        self._counters = {
            name: Counter(name, about, labels, registry=self._registry) for name, (about, labels) in COUNTERS.items()
        }
        self._seconds = Histogram(*SECONDS, ("route",), buckets=BUCKETS, registry=self._registry)
        self._waiting, self._since = (
            Gauge(name, "Of one process.", ("model",), registry=self._registry, multiprocess_mode=mode)  # type: ignore
            for name, mode in ((WAITING_ROWS, "livesum"), (WAITING_SINCE, "livemin"))
        )

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""
        self._counters[name].labels(**labels).inc(amount)

    def took(self, seconds: float, **labels: str) -> None:
        """Record the duration of a request."""
        self._seconds.labels(**labels).observe(seconds)

    def set_waiting(self, model: str, rows: int, since: float) -> None:
        """Record the rows of requests to this process that wait to be committed, and when the oldest came (epoch)."""
        self._waiting.labels(model=model).set(rows)
        self._since.labels(model=model).set(since)

    def waiting(self, model: str) -> tuple[int, float]:
        """Return the rows of requests to all processes that wait to be committed, and the seconds the oldest waits."""
        metrics = self._of_all_processes()
        rows, since = (metrics.get_sample_value(name, {"model": model}) for name in (WAITING_ROWS, WAITING_SINCE))
        return int(rows or 0), max(0.0, time.time() - (math.inf if since is None else since))

    def _of_all_processes(self) -> CollectorRegistry:
        if SHARED not in os.environ:
            return self._registry
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return together

    def text(self, gauges: dict[str, list[tuple[dict[str, str], float]]]) -> str:
        """Return all metrics in the text format.

        Parameters
        ----------
        gauges : labels and values, by names in `GAUGES`
        """
        return generate_latest(_Scrape(self._of_all_processes(), gauges)).decode()


class _Scrape(Collector):
    """The metrics of a registry, without the times of creation of their series, and gauges measured now."""

    def __init__(self, registry, gauges):
        self.registry, self.gauges = registry, gauges

    def collect(self) -> Iterator[Metric]:
        for metric in self.registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            if metric.name not in (WAITING_ROWS, WAITING_SINCE):
                yield metric
        for name, about in GAUGES.items():
            metric = GaugeMetricFamily(name, about)
            for labels, value in self.gauges.get(name, []):
                metric.add_sample(name, labels, value)
            yield metric

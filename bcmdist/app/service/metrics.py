"""Metrics of the service in Prometheus' text format (version 0.0.4), in a registry of each application's own.

Worker processes of one service share the directory that `PROMETHEUS_MULTIPROC_DIR` names before this module is
imported: each reports the metrics of all. `bcmdist ingest --metrics` writes its own in the same way.
"""

import os
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
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
SECONDS = "bcmdist_request_seconds", "Seconds from the first byte of a request to the last of its answer.", ("route",)
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # environment variable of prometheus_client
UNSHOWN = "bcmdist_unshown_"  # first part of the names of metrics that are only shared among processes


def of_all_processes(registry: CollectorRegistry) -> CollectorRegistry:
    """Return the metrics of all processes of the service; these are those of `registry` if it is the only one."""
    if SHARED not in os.environ:
        return registry
    together = CollectorRegistry()
    MultiProcessCollector(together)
    return together


class Metrics:
    """Counters and durations since the start of a process; callable from any thread.

    Parameters
    ----------
    counters : texts and names of labels by name
    gauges : texts by name
    seconds : name, text and names of labels of the durations
    """

    def __init__(
        self,
        counters: Mapping[str, tuple[str, tuple[str, ...]]] = COUNTERS,
        gauges: Mapping[str, str] = GAUGES,
        seconds: tuple[str, str, tuple[str, ...]] = SECONDS,
    ):
        self._registry, self._gauges = CollectorRegistry(), gauges
        self._counters = {
            name: Counter(name, about, labels, registry=self._registry) for name, (about, labels) in counters.items()
        }
        self._seconds = Histogram(*seconds, buckets=BUCKETS, registry=self._registry)

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""
        self._counters[name].labels(**labels).inc(amount)

    def took(self, seconds: float, **labels: str) -> None:
        """Record a duration."""
        self._seconds.labels(**labels).observe(seconds)

    def text(self, gauges: dict[str, list[tuple[dict[str, str], float]]]) -> str:
        """Return all metrics in the text format.

        Parameters
        ----------
        gauges : labels and values, by name
        """
        families = [(name, about, gauges.get(name, [])) for name, about in self._gauges.items()]
        return generate_latest(_Scrape(of_all_processes(self._registry), families)).decode()


class _Scrape(Collector):
    """The metrics of a registry, without the times of creation of their series, and gauges measured now."""

    def __init__(self, registry, families):
        self.registry, self.families = registry, families

    def collect(self) -> Iterator[Metric]:
        for metric in self.registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            if not metric.name.startswith(UNSHOWN):
                yield metric
        for name, about, measured in self.families:
            metric = GaugeMetricFamily(name, about)
            for labels, value in measured:
                metric.add_sample(name, labels, value)
            yield metric

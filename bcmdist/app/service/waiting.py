"""The rows of requests that wait to be committed, in all processes of a service."""

import math
import time

from prometheus_client import CollectorRegistry, Gauge

from bcmdist.app.service.metrics import UNSHOWN, of_all_processes

ROWS, SINCE = f"{UNSHOWN}waiting_rows", f"{UNSHOWN}waiting_since"
ABOUT = "Of one process."


class WaitingRows:
    """Numbers of waiting rows by model; callable from any thread. Those of a process that has ended do not count."""

    def __init__(self):
        self._registry = CollectorRegistry()
        self._rows = Gauge(ROWS, ABOUT, ("model",), registry=self._registry, multiprocess_mode="livesum")
        self._since = Gauge(SINCE, ABOUT, ("model",), registry=self._registry, multiprocess_mode="livemin")

    def set(self, model: str, rows: int, since: float) -> None:
        """Record the rows that wait in this process, and when the oldest came (epoch; inf if none waits)."""
        self._rows.labels(model=model).set(rows)
        self._since.labels(model=model).set(since)

    def of(self, model: str) -> tuple[int, float]:
        """Return the rows that wait in all processes, and the seconds that the oldest has waited."""
        found = of_all_processes(self._registry)
        rows, since = (found.get_sample_value(name, {"model": model}) for name in (ROWS, SINCE))
        return int(rows or 0), max(0.0, time.time() - (math.inf if since is None else since))

"""Limits of requests: size, duration and rate."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bcmdist.app.service.shared import SharedTable
from bcmdist.errors import InvalidOption


@dataclass(frozen=True)
class Limits:
    """Limits of one service; those of connections hold for each of its worker processes.

    Raises
    ------
    InvalidOption
        A limit is not positive.
    """

    body_bytes: int = 2**24
    rows: int = 100_000
    """rows of one request"""
    body_seconds: float = 20.0
    """until the whole request has arrived"""
    answer_seconds: float = 60.0
    """until the response is computed"""
    per_second: float = 200.0
    """requests of one client, on average over some seconds"""
    connections: int = 500
    """open at a time"""
    waiting_rows: int = 1_000_000
    """rows sent to one model but not committed yet, from which on new rows are refused (503)"""

    @property
    def at_once(self) -> int:
        """Concurrent requests of one client: half of the connections, so that no client takes all of them."""
        return max(1, self.connections // 2)

    @property
    def values(self) -> int:
        """Numbers in a response, which holds predictions, quantiles and interval ends of each row."""
        return 20 * self.rows

    def __post_init__(self):
        for name, value in vars(self).items():
            if not value > 0:
                raise InvalidOption(f"limits: expected a positive number as {name}, got {value}; give one")


class AtOnce:
    """Counter of the concurrent requests of each client; used in one thread."""

    def __init__(self, most: int):
        self.most, self._counted = most, Counter[str]()

    @contextlib.contextmanager
    def one(self, asker: str) -> Iterator[bool]:
        """Count a request while the context is open; yield whether it is within the limit."""
        self._counted[asker] += 1
        try:
            yield self._counted[asker] <= self.most
        finally:
            self._counted[asker] -= 1
            if not self._counted[asker]:
                del self._counted[asker]


class Rate:
    """A token bucket for each client, refilled at `per_second` up to `BURST_SECONDS`' worth. A request takes one token.

    Parameters
    ----------
    buckets : number of tokens of each client at its last request; shared, the limit holds for all processes together
    clock : function that returns monotonic time in seconds
    """

    BURST_SECONDS = 2.0

    def __init__(self, per_second: float, buckets: SharedTable, clock=time.monotonic):
        self.per_second, self._buckets, self._clock = per_second, buckets, clock

    def wait(self, asker: str) -> float:
        """Return 0 and count a request if it is allowed now; otherwise return the seconds until one is."""
        most = max(1.0, self.per_second * self.BURST_SECONDS)
        with self._buckets.entry(asker) as bucket:
            now = self._clock()
            left = min(most, bucket["level"] + (now - bucket["time"]) * self.per_second)
            bucket["level"], bucket["time"] = left - 1.0 if left >= 1.0 else left, now
        return 0.0 if left >= 1.0 else float(1.0 - left) / self.per_second

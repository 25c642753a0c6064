"""Limits of requests: how large, how long, how often."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bcmdist.errors import InvalidOption

FORGOTTEN = 10_000  # askers that are remembered at most


@dataclass(frozen=True)
class Limits:
    """What one request may take.

    Raises
    ------
    InvalidOption
    """

    body_bytes: int = 2**24
    rows: int = 100_000
    """of one request"""
    body_seconds: float = 20.0
    """until a request has arrived"""
    answer_seconds: float = 60.0
    """until it is answered"""
    per_second: float = 200.0
    """requests of one asker, on average over some seconds"""
    connections: int = 500
    """at a time"""
    waiting_rows: int = 1_000_000
    """of requests to one model that are not committed yet: more are to come later"""

    @property
    def at_once(self) -> int:
        """Requests of one asker that are being answered, so that all connections are nobody's alone."""
        return max(1, self.connections // 2)

    @property
    def values(self) -> int:
        """Numbers in an answer: of each row predictions, quantiles and ends of intervals."""
        return 20 * self.rows

    def __post_init__(self):
        for name, value in vars(self).items():
            if not value > 0:
                raise InvalidOption(f"limits: expected a positive number as {name}, got {value}; give one")


class AtOnce:
    """How many requests of each asker are being answered; of one thread."""

    def __init__(self, most: int):
        self.most, self._counted = most, Counter[str]()

    @contextlib.contextmanager
    def one(self, asker: str) -> Iterator[bool]:
        """Whether one more may be answered, which is counted meanwhile."""
        self._counted[asker] += 1
        try:
            yield self._counted[asker] <= self.most
        finally:
            self._counted[asker] -= 1
            if not self._counted[asker]:
                del self._counted[asker]


class Rate:
    """A bucket for each asker that fills at a rate, up to some seconds' worth, and from which each request takes one.

    Parameters
    ----------
    clock : seconds, monotonic
    """

    BURST_SECONDS = 2.0

    def __init__(self, per_second: float, clock=time.monotonic):
        self.per_second, self._clock, self._lock = per_second, clock, threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, asker: str) -> float:
        """0 where a request may be absorbed now, which is counted; else seconds until one may."""
        most = max(1.0, self.per_second * self.BURST_SECONDS)
        with self._lock:
            now = self._clock()
            left, then = self._left.pop(asker, (most, now))
            left = min(most, left + (now - then) * self.per_second)
            self._left[asker] = (left - 1.0 if left >= 1.0 else left, now)
            while len(self._left) > FORGOTTEN:  # who asked longest ago
                del self._left[next(iter(self._left))]
        return 0.0 if left >= 1.0 else (1.0 - left) / self.per_second

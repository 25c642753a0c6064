"""Lag of an ingestion behind its source: partitions waiting or in flight, their rows, and seconds.

The seconds are the age of the oldest of these partitions: the time since the first poll at which more partitions were
announced than are absorbed now. The resolution is the interval between two polls.
"""

import collections
import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

from bcmdist.committee.facts import Facts, Lag
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.sources.open import Source
from bcmdist.errors import BcmdistError

LOOK_SECONDS = 2.0  # least time between two polls of the number of waiting partitions


def lags(snapshot: Snapshot) -> dict[str, Lag | None]:
    """Lag of each source's ingestion at its last commit, by source name (see `Facts.lag`); None where unknown."""
    unknown: dict[str, Lag | None] = dict.fromkeys(filter(None, snapshot.offsets))
    return unknown | (snapshot.facts.ingestion.lag or {})


def lag_fact(facts: Facts, source: str, lag: Lag | None) -> dict[str, dict[str, Lag]]:
    """The fact `lag` with that of one source, if it changes; an unknown lag (None) drops the outdated one."""
    before = facts.ingestion.lag or {}
    others = {name: one for name, one in before.items() if name != source}
    if lag is None:
        return {"lag": others} if source in before else {}
    return {"lag": before | {source: lag}}


class LagMeter:
    """Measures the lag behind a source while it is ingested.

    Parameters
    ----------
    clock : seconds, monotonic
    """

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock, self._asked = source, clock, -math.inf
        self._looks: collections.deque[tuple[float, int]] = collections.deque()
        """(time, number of partitions announced) of each poll at which that number had grown"""
        self.announced = 0
        """approximate number of partitions delivered so far plus those waiting in the source"""
        self._lag_measured = False
        """whether the source could report how many partitions wait"""

    def look(self, read_to: Any, delivered: int) -> None:
        """Poll the source for partitions beyond an offset, unless polled recently. `delivered`: their number so far."""
        now = self._clock()
        if now - self._asked < LOOK_SECONDS:
            return
        with contextlib.suppress(BcmdistError):  # the next read reports the error
            waiting = self._source.lag(read_to)
            self._lag_measured, self._asked, self.announced = waiting is not None, now, delivered + (waiting or 0)
            if not self._looks or self._looks[-1][1] < self.announced:
                self._looks.append((now, self.announced))

    def lag(self, done: int, rows: float) -> Lag | None:
        """The lag once `done` partitions are absorbed, given mean `rows` per partition; None where unknown.

        Keys: `partitions`, `rows`, `seconds`, and `at`, the time of the call in seconds since the epoch.
        """
        if not self._lag_measured:
            return None
        while self._looks and self._looks[0][1] <= done:
            self._looks.popleft()
        waiting = max(0, self.announced - done)
        seconds = self._clock() - self._looks[0][0] if self._looks and waiting else 0.0
        return {"partitions": waiting, "rows": round(waiting * rows), "seconds": round(seconds, 3), "at": time.time()}

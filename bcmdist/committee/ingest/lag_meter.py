"""How far an ingestion is behind its source: in partitions that wait there or are at work, in rows, and in seconds.

Seconds are the age of the oldest of these: since the first look at which more had been announced than was absorbed by
now. They are known to the time between two looks.
"""

import collections
import contextlib
import math
import time

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.sources.open import Source
from bcmdist.errors import BcmdistError

LOOK_SECONDS = 2.0  # between two questions how much waits in a source


def lags(snapshot: Snapshot) -> dict[str, dict[str, float] | None]:
    """By source, how far its ingestion was behind it at its last commit, see `Facts.lag`; None where that is unknown.

    Parameters
    ----------
    snapshot : of a commit
    """
    return dict.fromkeys(filter(None, snapshot.offsets)) | (snapshot.facts.lag or {})


class LagMeter:
    """Looks at a source while it is ingested.

    Parameters
    ----------
    clock : seconds, monotonic
    """

    def __init__(self, source: Source, clock=time.monotonic):
        self._source, self._clock, self._asked = source, clock, -math.inf
        self._looks: collections.deque[tuple[float, int]] = collections.deque()
        """when as many partitions were announced, as often as these were more than before"""
        self.announced = 0
        """partitions handed out, and waiting in the source, about"""
        self._known = False
        """whether the source could tell what waits"""

    def look(self, read_to, given: int) -> None:
        """Ask the source, if that was some time ago, what waits beyond an offset; `given` were handed out."""
        now = self._clock()
        if now - self._asked < LOOK_SECONDS:
            return
        with contextlib.suppress(BcmdistError):  # who reads says what is wrong
            waiting = self._source.lag(read_to)
            self._known, self._asked, self.announced = waiting is not None, now, given + (waiting or 0)
            if not self._looks or self._looks[-1][1] < self.announced:
                self._looks.append((now, self.announced))

    def told(self, done: int, rows: float) -> dict[str, float] | None:
        """How far behind it is when `done` partitions are absorbed, each of so many rows; None where nobody knows."""
        if not self._known:
            return None
        while self._looks and self._looks[0][1] <= done:
            self._looks.popleft()
        waiting = max(0, self.announced - done)
        seconds = self._clock() - self._looks[0][0] if self._looks and waiting else 0.0
        return {"partitions": waiting, "rows": round(waiting * rows), "seconds": round(seconds, 3), "at": time.time()}

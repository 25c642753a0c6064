"""Progress of learning: events of a search for hyper-parameters, and the line that shows the latest one.

Searches log an `Evaluated` after each evaluation, at level DEBUG of the logger `LEARNING`. A terminal and a notebook
have handlers that show it (`as_line`); without them nothing is shown.
"""

import logging
import math
import time
from dataclasses import dataclass

LEARNING = logging.getLogger("bcmdist.learning.search")
LARGEST_SHARE = 0.99  # of a search that has not ended: its length is an estimate
LEAST_DONE = 10  # evaluations before the time left is estimated


@dataclass(frozen=True)
class Evaluated:
    """An evaluation of what a search maximises."""

    done: int
    """evaluations so far"""
    expected: float
    """estimate of all evaluations"""
    best: float
    """largest value over the current rows, in nats; -inf if there is none"""
    figure: str
    """name of the value"""
    seconds: float
    """since the search began"""


def as_line(event: Evaluated) -> str:
    """Return share done, best value and time left in words: "62 % done, best log evidence -812.3, about 25 s left"."""
    share = min(event.done / event.expected, LARGEST_SHARE) if event.expected > 0.0 else 0.0
    parts = [f"{100.0 * share:.0f} % done"]
    if math.isfinite(event.best):
        parts.append(f"best {event.figure} {event.best:,.1f}")
    if event.done >= LEAST_DONE and share > 0.0:
        parts.append(f"about {_duration(event.seconds * (1.0 / share - 1.0))} left")
    return ", ".join(parts)


def _duration(seconds):
    """Return seconds in words, rounded as coarsely as an estimate deserves."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1.0, math.ceil(seconds)):.0f} s"


class Meter:
    """Counts the evaluations of one search and logs them."""

    def __init__(self, expected: float, figure: str):
        self.expected, self.figure = expected, figure
        self._done, self._best, self._begun = 0, -math.inf, time.monotonic()
        self._over: object = None

    def count(self, over: object, value: float) -> None:
        """Note that the objective `over` was evaluated; values of different objectives are not compared."""
        self._best = max(value, self._best) if over is self._over else value
        self._done, self._over = self._done + 1, over
        if LEARNING.isEnabledFor(logging.DEBUG):
            seconds = time.monotonic() - self._begun
            LEARNING.debug(Evaluated(self._done, self.expected, self._best, self.figure, seconds))

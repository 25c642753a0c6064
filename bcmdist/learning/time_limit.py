"""Time that learning may take (`--seconds`, by default that of the effort), and what it leaves out to keep it.

The search does first what gains most. When a share of the time has passed, the step under way ends with the best
hyper-parameters so far, and later steps of its kind are left out. A search that ends before its limit does not depend
on the speed of the machine.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# Limits by effort, in seconds. Learning from any table of up to 10^6 rows ends well before these on two cores, or is
# cut short.
SECONDS = {"quick": 10.0, "normal": 60.0, "thorough": math.inf}
# Iterations over which the gain of a climb that is cut short is measured.
RECENT = 3


@dataclass
class TimeLimit:
    """The time of one search, and the steps that it cut short or left out."""

    seconds: float = math.inf
    begun: float = field(default_factory=time.monotonic)
    unfinished: list[str] = field(default_factory=list)
    """steps that were cut short or left out, in words"""
    explicit: bool = False
    """whether the user has given the seconds; only then the training of shared variables is limited too"""
    gain_per_second: float | None = None
    """rise of the objective in the last iterations of the last climb that was cut short, in nats a second"""
    _step: str = ""
    _share: float = 1.0

    def begin(self, step: str, share: float) -> None:
        """Begin a step of the search, which must end when a share of the time has passed since the search began."""
        self._step, self._share = step, share

    def passed(self) -> bool:
        """Whether the time for the present step has passed; then the step is noted as unfinished."""
        if time.monotonic() - self.begun < self._share * self.seconds:
            return False
        if self._step not in self.unfinished:
            self.unfinished.append(self._step)
        return True

    def left_for_training(self) -> float:
        """Return the seconds that are left for the training of shared variables."""
        return max(self.seconds - (time.monotonic() - self.begun), 0.0) if self.explicit else math.inf

    def stop_when_passed(self) -> Callable[..., None]:
        """Return a callback that stops L-BFGS when the time has passed, and notes how much it still gained."""
        last: list[tuple[float, float]] = []

        def callback(intermediate_result):
            last.append((time.monotonic(), -intermediate_result.fun))
            if self.passed():
                (before, low), (now, high) = last[-RECENT - 1 :][0], last[-1]
                self.gain_per_second = (high - low) / (now - before) if now > before else None
                raise StopIteration

        return callback

    def to_json(self) -> dict | None:
        """Return the fields of `Facts` about a search that was cut short; None if none was."""
        if not self.unfinished:
            return None
        return {"seconds": self.seconds, "steps": self.unfinished, "gain_per_second": self.gain_per_second}


def time_limit(settings) -> TimeLimit:
    """Return the limit of a search that begins now, from `Settings`."""
    given = settings.seconds is not None
    return TimeLimit(settings.seconds if given else SECONDS[settings.effort], explicit=given)

"""Progress of sums on a terminal: one bar per stage, or one line per stage where nobody watches."""

import sys
import time

BAR = 30  # characters
REFRESH_SECONDS = 0.1
MANY = ("learn", "judge", "gaps", "train")


class ProgressBar:
    """Prints to stderr; call it as `Progress` of a runtime.

    Sums that learning makes many of are counted and not drawn one by one.
    """

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.counts: dict[str, int] = {}
        self.drawn = 0.0
        self.started: dict[str, float] = {}

    def __call__(self, label, done, total):
        """Partitions `done` of `total` are summed in the stage `label`."""
        now = time.monotonic()
        if done == 0 or label not in self.started:
            self.started[label] = now
        finished = done == total
        if finished:
            self.counts[label] = self.counts.get(label, 0) + 1
        if self.terminal and (finished or now - self.drawn > REFRESH_SECONDS):
            self.drawn = now
            self._draw(label, done, total, now)
        if finished and label not in MANY:
            self._line(label, total, now)

    def _draw(self, label, done, total, now):
        if label in MANY:
            print(f"\r{label:12} evaluation {self.counts.get(label, 0)}", end="", file=sys.stderr, flush=True)
            return
        filled = "#" * (BAR * done // total)
        seconds = now - self.started[label]
        text = f"\r{label:12} [{filled:.<{BAR}}] {done}/{total}  {seconds:.1f} s"
        print(text, end="", file=sys.stderr, flush=True)

    def _line(self, label, total, now):
        seconds = now - self.started[label]
        start = "\r" if self.terminal else ""
        print(f"{start}{label:12} {total} partitions in {seconds:.1f} s{'':{BAR}}", file=sys.stderr, flush=True)

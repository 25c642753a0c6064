"""Timing: how long what took, for reports."""

import time
from contextlib import contextmanager


class StageTimer:
    """Seconds spent in named stages."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name):
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def added_to(self, earlier) -> dict[str, float]:
        """Earlier seconds by stage plus these."""
        return {n: earlier.get(n, 0.0) + self.seconds.get(n, 0.0) for n in {**earlier, **self.seconds}}

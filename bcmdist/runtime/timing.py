"""Measure the seconds that stages of the work take, for reports."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class StageTimer:
    """Accumulates the seconds spent in named stages; `with timer("stage"):` measures one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def added_to(self, earlier: Mapping[str, float]) -> dict[str, float]:
        """Return the sum of `earlier` and the measured seconds, by stage."""
        return {n: earlier.get(n, 0.0) + self.seconds.get(n, 0.0) for n in {**earlier, **self.seconds}}

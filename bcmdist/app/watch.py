"""What a coordinator sees of the work it does: progress, workers lost, partitions given up, and requests to stop."""

import collections
import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from bcmdist.app.claim import Claim, Superseded

LOOK_SECONDS = 0.5  # between looks at the journal: how long a request to cancel may wait
PROGRESS_SECONDS = 2.0  # between events about progress at least, and
PROGRESS_SHARE = 0.01  # this share of the time that has passed: some hundred events a day


class Watch:
    """Writes about a command while it runs, and interrupts it when it must stop."""

    def __init__(self, claim: Claim):
        self.claim = claim
        self.seconds: dict[str, float] = {}
        self.rows = 0
        """of the sum that is being computed"""
        self.heard: int | None = None
        """rows of the partitions that are done, where they are computed one by one"""
        self._facts: dict = {}  # of the newest progress, replaced as a whole
        self._waiting: collections.deque = collections.deque()  # other events, from other threads
        self._begun = self._last = self._written = time.monotonic()
        self._sum_begun = self._begun
        self._told: dict = {}
        self._over = threading.Event()
        self._command_thread = threading.main_thread().ident or 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def progress(self, label, done, total) -> None:
        """Partitions `done` of `total` are summed in the stage `label`."""
        now = time.monotonic()
        if done == 0:
            self._last = self._sum_begun = now
        seconds = self.seconds | {label: self.seconds.get(label, 0.0) + now - self._last}
        self.seconds, self._last = seconds, now
        passed = now - self._sum_begun
        rows = self.rows * done / total if self.heard is None else self.heard
        rate = rows / passed if rows and passed else None
        shown = {name: round(value, 3) for name, value in seconds.items()}
        self._facts = {
            "stage": label,
            "partitions_done": done,
            "partitions": total,
            "rows_per_second": rate,
            "seconds_by_stage": shown,
        }

    def tell(self, event, **facts) -> None:
        """Write an event soon."""
        self._waiting.append((event, facts))

    def flush(self) -> None:
        """Write what waits, and the newest progress."""
        while self._waiting:
            event, facts = self._waiting[0]
            self.claim.record(event, **facts)
            self._waiting.popleft()
        if self._facts != self._told:
            facts = self._facts
            self.claim.record("progress", **facts)
            self._told, self._written = facts, time.monotonic()

    def _run(self):
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except Superseded:
                break
            except OSError:  # storage that does not answer now; the last event tells if it stays so
                continue
            if self.claim.cancelled:
                break
        if not self._over.is_set():
            signal.pthread_kill(self._command_thread, signal.SIGINT)

    def _look(self):
        now = time.monotonic()
        every = max(PROGRESS_SECONDS, PROGRESS_SHARE * (now - self._begun))
        fresh = self._facts.get("stage") != self._told.get("stage")
        if self._waiting or fresh or now - self._written >= every:
            self.flush()
        else:
            self.claim.look()


class WatchedRuntime:
    """A runtime whose work is watched, with its rows."""

    def __init__(self, runtime, watch: Watch):
        self._runtime, self._watch = runtime, watch
        self.allowed_bytes, self.threads, self.progress = runtime.allowed_bytes, runtime.threads, runtime.progress

    def sum(self, task, parts, *, label) -> Any:
        """As the runtime's."""
        self._watch.rows, self._watch.heard = sum(part.rows for part in parts), None
        return self._runtime.sum(task, parts, label=label)

    def each(self, work, *, label) -> Iterator[Any]:
        """As the runtime's; a partition that was given up becomes an event."""
        self._watch.heard = 0
        with contextlib.closing(self._runtime.each(work, label=label)) as outcomes:
            for outcome in outcomes:
                if outcome.error is not None:
                    said = {"error": type(outcome.error).__name__, "message": str(outcome.error)}
                    self._watch.tell("quarantined", key=outcome.parts[0].key, **said)
                else:
                    self._watch.heard += sum(part.rows for part in outcome.parts)
                yield outcome

    def total(self, kept, *, label) -> Any:
        """As the runtime's."""
        return self._runtime.total(kept, label=label)

    def check_same(self, probe, *, url) -> None:
        """As the runtime's."""
        self._runtime.check_same(probe, url=url)

    def __enter__(self):
        self._runtime.__enter__()
        return self

    def __exit__(self, *error):
        self._runtime.__exit__(*error)

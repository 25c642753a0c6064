"""The coordinator of a job: a process on the scheduler's machine that runs a request and records events in the journal.

    python -m bcmdist.app.coordinator JOBS ID

The request runs as it would on the command line, on a Dask runtime wrapped by `WatchedRuntime`. A second thread
(`Watch`) records progress, lost workers and failed partitions, and reads what others write to the journal: a request to
cancel, or the start of a later coordinator, interrupts the work as Ctrl-C and SIGTERM do. Commits stay; futures in
flight are cancelled.

Only the newest coordinator of a job writes to its journal (`Claim`).
"""

import collections
import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

from bcmdist.api.carry_out import carry_out
from bcmdist.api.request_json import from_json
from bcmdist.api.requests import Request
from bcmdist.app.failures import described
from bcmdist.app.finite import finite
from bcmdist.app.jobs import asked_portion, asked_scheduler
from bcmdist.app.journal import STATES, Journal, open_job
from bcmdist.errors import BcmdistError, BcmdistWarning, SchedulerUnreachable, on_command_line
from bcmdist.runtime.signals import REQUESTS, interruptible


class Superseded(BaseException):
    """A later coordinator has taken over the job."""


class Claim:
    """A coordinator's right to write the journal of a job; it ends when a later coordinator starts."""

    def __init__(self, journal: Journal):
        self.journal = journal
        self.token = secrets.token_hex(8)
        self.mine = False
        self.cancelled = False

    def take(self) -> bool:
        """Record that this coordinator has started; return False if the job has ended already."""
        facts = {"host": socket.gethostname(), "pid": os.getpid(), "by": self.token}
        while True:
            self.journal.news()
            names = [e["event"] for e in self.journal.since_asked()]
            if any(STATES.get(name) in ("finished", "failed", "cancelled", "interrupted") for name in names):
                return False
            if self.journal.put("started", **facts):
                self.mine, self.cancelled = True, "cancel" in names
                return True

    def look(self) -> None:
        """Read new events by other writers and update `mine` and `cancelled`.

        Raises
        ------
        Superseded
            Another coordinator has started.
        """
        for event in self.journal.news():
            if event["event"] == "started" and event["by"] != self.token:
                self.mine = False
            self.cancelled |= event["event"] in ("cancel", "cancelled")
        if not self.mine:
            raise Superseded

    def record(self, event, **facts) -> None:
        """Write an event to the journal, unless the claim is lost.

        Raises
        ------
        Superseded
        """
        self.look()
        while not self.journal.put(event, by=self.token, **facts):
            self.look()


LOOK_SECONDS = 0.5  # between two readings of the journal; the longest delay of a request to cancel
PROGRESS_SECONDS = 2.0  # least interval between progress events; also at least
PROGRESS_SHARE = 0.01  # this share of the elapsed time, which limits a day to some hundred events


class Watch:
    """Records events of a command while it runs, and interrupts it when the job is cancelled or taken over."""

    def __init__(self, claim: Claim):
        self.claim = claim
        self.seconds: dict[str, float] = {}
        self.rows = 0
        """rows in the sum that is being computed"""
        self.absorbed: int | None = None
        """rows of the finished partitions during `Runtime.each`; None during a sum"""
        self._facts: dict = {}  # of the latest progress event; replaced as a whole, for thread safety
        self._waiting: collections.deque = collections.deque()  # other events, queued by other threads
        self._begun = self._last = self._written = time.monotonic()
        self._sum_begun = self._begun
        self._recorded: dict = {}
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
        """Record that `done` of `total` partitions are summed in the stage `label`."""
        now = time.monotonic()
        if done == 0:
            self._last = self._sum_begun = now
        seconds = self.seconds | {label: self.seconds.get(label, 0.0) + now - self._last}
        self.seconds, self._last = seconds, now
        passed = now - self._sum_begun
        rows = self.rows * done / max(total, 1) if self.absorbed is None else self.absorbed
        rate = rows / passed if rows and passed else None
        shown = {name: round(value, 3) for name, value in seconds.items()}
        self._facts = {
            "stage": label,
            "partitions_done": done,
            "partitions": total,
            "rows_per_second": rate,
            "seconds_by_stage": shown,
        }

    def report(self, event, **facts) -> None:
        """Queue an event; the watching thread writes it soon."""
        self._waiting.append((event, facts))

    def flush(self) -> None:
        """Write the queued events and the latest progress."""
        while self._waiting:
            event, facts = self._waiting[0]
            self.claim.record(event, **facts)
            self._waiting.popleft()
        if self._facts != self._recorded:
            facts = self._facts
            self.claim.record("progress", **facts)
            self._recorded, self._written = facts, time.monotonic()

    def _run(self):
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except Superseded:
                break
            except OSError:  # storage does not answer now; if it stays so, the last event of the job fails too
                continue
            if self.claim.cancelled:
                break
        if not self._over.is_set():
            signal.pthread_kill(self._command_thread, signal.SIGINT)

    def _look(self):
        now = time.monotonic()
        every = max(PROGRESS_SECONDS, PROGRESS_SHARE * (now - self._begun))
        fresh = self._facts.get("stage") != self._recorded.get("stage")
        if self._waiting or fresh or now - self._written >= every:
            self.flush()
        else:
            self.claim.look()


class WatchedRuntime:
    """A runtime that reports rows and failed partitions to a `Watch`."""

    def __init__(self, runtime, watch: Watch):
        self._runtime, self._watch = runtime, watch
        self.allowed_bytes, self.progress = runtime.allowed_bytes, runtime.progress

    @property
    def threads(self) -> int:
        """As `Runtime.threads`."""
        return self._runtime.threads

    def sum(self, task, parts, *, label) -> Any:
        """As `Runtime.sum`; sets the number of rows for the rate."""
        self._watch.rows, self._watch.absorbed = sum(part.rows for part in parts), None
        return self._runtime.sum(task, parts, label=label)

    def each(self, work, *, label) -> Iterator[Any]:
        """As `Runtime.each`; a failed partition becomes a "quarantined" event."""
        self._watch.absorbed = 0
        with contextlib.closing(self._runtime.each(work, label=label)) as outcomes:
            for outcome in outcomes:
                if outcome.error is not None:
                    failure = {"error": type(outcome.error).__name__, "message": str(outcome.error)}
                    self._watch.report("quarantined", key=outcome.parts[0].key, **failure)
                else:
                    self._watch.absorbed += sum(part.rows for part in outcome.parts)
                yield outcome

    def total(self, kept, *, label) -> Any:
        """As `Runtime.total`."""
        return self._runtime.total(kept, label=label)

    def check_same(self, probe, *, url) -> None:
        """As `Runtime.check_same`."""
        self._runtime.check_same(probe, url=url)

    def __enter__(self):
        self._runtime.__enter__()
        return self

    def __exit__(self, *error):
        self._runtime.__exit__(*error)


def on_cluster(address, watch: Watch) -> Any:
    """Return the Dask runtime of a job; waiting, allotted threads and lost workers become events."""
    from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

    portion = asked_portion(watch.claim.journal)

    def waits(words):
        watch.report("waiting", message=words)

    runtime = DaskRuntime(address, **portion.fields(), progress=watch.progress, waits=waits)
    if portion:
        watch.report("allotted", threads=runtime.threads)
    runtime.watch_workers(lambda worker: watch.report("worker lost", worker=worker))
    return runtime


def coordinate(journal: Journal, make_runtime=on_cluster) -> None:
    """Run a job and record how it ends; do nothing if it has ended or another coordinator takes it over."""
    claim = Claim(journal)
    if not claim.take():
        return
    watch = Watch(claim)
    try:
        with interruptible(*REQUESTS):
            event, facts = _outcome(claim, watch, make_runtime)
        claim.look()
        with contextlib.suppress(OSError):
            watch.flush()
        claim.record(event, **facts, seconds_by_stage={n: round(v, 3) for n, v in watch.seconds.items()})
    except Superseded:
        print("another coordinator has taken this job", flush=True)


def _outcome(claim, watch, make_runtime):
    """Run the request; return the name and the facts of the last event."""
    try:
        address = asked_scheduler(claim.journal)
        if claim.cancelled:
            return "cancelled", {}
        with watch, _warnings_as_events(watch):
            request = _request(claim.journal.request)
            figures = carry_out(request, lambda: WatchedRuntime(make_runtime(address, watch), watch))
        if claim.cancelled:  # ingestion that watches a source returns normally when interrupted
            return "cancelled", {}
        if figures.get("stopped"):
            raise KeyboardInterrupt
        return "finished", {"result": finite(figures)}
    except KeyboardInterrupt:
        if claim.cancelled:
            return "cancelled", {}
        return "interrupted", _error("Interrupted", "its coordinator was told to end", claim)
    except Exception as error:
        traceback.print_exc()
        if isinstance(error, SchedulerUnreachable) or _lost(error, claim):
            return "interrupted", _error(type(error).__name__, f"scheduler lost: {error}", claim)
        name, message = type(error).__name__, str(error)
        if isinstance(error, OSError) and not isinstance(error, BcmdistError):
            name, message = described(error)
        return "failed", {"error": name, "message": message}


def _error(name, message, claim):
    return {"error": name, "message": f"{message}: resume it by `bcmdist resume {claim.journal.id}`"}


def _lost(error, claim):
    from bcmdist.runtime.dask.scheduler import answers  # quick start

    ours = isinstance(error, BcmdistError)
    return isinstance(error, OSError) and not ours and not answers(asked_scheduler(claim.journal))


def _request(record) -> Request:
    """The request stored in a job's record."""
    return from_json(record["request"])


@contextlib.contextmanager
def _warnings_as_events(watch):
    """Context in which a `BcmdistWarning` becomes a "warning" event."""

    def report_warning(message, category, filename, lineno, file=None, line=None):
        if issubclass(category, BcmdistWarning):
            watch.report("warning", message=str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", BcmdistWarning)
        warnings.showwarning = report_warning
        yield


if __name__ == "__main__":
    with on_command_line():
        coordinate(open_job(*sys.argv[1:]))

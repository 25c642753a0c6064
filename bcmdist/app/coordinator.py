"""The coordinator of a job: a process beside the scheduler that carries out a request and tells its journal about it.

    python -m bcmdist.app.coordinator JOBS ID

The request is carried out as by the command line, with a Dask runtime that is watched. A second thread writes progress
and reads what others have written: that somebody cancels, or the claim of a later coordinator, interrupts the work as
Ctrl-C would. So does SIGTERM. What has been committed stays; futures that are in flight are cancelled.

What a coordinator sees of the work it does: progress, workers lost, partitions given up, and requests to stop.

The claim of a coordinator to a job: only the newest one writes into its journal.
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
from bcmdist.api.requests import Request, from_json
from bcmdist.app.failures import described
from bcmdist.app.finite import finite
from bcmdist.app.jobs import asked_portion, asked_scheduler
from bcmdist.app.journal import STATES, Journal, open_job
from bcmdist.errors import BcmdistError, BcmdistWarning, SchedulerUnreachable
from bcmdist.runtime.signals import REQUESTS, interruptible


class Superseded(BaseException):
    """A later coordinator has taken the job."""


class Claim:
    """A coordinator's right to a job, which ends when another one has started after it."""

    def __init__(self, journal: Journal):
        self.journal = journal
        self.token = secrets.token_hex(8)
        self.mine = False
        self.cancelled = False

    def take(self) -> bool:
        """Write that this coordinator has started; False where there is nothing to do."""
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
        """Read what others have written.

        Raises
        ------
        Superseded
        """
        for event in self.journal.news():
            if event["event"] == "started" and event["by"] != self.token:
                self.mine = False
            self.cancelled |= event["event"] in ("cancel", "cancelled")
        if not self.mine:
            raise Superseded

    def record(self, event, **facts) -> None:
        """Write an event, unless the claim is lost.

        Raises
        ------
        Superseded
        """
        self.look()
        while not self.journal.put(event, by=self.token, **facts):
            self.look()


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
        self.absorbed: int | None = None
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
        rows = self.rows * done / total if self.absorbed is None else self.absorbed
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
        self._watch.rows, self._watch.absorbed = sum(part.rows for part in parts), None
        return self._runtime.sum(task, parts, label=label)

    def each(self, work, *, label) -> Iterator[Any]:
        """As the runtime's; a partition that was given up becomes an event."""
        self._watch.absorbed = 0
        with contextlib.closing(self._runtime.each(work, label=label)) as outcomes:
            for outcome in outcomes:
                if outcome.error is not None:
                    said = {"error": type(outcome.error).__name__, "message": str(outcome.error)}
                    self._watch.tell("quarantined", key=outcome.parts[0].key, **said)
                else:
                    self._watch.absorbed += sum(part.rows for part in outcome.parts)
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


def on_cluster(address, watch: Watch) -> Any:
    """The runtime of a job."""
    from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

    portion = asked_portion(watch.claim.journal)

    def waits(words):
        watch.tell("waiting", message=words)

    runtime = DaskRuntime(address, **portion.fields(), progress=watch.progress, waits=waits)
    if portion:
        watch.tell("allotted", threads=runtime.threads)
    runtime.watch_workers(lambda worker: watch.tell("worker lost", worker=worker))
    return runtime


def coordinate(journal: Journal, make_runtime=on_cluster) -> None:
    """Run a job to its end, which the journal tells; nothing where it has ended or another coordinator takes it."""
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
    """The last event of a job, and its facts."""
    try:
        address = asked_scheduler(claim.journal)
        if claim.cancelled:
            return "cancelled", {}
        with watch, _warnings_told(watch):
            request = _request(claim.journal.request)
            figures = carry_out(request, lambda: WatchedRuntime(make_runtime(address, watch), watch))
        if claim.cancelled:  # who watches a source ends well when told to
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
    """What a job is to do."""
    return from_json(record["request"])


@contextlib.contextmanager
def _warnings_told(watch):
    """What the command line prints as a warning becomes an event."""

    def tell(message, category, filename, lineno, file=None, line=None):
        if issubclass(category, BcmdistWarning):
            watch.tell("warning", message=str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", BcmdistWarning)
        warnings.showwarning = tell
        yield


if __name__ == "__main__":
    coordinate(open_job(*sys.argv[1:]))
